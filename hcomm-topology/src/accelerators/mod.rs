//! GPUs, NPUs and other accelerators, and the direct links between them.

mod ascend;
mod classify;
mod command;
mod hccn;
mod kfd;
mod nvidia;
mod sysfs;

use std::collections::BTreeMap;
use std::time::Duration;

pub use ascend::{Npu, NpuTopology, parse_npus, parse_topology};
pub(crate) use classify::model_of;
pub use classify::{accelerator_kind, vendor_of};

use crate::{
    Accelerator, AcceleratorKind, AcceleratorLink, CpuSet, DeviceId, LinkTarget, PciAddress, PciFunction, Root, Vendor,
};

/// `npu-smi` takes a second or two; a driver that hangs must not hang us.
const NPU_SMI_LIMIT: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Found {
    pub accelerators: Vec<Accelerator>,
    pub links: Vec<AcceleratorLink>,
    /// Processors next to a device, as its vendor's tool says.
    pub cpus: BTreeMap<PciAddress, CpuSet>,
    pub notes: Vec<String>,
}

/// All accelerators among `pci`. Vendors' libraries and tools are asked only about the machine that this runs on.
pub(crate) fn find(root: &Root, pci: &[PciFunction]) -> Found {
    let mut found = Found { accelerators: functions(pci), ..Found::default() };
    for accelerator in &mut found.accelerators {
        sysfs::add(root, accelerator);
        nvidia::add_proc(root, accelerator);
    }
    kfd::add(root, &mut found);
    if root.is_this_machine() {
        nvidia::add_nvml(nvidia::LIBRARY.as_ref(), pci, &mut found);
        add_npu_smi(&mut found);
        hccn::add(&mut found);
    }
    found
}

/// The functions that are accelerators, in order of their addresses. A virtual function is a part of its physical one, lent to a guest.
fn functions(pci: &[PciFunction]) -> Vec<Accelerator> {
    let accelerator = |function: &PciFunction| {
        let kind = accelerator_kind(function.class?, function.vendor, function.device)?;
        let vendor = function.vendor.map(vendor_of);
        let id = DeviceId { pci: Some(function.address), partition: None, name: None };
        let link = &function.link;
        // A die whose data goes another way shows the least link there is.
        let least = |speed: Option<f32>, width: Option<u8>| speed == Some(2.5) && width == Some(1);
        let is_least = least(link.speed_gt_per_s, link.width);
        Some(Accelerator {
            kind,
            vendor,
            model: classify::model_of(function),
            numa_node: function.numa_node,
            pci_link_is_not_the_data_path: vendor == Some(Vendor::Huawei) && is_least,
            ..Accelerator::unknown(id)
        })
    };
    pci.iter().filter(|function| function.physical_function.is_none()).filter_map(accelerator).collect()
}

/// Asks `npu-smi`; silent where it is not installed and there is no NPU of Huawei.
fn add_npu_smi(found: &mut Found) {
    let ask = |arguments: &'static [&'static str]| command::output("npu-smi", arguments, NPU_SMI_LIMIT);
    // Both take their time, so they run side by side.
    let topology = std::thread::spawn(move || ask(&["info", "-t", "topo"]));
    let table = ask(&["info"]);
    let topology = topology.join().unwrap_or(Err(None));
    let has_npu = found.accelerators.iter().any(|accelerator| accelerator.vendor == Some(Vendor::Huawei));
    match (table, topology) {
        (Ok(table), topology) => {
            if let Err(Some(why)) = &topology {
                found.notes.push(format!("{why}: links between NPUs are unknown"));
            }
            add_ascend(found, &parse_npus(&table), &parse_topology(&topology.unwrap_or_default()));
        }
        (Err(Some(why)), _) => found.notes.push(format!("{why}: memory, load and links of NPUs are unknown")),
        (Err(None), _) if has_npu => {
            found.notes.push("npu-smi is not installed: memory, load and links of NPUs are unknown".to_owned());
        }
        (Err(None), _) => {}
    }
}

