//! Topology files of NCCL, RCCL and hwloc.

use std::collections::{BTreeMap, BTreeSet};

use hcomm_topology::formats::nccl;
use hcomm_topology::graph::Graph;
use hcomm_topology::{Accelerator, LinkKind, LinkTarget, Machine, PciAddress, PciFunction};
use serde_json::{Value, json};

use crate::relations;
use crate::support::{Tally, data, expected, say};

/// The machines of a folder of XML files, with what is expected of them.
pub fn files(folder: &str) -> Vec<(String, Machine, Value)> {
    let Some(Value::Object(entries)) = expected(folder) else { return Vec::new() };
    let named = entries.into_iter().filter(|(name, _)| !name.starts_with('_'));
    named
        .map(|(name, expected)| {
            let path = data(&format!("{folder}/{name}"));
            let machine = Machine::from_file(&path).unwrap_or_else(|e| panic!("{e}"));
            (format!("{folder}/{name}"), machine, expected)
        })
        .collect()
}

/// A key that an entry lacks is null.
pub fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

pub fn entries(value: &Value) -> Vec<(&String, &Value)> {
    value.as_object().map(|map| map.iter().collect()).unwrap_or_default()
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: Option<impl ToString>) -> Value {
    value.map_or(Value::Null, |value| json!(value.to_string()))
}

pub fn function(machine: &Machine, address: &str) -> PciFunction {
    let address: PciAddress = address.parse().unwrap();
    let found = machine.pci.iter().find(|function| function.address == address);
    found.unwrap_or_else(|| panic!("no function {address}")).clone()
}

#[test]
fn nccl_files() {
    let mut tally = Tally::new("NCCL XML");
    for (name, machine, expected) in files("nccl-topo") {
        nccl_machine(&mut tally, &name, &machine, &expected);
        relations::matrix(&mut tally, &name, &machine, at(&expected, "relation_matrix_pcie_only"));
        relations::nearest(&mut tally, &name, &machine, at(&expected, "nearest_nic_of_gpu"));
    }
}

fn nccl_machine(tally: &mut Tally, name: &str, machine: &Machine, expected: &Value) {
    let numa: Vec<Value> = machine
        .numa
        .iter()
        .map(|node| {
            json!({
                "os_index": node.id,
                "cpus": text(node.cpus.as_ref().filter(|cpus| !cpus.is_empty())),
                "arch": machine.arch,
                "vendor": machine.cpus.vendor,
                "familyid": text(machine.cpus.family),
                "modelid": text(machine.cpus.model_number),
            })
        })
        .collect();
    let mut wanted: Vec<Value> = list(at(expected, "numa")).to_vec();
    wanted.sort_by_key(|node| node["os_index"].as_u64());
    tally.equal(name, "numa", &numa, &wanted);
    tally.equal(name, "n_pci", machine.pci.len() as u64, at(expected, "n_pci").as_u64().unwrap());
    let bridges = machine.pci.iter().filter(|function| function.bridge).count();
    tally.equal(name, "n_bridges", bridges as u64, at(expected, "n_bridges").as_u64().unwrap());
    for (address, entry) in entries(at(expected, "pci")) {
        let function = function(machine, address);
        let what = |key: &str| format!("{address} {key}");
        let hex = |value: Option<u32>, digits: usize| value.map_or(Value::Null, |v| json!(format!("0x{v:0digits$x}")));
        tally.equal(name, &what("parent"), text(function.parent), at(entry, "parent").clone());
        tally.equal(name, &what("numa_node"), json!(function.numa_node), at(entry, "numa_node").clone());
        tally.equal(name, &what("class"), hex(function.class, 6), at(entry, "class").clone());
        tally.equal(name, &what("vendor"), hex(function.vendor.map(u32::from), 4), at(entry, "vendor").clone());
        tally.equal(name, &what("device"), hex(function.device.map(u32::from), 4), at(entry, "device").clone());
        let speed = at(entry, "link_speed").as_str().and_then(|text| text.split(' ').next()?.parse::<f32>().ok());
        let width =
            at(entry, "link_width").as_str().and_then(|text| text.parse::<u8>().ok()).filter(|lanes| *lanes > 0);
        tally.equal(name, &what("link_speed"), function.link.max_speed_gt_per_s, speed);
        tally.equal(name, &what("link_width"), function.link.max_width, width);
    }
    nccl_devices(tally, name, machine, expected);
}

