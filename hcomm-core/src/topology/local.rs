//! Which memory this rank, and each network interface, is next to: as `HCOMM_TOPO_FILE` says where it is set, else as the system does.

use std::path::Path;

use hcomm_topology::{CpuSet, Machine, NumaNode, Root, numa_node_of, read_numa};

use super::cpus::Cpus;
use crate::error::{Error, Result};

/// Facts of the machine that this process runs on.
pub struct Local {
    /// From the file; `None` asks the system.
    machine: Option<Machine>,
    numa: Vec<NumaNode>,
    root: Root,
}

impl Local {
    /// Reads the file, if one is set.
    ///
    /// # Errors
    /// It cannot be read or is no topology; the text names it, the line and what was expected.
    pub fn new(file: Option<&Path>) -> Result<Local> {
        let machine = file.map(|path| {
            Machine::from_file(path).map_err(|error| Error::Setting {
                name: "HCOMM_TOPO_FILE".into(),
                value: path.display().to_string(),
                allowed: format!("NCCL's or hwloc's XML; {error}"),
            })
        });
        let (machine, root) = (machine.transpose()?, Root::this_machine());
        let numa = machine.as_ref().map_or_else(|| read_numa(&root, &mut Vec::new()), |machine| machine.numa.clone());
        Ok(Local { machine, numa, root })
    }

    /// The NUMA node that has all processors of this rank; `None` where they are on several, or no node is known.
    pub fn numa_node(&self, cpus: &Cpus) -> Option<u32> {
        let own: CpuSet = cpus.allowed.iter().filter_map(|cpu| u32::try_from(*cpu).ok()).collect();
        numa_node_of(&self.numa, &own)
    }

    /// The NUMA node that an interface is next to, if it is known.
    pub fn numa_node_of_interface(&self, name: &str) -> Option<u32> {
        let Some(machine) = &self.machine else {
            return self.root.number(format!("sys/class/net/{name}/device/numa_node"));
        };
        let nic = machine.nics.iter().find(|nic| nic.name == name).and_then(|nic| nic.numa_node);
        let port = || machine.rdma.iter().find(|port| port.interfaces.iter().any(|own| own == name))?.numa_node;
        nic.or_else(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> Result<Local> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Local::new(Some(file.path()))
    }

    #[test]
    fn the_file_says_what_is_next_to_what() {
        let node = |id, mask, net| {
            let nic = format!("<nic><net name=\"{net}\" port=\"0\"/></nic>");
            format!("<cpu numaid=\"{id}\" affinity=\"{mask}\">{nic}</cpu>")
        };
        let text =
            format!("<system version=\"1\">{}{}</system>", node(0, "0000000f", "eth0"), node(3, "000000f0", "eth1"));
        let local = local(&text).unwrap();
        let numa = |allowed: &[usize]| local.numa_node(&Cpus { allowed: allowed.to_vec(), quota: None });
        assert_eq!((numa(&[5, 6]), numa(&[0]), numa(&[3, 4]), numa(&[9])), (Some(3), Some(0), None, None));
        let nodes = ["eth0", "eth1", "eth2"].map(|name| local.numa_node_of_interface(name));
        assert_eq!(nodes, [Some(0), Some(3), None]);
    }

    #[test]
    fn a_bad_file_is_named_with_line_and_what_was_expected() {
        let error = local("<system version=\"1\">\n<cpu/></system>").err().unwrap().to_string();
        assert!(error.starts_with("HCOMM_TOPO_FILE=") && error.contains(":2: expected numaid="), "{error}");
        let error = Local::new(Some(Path::new("/nowhere/topo.xml"))).err().unwrap().to_string();
        assert!(error.contains("/nowhere/topo.xml") && error.contains("cannot be opened"), "{error}");
        assert!(Local::new(None).is_ok());
    }
}
