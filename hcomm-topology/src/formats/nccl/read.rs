//! From NCCL's XML to a [`Machine`].

use std::collections::BTreeMap;

use roxmltree::Node;

use super::super::FormatError;
use super::super::xml::{Source, expected, hex};
use super::{CPU_CLASS, HOPS, INDEX, LINK, LOCAL_CPUS, MEMORY, MODEL, RATE, ROOT_BUS, SWITCH_CLASS, VIA, kind_of};
use crate::accelerators::model_of;
use crate::classes;
use crate::pci::{is_speed, width};
use crate::root::natural;
use crate::{
    Accelerator, AcceleratorKind, AcceleratorLink, CpuSet, DeviceId, LinkKind, LinkTarget, Machine, Nic, NicKind,
    NumaNode, PciAddress, PciFunction, PciLink, RdmaPort, accelerator_kind, vendor_of,
};

/// The machine below `<system>`.
pub(in super::super) fn read(source: &Source, system: Node) -> Result<Machine, FormatError> {
    let version: u32 = source.required(system, "version", "\"1\" (NCCL) or \"2\" (RCCL)")?;
    if !(1..=2).contains(&version) {
        return Err(source.error(system, format!("expected version 1 (NCCL) or 2 (RCCL), found {version}")));
    }
    let mut reader =
        Reader { source, machine: Machine::default(), pci: BTreeMap::new(), links: Vec::new(), order: Vec::new() };
    let host = elements(system, "cpu").next().and_then(|cpu| cpu.attribute("host_hash"));
    for cpu in elements(system, "cpu") {
        if cpu.attribute("host_hash") == host {
            reader.cpu(cpu)?;
        } else {
            reader.note("the file tells of several hosts; only the first is read");
        }
    }
    reader.finish()
}

fn elements<'a>(node: Node<'a, 'a>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.children().filter(move |child| child.has_tag_name(tag))
}

struct Reader<'a> {
    source: &'a Source<'a>,
    machine: Machine,
    pci: BTreeMap<PciAddress, PciFunction>,
    /// Links whose other end may come later in the file: index of the accelerator, element.
    links: Vec<(usize, Node<'a, 'a>)>,
    /// Of each accelerator, its place in a file that we wrote.
    order: Vec<Option<u64>>,
}

/// Where in the tree an element is.
#[derive(Clone)]
struct Place {
    numa: Option<u32>,
    parent: Option<PciAddress>,
    root_bus: Option<String>,
    local_cpus: Option<CpuSet>,
}

