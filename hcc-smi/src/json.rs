//! JSON: stable keys, units in their names, integers as integers, what is unknown is null.

use hcomm_cli::{Failure, Result};
use hcomm_topology::graph::{Device, Graph, gb_per_s};
use hcomm_topology::{
    Accelerator, Health, Machine, PciAddress, PciFunction, Vendor, below_own_best, degraded, possible,
};
use serde_json::{Map, Value, json};

use crate::args::View;
use crate::links::{has_link, label, link_rate, target};
use crate::source::Source;
use crate::{topo, words};

/// The name and version of the format.
pub const SCHEMA: &str = "hcc-smi/1";

/// One document; on one line for a watch.
pub fn text(view: View, source: &Source, one_line: bool) -> Result<String> {
    let value = document(view, source);
    let text = if one_line { serde_json::to_string(&value) } else { serde_json::to_string_pretty(&value) };
    let text = text.map_err(|error| Failure::run(format!("JSON: {error}"), ""))?;
    Ok(text + "\n")
}

/// Head, then what the view shows.
pub fn document(view: View, source: &Source) -> Value {
    let machine = &source.machine;
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("schema", json!(SCHEMA));
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("host", json!(machine.hostname));
    put("arch", json!(machine.arch));
    put("source", json!(source.name));
    match view {
        View::Status | View::List => {
            put("devices", devices(source));
            put("nics", nics(source));
            put("cpus", cpus(machine));
            put("numa_nodes", numa(machine));
            put("looked", json!(source.looked));
        }
        View::Topo => {
            put("devices", graph_devices(source));
            put("matrix", matrix(&source.graph));
            put("nearest_nics", nearest(&source.graph));
        }
        View::Links => {
            put("links", direct_links(source));
            put("pcie_links", pcie_links(machine));
            put("ports", ports(source));
        }
        View::Rings => {
            put("rings", rings(&source.graph));
            put("trees", trees(&source.graph));
            put("nics", assigned(&source.graph));
        }
    }
    put("notes", json!(machine.notes));
    Value::Object(object)
}

/// f32 as the decimal number that it stands for: 16.1, not 16.100000381.
fn number(value: Option<f32>) -> Value {
    value.and_then(|value| value.to_string().parse::<f64>().ok()).map_or(Value::Null, |value| float(Some(value)))
}

/// Null for what is no number.
fn float(value: Option<f64>) -> Value {
    value.and_then(serde_json::Number::from_f64).map_or(Value::Null, Value::Number)
}

fn devices(source: &Source) -> Value {
    let machine = &source.machine;
    let all = machine.accelerators.iter().enumerate();
    Value::Array(all.map(|(number, accelerator)| device(source, machine, number, accelerator)).collect())
}

fn device(source: &Source, machine: &Machine, index: usize, accelerator: &Accelerator) -> Value {
    let function = words::function(machine, accelerator.id.pci);
    let health = accelerator.health.as_ref().map(|health| match health {
        Health::Good => "ok",
        Health::Bad(word) => word.as_str(),
    });
    json!({
        "index": index,
        "label": label(source, index),
        "name": accelerator.id.name,
        "kind": accelerator.kind,
        "vendor": accelerator.vendor.map(vendor),
        "model": accelerator.model,
        "pci_address": accelerator.id.pci,
        "partition": accelerator.id.partition,
        "vendor_id": function.and_then(|function| function.vendor).map(|id| format!("0x{id:04x}")),
        "device_id": function.and_then(|function| function.device).map(|id| format!("0x{id:04x}")),
        "driver": function.and_then(|function| function.driver.clone()),
        "numa_node": accelerator.numa_node,
        "memory_bytes": accelerator.memory_bytes,
        "memory_used_bytes": accelerator.memory_used_bytes,
        "utilisation_percent": number(accelerator.utilisation_percent),
        "temperature_c": number(accelerator.temperature_c),
        "power_w": number(accelerator.power_w),
        "health": health,
        "uuid": accelerator.uuid,
        "port": accelerator.port,
        "pci_link": pci_link(machine, accelerator.id.pci),
        "pci_link_is_the_data_path": !accelerator.pci_link_is_not_the_data_path,
    })
}

