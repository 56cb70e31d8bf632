//! Processors and memory.

use std::collections::BTreeSet;

use hcomm_topology::{Cache, CacheKind, CpuSet, Cpus, NumaNode, read_cpus, read_numa};
use serde_json::Value;

use crate::support::{Machine, Tally, machines};

/// `lstopo` drops a package and its cache here, because the groups that it makes of PCI localities cut through them; its message
/// says so, and the tree has four.
const LSTOPO_DROPS_A_PACKAGE: &str = "hwloc-sysfs/40intel64-4n10c+pci-conflicts";
/// `lstopo` takes nodes that all claim the same processors for one.
const LSTOPO_MERGES_NODES: &str = "hwloc-sysfs/8em64t-2s2ca2c-buggynuma";

#[test]
fn processors_and_memory() {
    let mut tally = Tally::new("cpus");
    for folder in ["hwloc-sysfs", "ghw-snapshots", "lscpu-dumps", "rebuilt-sysfs"] {
        for machine in machines(folder) {
            let mut notes = Vec::new();
            let numa = read_numa(&machine.root, &mut notes);
            let cpus = read_cpus(&machine.root, &numa);
            sysfs(&mut tally, &machine, &cpus);
            nodes(&mut tally, &machine, &numa);
            lstopo(&mut tally, &machine, &cpus, &numa);
            lscpu(&mut tally, &machine, &cpus, &numa);
            consistent(&mut tally, &machine, &cpus);
        }
    }
}

/// What the people who gathered the trees read in them.
fn sysfs(tally: &mut Tally, machine: &Machine, cpus: &Cpus) {
    let Machine { name, expected, .. } = machine;
    let number = |key: &str| expected[key].as_u64().map(|number| number as usize);
    if let Some(dirs) = number("cpu_dirs") {
        tally.equal(name, "threads", cpus.threads.len(), dirs);
    }
    for (key, set) in [("cpu_online", &cpus.online), ("cpu_present", &cpus.present)] {
        if let Some(list) = expected[key].as_str() {
            tally.equal(name, key, set.to_string(), list);
        }
    }
    if let Some(cores) = number("cores_from_thread_siblings") {
        tally.equal(name, "cores", cpus.cores.len(), cores);
    }
    if let Some(packages) = number("packages_from_sysfs") {
        let ids: BTreeSet<Option<u32>> = cpus.packages.iter().map(|package| package.id).collect();
        tally.equal(name, "numbers of packages", ids.len(), packages);
    }
}

fn nodes(tally: &mut Tally, machine: &Machine, numa: &[NumaNode]) {
    let Machine { name, expected, .. } = machine;
    let Some(nodes) = expected["numa_nodes"].as_object() else { return };
    let mut ids: Vec<u32> = nodes.keys().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    tally.equal(name, "NUMA nodes", numa.iter().map(|node| node.id).collect::<Vec<_>>(), ids.clone());
    for node in numa {
        let expected = &nodes[&node.id.to_string()];
        let what = |what: &str| format!("node {} {what}", node.id);
        let list = expected["cpulist"].as_str().and_then(CpuSet::parse_list);
        let mask = expected["cpumap"].as_str().and_then(CpuSet::parse_mask);
        // The dumps of lscpu have one text, which is a list only where it looks like one.
        let short = expected.as_str().and_then(|text| match text.contains('-') {
            true => CpuSet::parse_list(text),
            false => CpuSet::parse_mask(text),
        });
        let sets: Vec<CpuSet> = [list, mask, short].into_iter().flatten().collect();
        let together = sets.iter().fold(CpuSet::default(), |all, set| all.or(set));
        tally.equal(
            name,
            &what("processors"),
            node.cpus.as_ref().map(CpuSet::to_string),
            (!sets.is_empty()).then(|| together.to_string()),
        );
        if let Some(row) = expected["distance"].as_str() {
            let row: Vec<u32> = row.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let expected: Vec<(u32, u32)> = ids.iter().copied().zip(row).collect();
            tally.equal(name, &what("distances"), node.distances.clone().into_iter().collect::<Vec<_>>(), expected);
        }
        if expected.is_object() {
            let bytes = expected["mem_total_kb"].as_u64().map(|kibibytes| kibibytes * 1024);
            tally.equal(name, &what("memory"), node.memory_bytes, bytes);
        }
    }
}

