//! Matrices: distances between NUMA nodes, and links between accelerators.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::super::FormatError;
use super::Reader;
use crate::{AcceleratorLink, LinkKind, LinkTarget};

/// hwloc's largest matrices are between NUMA nodes, of which no machine has more.
const MOST_OBJECTS: usize = 4096;

/// What a row or column of a matrix is.
#[derive(Clone, Copy)]
enum End {
    Accelerator(usize),
    Switch,
    Cpu,
    Numa(u32),
    Other,
}

impl Reader<'_> {
    /// Version 1: a matrix inside the object whose NUMA nodes it is of, relative to a base.
    pub(super) fn distances_inside(&mut self, node: Node) -> Result<(), FormatError> {
        let Some(matrix) = node.children().find(|child| child.has_tag_name("distances")) else { return Ok(()) };
        let base: Option<f64> = self.source.attribute(matrix, "latency_base", "a number")?;
        let mut values = Vec::new();
        for latency in matrix.children().filter(|child| child.has_tag_name("latency")) {
            let value: f64 = self.source.required(latency, "value", "a number")?;
            values.push((value * base.unwrap_or(1.0)).round() as u64);
        }
        self.old_distances.push(values);
        Ok(())
    }

    /// Takes the matrix of version 1 that has as many rows as there are NUMA nodes.
    fn old_numa_distances(&mut self) {
        let ends: Vec<End> = self.numa.iter().map(|(id, _)| End::Numa(*id)).collect();
        if let Some(values) = self.old_distances.iter().find(|values| values.len() == ends.len() * ends.len()).cloned()
        {
            self.numa_distances(&ends, &values);
        }
    }

    /// From version 2 on: matrices behind the tree.
    pub(super) fn distances_beside(&mut self, topology: Node) -> Result<(), FormatError> {
        self.old_numa_distances();
        let mut links: BTreeMap<(bool, usize, usize), AcceleratorLink> = BTreeMap::new();
        for matrix in topology.children() {
            let mixed = matrix.has_tag_name("distances2hetero");
            if !mixed && !matrix.has_tag_name("distances2") {
                continue;
            }
            let count: usize = self.source.required(matrix, "nbobjs", "a number of objects")?;
            let indexes = words(matrix, "indexes");
            let values: Option<Vec<u64>> = words(matrix, "u64values").iter().map(|word| word.parse().ok()).collect();
            let square = values
                .filter(|values| count <= MOST_OBJECTS && indexes.len() == count && values.len() == count * count);
            let Some(values) = square else {
                return Err(self
                    .source
                    .error(matrix, format!("expected {count} indexes and {count} x {count} numbers")));
            };
            let kind = matrix.attribute("type").unwrap_or_default();
            let ends: Vec<End> =
                indexes.iter().map(|index| self.end(index, kind, matrix.attribute("indexing"))).collect();
            let (kind, is_hops) = match matrix.attribute("name").unwrap_or_default() {
                "NUMALatency" => {
                    self.numa_distances(&ends, &values);
                    continue;
                }
                "XGMIHops" => (LinkKind::Xgmi, true),
                "XGMIBandwidth" => (LinkKind::Xgmi, false),
                "NVLinkBandwidth" => (LinkKind::NvLink, false),
                _ => continue,
            };
            for (row, from) in ends.iter().enumerate() {
                for (column, to) in ends.iter().enumerate() {
                    let value = values.get(row * count + column).copied().unwrap_or(0);
                    let (End::Accelerator(from), true) = (*from, row != column && value > 0) else { continue };
                    let to = match *to {
                        End::Accelerator(to) => LinkTarget::Accelerator(to),
                        End::Switch => LinkTarget::Switch,
                        End::Cpu => LinkTarget::Cpu,
                        End::Numa(_) | End::Other => continue,
                    };
                    let link = links.entry((kind == LinkKind::Xgmi, from, order(to))).or_insert(AcceleratorLink {
                        from,
                        to,
                        kind,
                        count: None,
                        hops: None,
                        mb_per_s: None,
                    });
                    if is_hops {
                        link.hops = u32::try_from(value).ok();
                    } else {
                        // A GPU has a link to each of several switches.
                        link.mb_per_s = Some(link.mb_per_s.unwrap_or(0).saturating_add(value));
                    }
                }
            }
        }
        self.machine.links.extend(links.into_values());
        Ok(())
    }
}

impl Reader<'_> {
    /// What a row is: `802` of objects of one kind, `OSDev:802` where they are of several.
    fn end(&self, index: &str, kind: &str, indexing: Option<&str>) -> End {
        let (kind, number) = index.split_once(':').unwrap_or((kind, index));
        let Ok(number) = number.parse::<u64>() else { return End::Other };
        match kind {
            "OSDev" => self.devices.by_object.get(&number).map_or(End::Other, |at| End::Accelerator(*at)),
            "PCIDev" => {
                let address = self.devices.functions.get(&number).copied();
                let at =
                    self.machine.accelerators.iter().position(|device| address.is_some() && device.id.pci == address);
                at.map_or(End::Switch, End::Accelerator)
            }
            "Package" => End::Cpu,
            "NUMANode" => {
                let by_os = indexing == Some("os");
                let is = |(id, object): &&(u32, Option<u64>)| {
                    if by_os { u64::from(*id) == number } else { *object == Some(number) }
                };
                self.numa.iter().find(is).map_or(End::Other, |(id, _)| End::Numa(*id))
            }
            _ => End::Other,
        }
    }

    fn numa_distances(&mut self, ends: &[End], values: &[u64]) {
        for (row, from) in ends.iter().enumerate() {
            for (column, to) in ends.iter().enumerate() {
                let value = values.get(row * ends.len() + column).and_then(|value| u32::try_from(*value).ok());
                if let (End::Numa(from), End::Numa(to), Some(value)) = (*from, *to, value) {
                    let node = self.machine.numa.iter_mut().find(|node| node.id == from);
                    node.into_iter().for_each(|node| _ = node.distances.insert(to, value));
                }
            }
        }
    }
}

/// A key that puts links to accelerators in their order, before all others.
fn order(to: LinkTarget) -> usize {
    match to {
        LinkTarget::Accelerator(at) => at,
        LinkTarget::Switch => usize::MAX - 1,
        LinkTarget::Cpu => usize::MAX,
    }
}

/// The words of all elements of one name in another, one after the other.
fn words<'a>(node: Node<'a, '_>, tag: &str) -> Vec<&'a str> {
    let parts = node.children().filter(|child| child.has_tag_name(tag)).filter_map(|child| child.text());
    parts.flat_map(str::split_whitespace).collect()
}
