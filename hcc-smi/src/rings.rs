//! The rings and trees that are built over the accelerators, and the network device of each.

use hcomm_cli::{Screen, lines, wrap};
use hcomm_topology::graph::{Graph, Ring, Tree};

use crate::source::Source;
use crate::words;

pub fn text(source: &Source, screen: Screen) -> String {
    let graph = &source.graph;
    let devices = graph.accelerators();
    let mut text = match devices.len() {
        0 => return wrap(&format!("No accelerator, so no ring: {}.", source.looked), screen),
        1 => wrap("One accelerator: no ring.", screen),
        _ => String::new(),
    };
    for (number, ring) in graph.rings(&devices).iter().enumerate() {
        text += &wrap(&format!("Ring {number}: {}", describe(ring)), screen);
        text += &lines("  ", "  ", around(graph, ring), screen);
    }
    if devices.len() > 1 {
        for (number, tree) in graph.trees(&devices).iter().enumerate() {
            let root = tree.root.map_or("-".to_owned(), |at| label(graph, at));
            text += &wrap(&format!("Tree {number}: root {root}"), screen);
            text += &lines("  ", "  ", branches(graph, tree), screen);
        }
    }
    text += &wrap("Network device of each:", screen);
    let nics = devices.iter().zip(graph.assign_nics(&devices)).map(|(device, nic)| match nic {
        Some(nic) => format!("{}: {} ({})", label(graph, *device), label(graph, nic), graph.relation(*device, nic)),
        None => format!("{}: -", label(graph, *device)),
    });
    let nics = nics.collect::<Vec<_>>().join(", ");
    text + &lines("  ", "  ", nics.split(' '), screen)
}

fn describe(ring: &Ring) -> String {
    let mut text = format!("weakest step {}", ring.weakest);
    if let Some(lanes) = ring.lanes {
        text += &format!(", {lanes} lanes");
    }
    match ring.gb_per_s {
        Some(rate) => text + &format!(", {} GB/s", words::rate(rate)),
        None => text,
    }
}

/// The devices of a ring, each with the way to the next.
fn around(graph: &Graph, ring: &Ring) -> Vec<String> {
    let next = ring.order.iter().cycle().skip(1);
    let steps = ring.order.iter().zip(next).map(|(a, b)| format!("{} -{}->", label(graph, *a), graph.relation(*a, *b)));
    steps.chain(ring.order.first().map(|first| label(graph, *first))).collect()
}

/// Each device with those below it.
fn branches(graph: &Graph, tree: &Tree) -> Vec<String> {
    let branch = |device: &usize| {
        let children: Vec<String> = tree.children(*device).into_iter().map(|child| label(graph, child)).collect();
        (!children.is_empty()).then(|| format!("{} -> {};", label(graph, *device), children.join(" ")))
    };
    tree.order.iter().filter_map(branch).collect()
}

pub fn label(graph: &Graph, device: usize) -> String {
    graph.devices().get(device).map_or_else(|| device.to_string(), |device| device.label.clone())
}
