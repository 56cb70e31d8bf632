//! hwloc's XML export (`lstopo machine.xml`; the format is hwloc's `hwloc2.dtd`, and `hwloc.dtd` of version 1).
//!
//! Objects nest: processors and memory with sets of processors, and in whatever object they are next to the host bridges, PCI bridges
//! and functions, with the names that drivers and libraries give them (`OSDev`) inside. Matrices of distances follow the tree.

mod devices;
mod links;

use std::collections::BTreeMap;

use roxmltree::Node;

use super::FormatError;
use super::xml::{Source, expected};
use crate::root::natural;
use crate::{Cache, CacheKind, Core, CpuSet, Machine, NumaNode, Package, PciAddress, Thread};
use devices::Devices;

/// The machine below `<topology>`.
pub(super) fn read(source: &Source, topology: Node) -> Result<Machine, FormatError> {
    let version = topology.attribute("version").unwrap_or("1.0");
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    let Some(major @ 1..=3) = major else {
        return Err(source.error(topology, expected(topology, "version", "1.x, 2.x or 3.x", version)));
    };
    let mut reader = Reader {
        source,
        major,
        machine: Machine::default(),
        devices: Devices::default(),
        online: CpuSet::default(),
        numa: Vec::new(),
        old_distances: Vec::new(),
    };
    let mut objects = topology.children().filter(|node| node.has_tag_name("object"));
    let Some(root) = objects.next() else {
        return Err(source.error(topology, "expected an <object> in <topology>, found none"));
    };
    reader.machine_facts(topology);
    reader.object(root, &Place::default())?;
    reader.finish(topology)
}

/// Where in the tree an object is.
#[derive(Clone, Default)]
struct Place {
    /// Processors of the nearest object around that has any; `None` at the top.
    cpus: Option<CpuSet>,
    /// NUMA nodes of that object.
    nodes: Option<CpuSet>,
    package: Option<usize>,
    core: Option<usize>,
    root_bus: Option<String>,
    bridge: Option<PciAddress>,
    pci: Option<PciAddress>,
}

struct Reader<'a> {
    source: &'a Source<'a>,
    major: u32,
    machine: Machine,
    devices: Devices,
    online: CpuSet,
    /// NUMA nodes in the order of the file, by which matrices of version 1 count them: number, hwloc's number of the object.
    numa: Vec<(u32, Option<u64>)>,
    /// Matrices of version 1.
    old_distances: Vec<Vec<u64>>,
}

impl<'a> Reader<'a> {
    /// What is said of the whole machine: inside the first object, in version 3 beside it.
    fn machine_facts(&mut self, node: Node) {
        let machine = &mut self.machine;
        machine.hostname = machine.hostname.take().or_else(|| info(node, "HostName").map(str::to_owned));
        machine.arch = machine.arch.take().or_else(|| info(node, "Architecture").map(str::to_owned));
    }

    /// An object and all in it. The parser bounds the depth.
    fn object(&mut self, node: Node, around: &Place) -> Result<(), FormatError> {
        let source = self.source;
        let kind: String = source.required(node, "type", "a kind of object")?;
        let mut place = around.clone();
        let own = self.set(node, "cpuset")?;
        if own.is_some() {
            place.cpus = own.clone();
            place.nodes = self.set(node, "nodeset")?.or(place.nodes);
        }
        let own = own.unwrap_or_default();
        let number: Option<u32> = source.attribute(node, "os_index", "a number")?;
        let cpus = &mut self.machine.cpus;
        match kind.as_str() {
            "Machine" | "System" => {
                self.machine_facts(node);
                self.machine.cpus.present = self.set(node, "complete_cpuset")?.unwrap_or_else(|| own.clone());
                self.machine.cpus.allowed = self.set(node, "allowed_cpuset")?;
            }
            "Package" | "Socket" => {
                place.package = Some(cpus.packages.len());
                cpus.packages.push(Package { id: number, cpus: own });
                let text = |name| info(node, name).map(str::to_owned);
                cpus.model = cpus.model.take().or_else(|| text("CPUModel"));
                cpus.vendor = cpus.vendor.take().or_else(|| text("CPUVendor"));
                cpus.family = cpus.family.or_else(|| info(node, "CPUFamilyNumber")?.parse().ok());
                cpus.model_number = cpus.model_number.or_else(|| info(node, "CPUModelNumber")?.parse().ok());
            }
            "Core" => {
                place.core = Some(cpus.cores.len());
                cpus.cores.push(Core { cpus: own, package: place.package });
            }
            "PU" => {
                let id = number
                    .ok_or_else(|| source.error(node, "expected os_index=a number in a PU, found no such attribute"))?;
                cpus.threads.push(Thread { id, online: true, core: place.core, numa_node: None });
                self.online = self.online.or(&CpuSet::from_iter([id]));
            }
            "NUMANode" | "Node" => self.numa_node(node, number, own)?,
            "Bridge" => self.bridge(node, &mut place)?,
            "PCIDev" => self.devices.function(source, node, &mut place, &mut self.machine)?,
            "OSDev" => self.devices.name(source, node, &place, self.major)?,
            kind if kind.ends_with("Cache") => self.cache(node, kind, own)?,
            // Groups, dies, what people add.
            _ => {}
        }
        if self.major == 1 {
            self.distances_inside(node)?;
        }
        for child in node.children().filter(|child| child.has_tag_name("object")) {
            self.object(child, &place)?;
        }
        Ok(())
    }

