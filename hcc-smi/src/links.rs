//! Each link: direct ones between accelerators, and those of PCI Express.

use hcomm_cli::{Cell, Column, Screen, Table, wrap};
use hcomm_topology::graph::gb_per_s;
use hcomm_topology::{AcceleratorLink, AcceleratorPort, LinkTarget, PciFunction};

use crate::source::Source;
use crate::status::{DEGRADED, link_now, notes};
use crate::words::{self, Pcie};

pub fn text(source: &Source, screen: Screen) -> String {
    let machine = &source.machine;
    let mut text = String::new();
    if machine.links.is_empty() {
        text += &(wrap("No direct link between accelerators is known.", screen) + "\n");
    } else {
        text += &format!("{}\n", direct(source, screen));
    }
    text += &ports(source, screen);
    let functions: Vec<&PciFunction> = machine.pci.iter().filter(|function| has_link(function)).collect();
    if functions.is_empty() {
        text += &wrap("No PCI Express link is known.", screen);
    } else {
        let (table, degraded) = pcie(source, &functions, screen);
        text += &table;
        if degraded {
            text += "\n";
            text += &wrap(DEGRADED, screen);
        }
    }
    text + &notes(machine, screen)
}

/// Network ports on the accelerators themselves; nothing where none is told of.
fn ports(source: &Source, screen: Screen) -> String {
    let mut table = Table::new([
        Column::text("PORT OF"),
        Column::text("STATE"),
        Column::number("SPEED"),
        Column::text("ADDRESS"),
        Column::text("NETWORK"),
        Column::text("MODULE").drop_rank(2),
        Column::text("ERRORS").wrap_to(16).drop_rank(1),
    ]);
    let mut some = false;
    for (at, accelerator) in source.machine.accelerators.iter().enumerate() {
        let Some(port) = &accelerator.port else { continue };
        some = true;
        let module = match (port.module_present, port.module_temperature_c) {
            (Some(false), _) => Some("none".to_owned()),
            (_, Some(degrees)) => Some(format!("{degrees:.0}C")),
            (present, None) => present.map(|_| "present".to_owned()),
        };
        table.row([
            Cell::of(label(source, at)),
            match port.up {
                Some(true) => Cell::from("up").good(),
                Some(false) => Cell::from("down").warning(),
                None => Cell::unknown(),
            },
            Cell::of(port.speed_mbit_per_s.map(|speed| format!("{} Gb/s", words::rate(speed as f64 / 1000.0)))),
            Cell::of(port.address.as_deref()),
            match port.health.as_deref() {
                Some("Success") => Cell::from("Success").good(),
                word => Cell::of(word),
            },
            Cell::of(module),
            errors(port),
        ]);
    }
    if some { table.render(screen) + "\n" } else { String::new() }
}

/// The counters whose names speak of what went wrong, if they are not 0.
fn errors(port: &AcceleratorPort) -> Cell {
    if port.counters.is_empty() {
        return Cell::unknown();
    }
    let bad = |name: &str| ["err", "bad", "rty", "drop", "discard"].iter().any(|word| name.contains(word));
    let some: Vec<String> = port
        .counters
        .iter()
        .filter(|(name, count)| **count > 0 && bad(name))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if some.is_empty() { Cell::from("none") } else { Cell::from(some.join(", ")).warning() }
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
