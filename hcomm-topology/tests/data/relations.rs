//! Comparing the graph of a machine with what is expected of it.

use hcomm_topology::Machine;
use hcomm_topology::graph::{Graph, Nearest};
use serde_json::Value;

use crate::support::Tally;
use crate::xml::{at, entries, list};

/// The index of a device by its PCI address.
fn device(graph: &Graph, address: &str) -> Option<usize> {
    graph.devices().iter().position(|device| device.pci.is_some_and(|pci| pci.to_string() == address))
}

/// Each word of a matrix whose rows and columns are PCI addresses.
pub fn matrix(tally: &mut Tally, name: &str, machine: &Machine, expected: &Value) {
    let graph = Graph::of(machine);
    for (from, row) in entries(expected) {
        for (to, word) in entries(row) {
            let got = device(&graph, from)
                .zip(device(&graph, to))
                .map(|(from, to)| graph.relation_without_links(from, to).to_string());
            tally.equal(name, &format!("{from} - {to}"), got.as_deref(), word.as_str());
        }
    }
    let known: Vec<&String> = entries(expected).into_iter().map(|(address, _)| address).collect();
    let extra: Vec<String> = graph
        .devices()
        .iter()
        .filter_map(|d| d.pci)
        .map(|pci| pci.to_string())
        .filter(|pci| !known.contains(&pci))
        .collect();
    tally.equal(name, "devices beyond the matrix", extra, Vec::<String>::new());
}

/// The nearest network devices of each accelerator.
pub fn nearest(tally: &mut Tally, name: &str, machine: &Machine, expected: &Value) {
    let graph = Graph::of(machine);
    for (gpu, entry) in entries(expected) {
        let found: Option<Nearest> = device(&graph, gpu).and_then(|gpu| graph.nearest_nics(gpu));
        tally.equal(
            name,
            &format!("{gpu} class"),
            found.as_ref().map(|n| n.relation.to_string()).as_deref(),
            entry["class"].as_str(),
        );
        let nics = found.map(|nearest| nearest.nics).unwrap_or_default();
        let mut nics: Vec<String> =
            nics.iter().filter_map(|nic| Some(graph.devices()[*nic].pci?.to_string())).collect();
        let mut wanted: Vec<String> =
            list(at(entry, "nics")).iter().filter_map(|nic| nic.as_str()).map(str::to_owned).collect();
        nics.sort();
        wanted.sort();
        tally.equal(name, &format!("{gpu} nics"), nics, wanted);
    }
}

/// Two machines with the same devices and relations.
pub fn same(tally: &mut Tally, name: &str, one: &Machine, other: &Machine) {
    let (one, other) = (Graph::of(one), Graph::of(other));
    let devices = |graph: &Graph| -> Vec<String> {
        graph.devices().iter().map(|d| format!("{} {:?} {:?}", d.label, d.pci, d.numa_node)).collect()
    };
    tally.equal(name, "devices", devices(&one), devices(&other));
    for a in 0..one.devices().len() {
        for b in 0..one.devices().len() {
            let what = |what: &str| format!("{what} of {a} and {b}");
            tally.equal(name, &what("relation"), other.relation(a, b), one.relation(a, b));
            tally.equal(
                name,
                &what("plain relation"),
                other.relation_without_links(a, b),
                one.relation_without_links(a, b),
            );
        }
    }
}
