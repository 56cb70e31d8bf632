//! How the devices of a machine reach each other: relations, bandwidths, nearest network devices, rings and trees.
//!
//! All of it is pure: the same machine gives the same answers.

mod estimate;
mod nearest;
mod pci;
mod relation;
mod ring;
mod tree;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::classes::is_network;
use crate::{AcceleratorKind, AcceleratorLink, LinkTarget, Machine, NicKind, PciAddress};
pub use estimate::Estimate;
pub use nearest::Nearest;
pub use pci::gb_per_s;
use pci::{PciTree, Place};
pub use relation::Relation;
pub use ring::Ring;
pub use tree::Tree;

/// What a [`Device`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// An accelerator.
    Accelerator,
    /// A network device: a PCI function with its interfaces and RDMA ports.
    Nic,
}

/// A device of the graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// `GPU0`, `NPU3`, `NIC1`; of a given matrix, the name there.
    pub label: String,
    /// Names of the RDMA devices and interfaces of a network device: `mlx5_0`, `ib0`.
    pub names: Vec<String>,
    /// Its PCI function.
    pub pci: Option<PciAddress>,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
    /// Index into [`Machine::accelerators`], if it is one of those.
    pub accelerator: Option<usize>,
    /// Of a network device: GB/s of its ports together.
    pub network_gb_per_s: Option<f64>,
}

/// The devices of a machine, and the relation of each pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    devices: Vec<Device>,
    /// Row by row, direct links counted.
    relations: Vec<Relation>,
    /// The same by the PCI tree and NUMA nodes alone; of a given matrix, equal to `relations`.
    without_links: Vec<Relation>,
    estimates: Vec<Estimate>,
    /// Whether each pair's direct link goes through a switch that all share.
    switched: Vec<bool>,
}

impl Graph {
    /// The graph of a machine: its accelerators in their order, then its network devices by address, those without one last.
    pub fn of(machine: &Machine) -> Graph {
        let mut devices = accelerators(machine);
        devices.extend(network_devices(machine));
        let tree = PciTree::new(machine);
        let mut graph = Graph {
            relations: Vec::new(),
            without_links: Vec::new(),
            estimates: Vec::new(),
            switched: Vec::new(),
            devices: Vec::new(),
        };
        for (at, a) in devices.iter().enumerate() {
            for (other, b) in devices.iter().enumerate() {
                let (from, to) = (place(a), place(b));
                let plain = if at == other { Relation::Same } else { tree.relation(from, to) };
                let direct = match (a.accelerator, b.accelerator) {
                    (Some(from), Some(to)) if from != to => direct(machine, from, to),
                    _ => None,
                };
                let estimate = match (&direct, plain) {
                    (_, Relation::Same) => Estimate::default(),
                    (Some(direct), _) => estimate::of_link(machine, direct),
                    (None, plain) => estimate::of_path(machine, &tree, plain, a, b),
                };
                graph.without_links.push(plain);
                graph.switched.push(direct.as_ref().is_some_and(|direct| direct.through_switch));
                graph
                    .relations
                    .push(direct.map_or(plain, |direct| Relation::Link(direct.link.kind, direct.link.count)));
                graph.estimates.push(estimate);
            }
        }
        graph.devices = devices;
        graph
    }

