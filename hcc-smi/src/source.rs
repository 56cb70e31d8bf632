//! Where the machine is read from.

use std::path::Path;

use hcomm_cli::values::check_sysroot;
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
            let looked = format!("{name} names {}", functions(machine.pci.len()));
            return Ok(Source::of(machine, name, looked));
        }
        let (root, name) = match sysroot {
            Some(folder) => {
                check_sysroot("--sysroot", folder)?;
                (Root::at(folder), folder.display().to_string())
            }
            None => (Root::this_machine(), "this machine".to_owned()),
        };
        let machine = Machine::discover(&root);
        let folder = "sys/bus/pci/devices";
        let mut looked = match (machine.pci.len(), root.unreadable(folder)) {
            (0, Some(why)) => why,
            (0, None) => format!("there are no PCI functions in {}", root.folder().join(folder).display()),
            (1, _) => "1 PCI function was looked at".to_owned(),
            (n, _) => format!("{} were looked at", functions(n)),
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

fn functions(count: usize) -> String {
    if count == 1 { "1 PCI function".to_owned() } else { format!("{count} PCI functions") }
}
