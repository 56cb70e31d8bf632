//! PCI functions: identity, place, links.

use std::collections::{BTreeMap, BTreeSet};

use hcomm_topology::{
    AcceleratorKind, CpuSet, Machine as Discovered, PciAddress, PciFunction, Vendor, below_own_best, degraded, read_pci,
};
use serde_json::Value;

use crate::support::{Machine, Tally, machines};

#[test]
fn functions_of_trees() {
    let mut tally = Tally::new("pci");
    for folder in ["hwloc-sysfs", "ghw-snapshots", "ib-sysfs", "rebuilt-sysfs", "lscpu-dumps"] {
        for machine in machines(folder) {
            let functions = read_pci(&machine.root);
            let name = machine.name.as_str();
            if let Some(count) = number(&machine.expected, "pci_count").or(number(&machine.expected, "pci_total")) {
                tally.equal(name, "number of functions", functions.len() as u64, count);
            }
            compare_classes(&mut tally, &machine, &functions);
            for (address, expected) in entries(&machine.expected, "pci") {
                compare_function(&mut tally, &machine, &functions, address, expected);
            }
            compare_rebuilt(&mut tally, &machine, &functions);
        }
    }
}

#[test]
fn accelerators_of_trees() {
    let mut tally = Tally::new("accelerators");
    for folder in ["hwloc-sysfs", "ghw-snapshots", "ib-sysfs", "rebuilt-sysfs", "lscpu-dumps"] {
        for machine in machines(folder) {
            let found = Discovered::discover(&machine.root);
            let name = machine.name.as_str();
            let gpus = found.accelerators.iter().filter(|a| a.kind == AcceleratorKind::Gpu);
            let addresses: Vec<String> = gpus.filter_map(|gpu| Some(gpu.id.pci?.to_string())).collect();
            if let Some(expected) = machine.expected.get("gpus").and_then(Value::as_array) {
                let expected: Vec<&str> = expected.iter().filter_map(Value::as_str).collect();
                tally.equal(name, "GPUs", &addresses, &expected);
            }
            for accelerator in &found.accelerators {
                let node =
                    accelerator.id.pci.and_then(|address| machine.expected["numa_node"].get(address.to_string()));
                if let Some(node) = node.and_then(Value::as_u64) {
                    tally.equal(name, "NUMA node of a GPU", accelerator.numa_node.map(u64::from), Some(node));
                }
            }
            for (device, address) in entries(&machine.expected, "osdev_of_pci") {
                // The vendor's tool numbers devices; we follow its order.
                let (vendor, number) = match (device.strip_prefix("nvml"), device.strip_prefix("rsmi")) {
                    (Some(number), _) => (Vendor::Nvidia, number),
                    (_, Some(number)) => (Vendor::Amd, number),
                    _ => continue,
                };
                let number: usize = number.parse().unwrap();
                let at = found.accelerators.iter().filter(|a| a.vendor == Some(vendor)).nth(number);
                let got = at.and_then(|accelerator| Some(accelerator.id.pci?.to_string()));
                tally.equal(name, device, got.as_deref(), address.as_str());
            }
        }
    }
}

/// A server's console, a card for a screen, a Tesla, a Xeon Phi: which of them compute.
#[test]
fn what_is_an_accelerator() {
    let expected = [
        ("ghw-snapshots/linux-amd64-61797caf7c0b6bca1725ad7975ed4773", "0000:0a:00.0", AcceleratorKind::Gpu),
        ("ghw-snapshots/linux-amd64-accel-nvidia", "0000:06:00.0", AcceleratorKind::Gpu),
        ("hwloc-sysfs/32em64t-2n8c+dax+nvme+mic+dimms", "0000:83:00.0", AcceleratorKind::Other),
    ];
    let mut tally = Tally::new("accelerators by class");
    for folder in ["hwloc-sysfs", "ghw-snapshots"] {
        for machine in machines(folder) {
            let found = Discovered::discover(&machine.root).accelerators;
            let found: Vec<_> = found.iter().map(|a| (a.id.pci.unwrap().to_string(), a.kind)).collect();
            let here = expected.iter().filter(|(name, ..)| *name == machine.name);
            let here: Vec<_> = here.map(|(_, address, kind)| ((*address).to_owned(), *kind)).collect();
            tally.equal(&machine.name, "accelerators", found, here);
        }
    }
}

/// How many functions there are of each class and subclass.
fn compare_classes(tally: &mut Tally, machine: &Machine, functions: &[PciFunction]) {
    if machine.expected.get("pci_by_class").is_none() {
        return;
    }
    let mut classes: BTreeMap<String, u64> = BTreeMap::new();
    for class in functions.iter().filter_map(|function| function.class) {
        *classes.entry(format!("0x{:04x}", class >> 8)).or_default() += 1;
    }
    let expected: BTreeMap<String, u64> = entries(&machine.expected, "pci_by_class")
        .filter_map(|(class, n)| Some((class.clone(), n.as_u64()?)))
        .collect();
    tally.equal(&machine.name, "functions by class", classes, expected);
}