    /// The graph of a matrix of relation words, as `nvidia-smi topo -m` prints it; devices whose label begins with `GPU` or `NPU` are
    /// accelerators, all others network devices.
    ///
    /// # Errors
    /// If the matrix is not square, or a word is none; names the row and column.
    pub fn from_words(labels: &[String], words: &[Vec<String>]) -> Result<Graph, String> {
        if words.len() != labels.len() {
            return Err(format!("expected {} rows of relations, found {}", labels.len(), words.len()));
        }
        let mut relations = Vec::new();
        for (label, row) in labels.iter().zip(words) {
            if row.len() != labels.len() {
                return Err(format!("{label}: expected {} relations, found {}", labels.len(), row.len()));
            }
            for (other, word) in labels.iter().zip(row) {
                relations.push(word.parse().map_err(|e| format!("{label} - {other}: {e}"))?);
            }
        }
        let device = |label: &String| {
            let accelerator = ["GPU", "NPU"].iter().any(|prefix| label.to_ascii_uppercase().starts_with(prefix));
            Device {
                kind: if accelerator { DeviceKind::Accelerator } else { DeviceKind::Nic },
                label: label.clone(),
                names: Vec::new(),
                pci: None,
                numa_node: None,
                accelerator: None,
                network_gb_per_s: None,
            }
        };
        Ok(Graph {
            devices: labels.iter().map(device).collect(),
            without_links: relations.clone(),
            estimates: vec![Estimate::default(); relations.len()],
            switched: vec![false; relations.len()],
            relations,
        })
    }

    /// The devices: accelerators first.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Indices of the accelerators.
    pub fn accelerators(&self) -> Vec<usize> {
        self.of_kind(DeviceKind::Accelerator)
    }

    /// Indices of the network devices.
    pub fn nics(&self) -> Vec<usize> {
        self.of_kind(DeviceKind::Nic)
    }

    fn of_kind(&self, kind: DeviceKind) -> Vec<usize> {
        self.devices.iter().enumerate().filter(|(_, device)| device.kind == kind).map(|(at, _)| at).collect()
    }

    /// The relation of two devices, direct links counted. Of indices that do not exist it is unknown.
    pub fn relation(&self, a: usize, b: usize) -> Relation {
        self.at(&self.relations, a, b).unwrap_or(Relation::Unknown)
    }

    /// The relation of two devices by the PCI tree and NUMA nodes alone.
    pub fn relation_without_links(&self, a: usize, b: usize) -> Relation {
        self.at(&self.without_links, a, b).unwrap_or(Relation::Unknown)
    }

    /// Bandwidth and latency of the way from `a` to `b`, as far as the source tells what they are made of.
    pub fn estimate(&self, a: usize, b: usize) -> Estimate {
        self.at(&self.estimates, a, b).unwrap_or_default()
    }

    /// Whether the direct link of two devices goes through a switch that all of them share (NVSwitch).
    pub fn is_switched(&self, a: usize, b: usize) -> bool {
        self.at(&self.switched, a, b).unwrap_or(false)
    }

    fn at<T: Copy>(&self, matrix: &[T], a: usize, b: usize) -> Option<T> {
        let n = self.devices.len();
        (a < n && b < n).then(|| matrix.get(a * n + b).copied()).flatten()
    }
}

fn place(device: &Device) -> Place {
    Place { pci: device.pci, numa_node: device.numa_node }
}

fn accelerators(machine: &Machine) -> Vec<Device> {
    let label = |at: usize, kind| match kind {
        AcceleratorKind::Gpu => format!("GPU{at}"),
        AcceleratorKind::Npu => format!("NPU{at}"),
        AcceleratorKind::Other => format!("ACC{at}"),
    };
    let device = |(at, accelerator): (usize, &crate::Accelerator)| Device {
        kind: DeviceKind::Accelerator,
        label: label(at, accelerator.kind),
        names: accelerator.id.name.iter().cloned().collect(),
        pci: accelerator.id.pci,
        numa_node: accelerator.numa_node,
        accelerator: Some(at),
        network_gb_per_s: None,
    };
    machine.accelerators.iter().enumerate().map(device).collect()
}

