//! hwloc's XML.

use std::collections::BTreeMap;

use hcomm_topology::{CpuSet, LinkKind, LinkTarget, Machine, PciFunction};
use serde_json::{Value, json};

use crate::relations;
use crate::support::Tally;
use crate::xml::{at, entries, files, function, list};

#[test]
fn hwloc_files() {
    let mut tally = Tally::new("hwloc XML");
    for (name, machine, expected) in files("hwloc-xml") {
        counts(&mut tally, &name, &machine, at(&expected, "counts"));
        let classes = at(&expected, "pci_by_class");
        for (class, count) in entries(classes) {
            let number = u32::from_str_radix(class.trim_start_matches("0x"), 16).unwrap();
            let own = machine.pci.iter().filter(|f| f.class.unwrap_or(0) >> 8 == number).count();
            tally.equal(&name, &format!("functions of class {class}"), json!(own), count.clone());
        }
        // The parts of a chip are of one model.
        for one in machine.accelerators.iter().filter(|one| one.id.partition.is_some()) {
            let first =
                machine.accelerators.iter().find(|other| other.id.pci == one.id.pci).and_then(|a| a.model.clone());
            tally.equal(&name, "model of a part", one.model.clone(), first);
        }
        let threads: CpuSet = machine.cpus.threads.iter().map(|thread| thread.id).collect();
        tally.equal(&name, "pu_os_indexes", json!(threads), at(&expected, "pu_os_indexes").clone());
        let numa: Vec<Value> = machine
            .numa
            .iter()
            .map(
                |node| json!({"os_index": node.id, "cpus": node.cpus, "mem_bytes": node.memory_bytes, "subtype": null}),
            )
            .collect();
        let mut wanted = list(at(&expected, "numa")).to_vec();
        wanted.sort_by_key(|node| node["os_index"].as_u64());
        tally.equal(&name, "numa", &numa, &wanted);
        devices(&mut tally, &name, &machine, &expected);
        names(&mut tally, &name, &machine, list(at(&expected, "osdev")));
        for matrix in list(at(&expected, "hwloc_distances")) {
            distances(&mut tally, &name, &machine, matrix);
        }
        relations::matrix(&mut tally, &name, &machine, at(&expected, "relation_matrix"));
        relations::nearest(&mut tally, &name, &machine, at(&expected, "nearest_nic_of_gpu"));
    }
}

fn counts(tally: &mut Tally, name: &str, machine: &Machine, expected: &Value) {
    let cpus = &machine.cpus;
    let bridges = machine.pci.iter().filter(|function| function.bridge).count();
    let l3 = cpus.caches.iter().filter(|cache| cache.level == 3).count();
    // Version 1 names packages and caches otherwise, and their count of those words is 0.
    let packages = Some(cpus.packages.len()).filter(|_| expected["Package"] != json!(0));
    let l3 = Some(l3).filter(|_| expected["L3Cache"] != json!(0));
    for (key, own) in [
        ("Package", packages),
        ("NUMANode", Some(machine.numa.len())),
        ("Core", Some(cpus.cores.len())),
        ("PU", Some(cpus.threads.len())),
        // One file has a function twice.
        ("PCIDev", Some(machine.pci.len() - bridges + machine.notes.len())),
        ("L3Cache", l3),
    ] {
        if let Some(own) = own {
            tally.equal(name, key, json!(own), at(expected, key).clone());
        }
    }
}

fn devices(tally: &mut Tally, name: &str, machine: &Machine, expected: &Value) {
    let mut gpus: Vec<String> = machine.accelerators.iter().map(|a| a.id.pci.unwrap().to_string()).collect();
    gpus.dedup();
    gpus.sort();
    let wanted: Vec<&String> = entries(at(expected, "gpus")).into_iter().map(|(address, _)| address).collect();
    let mut wanted: Vec<String> = wanted.into_iter().cloned().collect();
    wanted.sort();
    tally.equal(name, "gpus", gpus, wanted);
    for (address, entry) in entries(at(expected, "gpus")).into_iter().chain(entries(at(expected, "nics"))) {
        let function: PciFunction = function(machine, address);
        let hex = |id: Option<u16>| id.map(|id| format!("0x{id:04x}"));
        let mut is =
            |key: &str, own: Value| tally.equal(name, &format!("{address} {key}"), own, at(entry, key).clone());
        is("vendor", json!(hex(function.vendor)));
        is("device", json!(hex(function.device)));
        is("local_cpus", json!(function.local_cpus));
        is("parent", json!(function.parent));
        is("root", json!(function.root_bus));
        is("local_nodes", json!(function.numa_node.map(|node| [node])));
        let rate = function.link.gb_per_s.map(|rate| (f64::from(rate) * 1e4).round());
        let wanted = at(entry, "link_gbytes_per_s").as_f64().map(|rate| (rate * 1e4).round());
        tally.equal(name, &format!("{address} link"), rate, wanted);
        let words: Vec<&str> = ["PCIVendor", "PCIDevice"].iter().filter_map(|key| at(entry, key).as_str()).collect();
        tally.equal(name, &format!("{address} name"), function.name, (!words.is_empty()).then(|| words.join(" ")));
    }
}