/// One function, as the trees' own files tell.
fn compare_function(tally: &mut Tally, machine: &Machine, functions: &[PciFunction], address: &str, expected: &Value) {
    let name = machine.name.as_str();
    let Some(function) = find(functions, address) else {
        return tally.equal(name, address, "missing", "there");
    };
    for (key, value) in expected.as_object().into_iter().flatten() {
        let what = format!("{address} {key}");
        let text = value.as_str().unwrap_or_default();
        let hex = || u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        match key.as_str() {
            "class" => tally.equal(name, &what, function.class, hex()),
            "vendor" => tally.equal(name, &what, function.vendor.map(u32::from), hex()),
            "device" => tally.equal(name, &what, function.device.map(u32::from), hex()),
            "subsystem_vendor" => tally.equal(name, &what, function.subsystem_vendor.map(u32::from), hex()),
            "subsystem_device" => tally.equal(name, &what, function.subsystem_device.map(u32::from), hex()),
            "numa_node" => tally.equal(name, &what, function.numa_node, text.parse::<u32>().ok()),
            "local_cpulist" => {
                let cpus = function.local_cpus.as_ref().map(ToString::to_string);
                tally.equal(name, &what, cpus.as_deref(), Some(text));
            }
            "local_cpus" if expected.get("local_cpulist").is_none() => {
                tally.equal(name, &what, function.local_cpus.clone(), CpuSet::parse_mask(text));
            }
            // Authors of trees edited one of the two: the list counts.
            "local_cpus" => {}
            "driver" => tally.equal(name, &what, function.driver.as_deref(), Some(text)),
            "parent" => tally.equal(name, &what, function.parent.map(|p| p.to_string()).as_deref(), Some(text)),
            "path" => {
                let mut names: Vec<&str> = text.split('/').collect();
                names.pop();
                compare_chain(tally, machine, functions, function, names.into_iter().skip(1).rev());
            }
            "current_link_speed" => tally.equal(name, &what, function.link.speed_gt_per_s, speed(text)),
            "max_link_speed" => tally.equal(name, &what, function.link.max_speed_gt_per_s, speed(text)),
            "current_link_width" => tally.equal(name, &what, function.link.width, lanes(text)),
            "max_link_width" => tally.equal(name, &what, function.link.max_width, lanes(text)),
            other => panic!("{name}: {address}: nothing compares {other:?}"),
        }
    }
}

/// What is expected of the trees that were rebuilt from listings.
fn compare_rebuilt(tally: &mut Tally, machine: &Machine, functions: &[PciFunction]) {
    let name = machine.name.as_str();
    for (address, chain) in entries(&machine.expected, "chains") {
        let Some(function) = find(functions, address) else {
            tally.equal(name, address, "missing", "there");
            continue;
        };
        let above = chain.as_array().into_iter().flatten().filter_map(Value::as_str);
        compare_chain(tally, machine, functions, function, above);
    }
    for (address, node) in entries(&machine.expected, "numa_node") {
        let got = find(functions, address).and_then(|function| function.numa_node);
        tally.equal(name, &format!("{address} numa_node"), got.map(u64::from), node.as_u64());
    }
    if machine.expected.get("degraded_links").is_some() {
        let below = functions.iter().filter(|function| below_own_best(function) == Some(true));
        let got: BTreeSet<String> = below.map(|function| function.address.to_string()).collect();
        let expected: BTreeSet<String> =
            entries(&machine.expected, "degraded_links").map(|(address, _)| address.clone()).collect();
        tally.equal(name, "links below the best of their own end", &got, &expected);
        let both = (0..functions.len()).filter(|at| degraded(functions, *at) == Some(true));
        let both: BTreeSet<String> = both.map(|at| functions[at].address.to_string()).collect();
        tally.equal(name, "links below both ends' best are among them", both.is_subset(&expected), true);
    }
    for (address, link) in entries(&machine.expected, "degraded_links") {
        let Some(function) = find(functions, address) else { continue };
        let text = |key: &str| link[key].as_str().and_then(speed);
        let count = |key: &str| link[key].as_u64().and_then(|n| u8::try_from(n).ok());
        let got = (function.link.speed_gt_per_s, function.link.width);
        tally.equal(name, address, got, (text("current_link_speed"), count("current_link_width")));
        let got = (function.link.max_speed_gt_per_s, function.link.max_width);
        tally.equal(name, address, got, (text("max_link_speed"), count("max_link_width")));
    }
}

/// The bridges above a function, nearest first, and the root bus.
fn compare_chain<'a>(
    tally: &mut Tally,
    machine: &Machine,
    functions: &[PciFunction],
    function: &PciFunction,
    expected: impl Iterator<Item = &'a str>,
) {
    let mut chain = Vec::new();
    let mut above = function.parent;
    while let Some(address) = above {
        chain.push(address.to_string());
        above = find(functions, &address.to_string()).and_then(|bridge| bridge.parent);
    }
    chain.extend(function.root_bus.as_ref().map(|bus| format!("pci{bus}")));
    let expected: Vec<&str> = expected.collect();
    tally.equal(&machine.name, &format!("{} chain", function.address), chain, expected);
}

fn find<'a>(functions: &'a [PciFunction], address: &str) -> Option<&'a PciFunction> {
    let address: PciAddress = address.parse().ok()?;
    functions.iter().find(|function| function.address == address)
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn number(value: &Value, key: &str) -> Option<u64> {
    value.get(key)?.as_u64()
}

/// GT/s of `16GT/s` or `16.0 GT/s PCIe`.
fn speed(text: &str) -> Option<f32> {
    text.split("GT").next()?.trim().parse().ok()
}

fn lanes(text: &str) -> Option<u8> {
    text.parse().ok().filter(|lanes| *lanes != 0 && *lanes != 255)
}
