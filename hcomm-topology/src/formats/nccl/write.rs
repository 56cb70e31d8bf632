//! From a [`Machine`] to NCCL's XML.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{
    CPU_CLASS, HOPS, INDEX, LINK, LOCAL_CPUS, MEMORY, MODEL, MOST_VALUE, NO_ADDRESS, RATE, ROOT_BUS, SWITCH_CLASS, VIA,
    kind_name,
};
use crate::classes::is_network;
use crate::{Accelerator, AcceleratorLink, CpuSet, LinkKind, LinkTarget, Machine, PciAddress, PciFunction, Vendor};

/// The machine as NCCL writes it: devices, the switches above them, and their links. Facts that the machine lacks are left out, or
/// empty where NCCL needs the attribute.
pub fn write(machine: &Machine) -> String {
    let writer = Writer::new(machine);
    let rccl = machine.accelerators.iter().any(|device| device.vendor == Some(Vendor::Amd));
    let mut out = String::new();
    open(&mut out, 0, "system", &[("version", if rccl { "2" } else { "1" }.into())], false);
    // Devices may name nodes of which the source says nothing else; -1 stands for none.
    let devices = machine.pci.iter().map(|function| function.numa_node);
    let devices = devices
        .chain(machine.nics.iter().map(|nic| nic.numa_node))
        .chain(machine.rdma.iter().map(|port| port.numa_node));
    let nodes: BTreeSet<u32> = machine.numa.iter().map(|node| node.id).chain(devices.flatten()).collect();
    for numa in nodes.into_iter().map(Some).chain([None]) {
        writer.cpu(&mut out, numa);
    }
    out.push_str("</system>\n");
    out
}

struct Writer<'a> {
    machine: &'a Machine,
    functions: BTreeMap<PciAddress, &'a PciFunction>,
    /// The functions that get an element, each with the bridges above it, top first.
    shown: BTreeMap<PciAddress, Vec<PciAddress>>,
}

