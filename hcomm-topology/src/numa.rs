//! NUMA nodes, from `/sys/devices/system/node` (`Documentation/ABI/stable/sysfs-devices-node`).

use crate::limits::read_limits;
use crate::{CpuSet, NumaNode, Root};

const FOLDER: &str = "sys/devices/system/node";

/// Reads the NUMA nodes below `root`, ascending by number; empty for a kernel without NUMA, where all is one node. `notes` gets a
/// sentence for each contradiction.
pub fn read_numa(root: &Root, notes: &mut Vec<String>) -> Vec<NumaNode> {
    let ids: CpuSet = root.list(FOLDER).iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    let allowed = read_limits(root).memory_nodes;
    let nodes: Vec<NumaNode> = ids
        .iter()
        .map(|id| {
            let folder = format!("{FOLDER}/node{id}");
            NumaNode {
                id,
                cpus: cpus(root, &folder),
                memory_bytes: memory_bytes(root, &folder),
                distances: distances(root, &folder, &ids, notes),
                allowed: allowed.as_ref().map(|allowed| allowed.contains(id)),
            }
        })
        .collect();
    let mut seen = CpuSet::default();
    for node in &nodes {
        let Some(cpus) = &node.cpus else { continue };
        let twice = seen.and(cpus);
        if !twice.is_empty() {
            notes.push(format!("NUMA node {} has processors {twice}, which other nodes have as well", node.id));
        }
        seen = seen.or(cpus);
    }
    nodes
}

/// The one of these nodes that has all of `cpus`; `None` where they are on several, or where several nodes claim them.
pub fn numa_node_of(nodes: &[NumaNode], cpus: &CpuSet) -> Option<u32> {
    let mut holding = nodes.iter().filter(|node| node.holds(cpus));
    let first = holding.next()?;
    holding.next().is_none().then_some(first.id)
}

/// From the list and the mask together: some kernels leave processors that are off line out of one of them.
fn cpus(root: &Root, folder: &str) -> Option<CpuSet> {
    let list = root.text(format!("{folder}/cpulist")).and_then(|text| CpuSet::parse_list(&text));
    let mask = root.text(format!("{folder}/cpumap")).and_then(|text| CpuSet::parse_mask(&text));
    list.into_iter().chain(mask).reduce(|one, other| one.or(&other))
}

/// `Node 0 MemTotal:       16775084 kB`.
fn memory_bytes(root: &Root, folder: &str) -> Option<u64> {
    let text = root.text(format!("{folder}/meminfo"))?;
    let (_, rest) = text.split_once("MemTotal:")?;
    let mut words = rest.split_whitespace();
    let kibibytes: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then(|| kibibytes.checked_mul(1024)).flatten()
}

/// A row has one entry for each node that is on line, in ascending order (`node_read_distance` in the kernel's
/// `drivers/base/node.c`). A row of another length cannot be told apart, and counts as none.
fn distances(root: &Root, folder: &str, ids: &CpuSet, notes: &mut Vec<String>) -> std::collections::BTreeMap<u32, u32> {
    let Some(text) = root.text(format!("{folder}/distance")) else { return Default::default() };
    let row: Option<Vec<u32>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let row = row.unwrap_or_default();
    if row.len() == ids.len() {
        return ids.iter().zip(row).collect();
    }
    notes.push(format!("{folder}/distance has {} entries for {} nodes", row.len(), ids.len()));
    Default::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u32, cpus: &str) -> NumaNode {
        let cpus = CpuSet::parse_list(cpus);
        NumaNode { id, cpus, memory_bytes: None, distances: Default::default(), allowed: None }
    }

    #[test]
    fn processors_tell_the_node() {
        let two = [node(0, "0-3"), node(8, "4-7")];
        let of = |cpus: &str, nodes: &[NumaNode]| numa_node_of(nodes, &CpuSet::parse_list(cpus).unwrap());
        assert_eq!((of("4-5", &two), of("0-7", &two), of("", &two)), (Some(8), None, None));
        assert_eq!(of("0-3", &[node(0, "0-3"), node(1, "0-3")]), None, "nodes that contradict each other");
        assert_eq!(of("0", &[node(0, "not told"), node(1, "")]), None);
    }

    #[test]
    fn a_node_without_processors_is_not_one_that_tells_none() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("node0/cpulist", Some("0-1\n")), ("node1/cpulist", Some("\n")), ("node2/cpulist", None)] {
            let path = folder.path().join(FOLDER).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if let Some(text) = text {
                std::fs::write(path, text).unwrap();
            }
        }
        let nodes = read_numa(&Root::at(folder.path()), &mut Vec::new());
        let cpus: Vec<Option<String>> = nodes.iter().map(|node| node.cpus.as_ref().map(CpuSet::to_string)).collect();
        assert_eq!(cpus, [Some("0-1".to_owned()), Some(String::new()), None]);
    }
}
