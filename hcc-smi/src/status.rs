//! No arguments: accelerators, network devices, processors.

use hcomm_cli::{Cell, Column, Screen, Table, wrap};
use hcomm_topology::{Accelerator, Health, Machine, RdmaPortState};

use crate::source::Source;
use crate::words::{self, Pcie};

/// What a mark at a link says.
pub const DEGRADED: &str = "! runs below what both of its ends can do; idle GPUs lower their link, so look under load";

pub fn text(source: &Source, screen: Screen) -> String {
    let machine = &source.machine;
    let host = machine.hostname.as_deref().unwrap_or("-");
    let arch = machine.arch.as_deref().unwrap_or("-");
    let title = format!("hcc-smi {}  host {host}  {arch}  from {}", env!("CARGO_PKG_VERSION"), source.name);
    let mut text = wrap(&title, screen) + "\n";
    let mut degraded = false;
    if machine.accelerators.is_empty() {
        text += &wrap(&format!("No accelerator: {}.", source.looked), screen);
    } else {
        text += &accelerators(machine, screen, &mut degraded);
    }
    text += "\n";
    text += &network(source, screen, &mut degraded);
    text += "\n";
    text += &processors(machine, screen);
    if degraded {
        text += "\n";
        text += &wrap(DEGRADED, screen);
    }
    text + &notes(machine, screen)
}

fn accelerators(machine: &Machine, screen: Screen, degraded: &mut bool) -> String {
    // What no device tells goes first where space is short.
    let told =
        |is: &dyn Fn(&Accelerator) -> bool, rank: u8| if machine.accelerators.iter().any(is) { rank } else { rank + 8 };
    let power = machine.accelerators.iter().any(|accelerator| accelerator.power_w.is_some());
    let mut columns = vec![
        Column::number("#"),
        Column::text("MODEL").shrink_to(if power { 7 } else { 14 }),
        Column::text("BUS ID"),
        Column::number("NUMA"),
        Column::number("MEMORY").drop_rank(told(&|a| a.memory_bytes.is_some() || a.memory_used_bytes.is_some(), 1)),
        Column::number("UTIL").drop_rank(told(&|a| a.utilisation_percent.is_some(), 2)),
        Column::number("TEMP").drop_rank(told(&|a| a.temperature_c.is_some(), 3)),
        Column::number("POWER").drop_rank(told(&|a| a.power_w.is_some(), 4)),
        Column::text("LINK NOW"),
        Column::text("POSSIBLE"),
    ];
    // Few vendors tell.
    if machine.accelerators.iter().any(|accelerator| accelerator.health.is_some()) {
        columns.push(Column::text("HEALTH"));
    }
    let mut table = Table::new(columns);
    for (number, accelerator) in machine.accelerators.iter().enumerate() {
        let pcie = Pcie::of(machine, accelerator.id.pci);
        let (now, possible) = if accelerator.pci_link_is_not_the_data_path {
            // The way of its data, by the links that it has.
            let link = machine.links.iter().find(|link| link.from == number).map(|link| words::link_kind(link.kind));
            (Cell::of(link), Cell::unknown())
        } else {
            *degraded |= pcie.degraded == Some(true);
            (link_now(&pcie), Cell::of(pcie.possible))
        };
        table.row([
            Cell::from(number.to_string()),
            Cell::of(words::model(machine, accelerator)),
            Cell::of(accelerator.id.pci),
            Cell::of(accelerator.numa_node),
            Cell::of(words::memory_used(accelerator.memory_used_bytes, accelerator.memory_bytes)),
            Cell::of(accelerator.utilisation_percent.map(|percent| format!("{percent:.0}%"))),
            Cell::of(accelerator.temperature_c.map(|degrees| format!("{degrees:.0}C"))),
            Cell::of(accelerator.power_w.map(|watts| format!("{watts:.0}W"))),
            now,
            possible,
            match &accelerator.health {
                None => Cell::unknown(),
                Some(Health::Good) => Cell::from("OK").good(),
                Some(Health::Bad(word)) => Cell::from(word.as_str()).bad(),
            },
        ]);
    }
    table.render(screen)
}

/// The link as it is, marked when it could be more.
pub fn link_now(pcie: &Pcie) -> Cell {
    match (&pcie.now, pcie.degraded) {
        (Some(now), Some(true)) => Cell::from(format!("{now} !")).warning(),
        (now, _) => Cell::of(now.as_deref()),
    }
}

