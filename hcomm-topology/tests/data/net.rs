//! Interfaces, RDMA ports, their counters and GID tables.

use std::fs;
use std::path::Path;

use hcomm_topology::net::{
    best_gid, interface_counters, protocol_counters, rdma_counters, read_gids, read_nics, read_rdma,
};
use hcomm_topology::{Nic, RdmaPort, RdmaPortState, Root};
use serde_json::Value;

use crate::support::{Machine, Tally, data, expected, machines};

#[test]
fn interfaces_and_rdma_ports() {
    let mut tally = Tally::new("net");
    for machine in ["hwloc-sysfs", "ghw-snapshots", "ib-sysfs"].into_iter().flat_map(machines) {
        interfaces(&mut tally, &machine);
        rdma_ports(&mut tally, &machine);
    }
    for machine in machines("rebuilt-sysfs") {
        devices(&mut tally, &machine);
    }
}

/// Text of a file as expected; "" and absent are nothing.
fn text(entry: &Value, key: &str) -> Option<String> {
    entry[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn number(entry: &Value, key: &str) -> Option<u64> {
    text(entry, key)?.parse().ok()
}

fn interfaces(tally: &mut Tally, machine: &Machine) {
    let Some(expected) = machine.expected["net"].as_object() else { return };
    let nics = read_nics(&machine.root);
    let names = |nics: &[Nic]| nics.iter().map(|nic| nic.name.clone()).collect::<std::collections::BTreeSet<_>>();
    tally.equal(&machine.name, "interfaces", names(&nics), expected.keys().cloned().collect());
    for nic in nics {
        let Some(entry) = expected.get(&nic.name) else { continue };
        let mut equal = |what: &str, got: Option<String>, expected: Option<String>| {
            tally.equal(&machine.name, &format!("{} {what}", nic.name), got, expected);
        };
        if entry.as_object().is_some_and(|entry| entry.is_empty()) {
            continue; // only its name is known
        }
        equal("address", nic.mac.clone(), text(entry, "address"));
        equal("state", nic.state.clone(), text(entry, "operstate"));
        equal("PCI function", nic.pci.map(|pci| pci.to_string()), text(entry, "device"));
        equal("duplex", nic.duplex.clone(), text(entry, "duplex").filter(|duplex| duplex != "unknown"));
        equal("carrier", nic.carrier.map(|carrier| u8::from(carrier).to_string()), text(entry, "carrier"));
        equal("mtu", nic.mtu.map(|mtu| mtu.to_string()), text(entry, "mtu"));
        equal("type", nic.hardware_type.map(|kind| kind.to_string()), text(entry, "type"));
        equal("speed", nic.speed_mbit_per_s.map(|speed| speed.to_string()), text(entry, "speed").filter(|s| s != "-1"));
        let counters = interface_counters(&machine.root, &nic.name);
        for (counter, value) in entry["statistics"].as_object().into_iter().flatten() {
            tally.equal(&machine.name, &format!("{} {counter}", nic.name), counters.get(counter), value.as_u64());
        }
    }
}

fn rdma_ports(tally: &mut Tally, machine: &Machine) {
    let Some(expected) = machine.expected["infiniband"].as_object() else { return };
    let ports = read_rdma(&machine.root);
    let count: usize = expected.values().map(|device| device["ports"].as_object().map_or(0, |ports| ports.len())).sum();
    tally.equal(&machine.name, "RDMA ports", ports.len(), count);
    for port in &ports {
        let device = &expected.get(&port.device).unwrap_or(&Value::Null);
        let entry = &device["ports"][port.port.to_string()];
        port_counters(tally, machine, port, entry);
        let mut equal = |what: &str, got: Option<String>, expected: Option<String>| {
            tally.equal(&machine.name, &format!("{} {what}", port.device), got, expected);
        };
        equal("firmware", port.firmware.clone(), text(device, "fw_ver"));
        equal("board", port.board_id.clone(), text(device, "board_id"));
        equal("type", port.hca_type.clone(), text(device, "hca_type"));
        equal("guid", port.node_guid.clone(), text(device, "node_guid"));
        equal("state", port.state.map(state_word), text(entry, "state"));
        let physical = text(entry, "phys_state").map(|text| text.split_once(": ").unwrap().1.to_owned());
        equal("physical state", port.physical_state.clone(), physical);
        equal("link layer", port.link_layer.clone(), text(entry, "link_layer"));
        let rate = |port: &RdmaPort| {
            Some(format!("{} Gb/sec ({}X {})", port.rate_gbit_per_s?, port.width?, port.speed_name.clone()?))
        };
        equal("rate", rate(port), text(entry, "rate"));
        if device.get("pci").is_some() {
            equal("PCI function", port.pci.map(|pci| pci.to_string()), text(device, "pci"));
            equal("lid", port.lid.map(|lid| format!("{lid:#x}")), text(entry, "lid"));
            equal("sm_lid", port.sm_lid.map(|lid| format!("{lid:#x}")), text(entry, "sm_lid"));
            let gids: serde_json::Map<String, Value> = read_gids(&machine.root, &port.device, port.port)
                .into_iter()
                .map(|gid| {
                    let words = gid.address.segments().map(|word| format!("{word:04x}")).join(":");
                    (gid.index.to_string(), Value::String(words))
                })
                .collect();
            tally.equal(&machine.name, "GIDs", Value::Object(gids), entry["gids_nonzero"].clone());
        }
    }
}

/// Texts as in the files; `_bytes` is what the data counters mean, `_at_32bit_ceiling` those that have stopped.
fn port_counters(tally: &mut Tally, machine: &Machine, port: &RdmaPort, entry: &Value) {
    let counters = rdma_counters(&machine.root, &port.device, port.port);
    let both = ["counters", "hw_counters"].into_iter().filter_map(|folder| entry[folder].as_object());
    for (name, text) in both.flatten().filter(|(name, _)| *name != "lifespan") {
        let expected = text.as_str().and_then(|text| text.parse::<u64>().ok());
        let (key, expected) = match name.as_str() {
            "port_rcv_data" | "port_xmit_data" => (format!("{name}_bytes"), expected.map(|words| words * 4)),
            _ => (name.clone(), expected),
        };
        tally.equal(&machine.name, &format!("{} {key}", port.device), counters.get(&key), expected);
        let stopped = counters.values.get(&key).is_some_and(|counter| counter.at_ceiling);
        if text.as_str() == Some("4294967295") || name == "link_downed" && text.as_str() == Some("255") {
            tally.equal(&machine.name, &format!("{} {key} has stopped", port.device), stopped, true);
        }
    }
    for (name, bytes) in entry["_bytes"].as_object().into_iter().flatten() {
        let got = counters.get(&format!("{name}_bytes"));
        tally.equal(&machine.name, &format!("{} {name} in bytes", port.device), got, bytes.as_u64());
    }
}

/// Counters of protocols.
#[test]
fn protocols() {
    let Some(expected) = expected("netproc") else { return };
    let mut tally = Tally::new("protocols");
    for file in ["snmp", "netstat"] {
        let folder = tempfile::tempdir().unwrap();
        write(
            &folder.path().join("proc/net").join(file),
            &fs::read_to_string(data(&format!("netproc/nx-{file}"))).unwrap(),
        );
        let got = protocol_counters(&Root::at(folder.path()));
        for (protocol, values) in expected[format!("nx-{file}")].as_object().unwrap() {
            for (name, value) in values.as_object().unwrap() {
                let got = got.get(protocol).and_then(|values| values.get(name)).copied();
                tally.equal(&format!("netproc/{file}"), &format!("{protocol} {name}"), got, value.as_i64());
            }
        }
    }
}

fn state_word(state: RdmaPortState) -> String {
    match state {
        RdmaPortState::Down => "1: DOWN",
        RdmaPortState::Init => "2: INIT",
        RdmaPortState::Armed => "3: ARMED",
        RdmaPortState::Active => "4: ACTIVE",
        RdmaPortState::ActiveDefer => "5: ACTIVE_DEFER",
    }
    .to_owned()
}

/// Trees of which only devices and where they are is known.
fn devices(tally: &mut Tally, machine: &Machine) {
    let Some(expected) = machine.expected["osdev_of_pci"].as_object() else { return };
    let nics = read_nics(&machine.root).into_iter().map(|nic| (nic.name, nic.pci));
    let ports = read_rdma(&machine.root).into_iter().map(|port| (port.device, port.pci));
    for (name, pci) in nics.chain(ports) {
        let expected = expected.get(&name).and_then(Value::as_str).map(str::to_owned);
        tally.equal(&machine.name, &name, pci.map(|pci| pci.to_string()), expected);
    }
}

/// F08, F13, F15: states from public threads, each made as a small tree.
#[test]
fn link_cases() {
    let path = data("link-cases/cases.json");
    let Ok(cases) = fs::read(&path) else {
        return crate::support::say(&format!("skipped: {} is missing", path.display()));
    };
    let cases: Value = serde_json::from_slice(&cases).unwrap();
    let mut tally = Tally::new("link cases");
    for case in cases["cases"].as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let name = format!("link-cases/{}", case["id"].as_str().unwrap());
        let expect = &case["expect"];
        for (class, entries) in [("net", &case["net"]), ("infiniband", &case["ib"])] {
            for (device, files) in entries.as_object().into_iter().flatten() {
                let port = if class == "infiniband" { "ports/1" } else { "" };
                let at = folder.path().join("sys/class").join(class).join(device).join(port);
                for (file, text) in files.as_object().unwrap() {
                    write(&at.join(file), text.as_str().unwrap());
                }
            }
        }
        for nic in read_nics(&root) {
            let speed = expect["speed_mbps"].as_u64();
            let word = case["net"][&nic.name]["speed"].as_str().and_then(|text| text.parse().ok());
            let speed = if expect.get("speed_mbps").is_some() { speed } else { word };
            tally.equal(&name, "speed", nic.speed_mbit_per_s, speed);
            tally.equal(&name, "mtu", nic.mtu.map(u64::from), number(&case["net"][&nic.name], "mtu"));
            if let Some(state) = expect["state"].as_str() {
                tally.equal(&name, "state", nic.state.as_deref(), Some(state));
            }
            if let Some(carrier) = expect["carrier"].as_bool() {
                tally.equal(&name, "carrier", nic.carrier, Some(carrier));
            }
        }
        for port in read_rdma(&root) {
            let usable = port.state == Some(RdmaPortState::Active);
            tally.equal(&name, "usable", Some(usable), expect["usable"].as_bool());
            tally.equal(
                &name,
                "state",
                port.state.map(|state| state_word(state).split_off(3)),
                expect["state"].as_str().map(str::to_owned),
            );
            if let Some(rate) = expect["rate_gbps"].as_f64() {
                tally.equal(&name, "rate", port.rate_gbit_per_s, Some(rate));
            }
            if let Some(lid) = expect["lid"].as_u64() {
                tally.equal(&name, "lid", port.lid.map(u64::from), Some(lid));
            }
            if port.link_layer.as_deref() == Some("Ethernet") {
                tally.equal(&name, "lid", port.lid, None::<u32>);
            }
        }
        if let Some(gids) = case["gids"].as_array() {
            for gid in gids {
                let port = folder.path().join("sys/class/infiniband/mlx5_0/ports/1");
                let index = gid["i"].to_string();
                write(&port.join("gids").join(&index), gid["gid"].as_str().unwrap());
                write(&port.join("gid_attrs/types").join(&index), gid["type"].as_str().unwrap());
            }
            let table = read_gids(&root, "mlx5_0", 1);
            let best = best_gid(&table, Some("Ethernet"));
            tally.equal(&name, "best GID", best.map(|gid| u64::from(gid.index)), expect["best_index"].as_u64());
            if let Some(address) = expect["ipv4_of_best"].as_str() {
                let ipv4 = best.and_then(|gid| gid.address.to_ipv4_mapped());
                tally.equal(&name, "its address", ipv4.map(|ipv4| ipv4.to_string()).as_deref(), Some(address));
            }
        }
    }
}

/// A file with this text; `!EINVAL` is one that cannot be read: a folder of that name.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if text == "!EINVAL" {
        fs::create_dir(path).unwrap();
    } else {
        fs::write(path, format!("{text}\n")).unwrap();
    }
}
