//! Relations on trees of real machines, and on matrices that `nvidia-smi topo -m` printed.

use std::collections::BTreeMap;
use std::fs;

use hcomm_topology::formats::nccl;
use hcomm_topology::graph::{Graph, Relation};
use hcomm_topology::{Machine, PciAddress};
use serde_json::Value;

use crate::relations;
use crate::support::{Tally, data, machines, say};
use crate::xml::{at, entries, list};

#[test]
fn relations_of_trees() {
    let mut tally = Tally::new("relations of trees");
    for tree in machines("rebuilt-sysfs") {
        let machine = Machine::discover(&tree.root);
        let (name, expected) = (&tree.name, &tree.expected);
        for (address, chain) in entries(at(expected, "chains")) {
            let mut own = Vec::new();
            let mut next = address.parse::<PciAddress>().ok();
            while let Some(function) = machine.pci.iter().find(|function| Some(function.address) == next) {
                next = function.parent;
                own.push(next.map_or_else(
                    || format!("pci{}", function.root_bus.as_deref().unwrap_or("?")),
                    |up| up.to_string(),
                ));
            }
            let wanted: Vec<&str> = list(chain).iter().filter_map(Value::as_str).collect();
            tally.equal(name, &format!("chain of {address}"), own, wanted);
        }
        relations::matrix(&mut tally, name, &machine, at(expected, "relation_matrix"));
        relations::nearest(&mut tally, name, &machine, at(expected, "nearest_nic_of_gpu"));
    }
}

#[test]
fn trees_written_as_xml_give_the_same_matrix() {
    let mut tally = Tally::new("trees written as NCCL XML");
    for folder in ["rebuilt-sysfs", "hwloc-sysfs", "ghw-snapshots"] {
        for tree in machines(folder) {
            let machine = Machine::discover(&tree.root);
            let written = nccl::write(&machine);
            let again = Machine::from_xml(&tree.name, &written).unwrap_or_else(|e| panic!("{e}\n{written}"));
            relations::same(&mut tally, &tree.name, &machine, &again);
        }
    }
}

/// The files of printed matrices.
fn printed() -> Vec<(String, Value)> {
    let Ok(files) = fs::read_dir(data("topo-matrix")) else {
        say("skipped: no topo-matrix");
        return Vec::new();
    };
    let read = |path: std::path::PathBuf| {
        let name = format!("topo-matrix/{}", path.file_stem()?.to_str()?);
        Some((name, serde_json::from_slice(&fs::read(&path).ok()?).ok()?))
    };
    files.flatten().filter_map(|file| read(file.path())).collect()
}

