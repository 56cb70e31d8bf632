//! A whole machine, put together.

use crate::{Accelerator, Machine, Root, accelerators, net, numa_node_of, read_cpus, read_numa, read_pci};

impl Machine {
    /// Reads all that is known of the machine below `root`. Never fails: what cannot be read is unknown.
    pub fn discover(root: &Root) -> Machine {
        let mut notes = Vec::new();
        let numa = read_numa(root, &mut notes);
        let mut pci = read_pci(root);
        let mut found = accelerators::find(root, &pci);
        notes.append(&mut found.notes);
        for function in &mut pci {
            let told = found.cpus.remove(&function.address);
            function.local_cpus = function.local_cpus.take().or(told);
        }
        // Where the system does not name a device's node, the processors next to it may tell. On a machine of one node that says nothing
        // new, and "all processors" narrows nothing.
        let untold = |accelerator: &&mut Accelerator| numa.len() > 1 && accelerator.numa_node.is_none();
        for accelerator in found.accelerators.iter_mut().filter(untold) {
            let at = accelerator.id.pci.and_then(|address| pci.binary_search_by_key(&address, |f| f.address).ok());
            accelerator.numa_node = at.and_then(|at| numa_node_of(&numa, pci[at].local_cpus.as_ref()?));
        }
        Machine {
            hostname: hostname(root),
            arch: arch(root),
            cpus: read_cpus(root, &numa),
            numa,
            pci,
            accelerators: found.accelerators,
            links: found.links,
            nics: net::read_nics(root),
            rdma: net::read_rdma(root),
            notes,
        }
    }
}

/// The name that the kernel knows, else the one that it is told at start-up.
fn hostname(root: &Root) -> Option<String> {
    let named = |path| root.text(path).filter(|name| !name.is_empty() && name != "(none)");
    named("proc/sys/kernel/hostname").or_else(|| named("etc/hostname"))
}

/// What `uname -m` says: a file since Linux 6.1, a system call before.
fn arch(root: &Root) -> Option<String> {
    let told = || root.text("proc/sys/kernel/arch").filter(|arch| !arch.is_empty());
    let asked = || nix::sys::utsname::uname().ok()?.machine().to_str().map(str::to_owned);
    told().or_else(|| if root.is_this_machine() { asked() } else { None })
}