/// The names of drivers and libraries: interfaces, RDMA ports, accelerators.
fn names(tally: &mut Tally, name: &str, machine: &Machine, expected: &[Value]) {
    for entry in expected {
        let own = entry["name"].as_str().unwrap();
        let info = at(entry, "info");
        let text = |key: &str| at(info, key).as_str().filter(|text| !text.is_empty());
        let mut is = |what: &str, own: Value, wanted: Value| {
            tally.equal(name, &format!("{} {what}", entry["name"]), own, wanted)
        };
        match entry["type"].as_str().unwrap() {
            "network" => {
                let nic = machine.nics.iter().find(|nic| nic.name == own);
                is("pci", json!(nic.and_then(|nic| nic.pci)), entry["pci"].clone());
                is("address", json!(nic.and_then(|nic| nic.mac.clone())), json!(text("Address")));
            }
            "openfabrics" => {
                let port = machine.rdma.iter().find(|port| port.device == own && port.port == 1).unwrap();
                is("pci", json!(port.pci), entry["pci"].clone());
                is("guid", json!(port.node_guid), json!(text("NodeGUID")));
                let states = [("1", "DOWN"), ("2", "INIT"), ("3", "ARMED"), ("4", "ACTIVE")];
                let state = states.iter().find(|(number, _)| text("Port1State") == Some(number)).map(|(_, word)| *word);
                is("state", json!(port.state), json!(state));
                let lid = text("Port1LID").and_then(|lid| u32::from_str_radix(lid.trim_start_matches("0x"), 16).ok());
                is("lid", json!(port.lid), json!(lid.filter(|lid| *lid > 0 && *lid < 0xffff)));
            }
            _ => {
                let library = ["nvml", "rsmi", "cuda"].iter().find(|library| own.starts_with(**library));
                let Some(library) = library else { continue };
                // The device that this name is of: by its own name, else the only one of its function.
                let there = |a: &&hcomm_topology::Accelerator| json!(a.id.pci) == entry["pci"];
                let mut here = machine.accelerators.iter().filter(there).collect::<Vec<_>>();
                if here.len() > 1 {
                    here.retain(|a| a.id.name.as_deref() == Some(own));
                }
                is("devices", json!(here.len()), json!(1));
                let device = here[0];
                if let Some(model) = text("GPUModel").filter(|_| *library != "cuda") {
                    is("model", json!(device.model), json!(model));
                }
                let uuid = text("NVIDIAUUID").or(text("AMDUUID")).filter(|uuid| !uuid.chars().all(|c| c == '0'));
                if uuid.is_some() {
                    is("uuid", json!(device.uuid), json!(uuid));
                }
                if let Some(kib) = text("CUDAGlobalMemorySize") {
                    let kib: u64 = kib.trim_end_matches("KiB").parse().unwrap();
                    is("memory", json!(device.memory_bytes), json!(kib * 1024));
                }
            }
        }
    }
}

/// A matrix between NUMA nodes, or of links between accelerators.
fn distances(tally: &mut Tally, name: &str, machine: &Machine, matrix: &Value) {
    let indexes: Vec<&str> = list(at(matrix, "indexes")).iter().filter_map(Value::as_str).collect();
    let values: Vec<u64> = list(at(matrix, "values")).iter().filter_map(Value::as_u64).collect();
    let kind = matrix["name"].as_str().unwrap();
    let value = |row: usize, column: usize| values[row * indexes.len() + column];
    if kind == "NUMALatency" {
        for (row, from) in indexes.iter().enumerate() {
            let node = machine.numa.iter().find(|node| node.id.to_string() == *from).unwrap();
            for (column, to) in indexes.iter().enumerate() {
                let own = node.distances.get(&to.parse().unwrap()).map(|distance| u64::from(*distance));
                tally.equal(name, &format!("distance {from} - {to}"), own, Some(value(row, column)));
            }
        }
        return;
    }
    // The objects of a matrix come in the order of the libraries' numbers, as accelerators do here.
    let is_device = |index: &str| !index.starts_with("PCIDev") && !index.starts_with("Package");
    let devices = indexes.iter().filter(|index| is_device(index)).count();
    tally.equal(name, "devices of the matrix", devices, machine.accelerators.len());
    let links = machine.links.iter().filter(|link| (link.kind == LinkKind::Xgmi) == kind.starts_with("XGMI"));
    let mut own: BTreeMap<(usize, String), u64> = BTreeMap::new();
    for link in links {
        let to = match link.to {
            LinkTarget::Accelerator(to) => to.to_string(),
            LinkTarget::Switch => "PCIDev".into(),
            LinkTarget::Cpu => "Package".into(),
        };
        let told = if kind == "XGMIHops" { link.hops.map(u64::from) } else { link.mb_per_s };
        own.extend(told.map(|told| ((link.from, to), told)));
    }
    let mut wanted: BTreeMap<(usize, String), u64> = BTreeMap::new();
    for row in 0..devices {
        for column in (0..indexes.len()).filter(|column| *column != row && value(row, *column) > 0) {
            let to = if is_device(indexes[column]) {
                column.to_string()
            } else {
                indexes[column].split(':').next().unwrap().into()
            };
            *wanted.entry((row, to)).or_default() += value(row, column);
        }
    }
    tally.equal(name, kind, own, wanted);
}