#[test]
fn printed_matrices() {
    let mut tally = Tally::new("printed matrices");
    for (name, file) in printed() {
        let labels: Vec<String> = serde_json::from_value(file["names"].clone()).unwrap();
        let words: Vec<Vec<String>> = serde_json::from_value(file["matrix"].clone()).unwrap();
        let graph = Graph::from_words(&labels, &words).unwrap();
        let expected = at(&file, "expect");
        let at_label = |label: &str| labels.iter().position(|known| known == label).unwrap();
        let n = labels.len();
        for (a, row) in words.iter().enumerate() {
            for (b, word) in row.iter().enumerate() {
                tally.equal(&name, &format!("{a} - {b}"), &graph.relation(a, b).to_string(), word);
            }
        }
        let odd: Vec<String> = (0..n)
            .flat_map(|a| (a + 1..n).map(move |b| (a, b)))
            .filter(|(a, b)| graph.relation(*a, *b) != graph.relation(*b, *a))
            .map(|(a, b)| format!("{}-{}", labels[a], labels[b]))
            .collect();
        tally.equal(&name, "symmetric", odd.is_empty(), expected["symmetric"].as_bool().unwrap());
        let wanted: Vec<&str> = list(at(expected, "asymmetric_pairs")).iter().filter_map(Value::as_str).collect();
        tally.equal(&name, "asymmetric_pairs", odd, wanted);
        let gpus = graph.accelerators();
        let nearest = at(expected, "nearest_nic_of_gpu");
        for gpu in &gpus {
            let own = graph.nearest_nics(*gpu);
            let entry = at(nearest, &labels[*gpu]);
            tally.equal(
                &name,
                &format!("{} class", labels[*gpu]),
                own.as_ref().map(|n| n.relation.to_string()).as_deref(),
                entry["class"].as_str(),
            );
            let nics: Vec<&str> = own.iter().flat_map(|n| &n.nics).map(|nic| labels[*nic].as_str()).collect();
            let wanted: Vec<&str> = list(at(entry, "nics")).iter().filter_map(Value::as_str).collect();
            tally.equal(&name, &format!("{} nics", labels[*gpu]), nics, wanted);
        }
        let mut links: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for a in &gpus {
            let row = links.entry(labels[*a].clone()).or_default();
            for b in &gpus {
                if let Relation::Link(_, Some(count)) = graph.relation(*a, *b) {
                    row.insert(labels[*b].clone(), count);
                }
            }
        }
        let wanted: BTreeMap<String, BTreeMap<String, u32>> =
            serde_json::from_value(expected["direct_links"].clone()).unwrap();
        tally.equal(&name, "direct_links", links, wanted);
        for pair in list(at(expected, "no_direct_link")) {
            let (a, b) = pair.as_str().unwrap().split_once('-').unwrap();
            tally.equal(&name, &format!("{pair} no link"), graph.relation(at_label(a), at_label(b)).is_link(), false);
        }
        rings(&mut tally, &name, &graph, &labels, expected);
        assignment(&mut tally, &name, &graph);
    }
}

fn rings(tally: &mut Tally, name: &str, graph: &Graph, labels: &[String], expected: &Value) {
    let gpus = graph.accelerators();
    let rings = graph.rings(&gpus);
    let direct = rings.first().is_some_and(|ring| ring.weakest.is_link());
    if let Some(exists) = expected["a_ring_on_direct_links_only_exists"].as_bool() {
        tally.equal(name, "a ring over direct links alone", direct, exists);
        // The ring that is given is one; ours is no worse.
        let given: Vec<usize> = list(at(expected, "one_such_ring"))
            .iter()
            .map(|label| labels.iter().position(|known| Some(known.as_str()) == label.as_str()).unwrap())
            .collect();
        let lanes = |order: &[usize]| {
            order
                .iter()
                .zip(order.iter().cycle().skip(1))
                .map(|(a, b)| match graph.relation(*a, *b) {
                    Relation::Link(_, count) => count.unwrap(),
                    _ => 0,
                })
                .min()
        };
        tally.equal(name, "bottleneck of the ring", lanes(&rings[0].order) >= lanes(&given), true);
    }
    // Each ring has every device once, and all rings together use no more lanes than there are.
    let mut used: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for ring in &rings {
        let mut all = ring.order.clone();
        all.sort();
        tally.equal(name, "devices of a ring", &all, &gpus);
        for (a, b) in ring.order.iter().zip(ring.order.iter().cycle().skip(1)) {
            *used.entry((*a.min(b), *a.max(b))).or_default() += ring.lanes.unwrap_or(0);
        }
    }
    for ((a, b), lanes) in used {
        if let Relation::Link(_, Some(count)) = graph.relation(a, b) {
            tally.equal(name, &format!("lanes of {a} - {b} used at most once"), lanes <= count, true);
        }
    }
    for tree in graph.trees(&gpus) {
        let mut all = tree.order.clone();
        all.sort();
        tally.equal(name, "devices of a tree", &all, &gpus);
    }
}

fn assignment(tally: &mut Tally, name: &str, graph: &Graph) {
    let gpus = graph.accelerators();
    let assigned = graph.assign_nics(&gpus);
    for (gpu, nic) in gpus.iter().zip(&assigned) {
        let nearest = graph.nearest_nics(*gpu).map(|nearest| nearest.nics).unwrap_or_default();
        tally.equal(
            name,
            "a NIC of the nearest",
            nic.map(|nic| nearest.contains(&nic)),
            (!nearest.is_empty()).then_some(true),
        );
    }
}