fn nccl_devices(tally: &mut Tally, name: &str, machine: &Machine, expected: &Value) {
    let address = |device: &Accelerator| device.id.pci.unwrap().to_string();
    let by_address: BTreeMap<String, &Accelerator> = machine.accelerators.iter().map(|a| (address(a), a)).collect();
    let gpus = list(at(expected, "gpus"));
    tally.equal(name, "gpus", machine.accelerators.len(), gpus.len());
    let numbers: Vec<&str> =
        machine.accelerators.iter().filter_map(|a| a.nccl.get("dev")).map(String::as_str).collect();
    let mut sorted: Vec<&str> = gpus.iter().filter_map(|gpu| gpu["dev"].as_str()).collect();
    sorted.sort_by_key(|number| number.parse::<u32>().unwrap());
    tally.equal(name, "order of GPUs", &numbers, &sorted);
    for gpu in gpus {
        let pci = gpu["pci"].as_str().unwrap();
        for (key, value) in entries(gpu).into_iter().filter(|(key, _)| *key != "pci") {
            let own = by_address.get(pci).and_then(|gpu| gpu.nccl.get(key)).map(|text| json!(text));
            tally.equal(name, &format!("{pci} {key}"), own.unwrap_or_default(), value.clone());
        }
    }
    let mut nets: BTreeSet<String> = BTreeSet::new();
    for port in &machine.rdma {
        let mut net = json!({"pci": text(port.pci), "numa_node": port.numa_node, "name": port.device, "port": port.port.to_string(),
            "speed": text(port.rate_gbit_per_s.map(|rate| rate * 1000.0))});
        port.nccl.iter().for_each(|(key, value)| net[key] = json!(value));
        nets.insert(net.to_string());
    }
    for nic in &machine.nics {
        let mut net = json!({"pci": text(nic.pci), "numa_node": nic.numa_node, "name": nic.name, "speed": text(nic.speed_mbit_per_s)});
        nic.nccl.iter().for_each(|(key, value)| net[key] = json!(value));
        nets.insert(net.to_string());
    }
    let canonical = |net: &Value| {
        let keys = ["pci", "numa_node", "name", "port", "speed"];
        let mut sorted = serde_json::Map::new();
        keys.iter()
            .filter_map(|key| Some((*key, net.get(*key)?)))
            .for_each(|(key, value)| _ = sorted.insert(key.into(), value.clone()));
        let rest: BTreeMap<_, _> = entries(net).into_iter().filter(|(key, _)| !keys.contains(&key.as_str())).collect();
        rest.into_iter().for_each(|(key, value)| _ = sorted.insert(key.clone(), value.clone()));
        Value::Object(sorted).to_string()
    };
    // Functions of files without `<net>` are network devices of the graph, without a name.
    let named: Vec<&Value> = list(at(expected, "nets")).iter().filter(|net| net.get("name").is_some()).collect();
    let nets: BTreeSet<String> = nets.iter().map(|net| canonical(&serde_json::from_str(net).unwrap())).collect();
    let wanted: BTreeSet<String> = named.iter().map(|net| canonical(net)).collect();
    tally.equal(name, "nets", &nets, &wanted);
    let graph = Graph::of(machine);
    tally.equal(name, "number of network devices", graph.nics().len(), {
        let pci: BTreeSet<String> = list(at(expected, "nets"))
            .iter()
            .map(|net| match net["pci"].as_str() {
                Some(pci) => pci.to_owned(),
                None => net["name"].to_string(),
            })
            .collect();
        pci.len()
    });

    let mut links: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    for link in &machine.links {
        let LinkTarget::Accelerator(to) = link.to else { continue };
        let ends = (address(&machine.accelerators[link.from]), address(&machine.accelerators[to]));
        links.entry(ends.0).or_default().insert(ends.1, link.count.unwrap().into());
        kinds.insert(if link.kind == LinkKind::Xgmi { "xgmi" } else { "nvlink" });
    }
    let wanted: BTreeMap<String, BTreeMap<String, u64>> =
        serde_json::from_value(at(expected, "gpu_links").clone()).unwrap();
    tally.equal(name, "gpu_links", &links, &wanted);
    tally.equal(name, "gpu_link_kind", json!(kinds), at(expected, "gpu_link_kind").clone());
    let straight = (!machine.links.is_empty())
        .then(|| machine.links.iter().all(|link| matches!(link.to, LinkTarget::Accelerator(_))));
    tally.equal(
        name,
        "gpu_links_go_straight_to_gpus",
        json!(straight),
        at(expected, "gpu_links_go_straight_to_gpus").clone(),
    );
}

#[test]
fn what_is_written_gives_the_same_matrix() {
    let mut tally = Tally::new("NCCL XML written and read again");
    let mut machines: Vec<(String, Machine)> = Vec::new();
    for folder in ["nccl-topo", "hwloc-xml"] {
        machines.extend(files(folder).into_iter().map(|(name, machine, _)| (name, machine)));
    }
    for (name, machine) in &machines {
        let written = nccl::write(machine);
        let again = Machine::from_xml(name, &written).unwrap_or_else(|e| panic!("{e}\n{written}"));
        relations::same(&mut tally, name, machine, &again);
        tally.equal(name, "links", &again.links, &machine.links);
        readable_by_nccl(&mut tally, name, &written);
    }
    say(&format!("{} machines written", machines.len()));
}

/// What NCCL's own reader demands (`src/graph/xml.cc`, `xml.h`).
fn readable_by_nccl(tally: &mut Tally, name: &str, written: &str) {
    let begins = written.starts_with("<system version=\"1\">") || written.starts_with("<system version=\"2\">");
    tally.equal(name, "begins with <system>", begins, true);
    let elements = written.matches('<').count() - written.matches("</").count();
    tally.equal(name, "at most 256 elements", elements <= 256, true);
    for line in written.lines() {
        let line = line.trim_start();
        let values: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let good = values.len() <= 16
            && values.iter().all(|value| value.len() < 255)
            && line.starts_with('<')
            && line.ends_with('>')
            && !line.contains("  ")
            && !line.contains('&');
        tally.equal(name, line, good, true);
    }
}
