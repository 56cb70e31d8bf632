//! PCI functions, and the names that drivers and libraries give to what is behind them.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::super::FormatError;
use super::super::xml::{Source, expected};
use super::{Place, info};
use crate::accelerators::model_of;
use crate::{
    Accelerator, AcceleratorKind, AcceleratorLink, DeviceId, LinkKind, LinkTarget, Machine, Nic, NicKind, PciAddress,
    PciFunction, PciLink, RdmaPort, RdmaPortState, accelerator_kind, classes, vendor_of,
};

/// Libraries that number accelerators, the one whose numbers go before others' first. Those of OpenCL are of a platform, and DRM's of
/// displays too: they name no parts of a device.
const LIBRARIES: [&str; 4] = ["nvml", "rsmi", "ze", "cuda"];

/// What is found in the tree.
#[derive(Default)]
pub(super) struct Devices {
    pub nics: Vec<Nic>,
    pub rdma: Vec<RdmaPort>,
    names: Vec<Name>,
    /// Accelerator of each object, by hwloc's number.
    pub by_object: BTreeMap<u64, usize>,
    /// PCI functions by hwloc's number.
    pub functions: BTreeMap<u64, PciAddress>,
}

/// A name of an accelerator.
struct Name {
    object: Option<u64>,
    pci: PciAddress,
    name: String,
    model: Option<String>,
    uuid: Option<String>,
    memory_bytes: Option<u64>,
    peers: Vec<String>,
    /// Which accelerator it turned out to be.
    accelerator: Option<usize>,
}

impl Name {
    /// `nvml0` is number 0 of `nvml`; `ze0.1` is a part of `ze0`, which is in the list too.
    fn number(&self) -> Option<(&'static str, u32)> {
        LIBRARIES.iter().find_map(|library| Some((*library, self.name.strip_prefix(library)?.parse().ok()?)))
    }
}

impl Devices {
    /// A PCI function or a bridge that is one.
    pub(super) fn function(
        &mut self,
        source: &Source,
        node: Node,
        place: &mut Place,
        machine: &mut Machine,
    ) -> Result<(), FormatError> {
        let address: PciAddress = source.required(node, "pci_busid", "a PCI address such as 0000:3b:00.0")?;
        let mut function = PciFunction {
            parent: place.bridge,
            root_bus: place.root_bus.clone(),
            numa_node: node_of(place),
            local_cpus: place.cpus.clone(),
            bridge: node.attribute("type") == Some("Bridge"),
            ..PciFunction::unknown(address)
        };
        if let Some(text) = node.attribute("pci_type") {
            identity(text, &mut function).ok_or_else(|| {
                source.error(node, expected(node, "pci_type", "0200 [15b3:1021] [15b3:0041] 00", text))
            })?;
        }
        let rate: Option<f32> = source.attribute(node, "pci_link_speed", "GB/s")?;
        function.link = PciLink { gb_per_s: rate.filter(|rate| rate.is_finite() && *rate > 0.0), ..PciLink::default() };
        let names: Vec<&str> = ["PCIVendor", "PCIDevice"].iter().filter_map(|name| info(node, name)).collect();
        function.name = (!names.is_empty()).then(|| names.join(" "));
        if let Some(object) = source.attribute(node, "gp_index", "a number")? {
            self.functions.insert(object, address);
        }
        (place.pci, place.bridge) = (Some(address), Some(address));
        machine.pci.push(function);
        Ok(())
    }

