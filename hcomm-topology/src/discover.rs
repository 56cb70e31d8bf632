//! A whole machine, put together.

use crate::{Machine, Root, read_cpus, read_numa, read_pci};

impl Machine {
    /// Reads all that is known of the machine below `root`. Never fails: what cannot be read is unknown.
    pub fn discover(root: &Root) -> Machine {
        let mut notes = Vec::new();
        let numa = read_numa(root, &mut notes);
        Machine {
            hostname: hostname(root),
            arch: arch(root),
            cpus: read_cpus(root, &numa),
            numa,
            pci: read_pci(root),
            notes,
            ..Machine::default()
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