/// A function is one device, however many ports and interfaces it has. Interfaces without a device behind them are none.
fn network_devices(machine: &Machine) -> Vec<Device> {
    #[derive(Default)]
    struct Found {
        numa_node: Option<u32>,
        rdma: Vec<String>,
        interfaces: Vec<String>,
        /// Mbit/s of each RDMA port and interface; `None` once one is not known.
        rdma_rates: Vec<Option<f64>>,
        interface_rates: Vec<Option<f64>>,
    }
    // Those without an address are kept apart by name.
    let mut found: BTreeMap<(Option<PciAddress>, String), Found> = BTreeMap::new();
    let key = |pci: Option<PciAddress>, name: &str| (pci, if pci.is_some() { String::new() } else { name.to_owned() });
    for port in &machine.rdma {
        let device = found.entry(key(port.pci, &port.device)).or_default();
        device.numa_node = device.numa_node.or(port.numa_node);
        device.rdma_rates.push(port.rate_gbit_per_s.map(|rate| rate / 8.0));
        if !device.rdma.contains(&port.device) {
            device.rdma.push(port.device.clone());
        }
    }
    let class = |pci: PciAddress| {
        machine.pci.iter().find(|function| function.address == pci).and_then(|function| function.class)
    };
    for nic in machine.nics.iter().filter(|nic| nic.kind == NicKind::Physical) {
        let wireless = nic.pci.and_then(class).is_some_and(|class| !is_network(class) && class >> 16 == 0x02);
        let key = key(nic.pci, &nic.name);
        if wireless && !found.contains_key(&key) {
            continue;
        }
        let device = found.entry(key).or_default();
        device.numa_node = device.numa_node.or(nic.numa_node);
        device.interface_rates.push(nic.speed_mbit_per_s.map(|speed| speed as f64 / 8000.0));
        device.interfaces.push(nic.name.clone());
    }
    for function in machine.pci.iter().filter(|function| function.class.is_some_and(is_network)) {
        let device = found.entry((Some(function.address), String::new())).or_default();
        device.numa_node = device.numa_node.or(function.numa_node);
    }
    let mut devices: Vec<Device> = Vec::new();
    let (with, without): (Vec<_>, Vec<_>) = found.into_iter().partition(|((pci, _), _)| pci.is_some());
    for (at, ((pci, _), device)) in with.into_iter().chain(without).enumerate() {
        // An interface of an RDMA device is the same port again.
        let rates = if device.rdma_rates.is_empty() { &device.interface_rates } else { &device.rdma_rates };
        let all: Option<Vec<f64>> = rates.iter().copied().collect();
        devices.push(Device {
            kind: DeviceKind::Nic,
            label: format!("NIC{at}"),
            names: device.rdma.into_iter().chain(device.interfaces).collect(),
            pci,
            numa_node: device.numa_node,
            accelerator: None,
            network_gb_per_s: all.filter(|rates| !rates.is_empty()).map(|rates| rates.iter().sum()),
        });
    }
    devices
}

/// A direct way between two accelerators.
struct Direct {
    link: AcceleratorLink,
    through_switch: bool,
}

/// The direct link from one accelerator to another: their own, else both through the switch that all reach.
fn direct(machine: &Machine, from: usize, to: usize) -> Option<Direct> {
    let links =
        |from: usize, to: LinkTarget| machine.links.iter().filter(move |link| link.from == from && link.to == to);
    let own = links(from, LinkTarget::Accelerator(to)).min_by_key(|link| link.hops);
    // hwloc and some NCCL files have a link at one end only.
    let own = own.or_else(|| links(to, LinkTarget::Accelerator(from)).min_by_key(|link| link.hops));
    if let Some(link) = own {
        return Some(Direct { link: link.clone(), through_switch: false });
    }
    let (up, down) = (links(from, LinkTarget::Switch).next()?, links(to, LinkTarget::Switch).next()?);
    let lesser = |a: Option<u64>, b: Option<u64>| Some(a?.min(b?));
    let link = AcceleratorLink {
        count: lesser(up.count.map(u64::from), down.count.map(u64::from)).map(|count| count as u32),
        mb_per_s: lesser(up.mb_per_s, down.mb_per_s),
        ..up.clone()
    };
    Some(Direct { link, through_switch: true })
}
