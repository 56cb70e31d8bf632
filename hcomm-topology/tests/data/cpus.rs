//! Processors and memory.

use crate::support::{Tally, machines};

#[test]
fn processors_and_memory() {
    let mut tally = Tally::new("cpus");
    for folder in ["hwloc-sysfs", "ghw-snapshots", "lscpu-dumps", "rebuilt-sysfs"] {
        for machine in machines(folder) {
            tally.equal(&machine.name, "has a tree", machine.root.is_folder("sys"), machine.expected.is_object());
        }
    }
}
