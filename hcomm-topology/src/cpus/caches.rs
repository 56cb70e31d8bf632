//! Caches, from `cpuN/cache/indexM` (`Documentation/ABI/testing/sysfs-devices-system-cpu`).

use std::collections::BTreeMap;

use super::FOLDER;
use crate::{Cache, CacheKind, CpuSet, Root};

/// The caches of some processors, each once: by level, kind, and first processor.
pub(super) fn read(root: &Root, known: &CpuSet) -> Vec<Cache> {
    let mut caches: BTreeMap<(u8, CacheKind, CpuSet), Cache> = BTreeMap::new();
    let mut known_of: BTreeMap<u32, usize> = BTreeMap::new();
    for cpu in known.iter() {
        let folder = format!("{FOLDER}/cpu{cpu}/cache");
        let indices: Vec<String> = root.list(&folder).into_iter().filter(|name| name.starts_with("index")).collect();
        // All of them seen already, through a processor that shares them: nothing new to read.
        if known_of.get(&cpu).is_some_and(|count| *count >= indices.len()) {
            continue;
        }
        for index in indices {
            let Some(cache) = one(root, &format!("{folder}/{index}"), cpu, known) else { continue };
            let key = (cache.level, cache.kind, cache.cpus.clone());
            if let std::collections::btree_map::Entry::Vacant(place) = caches.entry(key) {
                for cpu in cache.cpus.iter() {
                    *known_of.entry(cpu).or_default() += 1;
                }
                place.insert(cache);
            }
        }
    }
    caches.into_values().collect()
}

fn one(root: &Root, folder: &str, cpu: u32, known: &CpuSet) -> Option<Cache> {
    let text = |name: &str| root.text(format!("{folder}/{name}"));
    // The mask first: for AMD's modules of two cores kernels wrote lists that leave the other core out.
    let mask = text("shared_cpu_map").and_then(|text| CpuSet::parse_mask(&text));
    let shared = mask.or_else(|| CpuSet::parse_list(&text("shared_cpu_list")?))?.and(known);
    let kind = match text("type")?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    Some(Cache {
        level: root.number(format!("{folder}/level")).filter(|level| *level > 0)?,
        kind,
        bytes: text("size").and_then(|text| bytes(&text)),
        line_bytes: root.number(format!("{folder}/coherency_line_size")).filter(|bytes| *bytes > 0),
        // ia64 kernels leave the sets of private caches empty.
        cpus: shared.or(&CpuSet::from_iter([cpu])),
    })
}

/// `32K`, `4M`; the kernel writes multiples of 1024 bytes. 0 is what firmware says that does not know.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        _ => (text, 1_u64),
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("32K"), Some(32 << 10));
        assert_eq!(bytes("4M"), Some(4 << 20));
        assert_eq!(bytes("512"), Some(512));
        for bad in ["", "K", "0K", "-1K", "32KB", "1e3", "99999999999999999G", "é"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
