//! Processors: threads, cores, packages and caches, from `/sys/devices/system/cpu` (kernel: `Documentation/admin-guide/cputopology.rst`,
//! `Documentation/ABI/testing/sysfs-devices-system-cpu`), and the model name from `/proc/cpuinfo`.

mod caches;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use model::Model;

use crate::limits::read_limits;
use crate::{Core, CpuSet, Cpus, NumaNode, Package, Root, Thread};

const FOLDER: &str = "sys/devices/system/cpu";

/// Reads the processors below `root`. `numa` tells which node each is on, as [`read_numa`](crate::read_numa) gives it.
pub fn read_cpus(root: &Root, numa: &[NumaNode]) -> Cpus {
    let folders: CpuSet = root.list(FOLDER).iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    let list = |name: &str| CpuSet::parse_list(&root.text(format!("{FOLDER}/{name}"))?).filter(|set| !set.is_empty());
    let present = list("present").unwrap_or_else(|| folders.clone());
    // Some architectures have folders also for processors that could be plugged in.
    let known = folders.and(&present);
    let online = list("online").unwrap_or_else(|| known.iter().filter(|cpu| is_online(root, *cpu)).collect());

    let mut cores: Vec<Core> =
        partition(&known, |cpu| core_of(root, cpu)).into_iter().map(|cpus| Core { cpus, package: None }).collect();
    let packages = packages(root, &known);
    for core in &mut cores {
        core.package = packages.iter().position(|package| core.cpus.is_subset(&package.cpus));
    }
    let core_index = index(cores.iter().map(|core| &core.cpus));
    let node_of = nodes(root, &known, numa);
    let threads = known.iter().map(|id| Thread {
        id,
        online: online.contains(id),
        core: core_index.get(&id).copied(),
        numa_node: node_of.get(&id).copied(),
    });
    let limits = read_limits(root);
    let model = root.text("proc/cpuinfo").map(|text| Model::of(&text)).unwrap_or_default();
    Cpus {
        model: model.name,
        vendor: model.vendor,
        family: model.family,
        model_number: model.number,
        threads: threads.collect(),
        caches: caches::read(root, &known),
        present,
        online,
        allowed: limits.cpus,
        quota: limits.quota,
        packages,
        cores,
    }
}

fn is_online(root: &Root, cpu: u32) -> bool {
    // Processors that cannot be taken off line have no such file.
    root.number::<u32>(format!("{FOLDER}/cpu{cpu}/online")) != Some(0)
}

/// The set in the first of some files below the processor's `topology` folder that holds one: a list, or a mask of the same name
/// as old kernels have it.
fn siblings(root: &Root, cpu: u32, names: [&str; 4]) -> Option<CpuSet> {
    let [new_list, old_list, new_mask, old_mask] =
        names.map(|name| root.text(format!("{FOLDER}/cpu{cpu}/topology/{name}")));
    let list = |text: Option<String>| CpuSet::parse_list(&text?);
    let mask = |text: Option<String>| CpuSet::parse_mask(&text?);
    let filled = |set: Option<CpuSet>| set.filter(|set| !set.is_empty());
    filled(list(new_list)).or(filled(list(old_list))).or(filled(mask(new_mask))).or(filled(mask(old_mask)))
}

fn core_of(root: &Root, cpu: u32) -> Option<CpuSet> {
    siblings(root, cpu, ["core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings"])
}

/// Packages by the kernel's sets of siblings, because numbers can be missing (-1 on s390, ARM and POWER) or the same for several
/// packages; by number where there are no sets.
fn packages(root: &Root, known: &CpuSet) -> Vec<Package> {
    let id = |cpu: u32| root.number::<u32>(format!("{FOLDER}/cpu{cpu}/topology/physical_package_id"));
    let names = ["package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"];
    let mut sets = partition(known, |cpu| siblings(root, cpu, names));
    if sets.is_empty() {
        let mut by_id: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in known.iter() {
            if let Some(id) = id(cpu) {
                by_id.entry(id).or_default().push(cpu);
            }
        }
        sets = by_id.into_values().map(|cpus| cpus.into_iter().collect()).collect();
    }
    let package = |cpus: CpuSet| {
        let id = cpus.iter().find_map(id);
        Package { id, cpus }
    };
    sets.into_iter().map(package).collect()
}

/// Parts of `known` that are disjoint, whatever the source says: a processor belongs to the first part that claims it. Only one
/// processor of a part is asked. Those that are in no part are left out.
fn partition(known: &CpuSet, part_of: impl Fn(u32) -> Option<CpuSet>) -> Vec<CpuSet> {
    let mut left: BTreeSet<u32> = known.iter().collect();
    let mut parts = Vec::new();
    for cpu in known.iter() {
        if !left.contains(&cpu) {
            continue;
        }
        let Some(claimed) = part_of(cpu) else { continue };
        let part: CpuSet = left.iter().copied().filter(|other| *other == cpu || claimed.contains(*other)).collect();
        left.retain(|other| !part.contains(*other));
        parts.push(part);
    }
    parts
}

/// From each number to the first set that has it.
fn index<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> BTreeMap<u32, usize> {
    let mut index = BTreeMap::new();
    for (number, set) in sets.enumerate() {
        for cpu in set.iter() {
            index.entry(cpu).or_insert(number);
        }
    }
    index
}

/// The node of each processor that is on exactly one. Emulated nodes (`numa=fake`) each claim all processors: then nobody knows.
fn nodes(root: &Root, known: &CpuSet, numa: &[NumaNode]) -> BTreeMap<u32, u32> {
    let node = |cpu: u32| {
        let mut claims =
            numa.iter().filter(|node| node.cpus.as_ref().is_some_and(|cpus| cpus.contains(cpu))).map(|node| node.id);
        match (claims.next(), claims.next()) {
            (Some(only), None) => Some(only),
            (Some(_), Some(_)) => None,
            // Not in the nodes' own sets, as those off line: by the link in the processor's folder.
            (None, _) => linked_node(root, cpu),
        }
    };
    known.iter().filter_map(|cpu| Some((cpu, node(cpu)?))).collect()
}

fn linked_node(root: &Root, cpu: u32) -> Option<u32> {
    let names = root.list(format!("{FOLDER}/cpu{cpu}"));
    names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_whatever_the_source_says() {
        let set = |text: &str| CpuSet::parse_list(text).unwrap();
        let parts = |claims: &[(u32, &str)]| {
            let claim = |cpu| claims.iter().find(|(of, _)| *of == cpu).map(|(_, text)| set(text));
            partition(&set("0-3"), claim).iter().map(CpuSet::to_string).collect::<Vec<_>>()
        };
        assert_eq!(parts(&[(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")]), ["0,2", "1,3"]);
        assert_eq!(parts(&[(0, "0-2"), (1, "1-3"), (3, "1-3")]), ["0-2", "3"], "overlapping");
        assert_eq!(parts(&[(1, "2"), (3, "3-9")]), ["1-2", "3"], "without itself; with processors that are not there");
        assert_eq!(parts(&[]), [""; 0]);
    }
}
