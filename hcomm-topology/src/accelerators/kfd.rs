//! AMD's compute topology, `/sys/class/kfd/kfd/topology/nodes` (Linux: `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`): partitions of GPUs, their
//! memory, and the XGMI links between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Found;
use crate::{AcceleratorLink, LinkKind, LinkTarget, PciAddress, Root};

/// `io_link` types: 11 is XGMI (`CRAT_IOLINK_TYPE_XGMI` in `kfd_crat.h`).
const XGMI: u64 = 11;
/// Weight of one XGMI hop (`KFD_CRAT_XGMI_WEIGHT`).
const HOP: u64 = 15;
/// No machine has more compute nodes or links than this.
const MOST: usize = 4096;

/// A node of the topology.
struct Node {
    number: u64,
    folder: PathBuf,
    /// Where its GPU is, and which part of it; `None` for processors.
    gpu: Option<(PciAddress, u32)>,
}

/// Splits GPUs that run as several devices, and adds their links.
pub(super) fn add(root: &Root, found: &mut Found) {
    let nodes = nodes(root, found);
    split(root, &nodes, found);
    // Index of the accelerator of each node; a processor has none.
    let index = |node: &Node| {
        let (address, part) = node.gpu?;
        let same = |id: &crate::DeviceId| id.pci == Some(address) && id.partition.is_none_or(|known| known == part);
        found.accelerators.iter().position(|accelerator| same(&accelerator.id))
    };
    let by_number: BTreeMap<u64, (bool, Option<usize>)> =
        nodes.iter().map(|node| (node.number, (node.gpu.is_some(), index(node)))).collect();
    let mut links = Vec::new();
    for node in &nodes {
        let Some(from) = index(node) else { continue };
        let folder = node.folder.join("io_links");
        for name in root.list(&folder).into_iter().take(MOST) {
            let link = properties(root, &folder.join(name).join("properties"));
            let (Some(&XGMI), Some(target)) = (link.get("type"), link.get("node_to")) else { continue };
            let to = match by_number.get(target) {
                Some((true, Some(to))) => LinkTarget::Accelerator(*to),
                Some((false, _)) => LinkTarget::Cpu,
                _ => continue,
            };
            let hops =
                link.get("weight").filter(|weight| **weight > 0 && **weight % HOP == 0).map(|weight| weight / HOP);
            links.push(AcceleratorLink {
                from,
                to,
                kind: LinkKind::Xgmi,
                count: None,
                hops: hops.and_then(|hops| u32::try_from(hops).ok()),
                mb_per_s: link.get("max_bandwidth").copied().filter(|mb| *mb > 0),
            });
        }
    }
    found.links.extend(links);
}

fn nodes(root: &Root, found: &Found) -> Vec<Node> {
    let folder = Path::new("sys/class/kfd/kfd/topology/nodes");
    let node = |name: String| {
        let number = name.parse().ok()?;
        let folder = folder.join(name);
        let properties = properties(root, &folder.join("properties"));
        let is_gpu = properties.get("simd_count").is_some_and(|count| *count > 0);
        let gpu = if is_gpu { place(&properties, found) } else { None };
        // A GPU that is no PCI function of this machine is nobody's end of a link.
        (gpu.is_some() || !is_gpu).then_some(Node { number, folder, gpu })
    };
    root.list(folder).into_iter().take(MOST).filter_map(node).collect()
}

/// Address and part: `location_id` is bus, device and function; the part is in its upper four bits, or (before Linux 6.12) in place of the
/// function.
fn place(properties: &BTreeMap<String, u64>, found: &Found) -> Option<(PciAddress, u32)> {
    let location = u32::try_from(*properties.get("location_id")?).ok()?;
    let domain = properties.get("domain").map_or(Some(0), |domain| u32::try_from(*domain).ok())?;
    let [upper, _, bus, low] = location.to_be_bytes();
    let mut address = PciAddress { domain, bus, device: low >> 3, function: low & 7 };
    let mut part = u32::from(upper >> 4);
    let known = |address| found.accelerators.iter().any(|accelerator| accelerator.id.pci == Some(address));
    if !known(address) {
        part = u32::from(address.function);
        address.function = 0;
    }
    known(address).then_some((address, part))
}

/// Makes a device of each part of a GPU that shows as several nodes.
fn split(root: &Root, nodes: &[Node], found: &mut Found) {
    let mut parts: BTreeMap<PciAddress, Vec<(u32, &Node)>> = BTreeMap::new();
    for node in nodes {
        if let Some((address, part)) = node.gpu {
            parts.entry(address).or_default().push((part, node));
        }
    }
    let mut divided = Vec::new();
    for whole in std::mem::take(&mut found.accelerators) {
        let mut parts = whole.id.pci.and_then(|address| parts.remove(&address)).unwrap_or_default();
        if parts.len() < 2 {
            divided.push(whole);
            continue;
        }
        parts.sort_by_key(|(part, _)| *part);
        for (part, node) in parts {
            let mut device = whole.clone();
            device.id.partition = Some(part);
            // What the function tells is of the whole.
            device.memory_bytes = memory(root, &node.folder);
            (device.memory_used_bytes, device.utilisation_percent, device.power_w) = (None, None, None);
            (device.id.name, device.uuid) = (None, None);
            divided.push(device);
        }
    }
    found.accelerators = divided;
}

/// Bytes of a node's memory banks.
fn memory(root: &Root, node: &Path) -> Option<u64> {
    let banks = node.join("mem_banks");
    let sizes = root
        .list(&banks)
        .into_iter()
        .take(MOST)
        .map(|bank| properties(root, &banks.join(bank).join("properties")).get("size_in_bytes").copied());
    sizes.reduce(|sum, size| sum?.checked_add(size?)).flatten().filter(|bytes| *bytes > 0)
}

/// Lines `name number`.
fn properties(root: &Root, path: &Path) -> BTreeMap<String, u64> {
    let text = root.text(path).unwrap_or_default();
    let line = |line: &str| {
        let (name, value) = line.trim().split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
