//! Where the machine is read from.

use std::path::Path;

use hcomm_cli::{Failure, Result};
use hcomm_topology::graph::Graph;
use hcomm_topology::{Machine, Root};

/// A machine, and where it was read.
pub struct Source {
    pub machine: Machine,
    pub graph: Graph,
    /// For people: `this machine`, a file, a folder.
    pub name: String,
    /// Sentence that says where accelerators were looked for.
    pub looked: String,
}

impl Source {
    /// Reads a topology file, a folder, or (with neither) this machine.
    ///
    /// # Errors
    /// The file is none or not well formed, or the folder is none: bad arguments.
    pub fn read(file: Option<&Path>, sysroot: Option<&Path>) -> Result<Source> {
        if let Some(file) = file {
            let machine = Machine::from_file(file).map_err(|error| {
                Failure::usage(
                    format!("--from {error}"),
                    "give a topology file: NCCL's (NCCL_TOPO_DUMP_FILE, hcc-smi --xml) or hwloc's (lstopo --of xml)",
                )
            })?;
            let name = file.display().to_string();
            let looked = format!("{name} names {} PCI functions", machine.pci.len());
            return Ok(Source::of(machine, name, looked));
        }
        let (root, name) = match sysroot {
            Some(folder) => (root(folder)?, folder.display().to_string()),
            None => (Root::this_machine(), "this machine".to_owned()),
        };
        let machine = Machine::discover(&root);
        let mut looked = match machine.pci.len() {
            0 => format!("there are no PCI functions in {}", root.folder().join("sys/bus/pci/devices").display()),
            1 => "1 PCI function was looked at".to_owned(),
            n => format!("{n} PCI functions were looked at"),
        };
        if root.is_this_machine() {
            looked += "; the libraries and tools of NVIDIA (NVML) and Huawei (npu-smi) name none";
        }
        Ok(Source::of(machine, name, looked))
    }

    fn of(machine: Machine, name: String, looked: String) -> Source {
        Source { graph: Graph::of(&machine), machine, name, looked }
    }
}

/// A folder for `--sysroot`. An empty one is a machine of which nothing is known.
fn root(folder: &Path) -> Result<Root> {
    let refuse = |what: &str| {
        let text = format!("--sysroot {}: {what}", folder.display());
        Err(Failure::usage(text, "give the folder that holds the other machine's sys and proc"))
    };
    match std::fs::metadata(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => refuse("there is no such folder"),
        Err(error) => refuse(&error.to_string()),
        Ok(meta) if !meta.is_dir() => refuse("this is a file and no folder"),
        Ok(_) => match std::fs::read_dir(folder) {
            Err(error) => refuse(&error.to_string()),
            Ok(_) => Ok(Root::at(folder)),
        },
    }
}
