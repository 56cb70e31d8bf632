//! `--list`: a line a device. What is not known is left out.

use std::collections::BTreeSet;

use hcomm_cli::{Screen, printable};
use hcomm_topology::{Accelerator, Machine};

use crate::source::Source;
use crate::words::{self, Pcie};

pub fn text(source: &Source) -> String {
    let machine = &source.machine;
    let mut text = String::new();
    for (number, accelerator) in machine.accelerators.iter().enumerate() {
        let parts = parts(machine, number, accelerator);
        text += &format!("Device {number}: {}\n", printable(&parts.join(", ")));
    }
    if machine.accelerators.is_empty() {
        text += &format!("No accelerator: {}.\n", source.looked);
        text += &crate::status::processors(machine, Screen::plain());
        for nic in source.graph.nics().into_iter().filter_map(|at| source.graph.devices().get(at)) {
            let name = if nic.names.is_empty() { nic.label.clone() } else { nic.names.join(" ") };
            let place = nic.pci.map(|address| format!(", {address}")).unwrap_or_default();
            let rate = nic.network_gb_per_s.map(|rate| format!(", {} Gb/s", words::rate(rate * 8.0)));
            text += &format!("Network: {}{place}{}\n", printable(&name), rate.unwrap_or_default());
        }
    }
    text
}

fn parts(machine: &Machine, number: usize, accelerator: &Accelerator) -> Vec<String> {
    let mut parts = vec![words::full_model(machine, accelerator)];
    parts.extend(accelerator.memory_bytes.map(|bytes| format!("Memory {}", words::memory(bytes))));
    let pcie = Pcie::of(machine, accelerator.id.pci);
    // Its data goes another way: that is what to show.
    if !accelerator.pci_link_is_not_the_data_path {
        let possible = pcie.possible.filter(|_| pcie.degraded == Some(true));
        let possible = possible.map(|possible| format!(" (possible: {possible})")).unwrap_or_default();
        parts.extend(pcie.now.map(|now| format!("PCIe {now}{possible}")));
    }
    let kinds: BTreeSet<&str> =
        machine.links.iter().filter(|link| link.from == number).map(|link| words::link_kind(link.kind)).collect();
    parts.extend(kinds.into_iter().map(str::to_owned));
    parts.extend(accelerator.id.pci.map(|address| address.to_string()));
    parts.retain(|part| !part.is_empty());
    parts
}