impl<'a> Reader<'a> {
    fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.machine.notes.contains(&text) {
            self.machine.notes.push(text);
        }
    }

    fn cpu(&mut self, cpu: Node<'a, 'a>) -> Result<(), FormatError> {
        let what = "the number of a NUMA node, or -1";
        let number: i64 = self.source.required(cpu, "numaid", what)?;
        if !(-1..=i64::from(u32::MAX)).contains(&number) {
            return Err(self.source.error(cpu, expected(cpu, "numaid", what, &number.to_string())));
        }
        let numa = u32::try_from(number).ok();
        let affinity = match cpu.attribute("affinity").filter(|text| !text.trim().is_empty()) {
            Some(text) => Some(CpuSet::parse_mask(text).ok_or_else(|| {
                self.source.error(cpu, expected(cpu, "affinity", "a mask such as 00000000,0000000f", text))
            })?),
            None => cpu.attribute(LOCAL_CPUS).map(|text| self.set(cpu, text)).transpose()?,
        };
        let cpus = &mut self.machine.cpus;
        let known = |text: Option<&str>| text.filter(|text| !text.trim().is_empty()).map(str::to_owned);
        cpus.vendor = cpus.vendor.take().or(known(cpu.attribute("vendor")));
        cpus.family = cpus.family.or(self.source.attribute(cpu, "familyid", "a number")?);
        cpus.model_number = cpus.model_number.or(self.source.attribute(cpu, "modelid", "a number")?);
        if let Some(affinity) = &affinity {
            cpus.present = cpus.present.or(affinity);
        }
        // As `uname -m` names it; NCCL has a word of its own for this one.
        let arch = known(cpu.attribute("arch")).map(|arch| if arch == "arm64" { "aarch64".into() } else { arch });
        self.machine.arch = self.machine.arch.take().or(arch);
        if let Some(id) = numa {
            match self.machine.numa.iter_mut().find(|node| node.id == id) {
                Some(node) => node.cpus = either(node.cpus.take(), affinity),
                None => self.machine.numa.push(NumaNode {
                    id,
                    cpus: affinity,
                    memory_bytes: None,
                    distances: BTreeMap::new(),
                    allowed: None,
                }),
            }
        }
        let place = Place { numa, parent: None, root_bus: None, local_cpus: None };
        self.below(cpu, &place, &mut Vec::new())
    }

    /// A set of processors in our attribute.
    fn set(&self, node: Node, text: &str) -> Result<CpuSet, FormatError> {
        let mask = || text.starts_with("0x").then(|| CpuSet::parse_mask(text)).flatten();
        let error = || self.source.error(node, expected(node, LOCAL_CPUS, "a list such as 0-3,8", text));
        CpuSet::parse_list(text).or_else(mask).ok_or_else(error)
    }

    /// Everything below a `<cpu>` or `<pci>` element. The parser bounds the depth.
    fn below(&mut self, node: Node<'a, 'a>, place: &Place, above: &mut Vec<PciAddress>) -> Result<(), FormatError> {
        let mut part = 0;
        let parts = elements(node, "gpu").count();
        for child in node.children() {
            match child.tag_name().name() {
                "pci" => self.pci(child, place, above)?,
                "nic" => elements(child, "net").try_for_each(|net| self.net(net, place))?,
                "gpu" => {
                    self.gpu(child, place, (parts > 1).then_some(part))?;
                    part += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn pci(&mut self, node: Node<'a, 'a>, place: &Place, above: &mut Vec<PciAddress>) -> Result<(), FormatError> {
        let source = self.source;
        let address: PciAddress = source.required(node, "busid", "a PCI address such as 0000:3b:00.0")?;
        if above.contains(&address) {
            return Err(source.error(node, format!("expected a tree, found {address} below itself")));
        }
        let mut here = place.clone();
        if let Some(bus) = node.attribute(ROOT_BUS) {
            here.root_bus = Some(bus.to_owned());
        }
        if let Some(text) = node.attribute(LOCAL_CPUS) {
            here.local_cpus = Some(self.set(node, text)?).filter(|set| !set.is_empty());
        }
        let depth = above.len();
        for text in node.attribute(VIA).unwrap_or_default().split_whitespace() {
            let bridge = text.parse().map_err(|_| source.error(node, expected(node, VIA, "PCI addresses", text)))?;
            if above.contains(&bridge) || bridge == address {
                return Err(source.error(node, format!("expected a tree, found {bridge} below itself")));
            }
            self.pci.entry(bridge).or_insert_with(|| PciFunction {
                class: Some(classes::PCI_BRIDGE),
                bridge: true,
                ..function(bridge, &here)
            });
            here.parent = Some(bridge);
            above.push(bridge);
        }
        let number =
            |name: &str, most: u64, what: &str| match node.attribute(name).filter(|text| !text.trim().is_empty()) {
                None => Ok(None),
                Some(text) => match hex(text).filter(|value| *value <= most) {
                    Some(value) => Ok(Some(value)),
                    None => Err(source.error(node, expected(node, name, what, text))),
                },
            };
        let id = "a number such as 0x10de";
        let class = number("class", 0xff_ffff, "a PCI class such as 0x030200")?.map(|class| class as u32);
        let found = PciFunction {
            class,
            vendor: number("vendor", 0xffff, id)?.map(|id| id as u16),
            device: number("device", 0xffff, id)?.map(|id| id as u16),
            subsystem_vendor: number("subsystem_vendor", 0xffff, id)?.map(|id| id as u16),
            subsystem_device: number("subsystem_device", 0xffff, id)?.map(|id| id as u16),
            link: link(node),
            bridge: class.is_some_and(classes::is_bridge),
            ..function(address, &here)
        };
        let before = self.pci.insert(address, found);
        // A bridge that an earlier element named among the skipped ones is no contradiction.
        if before.is_some_and(|before| before.vendor.is_some() || before.link != PciLink::default()) {
            self.note(format!("{address} is in the file more than once; the last counts"));
        }
        here.parent = Some(address);
        above.push(address);
        self.below(node, &here, above)?;
        above.truncate(depth);
        Ok(())
    }

    fn gpu(&mut self, gpu: Node<'a, 'a>, place: &Place, partition: Option<u32>) -> Result<(), FormatError> {
        let index = self.machine.accelerators.len();
        self.order.push(self.source.attribute(gpu, INDEX, "a number")?);
        self.machine.accelerators.push(Accelerator {
            model: gpu.attribute(MODEL).map(str::to_owned),
            memory_bytes: self.source.attribute(gpu, MEMORY, "a number of bytes")?,
            nccl: rest(gpu, &[INDEX, MODEL, MEMORY]),
            numa_node: place.numa,
            kind: AcceleratorKind::Gpu,
            ..Accelerator::unknown(DeviceId { pci: place.parent, partition, name: None })
        });
        let link = |child: &Node| ["nvlink", "xgmi", "c2c", LINK].contains(&child.tag_name().name());
        self.links.extend(gpu.children().filter(link).map(|child| (index, child)));
        Ok(())
    }

    fn net(&mut self, net: Node<'a, 'a>, place: &Place) -> Result<(), FormatError> {
        let source = self.source;
        let name: String = source.required(net, "name", "the name of a network device")?;
        let port: Option<i64> = source.attribute(net, "port", "a number")?;
        // NCCL's plug-ins write -1 where the driver does not tell.
        let speed: Option<i64> = source.attribute(net, "speed", "Mbit/s")?;
        let speed = speed.and_then(|speed| u64::try_from(speed).ok()).filter(|speed| *speed > 0);
        // NCCL's sockets have port 0; ports of InfiniBand and RoCE devices begin at 1.
        if let Some(port) = port.and_then(|port| u32::try_from(port).ok()).filter(|port| *port > 0) {
            self.machine.rdma.push(RdmaPort {
                pci: place.parent,
                numa_node: place.numa,
                rate_gbit_per_s: speed.map(|speed| speed as f64 / 1000.0),
                nccl: rest(net, &["name", "port", "speed"]),
                ..RdmaPort::unknown(name, port)
            });
        } else {
            self.machine.nics.push(Nic {
                pci: place.parent,
                speed_mbit_per_s: speed,
                numa_node: place.numa,
                nccl: rest(net, &["name", "speed"]),
                ..Nic::unknown(name, NicKind::Physical)
            });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Machine, FormatError> {
        // Cloud providers' files name the functions alone, without `<gpu>`.
        let named: Vec<_> = self.machine.accelerators.iter().filter_map(|device| device.id.pci).collect();
        for function in self.pci.values() {
            if kind_of_function(function).is_some() && !named.contains(&function.address) {
                let id = DeviceId { pci: Some(function.address), partition: None, name: None };
                let numa_node = function.numa_node;
                self.machine.accelerators.push(Accelerator { numa_node, ..Accelerator::unknown(id) });
            }
        }
        for device in &mut self.machine.accelerators {
            let function = device.id.pci.and_then(|address| self.pci.get(&address));
            device.kind = function.and_then(kind_of_function).unwrap_or(device.kind);
            device.vendor = function.and_then(|function| function.vendor).map(vendor_of);
            device.model = device.model.take().or_else(|| function.and_then(model_of));
        }
        let new_place = self.sort_accelerators();
        for (old, node) in std::mem::take(&mut self.links) {
            let from = new_place.get(old).copied().unwrap_or(old);
            if let Some(link) = self.link(from, node)? {
                self.machine.links.push(link);
            }
        }
        let mut machine = self.machine;
        machine.links.sort_by_key(|link| link.from);
        machine.numa.sort_by_key(|node| node.id);
        machine.nics.sort_by_cached_key(|nic| natural(&nic.name));
        machine.rdma.sort_by_cached_key(|port| (natural(&port.device), port.port));
        machine.cpus.online = machine.cpus.present.clone();
        machine.pci = self.pci.into_values().collect();
        Ok(machine)
    }

    /// Puts accelerators in the order of their numbers (`dev`), those without one behind, by address. Gives the new place of each.
    fn sort_accelerators(&mut self) -> Vec<usize> {
        let devices = &mut self.machine.accelerators;
        let number = |at: usize, device: &Accelerator| {
            let own = self.order.get(at).copied().flatten();
            own.or_else(|| device.nccl.get("dev")?.parse().ok()).unwrap_or(u64::MAX)
        };
        let mut order: Vec<usize> = (0..devices.len()).collect();
        order.sort_by_key(|at| devices.get(*at).map(|device| (number(*at, device), device.id.clone())));
        let mut old: Vec<Option<Accelerator>> = std::mem::take(devices).into_iter().map(Some).collect();
        devices.extend(order.iter().filter_map(|at| old.get_mut(*at)?.take()));
        let mut new_place = vec![0; order.len()];
        for (new, at) in order.into_iter().enumerate() {
            if let Some(place) = new_place.get_mut(at) {
                *place = new;
            }
        }
        new_place
    }

    fn link(&mut self, from: usize, node: Node) -> Result<Option<AcceleratorLink>, FormatError> {
        let source = self.source;
        let what = "a number of links";
        let tag = node.tag_name().name();
        let count: Option<u32> = source.attribute(node, "count", what)?;
        let mut link = AcceleratorLink {
            from,
            to: LinkTarget::Cpu,
            kind: LinkKind::NvLink,
            count,
            hops: source.attribute(node, HOPS, "a number of hops")?,
            mb_per_s: source.attribute(node, RATE, "MB/s")?,
        };
        if tag == LINK {
            let kind: String = source.required(node, "kind", "a kind of link")?;
            link.kind =
                kind_of(&kind).ok_or_else(|| source.error(node, expected(node, "kind", "a kind of link", &kind)))?;
            let to: String = source.required(node, "to", "an index, switch or cpu")?;
            link.to = match to.as_str() {
                "switch" => LinkTarget::Switch,
                "cpu" => LinkTarget::Cpu,
                index => {
                    let known = index.parse().ok().filter(|index| *index < self.machine.accelerators.len());
                    let error = || source.error(node, expected(node, "to", "an index, switch or cpu", index));
                    LinkTarget::Accelerator(known.ok_or_else(error)?)
                }
            };
            return Ok(Some(link));
        }
        let count: u32 = source.required(node, "count", what)?;
        match tag {
            "c2c" => {
                // MB/s of each of the links.
                let each: Option<u64> = source.attribute(node, "bw", "MB/s")?;
                link.kind = LinkKind::NvLinkC2c;
                link.mb_per_s = each.map(|each| each.saturating_mul(u64::from(count)));
                return Ok(Some(link));
            }
            "xgmi" => link.kind = LinkKind::Xgmi,
            _ => {}
        }
        // A switch that a virtual machine does not show has the target `fffffff:ffff:ff`: the class tells.
        let class = node.attribute("tclass").unwrap_or_default().trim().to_ascii_lowercase();
        if class == SWITCH_CLASS || class == CPU_CLASS {
            link.to = if class == CPU_CLASS { LinkTarget::Cpu } else { LinkTarget::Switch };
            return Ok(Some(link));
        }
        let target: PciAddress = source.required(node, "target", "a PCI address such as 0000:3b:00.0")?;
        let position = self.machine.accelerators.iter().position(|device| device.id.pci == Some(target));
        let Some(to) = position else {
            self.note(format!("a link goes to {target}, which is no accelerator in the file"));
            return Ok(None);
        };
        link.to = LinkTarget::Accelerator(to);
        Ok(Some(link))
    }
}

/// What is told by one or both of two elements of a node.
fn either(one: Option<CpuSet>, other: Option<CpuSet>) -> Option<CpuSet> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.or(&other)),
        (one, other) => one.or(other),
    }
}

fn kind_of_function(function: &PciFunction) -> Option<AcceleratorKind> {
    accelerator_kind(function.class?, function.vendor, function.device)
}

/// A function of which only its place is known.
fn function(address: PciAddress, place: &Place) -> PciFunction {
    PciFunction {
        parent: place.parent,
        root_bus: place.root_bus.clone(),
        numa_node: place.numa,
        local_cpus: place.local_cpus.clone(),
        ..PciFunction::unknown(address)
    }
}

/// NCCL takes the lesser of what both ends can do: so this is the best possible, not what is now. Nothing is written as an empty
/// speed and a width of 0 where the system does not tell.
fn link(node: Node) -> PciLink {
    let speed = node.attribute("link_speed").and_then(|text| text.trim().split("GT/s").next()?.trim().parse().ok());
    PciLink {
        max_speed_gt_per_s: speed.filter(|speed| is_speed(*speed)),
        max_width: node.attribute("link_width").and_then(width),
        ..PciLink::default()
    }
}

/// The attributes that have no place of their own.
fn rest(node: Node, taken: &[&str]) -> BTreeMap<String, String> {
    let kept = node.attributes().filter(|attribute| !taken.contains(&attribute.name()));
    kept.map(|attribute| (attribute.name().to_owned(), attribute.value().to_owned())).collect()
}