impl<'a> Writer<'a> {
    fn new(machine: &'a Machine) -> Writer<'a> {
        let functions: BTreeMap<_, _> = machine.pci.iter().map(|function| (function.address, function)).collect();
        let mut writer = Writer { machine, functions, shown: BTreeMap::new() };
        let accelerators = machine.accelerators.iter().filter_map(|device| device.id.pci);
        let nets = machine.nics.iter().filter_map(|nic| nic.pci);
        let ports = machine.rdma.iter().filter_map(|port| port.pci);
        // Files of cloud providers have functions without a class: nobody but NCCL on that machine can tell what they are.
        let others = machine.pci.iter().filter(|function| !function.bridge && function.class.is_none_or(is_network));
        let devices: BTreeSet<PciAddress> =
            accelerators.chain(nets).chain(ports).chain(others.map(|function| function.address)).collect();
        for device in devices {
            let above = writer.bridges_above(device);
            // NCCL goes from a device up two bridges at a time: past the lower port of a switch to its upper port. Where the source
            // keeps no root buses, it keeps one element for a switch.
            let known = writer.functions.get(&device).is_some_and(|function| function.root_bus.is_some());
            let step = if known { 2 } else { 1 };
            for (at, bridge) in above.iter().enumerate().rev().skip(step - 1).step_by(step) {
                writer.shown.entry(*bridge).or_insert_with(|| above.iter().take(at).copied().collect());
            }
            writer.shown.insert(device, above);
        }
        writer
    }

    /// The bridges above a function, top first; a damaged tree that loops is cut.
    fn bridges_above(&self, address: PciAddress) -> Vec<PciAddress> {
        let mut above = Vec::new();
        let mut next = self.functions.get(&address).and_then(|function| function.parent);
        while let Some(bridge) = next.filter(|bridge| *bridge != address && !above.contains(bridge)) {
            above.push(bridge);
            next = self.functions.get(&bridge).and_then(|function| function.parent);
        }
        above.reverse();
        above
    }

    /// The nearest function above that has an element, and the bridges below that.
    fn around(&self, above: &[PciAddress]) -> (Option<PciAddress>, Vec<PciAddress>) {
        let position = above.iter().rposition(|bridge| self.shown.contains_key(bridge));
        let skipped = above.iter().skip(position.map_or(0, |at| at + 1)).copied().collect();
        (position.and_then(|at| above.get(at)).copied(), skipped)
    }

    fn cpu(&self, out: &mut String, numa: Option<u32>) {
        let tops = self.shown.iter().filter(|(address, above)| {
            self.around(above).0.is_none()
                && self.functions.get(address).and_then(|function| function.numa_node) == numa
        });
        let tops: Vec<PciAddress> = tops.map(|(address, _)| *address).collect();
        let mut inner = String::new();
        for top in tops {
            self.pci(&mut inner, top, 4, None);
        }
        let lone = |pci: &Option<PciAddress>, id: &Option<u32>| pci.is_none() && *id == numa;
        self.nets(&mut inner, 4, lone);
        if inner.is_empty() && numa.is_none() {
            return;
        }
        let cpus = &self.machine.cpus;
        let set = self.machine.numa.iter().find(|node| Some(node.id) == numa).and_then(|node| node.cpus.as_ref());
        let mut attributes = vec![("numaid", numa.map_or("-1".into(), |id| id.to_string()))];
        let mut add = |name, value: Option<String>| attributes.extend(value.map(|value| (name, value)));
        let mask = set.map(CpuSet::to_mask).filter(|mask| mask.len() <= MOST_VALUE);
        add(LOCAL_CPUS, set.filter(|_| mask.is_none()).and_then(set_text));
        add("affinity", mask);
        add("arch", self.machine.arch.as_deref().map(|arch| nccl_arch(arch).to_owned()));
        add("vendor", cpus.vendor.clone());
        add("familyid", cpus.family.map(|id| id.to_string()));
        add("modelid", cpus.model_number.map(|id| id.to_string()));
        element(out, 2, "cpu", &attributes, &inner);
    }

    /// A function with everything below it. The depth is that of the bridges above a device.
    fn pci(&self, out: &mut String, address: PciAddress, indent: usize, inherited: Option<&CpuSet>) {
        let Some(above) = self.shown.get(&address) else { return };
        let (around, skipped) = self.around(above);
        let unknown = PciFunction::unknown(address);
        let known = self.functions.get(&address).copied();
        let function = known.unwrap_or(&unknown);
        let mut attributes = vec![("busid", address.to_string())];
        let mut add = |name, value: Option<String>| attributes.extend(value.map(|value| (name, value)));
        add("class", function.class.map(|class| format!("{class:#08x}")));
        for (name, id) in [
            ("vendor", function.vendor),
            ("device", function.device),
            ("subsystem_vendor", function.subsystem_vendor),
            ("subsystem_device", function.subsystem_device),
        ] {
            add(name, id.map(|id| format!("{id:#06x}")));
        }
        let (speed, width) = self.link(function);
        // NCCL wants both, and takes these for "not known".
        add("link_speed", Some(speed.map_or(String::new(), |speed| format!("{speed:?} GT/s PCIe"))));
        add("link_width", Some(width.map_or("0".into(), |width| width.to_string())));
        if around.is_none() {
            add(ROOT_BUS, function.root_bus.clone());
        }
        let local = known.and_then(|function| self.local_cpus(function));
        if local != inherited {
            // One that is too long is not told, rather than told in part.
            add(LOCAL_CPUS, Some(local.and_then(set_text).unwrap_or_default()));
        }
        let skipped: Vec<String> = skipped.iter().map(PciAddress::to_string).collect();
        add(VIA, (!skipped.is_empty()).then(|| skipped.join(" ")));

        let mut inner = String::new();
        let below = self.shown.iter().filter(|(_, above)| self.around(above).0 == Some(address));
        for below in below.map(|(below, _)| *below) {
            self.pci(&mut inner, below, indent + 2, local);
        }
        for (at, device) in self.machine.accelerators.iter().enumerate() {
            if device.id.pci == Some(address) {
                self.gpu(&mut inner, at, device, indent + 2);
            }
        }
        self.nets(&mut inner, indent + 2, |pci, _| *pci == Some(address));
        element(out, indent, "pci", &attributes, &inner);
    }

    /// The processors next to a function, where its NUMA node does not say the same.
    fn local_cpus(&self, function: &'a PciFunction) -> Option<&'a CpuSet> {
        let of_node = self.machine.numa.iter().find(|node| Some(node.id) == function.numa_node);
        let of_node = of_node.and_then(|node| node.cpus.as_ref());
        function.local_cpus.as_ref().filter(|set| !set.is_empty() && Some(*set) != of_node)
    }

    /// The lesser of what a function and the bridge above it can do, as NCCL takes it from the system; else what is now.
    fn link(&self, function: &PciFunction) -> (Option<f32>, Option<u8>) {
        let above = function.parent.and_then(|bridge| self.functions.get(&bridge)).map(|bridge| bridge.link);
        let above = above.unwrap_or_default();
        let speeds = [function.link.max_speed_gt_per_s, above.max_speed_gt_per_s].into_iter().flatten();
        let widths = [function.link.max_width, above.max_width].into_iter().flatten();
        let speed = function.link.max_speed_gt_per_s.and(speeds.reduce(f32::min));
        let width = function.link.max_width.and(widths.min());
        (speed.or(function.link.speed_gt_per_s), width.or(function.link.width))
    }

    fn gpu(&self, out: &mut String, at: usize, device: &Accelerator, indent: usize) {
        let mut attributes: Vec<_> = device.nccl.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        attributes.push((INDEX, at.to_string()));
        attributes.extend(device.model.clone().map(|model| (MODEL, model)));
        attributes.extend(device.memory_bytes.map(|bytes| (MEMORY, bytes.to_string())));
        let mut inner = String::new();
        for link in self.machine.links.iter().filter(|link| link.from == at) {
            self.accelerator_link(&mut inner, link, indent + 2);
        }
        element(out, indent, "gpu", &attributes, &inner);
    }

    /// In NCCL's words where it has them, else in an element of ours, which NCCL skips: it has no word for a link whose number of lanes
    /// is not known (hwloc tells the bandwidth alone), nor for a part of a GPU.
    fn accelerator_link(&self, out: &mut String, link: &AcceleratorLink, indent: usize) {
        let to = match link.to {
            LinkTarget::Accelerator(to) => self.machine.accelerators.get(to),
            LinkTarget::Switch | LinkTarget::Cpu => None,
        };
        let whole = to.is_none_or(|device| device.id.partition.is_none() && device.id.pci.is_some());
        let mut attributes = match (link.kind, link.count) {
            (LinkKind::NvLink | LinkKind::Xgmi, Some(count)) if whole => {
                let class = |address| self.functions.get(&address).and_then(|function| function.class);
                let (target, class) = match (&link.to, to.and_then(|device| device.id.pci)) {
                    (LinkTarget::Switch, _) => (NO_ADDRESS.to_owned(), SWITCH_CLASS.to_owned()),
                    (LinkTarget::Cpu, _) => (NO_ADDRESS.to_owned(), CPU_CLASS.to_owned()),
                    (LinkTarget::Accelerator(_), Some(address)) => {
                        (address.to_string(), format!("{:#08x}", class(address).unwrap_or(0x03_0200)))
                    }
                    (LinkTarget::Accelerator(_), None) => return,
                };
                vec![("target", target), ("count", count.to_string()), ("tclass", class)]
            }
            (LinkKind::NvLinkC2c, Some(count)) => {
                let each = link.mb_per_s.and_then(|all| all.checked_div(u64::from(count))).unwrap_or_default();
                return element(out, indent, "c2c", &[("count", count.to_string()), ("bw", each.to_string())], "");
            }
            _ => {
                let to = match link.to {
                    LinkTarget::Accelerator(to) => to.to_string(),
                    LinkTarget::Switch => "switch".to_owned(),
                    LinkTarget::Cpu => "cpu".to_owned(),
                };
                let mut attributes = vec![("kind", kind_name(link.kind).to_owned()), ("to", to)];
                attributes.extend(link.count.map(|count| ("count", count.to_string())));
                attributes
            }
        };
        let tag = if attributes.iter().any(|(name, _)| *name == "kind") { LINK } else { kind_name(link.kind) };
        attributes.extend(link.hops.map(|hops| (HOPS, hops.to_string())));
        attributes.extend(link.mb_per_s.map(|rate| (RATE, rate.to_string())));
        element(out, indent, tag, &attributes, "");
    }

    /// The `<nic>` with the network devices that `here` picks by function and NUMA node.
    fn nets(&self, out: &mut String, indent: usize, here: impl Fn(&Option<PciAddress>, &Option<u32>) -> bool) {
        let mut inner = String::new();
        let mut net = |own: Vec<(&str, Option<String>)>, kept: &BTreeMap<String, String>| {
            let mut attributes: Vec<(&str, String)> = Vec::new();
            attributes.extend(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
            attributes.extend(kept.iter().map(|(name, value)| (name.as_str(), value.clone())));
            element(&mut inner, indent + 2, "net", &attributes, "");
        };
        for port in self.machine.rdma.iter().filter(|port| here(&port.pci, &port.numa_node)) {
            let speed = port.rate_gbit_per_s.map(|rate| format!("{:.0}", rate * 1000.0));
            net(
                vec![("name", Some(port.device.clone())), ("speed", speed), ("port", Some(port.port.to_string()))],
                &port.nccl,
            );
        }
        for nic in self.machine.nics.iter().filter(|nic| here(&nic.pci, &nic.numa_node)) {
            if nic.kind == crate::NicKind::Physical {
                let speed = nic.speed_mbit_per_s.map(|speed| speed.to_string());
                net(vec![("name", Some(nic.name.clone())), ("speed", speed)], &nic.nccl);
            }
        }
        if !inner.is_empty() {
            element(out, indent, "nic", &[], &inner);
        }
    }
}

/// A set as a list, or as a mask where that is shorter; `None` where neither fits into a value.
fn set_text(set: &CpuSet) -> Option<String> {
    let (list, mask) = (set.to_string(), format!("0x{}", set.to_mask()));
    let text = if list.len() <= mask.len() { list } else { mask };
    (text.len() <= MOST_VALUE).then_some(text)
}

/// NCCL's word for an instruction set.
fn nccl_arch(arch: &str) -> &str {
    match arch {
        "aarch64" => "arm64",
        "ppc64le" => "ppc64",
        other => other,
    }
}

fn element(out: &mut String, indent: usize, tag: &str, attributes: &[(&str, String)], inner: &str) {
    open(out, indent, tag, attributes, inner.is_empty());
    if !inner.is_empty() {
        out.push_str(inner);
        let _ = writeln!(out, "{:indent$}</{tag}>", "");
    }
}

fn open(out: &mut String, indent: usize, tag: &str, attributes: &[(&str, String)], empty: bool) {
    let _ = write!(out, "{:indent$}<{tag}", "");
    for (name, value) in attributes {
        let _ = write!(out, " {name}=\"{}\"", escaped(value));
    }
    out.push_str(if empty { "/>\n" } else { ">\n" });
}

/// NCCL's reader knows no entities and takes 254 bytes: what it could not read is left out.
fn escaped(value: &str) -> String {
    let good = value.chars().filter(|c| !c.is_control() && !['<', '>', '&', '"', '\'', '='].contains(c));
    let mut text = String::new();
    for c in good {
        if text.len() + c.len_utf8() > MOST_VALUE {
            break;
        }
        text.push(c);
    }
    text
}
