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
        let twice = seen.and(&node.cpus);
        if !twice.is_empty() {
            notes.push(format!("NUMA node {} has processors {twice}, which other nodes have as well", node.id));
        }
        seen = seen.or(&node.cpus);
    }
    nodes
}

/// The one node that has all of `cpus`; `None` where they are on several, or where several nodes claim them.
pub fn numa_node_of(root: &Root, cpus: &CpuSet) -> Option<u32> {
    let ids = root.list(FOLDER).into_iter().filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    let mut having = ids.filter(|id| cpus.is_subset(&self::cpus(root, &format!("{FOLDER}/node{id}"))));
    let first = having.next().filter(|_| !cpus.is_empty());
    if having.next().is_none() { first } else { None }
}

/// From the list and the mask together: some kernels leave processors that are off line out of one of them.
fn cpus(root: &Root, folder: &str) -> CpuSet {
    let list = root.text(format!("{folder}/cpulist")).and_then(|text| CpuSet::parse_list(&text)).unwrap_or_default();
    let mask = root.text(format!("{folder}/cpumap")).and_then(|text| CpuSet::parse_mask(&text)).unwrap_or_default();
    list.or(&mask)
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