/// Takes over what the tool says, and orders NPUs by its numbers.
fn add_ascend(found: &mut Found, npus: &[Npu], topology: &NpuTopology) {
    let numbers: Vec<Option<u32>> = npus.iter().map(|npu| npu.physical.or(npu.card)).collect();
    let mut places: Vec<usize> = Vec::new();
    for (npu, number) in npus.iter().zip(&numbers) {
        let known = |a: &Accelerator| npu.pci.is_some() && a.id.pci == npu.pci;
        let at = found.accelerators.iter().position(known).unwrap_or_else(|| {
            let id = DeviceId { pci: npu.pci, partition: None, name: None };
            let (kind, vendor) = (AcceleratorKind::Npu, Some(Vendor::Huawei));
            found.accelerators.push(Accelerator { kind, vendor, ..Accelerator::unknown(id) });
            found.accelerators.len() - 1
        });
        places.push(at);
        if let Some(accelerator) = found.accelerators.get_mut(at) {
            take_over(accelerator, npu, *number);
        }
    }
    let numbered: BTreeMap<u32, usize> =
        numbers.iter().zip(&places).filter_map(|(number, at)| Some(((*number)?, *at))).collect();
    // The matrix names devices by their numbers on the machine.
    let device = |name: &String| {
        let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        numbered.get(&name.get(digits..)?.parse().ok()?).copied()
    };
    let devices: Vec<Option<usize>> = topology.names.iter().map(device).collect();
    let end = |at: usize| devices.get(at).copied().flatten();
    for (from, to, kind) in &topology.links {
        let (Some(from), Some(to)) = (end(*from), end(*to)) else { continue };
        let to = LinkTarget::Accelerator(to);
        found.links.push(AcceleratorLink { from, to, kind: *kind, count: None, hops: None, mb_per_s: None });
    }
    for (at, cpus) in devices.iter().zip(&topology.cpus) {
        let address = at.and_then(|at| found.accelerators.get(at)?.id.pci);
        if let (Some(address), Some(cpus)) = (address, cpus) {
            found.cpus.insert(address, cpus.clone());
        }
    }
    let rank: BTreeMap<usize, u32> = numbered.iter().map(|(number, at)| (*at, *number)).collect();
    order(found, |at| rank.get(&at).copied());
}

fn take_over(accelerator: &mut Accelerator, npu: &Npu, number: Option<u32>) {
    accelerator.id.name = number.map(|number| format!("phy {number}"));
    // The tool's `Ascend 910` stands for all of that family; the PCI number may know better.
    let is_finer = |model: &String| !accelerator.model.as_ref().is_some_and(|known| known.starts_with(model.as_str()));
    if let Some(model) = npu.model.clone().filter(is_finer) {
        accelerator.model = Some(model);
    }
    accelerator.health.clone_from(&npu.health);
    accelerator.power_w = npu.power_w.or(accelerator.power_w);
    accelerator.temperature_c = npu.temperature_c.or(accelerator.temperature_c);
    accelerator.utilisation_percent = npu.utilisation_percent.or(accelerator.utilisation_percent);
    accelerator.memory_bytes = npu.memory_bytes.or(accelerator.memory_bytes);
    accelerator.memory_used_bytes = npu.memory_used_bytes.or(accelerator.memory_used_bytes);
}

/// Orders those that have a number by it, after those that have none; links follow.
fn order(found: &mut Found, number: impl Fn(usize) -> Option<u32>) {
    let mut old: Vec<usize> = (0..found.accelerators.len()).collect();
    old.sort_by_key(|at| number(*at));
    let mut new = vec![0; old.len()];
    for (place, at) in old.iter().enumerate() {
        new[*at] = place;
    }
    found.accelerators = old.iter().map(|at| found.accelerators[*at].clone()).collect();
    for link in &mut found.links {
        link.from = new[link.from];
        if let LinkTarget::Accelerator(to) = &mut link.to {
            *to = new[*to];
        }
    }
}

#[cfg(test)]
mod tests;