/// What `lstopo` shows: only what may be used and is on line.
fn lstopo(tally: &mut Tally, machine: &Machine, cpus: &Cpus, numa: &[NumaNode]) {
    let Machine { name, expected, .. } = machine;
    let places = [&expected["lstopo"]["counts"], &expected["lstopo_counts"], &expected["lstopo_2_9_on_the_tree"]];
    let Some(counts) = places.into_iter().find(|counts| counts["PU"].is_u64()) else { return };
    let count = |key: &str| counts[key].as_u64().map_or(0, |count| count as usize);
    let usable = cpus.allowed.as_ref().map_or(cpus.online.clone(), |allowed| allowed.and(&cpus.online));
    let allowed =
        |node: &&NumaNode| node.allowed == Some(true) && node.cpus.as_ref().is_some_and(|cpus| !cpus.is_empty());
    // A package whose processors are all forbidden stays where it holds a memory node that is allowed.
    let holds_node = |set: &CpuSet| {
        numa.iter().filter(allowed).any(|node| node.cpus.as_ref().is_some_and(|cpus| cpus.is_subset(set)))
    };
    let in_use = |set: &CpuSet| !set.and(&usable).is_empty() || holds_node(set);

    tally.equal(name, "lstopo: PU", usable.len(), count("PU"));
    // Where it disagrees with the kernel's siblings (AMD's modules of two cores), the kernel counts.
    let siblings = expected["cores_from_thread_siblings"].as_u64().map(|cores| cores as usize);
    if cpus.allowed.is_some() || siblings.is_none_or(|cores| cores == count("Core")) {
        tally.equal(name, "lstopo: Core", cpus.cores.iter().filter(|core| in_use(&core.cpus)).count(), count("Core"));
    }
    if name != LSTOPO_MERGES_NODES {
        let with_memory = |node: &&NumaNode| node.memory_bytes != Some(0) && node.allowed != Some(false);
        tally.equal(name, "lstopo: NUMANode", numa.iter().filter(with_memory).count().max(1), count("NUMANode"));
    }
    if name != LSTOPO_DROPS_A_PACKAGE {
        let packages = cpus.packages.iter().filter(|package| in_use(&package.cpus)).count();
        tally.equal(name, "lstopo: Package", packages, count("Package"));
    }
    let caches = |level: u8, instructions: bool| {
        let kind = |cache: &&Cache| cache.level == level && (cache.kind == CacheKind::Instruction) == instructions;
        cpus.caches.iter().filter(kind).filter(|cache| in_use(&cache.cpus)).count()
    };
    for level in 1..=5 {
        if name != LSTOPO_DROPS_A_PACKAGE || level != 3 {
            tally.equal(name, &format!("lstopo: L{level}"), caches(level, false), count(&format!("L{level}Cache")));
        }
        tally.equal(name, &format!("lstopo: L{level}i"), caches(level, true), count(&format!("L{level}iCache")));
    }
}

/// What `lscpu` says.
fn lscpu(tally: &mut Tally, machine: &Machine, cpus: &Cpus, numa: &[NumaNode]) {
    let Machine { name, expected, .. } = machine;
    let Some(says) = expected["lscpu_says"].as_object() else { return };
    let text = |key: &str| says.get(key).and_then(Value::as_str);
    let number = |key: &str| text(key).and_then(|text| text.parse::<usize>().ok());

    tally.equal(name, "lscpu: CPU(s)", Some(cpus.present.len()), number("CPU(s)"));
    let online = text("On-line CPU(s) list").and_then(CpuSet::parse_list);
    tally.equal(name, "lscpu: on line", Some(&cpus.online), online.as_ref());
    tally.equal(name, "lscpu: model", cpus.model.as_deref().unwrap_or("-"), text("Model name").unwrap_or("-"));
    if let Some(vendor) = text("Vendor ID") {
        tally.equal(name, "lscpu: vendor", cpus.vendor.as_deref(), Some(vendor));
    }
    // Its figures are of one type of processor, and of books that may hold more than one sees.
    let per = ["Thread(s) per core", "Core(s) per socket"].map(|key| number(key).unwrap_or(1));
    let boxes = ["Socket(s)", "Socket(s) per book", "Book(s) per drawer", "Drawer(s)"];
    let sockets: usize = boxes.iter().filter_map(|key| number(key)).product();
    if per[0] * per[1] * sockets == cpus.present.len() {
        tally.equal(name, "lscpu: sockets", cpus.packages.len(), sockets);
        tally.equal(name, "lscpu: cores", cpus.cores.len(), per[1] * sockets);
    }
    if let Some(nodes) = number("NUMA node(s)") {
        tally.equal(name, "lscpu: NUMA nodes", numa.len(), nodes);
    }
    let kinds = [("", CacheKind::Unified), ("d", CacheKind::Data), ("i", CacheKind::Instruction)];
    for (level, (letter, kind)) in (1..=4_u8).flat_map(|level| kinds.map(|kind| (level, kind))) {
        let caches: Vec<&Cache> =
            cpus.caches.iter().filter(|cache| cache.level == level && cache.kind == kind).collect();
        // Of caches without a size it says nothing, and s390 and SPARC keep some that have no sharers told elsewhere.
        let Some(said) = text(&format!("L{level}{letter} cache")) else { continue };
        if !caches.is_empty() {
            let bytes: u64 = caches.iter().filter_map(|cache| cache.bytes).sum();
            tally.equal(name, &format!("lscpu: L{level}{letter}"), (bytes, caches.len()), total(said).unwrap());
        }
    }
}

/// `1.5 MiB (48 instances)`.
fn total(text: &str) -> Option<(u64, usize)> {
    let (size, instances) = text.split_once(" (")?;
    let (number, unit) = size.split_once(' ')?;
    let unit = match unit {
        "KiB" => 1_u64 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    Some((bytes as u64, instances.split_whitespace().next()?.parse().ok()?))
}

/// What must hold on any machine.
fn consistent(tally: &mut Tally, machine: &Machine, cpus: &Cpus) {
    let in_core = |thread: &hcomm_topology::Thread| {
        thread.core.is_none_or(|core| cpus.cores.get(core).is_some_and(|core| core.cpus.contains(thread.id)))
    };
    tally.equal(&machine.name, "threads are in their cores", cpus.threads.iter().all(in_core), true);
    let in_package = |core: &hcomm_topology::Core| {
        core.package.is_none_or(|at| cpus.packages.get(at).is_some_and(|package| core.cpus.is_subset(&package.cpus)))
    };
    tally.equal(&machine.name, "cores are in their packages", cpus.cores.iter().all(in_package), true);
    let placed = cpus.cores.iter().all(|core| core.package.is_some()) || cpus.packages.is_empty();
    tally.equal(&machine.name, "cores have a package", placed, true);
}