    /// An `OSDev`. Until version 2 its kind is a number, from version 3 on a bit.
    pub(super) fn name(&mut self, source: &Source, node: Node, place: &Place, major: u32) -> Result<(), FormatError> {
        let name: String = source.required(node, "name", "the name of a device")?;
        let kind: u32 = source.required(node, "osdev_type", "a number")?;
        let (gpu, network, fabric) = if major < 3 {
            (kind == 1 || kind == 5, kind == 2, kind == 3)
        } else {
            (kind & 0x0c != 0, kind & 0x30 == 0x10, kind & 0x20 != 0)
        };
        if fabric {
            self.fabric(node, name, place);
        } else if network {
            let mac = info(node, "Address").map(str::to_owned);
            // Hardware addresses of InfiniBand have 20 bytes (RFC 4391).
            let infiniband = mac.as_ref().is_some_and(|mac| mac.split(':').count() == 20);
            self.nics.push(Nic {
                pci: place.pci,
                mac,
                hardware_type: infiniband.then_some(32),
                numa_node: node_of(place),
                ..Nic::unknown(name, if place.pci.is_some() { NicKind::Physical } else { NicKind::Virtual })
            });
        } else if let (true, Some(pci)) = (gpu, place.pci) {
            // KiB, with the unit from version 3 on.
            let size = ["CUDAGlobalMemorySize", "RSMIVRAMSize"].iter().find_map(|name| info(node, name));
            let size = size.and_then(|text| text.trim_end_matches("KiB").parse::<u64>().ok()?.checked_mul(1024));
            let uuid = ["NVIDIAUUID", "AMDUUID"].iter().find_map(|name| info(node, name));
            self.names.push(Name {
                object: source.attribute(node, "gp_index", "a number")?,
                pci,
                name,
                model: info(node, "GPUModel").map(str::to_owned),
                uuid: uuid.filter(|uuid| !uuid.chars().all(|c| c == '0')).map(str::to_owned),
                memory_bytes: size.filter(|size| *size > 0),
                peers: info(node, "XGMIPeers").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
                accelerator: None,
            });
        }
        Ok(())
    }

    /// An RDMA device, with what is told of each of its ports.
    fn fabric(&mut self, node: Node, name: String, place: &Place) {
        let told = |port: u32, what: &str| info(node, &format!("Port{port}{what}"));
        let ports: Vec<u32> = (1..=255).filter(|port| told(*port, "State").is_some()).collect();
        // Every device has a first port, told or not.
        let ports = if ports.is_empty() { vec![1] } else { ports };
        for port in ports {
            // InfiniBand Architecture Specification, PortInfo:PortState.
            let state = match told(port, "State") {
                Some("1") => Some(RdmaPortState::Down),
                Some("2") => Some(RdmaPortState::Init),
                Some("3") => Some(RdmaPortState::Armed),
                Some("4") => Some(RdmaPortState::Active),
                Some("5") => Some(RdmaPortState::ActiveDefer),
                _ => None,
            };
            let lid = told(port, "LID").and_then(super::super::xml::hex).and_then(|lid| u32::try_from(lid).ok());
            self.rdma.push(RdmaPort {
                pci: place.pci,
                numa_node: node_of(place),
                state,
                lid: lid.filter(|lid| *lid != 0 && *lid != 0xffff),
                node_guid: info(node, "NodeGUID").map(str::to_owned),
                ..RdmaPort::unknown(name.clone(), port)
            });
        }
    }