fn vendor(vendor: Vendor) -> String {
    match vendor {
        Vendor::Nvidia => "nvidia".to_owned(),
        Vendor::Amd => "amd".to_owned(),
        Vendor::Intel => "intel".to_owned(),
        Vendor::Huawei => "huawei".to_owned(),
        Vendor::Habana => "habana".to_owned(),
        Vendor::Other(id) => format!("0x{id:04x}"),
    }
}

/// A PCI Express link: now, this end's best, both ends' best, and whether it is below these.
fn pci_link(machine: &Machine, address: Option<PciAddress>) -> Value {
    let at = machine.pci.iter().position(|function| Some(function.address) == address);
    let Some((at, function)) = at.and_then(|at| Some((at, machine.pci.get(at)?))) else { return Value::Null };
    let (speed, width) = possible(&machine.pci, at);
    let link = &function.link;
    json!({
        "speed_gt_per_s": number(link.speed_gt_per_s),
        "width": link.width,
        "max_speed_gt_per_s": number(link.max_speed_gt_per_s),
        "max_width": link.max_width,
        "possible_speed_gt_per_s": number(speed),
        "possible_width": width,
        "gb_per_s": float(gb_per_s(link)),
        "degraded": degraded(&machine.pci, at),
        "below_own_best": below_own_best(function),
    })
}

fn nics(source: &Source) -> Value {
    let machine = &source.machine;
    let nic = |device: &Device| {
        let function = words::function(machine, device.pci);
        let own = |name: &String| device.names.contains(name);
        let ports = machine.rdma.iter().filter(|port| own(&port.device));
        let interfaces = machine.nics.iter().filter(|nic| own(&nic.name));
        json!({
            "label": device.label,
            "names": device.names,
            "pci_address": device.pci,
            "device": function.and_then(|function| function.name.clone()),
            "driver": function.and_then(|function| function.driver.clone()),
            "numa_node": device.numa_node,
            "gbit_per_s": float(device.network_gb_per_s.map(|rate| rate * 8.0)),
            "pci_link": pci_link(machine, device.pci),
            "interfaces": interfaces.map(|nic| json!({
                "name": nic.name,
                "state": nic.state,
                "carrier": nic.carrier,
                "mtu": nic.mtu,
                "speed_mbit_per_s": nic.speed_mbit_per_s,
                "addresses": nic.addresses,
            })).collect::<Vec<_>>(),
            "rdma_ports": ports.map(|port| json!({
                "device": port.device,
                "port": port.port,
                "state": port.state,
                "physical_state": port.physical_state,
                "link_layer": port.link_layer,
                "rate_gbit_per_s": float(port.rate_gbit_per_s),
            })).collect::<Vec<_>>(),
        })
    };
    let devices = source.graph.nics().into_iter().filter_map(|at| source.graph.devices().get(at));
    Value::Array(devices.map(nic).collect())
}

fn cpus(machine: &Machine) -> Value {
    let cpus = &machine.cpus;
    // A source that tells of no processors has not told that there are none.
    let count = |n: usize| (n > 0).then_some(n);
    let set = |set: &hcomm_topology::CpuSet| (!set.is_empty()).then(|| set.to_string());
    json!({
        "model": cpus.model,
        "packages": count(cpus.packages.len()),
        "cores": count(cpus.cores.len()),
        "threads": count(cpus.present.len().max(cpus.threads.len())),
        "present": set(&cpus.present),
        "online": set(&cpus.online),
        "allowed": cpus.allowed.as_ref().and_then(set),
        "quota_processors": cpus.quota,
    })
}

fn numa(machine: &Machine) -> Value {
    let node = |node: &hcomm_topology::NumaNode| {
        json!({
            "id": node.id,
            "cpus": node.cpus.as_ref().map(ToString::to_string),
            "memory_bytes": node.memory_bytes,
            "distances": node.distances.iter().map(|(to, distance)| (to.to_string(), json!(distance))).collect::<Map<_, _>>(),
        })
    };
    Value::Array(machine.numa.iter().map(node).collect())
}

