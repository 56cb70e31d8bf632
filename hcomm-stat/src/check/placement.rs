//! Where cards sit and who serves them: PCI Express links, NUMA nodes, interrupts.

use hcomm_topology::{CpuSet, NicKind, PciAddress, PciFunction, below_own_best, degraded};

use super::Context;
use crate::links::Device;

pub fn run(context: &mut Context<'_>) {
    let cards: Vec<(String, Option<PciAddress>, Option<u32>)> = context
        .links
        .iter()
        .filter_map(|link| match &link.device {
            Device::Interface(nic) => {
                (nic.kind == NicKind::Physical).then(|| (link.name.clone(), nic.pci, nic.numa_node))
            }
            Device::Port(port, _) => Some((link.name.clone(), port.pci, port.numa_node)),
        })
        .collect();
    for (name, pci, node) in cards {
        if let Some(at) = pci.and_then(|pci| context.pci.iter().position(|function| function.address == pci)) {
            pci_link(context, &name, at);
        }
        numa(context, &name, node);
        if context.links.iter().any(|link| link.name == name && link.nic().is_some()) {
            interrupts(context, &name);
        }
    }
}

/// `16 GT/s x8`.
fn words(function: &PciFunction, best: bool) -> Option<String> {
    let link = &function.link;
    let (speed, width) =
        if best { (link.max_speed_gt_per_s, link.max_width) } else { (link.speed_gt_per_s, link.width) };
    Some(format!("{} GT/s x{}", speed?, width?))
}

fn pci_link(context: &mut Context<'_>, name: &str, at: usize) {
    let function = &context.pci[at];
    let address = function.address;
    let (now, best) = (words(function, false), words(function, true));
    match (degraded(&context.pci, at), below_own_best(function), now, best) {
        (Some(true), _, Some(now), Some(best)) => {
            let fix = format!("reseat the card, look at riser and slot; lspci -vvs {address} shows LnkCap and LnkSta");
            context.fail("pcie", name, format!("{now}, both ends can do more; the card {best}"), fix);
        }
        (_, Some(true), Some(now), Some(best)) => {
            let fix = format!("a faster or wider slot; lspci -vvs {address}");
            context.warn("pcie", name, format!("{now}, the card can do {best}"), fix);
        }
        (_, Some(false), Some(now), _) => context.ok("pcie", name, now),
        _ => context.unknown("pcie", name, "speed or width is not told"),
    }
}

fn numa(context: &mut Context<'_>, name: &str, node: Option<u32>) {
    match (context.numa.len(), node) {
        (0 | 1, _) => {}
        (_, Some(node)) => context.ok("numa", name, format!("node {node}")),
        (_, None) => context.unknown("numa", name, "its node is not told (a virtual machine, or firmware without it)"),
    }
}

/// Interrupts should be served next to the card.
fn interrupts(context: &mut Context<'_>, name: &str) {
    let device = format!("sys/class/net/{name}/device");
    let numbers = context.root.list(format!("{device}/msi_irqs"));
    if numbers.is_empty() || context.numa.len() < 2 {
        return;
    }
    let list =
        |path: &str| context.root.text(path).and_then(|text| CpuSet::parse_list(&text)).filter(|set| !set.is_empty());
    let Some(local) = list(&format!("{device}/local_cpulist")) else { return };
    let affinity = |number: &String| {
        let of = |file: &str| list(&format!("proc/irq/{number}/{file}"));
        of("effective_affinity_list").or_else(|| of("smp_affinity_list"))
    };
    let known: Vec<(&String, CpuSet)> = numbers.iter().filter_map(|number| Some((number, affinity(number)?))).collect();
    let far: Vec<&String> =
        known.iter().filter(|(_, cpus)| cpus.and(&local).is_empty()).map(|(number, _)| *number).collect();
    if known.is_empty() {
        context.unknown("interrupts", name, "their processors are not told");
    } else if let Some(first) = far.first() {
        let reason = format!("{} of {} are served away from the card's processors {local}", far.len(), known.len());
        let fix = format!(
            "echo {local} > /proc/irq/{first}/smp_affinity_list, and so on; stop irqbalance or give it a policy"
        );
        context.warn("interrupts", name, reason, fix);
    } else {
        let reason = format!("all {} are served next to the card", known.len());
        context.ok("interrupts", name, reason);
    }
}