    /// Makes accelerators of the functions that are some by their class or because a library names them: one each, or as many as the
    /// library that names the most (an MI300A in TPX mode is three).
    pub(super) fn name_accelerators(&mut self, machine: &mut Machine) {
        let mut found: Vec<(u32, Accelerator, Vec<usize>)> = Vec::new();
        for function in &machine.pci {
            let class = function.class.and_then(|class| accelerator_kind(class, function.vendor, function.device));
            let here: Vec<usize> = (0..self.names.len())
                .filter(|at| self.names.get(*at).is_some_and(|name| name.pci == function.address))
                .collect();
            // Of each library the names in order of their numbers.
            let mut libraries: BTreeMap<&str, BTreeMap<u32, usize>> = BTreeMap::new();
            for at in &here {
                if let Some((library, number)) = self.names.get(*at).and_then(Name::number) {
                    libraries.entry(library).or_default().insert(number, *at);
                }
            }
            if class.is_none() && libraries.is_empty() {
                continue;
            }
            let parts = libraries.values().map(BTreeMap::len).max().unwrap_or(1);
            for part in 0..parts {
                let named =
                    |library: &&str| libraries.get(*library)?.iter().nth(part).map(|(number, at)| (*number, *at));
                let numbers: Vec<(u32, usize)> = LIBRARIES.iter().filter_map(named).collect();
                let mut own: Vec<usize> = numbers.iter().map(|(_, at)| *at).collect();
                if parts == 1 {
                    own = own
                        .into_iter()
                        .chain(here.iter().copied().filter(|at| !numbers.iter().any(|(_, own)| own == at)))
                        .collect();
                }
                let of = |at: &usize| self.names.get(*at);
                let name = own.iter().filter_map(of).find(|name| name.number().is_some()).map(|name| name.name.clone());
                // A library may name but the first part of a chip.
                let told = |names: &[usize]| names.iter().filter_map(of).find_map(|name| name.model.clone());
                let model = told(&own).or_else(|| told(&here)).or_else(|| model_of(function));
                let partition = (parts > 1).then_some(part as u32);
                let accelerator = Accelerator {
                    kind: class.unwrap_or(AcceleratorKind::Gpu),
                    vendor: function.vendor.map(vendor_of),
                    model,
                    numa_node: function.numa_node,
                    memory_bytes: own.iter().filter_map(of).find_map(|name| name.memory_bytes),
                    uuid: own.iter().filter_map(of).find_map(|name| name.uuid.clone()),
                    ..Accelerator::unknown(DeviceId { pci: Some(function.address), partition, name })
                };
                found.push((numbers.first().map_or(u32::MAX, |(number, _)| *number), accelerator, own));
            }
        }
        found.sort_by(|(a, x, _), (b, y, _)| (a, x.id.pci, x.id.partition).cmp(&(b, y.id.pci, y.id.partition)));
        for (at, (_, accelerator, names)) in found.into_iter().enumerate() {
            machine.accelerators.push(accelerator);
            for name in names {
                if let Some(name) = self.names.get_mut(name) {
                    name.accelerator = Some(at);
                    self.by_object.extend(name.object.map(|object| (object, at)));
                }
            }
        }
    }

    /// Where no matrix tells of XGMI links, the peers that a device names.
    pub(super) fn links_by_peers(&self, machine: &mut Machine) {
        if machine.links.iter().any(|link| link.kind == LinkKind::Xgmi) {
            return;
        }
        for name in &self.names {
            for peer in self.names.iter().filter(|peer| name.peers.contains(&peer.name)) {
                if let (Some(from), Some(to)) = (name.accelerator, peer.accelerator) {
                    let to = LinkTarget::Accelerator(to);
                    let kind = LinkKind::Xgmi;
                    machine.links.push(AcceleratorLink { from, to, kind, count: None, hops: None, mb_per_s: None });
                }
            }
        }
    }
}

/// The NUMA node that a place is next to, if it is one.
fn node_of(place: &Place) -> Option<u32> {
    let mut nodes = place.nodes.as_ref()?.iter();
    nodes.next().filter(|_| nodes.next().is_none())
}

/// `0604 [1022:14fc] [1022:1234] 00`: class, function, card, revision, and from version 2.2 on the programming interface. Without that
/// the interface of the class is taken as 0, which is that of a plain bridge. What is all zeros or ones is not known.
fn identity(text: &str, function: &mut PciFunction) -> Option<()> {
    let mut words = text.split_whitespace();
    let number = |text: &str| u16::from_str_radix(text, 16).ok();
    let pair = |text: &str| {
        let (vendor, device) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
        let known = |id: u16| Some(id).filter(|id| *id != 0 && *id != u16::MAX);
        Some((known(number(vendor)?), known(number(device)?)))
    };
    let class = number(words.next()?)?;
    (function.vendor, function.device) = pair(words.next()?)?;
    if let Some(card) = words.next() {
        (function.subsystem_vendor, function.subsystem_device) = pair(card)?;
    }
    let interface = words.nth(1).map_or(Some(0), |text| u8::from_str_radix(text, 16).ok())?;
    let known = class != 0 || function.vendor.is_some();
    function.class = known.then_some(u32::from(class) << 8 | u32::from(interface));
    function.bridge |= function.class.is_some_and(classes::is_bridge);
    Some(())
}
