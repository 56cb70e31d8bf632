//! The place of devices in the PCI tree.

use std::collections::{BTreeMap, BTreeSet};

use super::Relation;
use crate::{Machine, PciAddress, PciFunction, PciLink};

/// A machine's PCI tree and NUMA nodes, for questions about pairs of devices.
pub(super) struct PciTree<'a> {
    machine: &'a Machine,
    functions: BTreeMap<PciAddress, &'a PciFunction>,
    /// The bridges above each function, the nearest first.
    above: BTreeMap<PciAddress, Vec<PciAddress>>,
}

/// Where a device is attached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub pci: Option<PciAddress>,
    pub numa_node: Option<u32>,
}

impl<'a> PciTree<'a> {
    pub(super) fn new(machine: &'a Machine) -> PciTree<'a> {
        let functions: BTreeMap<_, _> = machine.pci.iter().map(|function| (function.address, function)).collect();
        let above =
            functions.values().map(|function| (function.address, bridges_above(&functions, function))).collect();
        PciTree { machine, functions, above }
    }

    /// The function at an address.
    pub(super) fn function(&self, address: PciAddress) -> Option<&'a PciFunction> {
        self.functions.get(&address).copied()
    }

    /// The relation by the tree and NUMA nodes alone:
    ///
    /// - PIX: at most one PCIe switch between. A switch is an upper port with lower ports below it, so up to two bridges lie on the
    ///   way below the point where the paths meet. Where the source keeps one element for a switch and no root buses (NCCL), the
    ///   paths must meet right above both.
    /// - PXB: the paths meet below the host bridge, with more between.
    /// - PHB: the same root bus; also where there are no root buses and the NUMA node is the same.
    /// - NODE: the same set of NUMA nodes. SYS: other NUMA nodes.
    pub(super) fn relation(&self, a: Place, b: Place) -> Relation {
        let (one, other) = (self.attached(a), self.attached(b));
        if let (Some(one), Some(other)) = (one, other) {
            if one.address == other.address {
                return Relation::Pix;
            }
            let (above_a, above_b) = (self.bridges_above(one), self.bridges_above(other));
            let common = above_a.iter().rev().zip(above_b.iter().rev()).take_while(|(a, b)| a == b).count();
            let elements_are_switches = one.root_bus.is_none() || other.root_bus.is_none();
            if common > 0 {
                let between = above_a.len() + above_b.len() - 2 * common;
                let most = if elements_are_switches { 0 } else { 2 };
                return if between <= most { Relation::Pix } else { Relation::Pxb };
            }
            if one.root_bus.is_some() && one.root_bus == other.root_bus {
                return Relation::Phb;
            }
            return match self.nodes_agree(a, b) {
                Some(true) if elements_are_switches => Relation::Phb,
                Some(true) => Relation::Node,
                Some(false) => Relation::Sys,
                None => Relation::Unknown,
            };
        }
        match self.nodes_agree(a, b) {
            Some(true) => Relation::Node,
            Some(false) => Relation::Sys,
            None => Relation::Unknown,
        }
    }

    fn attached(&self, place: Place) -> Option<&'a PciFunction> {
        self.function(place.pci?)
    }

    fn bridges_above(&self, function: &PciFunction) -> &[PciAddress] {
        self.above.get(&function.address).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether two places have the same set of NUMA nodes; `None` where one is not known.
    fn nodes_agree(&self, a: Place, b: Place) -> Option<bool> {
        if self.machine.numa.len() == 1 && self.attached_or_known(a) && self.attached_or_known(b) {
            return Some(true);
        }
        Some(self.nodes(a)? == self.nodes(b)?)
    }

    /// On a machine of one node every function that has a root bus is next to it.
    fn attached_or_known(&self, place: Place) -> bool {
        place.numa_node.is_some() || self.attached(place).is_some_and(|function| function.root_bus.is_some())
    }

    /// The NUMA nodes that a place is next to: the system's word, else those of its processors if these are fewer than all.
    fn nodes(&self, place: Place) -> Option<BTreeSet<u32>> {
        let function = self.attached(place);
        if let Some(node) = place.numa_node.or(function.and_then(|function| function.numa_node)) {
            return Some(BTreeSet::from([node]));
        }
        let local = function?.local_cpus.as_ref()?;
        let told = || self.machine.numa.iter().filter_map(|node| Some((node.id, node.cpus.as_ref()?)));
        let nodes: BTreeSet<u32> =
            told().filter(|(_, cpus)| !cpus.and(local).is_empty()).map(|(node, _)| node).collect();
        let all = told().filter(|(_, cpus)| !cpus.is_empty()).count();
        (!nodes.is_empty() && nodes.len() < all).then_some(nodes)
    }

    /// The links that data between two devices passes: those of the devices and of the switches on the way, up to where the paths
    /// meet. A link is told at either end; `None` where one is not told at all.
    pub(super) fn links_between(&self, a: Place, b: Place) -> Option<Vec<f64>> {
        let (one, other) = (self.attached(a)?, self.attached(b)?);
        let (above_a, above_b) = (self.bridges_above(one), self.bridges_above(other));
        let mut links = Vec::new();
        for (function, own, others) in [(one, above_a, above_b), (other, above_b, above_a)] {
            let step = if function.root_bus.is_some() { 2 } else { 1 };
            let mut lower = Some(function.address);
            let mut at = 0;
            while let Some(end) = lower.filter(|end| !others.contains(end)) {
                let upper = own.get(at);
                let ends = [Some(&end), upper.filter(|_| step == 2)];
                let told = ends.into_iter().flatten().find_map(|end| gb_per_s(&self.function(*end)?.link));
                links.push(told?);
                // Where both are below one bridge of a shared bus, there is no more of the way.
                if upper.is_some_and(|upper| others.contains(upper)) {
                    break;
                }
                lower = own.get(at + step - 1).copied();
                at += step;
            }
        }
        Some(links)
    }
}

/// The bridges above a function, the nearest first. A damaged tree that loops is cut.
fn bridges_above(functions: &BTreeMap<PciAddress, &PciFunction>, function: &PciFunction) -> Vec<PciAddress> {
    let mut above = Vec::new();
    let mut next = function.parent;
    while let Some(bridge) = next.filter(|bridge| *bridge != function.address && !above.contains(bridge)) {
        above.push(bridge);
        next = functions.get(&bridge).and_then(|bridge| bridge.parent);
    }
    above
}

/// GB/s of a PCIe link in one direction: what it runs at, else what it could; speed x lanes x coding, which is 8b/10b up to 5 GT/s,
/// 128b/130b up to 32 GT/s, and no more than flow units above (PCI Express Base Specification; Linux: `PCIE_SPEED2MBS_ENC`).
pub fn gb_per_s(link: &PciLink) -> Option<f64> {
    let of = |speed: Option<f32>, width: Option<u8>| {
        let (speed, width) = (f64::from(speed?), f64::from(width?));
        let coding = match speed {
            s if s <= 5.0 => 0.8,
            s if s <= 32.0 => 128.0 / 130.0,
            _ => 1.0,
        };
        Some(speed * width * coding / 8.0)
    };
    of(link.speed_gt_per_s, link.width)
        .or(link.gb_per_s.map(f64::from))
        .or_else(|| of(link.max_speed_gt_per_s, link.max_width))
        .filter(|rate| *rate > 0.0)
}