    fn numa_node(&mut self, node: Node, number: Option<u32>, cpus: CpuSet) -> Result<(), FormatError> {
        let cpus = Some(cpus);
        // A machine without NUMA has one node without a number.
        let id = number.unwrap_or(0);
        let memory_bytes = self.source.attribute(node, "local_memory", "a number of bytes")?;
        self.numa.push((id, self.source.attribute(node, "gp_index", "a number")?));
        self.machine.numa.push(NumaNode { id, cpus, memory_bytes, distances: BTreeMap::new(), allowed: None });
        Ok(())
    }

    /// `L2Cache` and `L1iCache`; in version 1 `Cache` with a depth.
    fn cache(&mut self, node: Node, kind: &str, cpus: CpuSet) -> Result<(), FormatError> {
        let source = self.source;
        let depth: Option<u8> = source.attribute(node, "depth", "a level")?;
        let named = kind.trim_start_matches('L').get(..1).and_then(|digit| digit.parse().ok());
        let Some(level) = depth.or(named) else { return Ok(()) };
        let kind = match source.attribute::<u8>(node, "cache_type", "0, 1 or 2")? {
            Some(1) => CacheKind::Data,
            Some(2) => CacheKind::Instruction,
            _ => CacheKind::Unified,
        };
        let some = |size: Option<u64>| size.filter(|size| *size > 0);
        let bytes = some(source.attribute(node, "cache_size", "a number of bytes")?);
        let line = some(source.attribute(node, "cache_linesize", "a number of bytes")?);
        let line_bytes = line.and_then(|line| u32::try_from(line).ok());
        self.machine.cpus.caches.push(Cache { level, kind, bytes, line_bytes, cpus });
        Ok(())
    }

    /// A host bridge (`0-1`) begins a root bus; the others are functions.
    fn bridge(&mut self, node: Node, place: &mut Place) -> Result<(), FormatError> {
        if node.attribute("bridge_type").is_some_and(|kind| kind.trim().starts_with('1')) {
            return self.devices.function(self.source, node, place, &mut self.machine);
        }
        // `0000:[15-1f]`: domain, first and last bus.
        let what = "buses such as 0000:[00-1f]";
        let buses: String = self.source.required(node, "bridge_pci", what)?;
        let bus = buses.split_once(":[").and_then(|(domain, buses)| Some((domain, buses.get(..2)?)));
        let bus =
            bus.filter(|(domain, bus)| u32::from_str_radix(domain, 16).is_ok() && u8::from_str_radix(bus, 16).is_ok());
        let Some((domain, bus)) = bus else {
            return Err(self.source.error(node, expected(node, "bridge_pci", what, &buses)));
        };
        place.root_bus = Some(format!("{domain}:{bus}").to_ascii_lowercase());
        Ok(())
    }

    /// A set such as `0x00ffffff,,,0x00ffffff`: words of 32 bits, the last the lowest, none of them zero. `None` where it is infinite.
    fn set(&self, node: Node, name: &str) -> Result<Option<CpuSet>, FormatError> {
        let Some(text) = node.attribute(name).filter(|text| !text.contains("0xf...f")) else { return Ok(None) };
        let words: Vec<&str> = text.trim().split(',').map(|word| if word.is_empty() { "0" } else { word }).collect();
        let set = CpuSet::parse_mask(&words.join(","));
        set.map(Some).ok_or_else(|| self.source.error(node, expected(node, name, "a set such as 0x0000000f", text)))
    }

    fn finish(mut self, topology: Node) -> Result<Machine, FormatError> {
        self.devices.name_accelerators(&mut self.machine);
        self.distances_beside(topology)?;
        self.devices.links_by_peers(&mut self.machine);
        let mut machine = self.machine;
        machine.cpus.online = self.online;
        for thread in &mut machine.cpus.threads {
            thread.numa_node = machine
                .numa
                .iter()
                .find(|node| node.cpus.as_ref().is_some_and(|cpus| cpus.contains(thread.id)))
                .map(|node| node.id);
        }
        machine.cpus.threads.sort_by_key(|thread| thread.id);
        machine.numa.sort_by_key(|node| node.id);
        machine.links.sort_by_key(|link| link.from);
        machine.nics = std::mem::take(&mut self.devices.nics);
        machine.rdma = std::mem::take(&mut self.devices.rdma);
        machine.nics.sort_by_cached_key(|nic| natural(&nic.name));
        machine.rdma.sort_by_cached_key(|port| (natural(&port.device), port.port));
        // The last counts: of the sorted list, the first of each address once it is turned round.
        machine.pci.reverse();
        machine.pci.sort_by_key(|function| function.address);
        let mut again = Vec::new();
        machine.pci.dedup_by(|later, first| {
            let same = later.address == first.address;
            again.extend(same.then(|| format!("{} is in the file more than once; the last counts", first.address)));
            same
        });
        machine.notes.append(&mut again);
        Ok(machine)
    }
}

/// The value of an `<info name="..." value="..."/>` inside an element; an empty one says nothing.
fn info<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let named = |child: &Node| child.has_tag_name("info") && child.attribute("name") == Some(name);
    let value = node.children().find(named)?.attribute("value")?.trim();
    (!value.is_empty()).then_some(value)
}