/// Network devices; those without a device behind them (bonds, bridges) are none.
fn network(source: &Source, screen: Screen, degraded: &mut bool) -> String {
    let machine = &source.machine;
    let nics = source.graph.nics();
    if nics.is_empty() {
        return wrap("No network device.", screen);
    }
    let mut table = Table::new([
        Column::text("NIC"),
        Column::text("NAMES").shrink_to(8),
        Column::text("BUS ID"),
        Column::number("NUMA"),
        Column::text("STATE"),
        Column::number("SPEED"),
        Column::text("LINK NOW"),
        Column::text("POSSIBLE"),
        Column::text("DEVICE").shrink_to(12).drop_rank(1),
    ]);
    for device in nics.into_iter().filter_map(|at| source.graph.devices().get(at)) {
        let pcie = Pcie::of(machine, device.pci);
        *degraded |= pcie.degraded == Some(true);
        let function = words::function(machine, device.pci);
        let name = function.and_then(words::name);
        table.row([
            Cell::from(device.label.as_str()),
            Cell::of(Some(device.names.join(" ")).filter(|names| !names.is_empty())),
            Cell::of(device.pci),
            Cell::of(device.numa_node),
            state(machine, &device.names),
            Cell::of(device.network_gb_per_s.map(|rate| format!("{} Gb/s", words::rate(rate * 8.0)))),
            link_now(&pcie),
            Cell::of(pcie.possible),
            Cell::of(name),
        ]);
    }
    table.render(screen)
}

/// Of the RDMA ports where there are some, else of the interfaces: the worst.
fn state(machine: &Machine, names: &[String]) -> Cell {
    let ports: Vec<RdmaPortState> =
        machine.rdma.iter().filter(|port| names.contains(&port.device)).filter_map(|port| port.state).collect();
    if let Some(state) = ports.iter().find(|state| **state != RdmaPortState::Active).or(ports.first()) {
        let word = format!("{state:?}").to_lowercase();
        return if *state == RdmaPortState::Active { Cell::from(word).good() } else { Cell::from(word).warning() };
    }
    let mut words = machine.nics.iter().filter(|nic| names.contains(&nic.name)).filter_map(|nic| nic.state.as_deref());
    match words.find(|word| *word != "up") {
        Some(word) => Cell::from(word).warning(),
        None if machine.nics.iter().any(|nic| names.contains(&nic.name) && nic.state.is_some()) => {
            Cell::from("up").good()
        }
        None => Cell::unknown(),
    }
}

/// Packages, cores, threads, nodes: a line each.
pub fn processors(machine: &Machine, screen: Screen) -> String {
    let cpus = &machine.cpus;
    if cpus.present.is_empty() && cpus.threads.is_empty() && machine.numa.is_empty() {
        return wrap("Processors: not known", screen);
    }
    let count = |n: usize, one: &str| match n {
        0 => format!("- {one}s"),
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    };
    let model = cpus.model.as_deref().unwrap_or("-");
    let mut text = format!(
        "Processors: {model}, {}, {}, {}",
        count(cpus.packages.len(), "package"),
        count(cpus.cores.len(), "core"),
        count(cpus.present.len().max(cpus.threads.len()), "thread"),
    );
    if cpus.online.len() < cpus.present.len() && !cpus.online.is_empty() {
        text += &format!(", on line {}", cpus.online);
    }
    if let Some(allowed) = cpus.allowed.as_ref().filter(|allowed| **allowed != cpus.online && !allowed.is_empty()) {
        text += &format!(", we may use {allowed}");
    }
    if let Some(quota) = cpus.quota {
        text += &format!(", time of {}", count(quota as usize, "processor"));
    }
    text = wrap(&text, screen);
    for node in &machine.numa {
        let memory = node.memory_bytes.map_or("-".to_owned(), words::memory);
        let cpus = match &node.cpus {
            None => "processors -".to_owned(),
            Some(cpus) if cpus.is_empty() => "no processors".to_owned(),
            Some(cpus) => format!("processors {cpus}"),
        };
        text += &wrap(&format!("NUMA node {}: {cpus}, memory {memory}", node.id), screen);
    }
    text
}

/// What could not be read.
pub fn notes(machine: &Machine, screen: Screen) -> String {
    machine.notes.iter().map(|note| wrap(&format!("note: {note}"), screen)).collect()
}