fn graph_devices(source: &Source) -> Value {
    let device = |device: &Device| {
        json!({
            "label": device.label,
            "kind": device.kind,
            "names": device.names,
            "pci_address": device.pci,
            "numa_node": device.numa_node,
            "cpu_affinity": topo::cpus(&source.machine, device).map(ToString::to_string),
        })
    };
    Value::Array(source.graph.devices().iter().map(device).collect())
}

/// Row by row, in the order of the devices.
fn matrix(graph: &Graph) -> Value {
    let n = graph.devices().len();
    let row = |a| (0..n).map(|b| json!(graph.relation(a, b))).collect();
    Value::Array((0..n).map(row).map(Value::Array).collect())
}

fn labels(graph: &Graph, devices: &[usize]) -> Vec<String> {
    devices.iter().map(|device| crate::rings::label(graph, *device)).collect()
}

fn nearest(graph: &Graph) -> Value {
    let entry = |device: usize| {
        let nearest = graph.nearest_nics(device);
        let nics = nearest.as_ref().map(|nearest| labels(graph, &nearest.nics)).unwrap_or_default();
        let value = json!({ "relation": nearest.map(|nearest| nearest.relation), "nics": nics });
        (crate::rings::label(graph, device), value)
    };
    Value::Object(graph.accelerators().into_iter().map(entry).collect())
}

fn direct_links(source: &Source) -> Value {
    let link = |link: &hcomm_topology::AcceleratorLink| {
        json!({
            "from": label(source, link.from),
            "to": target(source, link),
            "kind": words::link_kind(link.kind),
            "lanes": link.count,
            "hops": link.hops,
            "gb_per_s": float(link_rate(source, link)),
        })
    };
    Value::Array(source.machine.links.iter().map(link).collect())
}

/// Network ports on the accelerators themselves.
fn ports(source: &Source) -> Value {
    let told = source.machine.accelerators.iter().enumerate().filter_map(|(at, npu)| Some((at, npu.port.as_ref()?)));
    Value::Array(told.map(|(at, port)| json!({ "of": label(source, at), "port": port })).collect())
}

fn pcie_links(machine: &Machine) -> Value {
    let entry = |function: &PciFunction| {
        json!({
            "pci_address": function.address,
            "parent": function.parent,
            "bridge": function.bridge,
            "name": function.name,
            "link": pci_link(machine, Some(function.address)),
        })
    };
    Value::Array(machine.pci.iter().filter(|function| has_link(function)).map(entry).collect())
}

fn rings(graph: &Graph) -> Value {
    let ring = |ring: hcomm_topology::graph::Ring| {
        json!({
            "order": labels(graph, &ring.order),
            "weakest": ring.weakest,
            "lanes": ring.lanes,
            "gb_per_s": float(ring.gb_per_s),
        })
    };
    Value::Array(graph.rings(&graph.accelerators()).into_iter().map(ring).collect())
}

fn trees(graph: &Graph) -> Value {
    let name = |device: &Option<usize>| device.map(|device| crate::rings::label(graph, device));
    let tree = |tree: hcomm_topology::graph::Tree| {
        let parents = labels(graph, &tree.order).into_iter().zip(tree.parents.iter().map(|parent| json!(name(parent))));
        json!({ "root": name(&tree.root), "parents": parents.collect::<Map<_, _>>() })
    };
    let devices = graph.accelerators();
    let trees = if devices.len() > 1 { graph.trees(&devices) } else { Vec::new() };
    Value::Array(trees.into_iter().map(tree).collect())
}

fn assigned(graph: &Graph) -> Value {
    let devices = graph.accelerators();
    let entry = |(device, nic): (&usize, Option<usize>)| {
        let nic = nic.map(|nic| crate::rings::label(graph, nic));
        (crate::rings::label(graph, *device), json!(nic))
    };
    Value::Object(devices.iter().zip(graph.assign_nics(&devices)).map(entry).collect())
}
