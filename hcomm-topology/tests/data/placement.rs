//! Where ranks go on real machines. The places were worked out by hand from the numbers in the trees.

use hcomm_topology::{CpuSet, Cpus, place_ranks, read_cpus, read_numa};

use crate::support::{Machine, Tally, machines};

/// Machine, ranks, their places (none: not bound).
const PLACES: &[(&str, usize, &str)] = &[
    // Two packages of two nodes of 10 cores of two threads: nodes 0 and 2 are package 0, and hold processors n, n + 4, ...
    ("hwloc-sysfs/memorysidecaches", 1, ""),
    ("hwloc-sysfs/memorysidecaches", 2, "0 2"),
    ("hwloc-sysfs/memorysidecaches", 8, "0 4 2 6 1 5 3 7"),
    ("hwloc-sysfs/memorysidecaches", 81, ""),
    // Numbers start at 8 and have a gap; a core has four.
    ("rebuilt-sysfs/power9-4v100", 2, "8 96"),
    ("rebuilt-sysfs/power9-4v100", 6, "8 12 16 96 100 104"),
    // Allowed are 0-6 and 12-15, of which 4 is off line: nodes 2 and 3 have one each.
    ("hwloc-sysfs/16amd64-8n2c-cpusets", 6, "0 2 5 6 12 14"),
    ("hwloc-sysfs/16amd64-8n2c-cpusets", 8, "0 1 2 3 5 6 12 14"),
    ("hwloc-sysfs/16amd64-8n2c-cpusets", 10, "0 1 2 3 5 6 12 13 14 15"),
    ("hwloc-sysfs/16amd64-8n2c-cpusets", 11, ""),
    // Allowed are 0-5: node 0 has four of them, node 1 two.
    ("hwloc-sysfs/32amd64-4s2n4c-cgroup2", 4, "0 1 4 5"),
    ("hwloc-sysfs/32amd64-4s2n4c-cgroup2", 5, "0 1 2 4 5"),
    ("hwloc-sysfs/32amd64-4s2n4c-cgroup2", 7, ""),
    // Two packages of 6 cores of 2 threads, even and odd.
    ("ghw-snapshots/linux-amd64-8581cf3a529e5d8b97ea876eade2f60d", 4, "0 2 1 3"),
    ("ghw-snapshots/linux-amd64-8581cf3a529e5d8b97ea876eade2f60d", 14, "0 2 4 6 8 10 12 1 3 5 7 9 11 13"),
    // Eight nodes that all claim all processors, and none at all: as one node.
    ("hwloc-sysfs/8em64t-2s2ca2c-buggynuma", 3, "0 1 2"),
    ("hwloc-sysfs/2arm-2c", 2, "0 1"),
    // Processors that are off line are left out.
    ("ghw-snapshots/linux-amd64-offlineCPUs", 2, "0 1"),
    ("ghw-snapshots/linux-amd64-offlineCPUs", 3, ""),
];

#[test]
fn ranks_on_real_machines() {
    let mut tally = Tally::new("placement");
    for folder in ["hwloc-sysfs", "ghw-snapshots", "lscpu-dumps", "rebuilt-sysfs"] {
        for Machine { name, root, .. } in machines(folder) {
            let cpus = read_cpus(&root, &read_numa(&root, &mut Vec::new()));
            for (_, ranks, places) in PLACES.iter().filter(|(machine, ..)| *machine == name) {
                let words: Vec<String> =
                    place_ranks(&cpus, *ranks, 0).unwrap_or_default().iter().map(u32::to_string).collect();
                tally.equal(&name, &format!("{ranks} ranks"), words.join(" "), *places);
            }
            on_any_machine(&mut tally, &name, &cpus);
        }
    }
}

/// As many ranks as there are cores: each has one.
fn on_any_machine(tally: &mut Tally, name: &str, cpus: &Cpus) {
    let usable = cpus.allowed.as_ref().map_or(cpus.online.clone(), |allowed| allowed.and(&cpus.online));
    let cores: Vec<CpuSet> =
        cpus.cores.iter().map(|core| core.cpus.and(&usable)).filter(|core| !core.is_empty()).collect();
    if cores.len() > 1 {
        let places: CpuSet = place_ranks(cpus, cores.len(), 0).unwrap_or_default().into_iter().collect();
        let each = cores.iter().all(|core| core.and(&places).len() == 1);
        tally.equal(name, "a rank on each core", each, true);
    }
}
