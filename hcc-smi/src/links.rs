//! Each link: direct ones between accelerators, and those of PCI Express.

use hcomm_cli::{Cell, Column, Screen, Table};
use hcomm_topology::graph::gb_per_s;
use hcomm_topology::{AcceleratorLink, LinkTarget, PciFunction};

use crate::source::Source;
use crate::status::{DEGRADED, link_now, notes};
use crate::words::{self, Pcie};

pub fn text(source: &Source, screen: Screen) -> String {
    let machine = &source.machine;
    let mut text = String::new();
    if machine.links.is_empty() {
        text += "No direct link between accelerators is known.\n\n";
    } else {
        text += &format!("{}\n", direct(source, screen));
    }
    let functions: Vec<&PciFunction> = machine.pci.iter().filter(|function| has_link(function)).collect();
    if functions.is_empty() {
        text += "No PCI Express link is known.\n";
    } else {
        let (table, degraded) = pcie(source, &functions, screen);
        text += &table;
        if degraded {
            text += "\n";
            text += &words::wrap(DEGRADED, screen);
        }
    }
    text + &notes(machine, screen)
}

/// Whether anything of a link is told.
pub fn has_link(function: &PciFunction) -> bool {
    let link = &function.link;
    link.speed_gt_per_s.is_some() || link.width.is_some() || link.gb_per_s.is_some()
}

/// Name of the far end of a direct link.
pub fn target(source: &Source, link: &AcceleratorLink) -> String {
    match link.to {
        LinkTarget::Accelerator(at) => label(source, at).unwrap_or_else(|| at.to_string()),
        LinkTarget::Switch => "switch".to_owned(),
        LinkTarget::Cpu => "processor".to_owned(),
    }
}

/// Label of the accelerator with an index.
pub fn label(source: &Source, accelerator: usize) -> Option<String> {
    let device = source.graph.devices().iter().find(|device| device.accelerator == Some(accelerator));
    device.map(|device| device.label.clone())
}

/// GB/s of a direct link, one direction: as the source says, else by its kind and lanes.
pub fn link_rate(source: &Source, link: &AcceleratorLink) -> Option<f64> {
    if let Some(rate) = link.mb_per_s {
        return Some(rate as f64 / 1000.0);
    }
    let LinkTarget::Accelerator(to) = link.to else { return None };
    let place = |at: usize| source.graph.devices().iter().position(|device| device.accelerator == Some(at));
    source.graph.estimate(place(link.from)?, place(to)?).gb_per_s
}

fn direct(source: &Source, screen: Screen) -> String {
    let mut table = Table::new([
        Column::text("FROM"),
        Column::text("TO"),
        Column::text("LINK"),
        Column::number("LANES"),
        Column::number("HOPS"),
        Column::number("GB/s"),
    ]);
    for link in &source.machine.links {
        table.row([
            Cell::of(label(source, link.from)),
            Cell::from(target(source, link)),
            Cell::from(words::link_kind(link.kind)),
            Cell::of(link.count),
            Cell::of(link.hops),
            Cell::of(link_rate(source, link).map(words::rate)),
        ]);
    }
    table.render(screen)
}

/// What a function is for the reader: a device of the graph, else its name.
fn what(source: &Source, function: &PciFunction) -> Cell {
    let device = source.graph.devices().iter().find(|device| device.pci == Some(function.address));
    if let Some(device) = device {
        return Cell::from(device.label.as_str());
    }
    Cell::of(function.bridge.then_some("bridge"))
}

fn pcie(source: &Source, functions: &[&PciFunction], screen: Screen) -> (String, bool) {
    let mut table = Table::new([
        Column::text("BUS ID"),
        Column::text("WHAT"),
        Column::text("ABOVE"),
        Column::text("LINK NOW"),
        Column::text("POSSIBLE"),
        Column::number("GB/s"),
        Column::text("NAME").shrink_to(16).drop_rank(1),
    ]);
    let mut degraded = false;
    for function in functions {
        let pcie = Pcie::of(&source.machine, Some(function.address));
        degraded |= pcie.degraded == Some(true);
        table.row([
            Cell::from(function.address.to_string()),
            what(source, function),
            Cell::of(function.parent),
            link_now(&pcie),
            Cell::of(pcie.possible),
            Cell::of(gb_per_s(&function.link).map(words::rate)),
            Cell::of(words::name(function)),
        ]);
    }
    (table.render(screen), degraded)
}
