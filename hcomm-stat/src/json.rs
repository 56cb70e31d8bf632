//! JSON, schema `hcomm-stat/1`: stable keys, units in the keys, unknown is null.

use std::path::PathBuf;

use hcomm_topology::NicKind;
use hcomm_topology::net::{Counters, Difference, Route};
use serde_json::{Value, json};

use crate::View;
use crate::jobs::{Job, Path};
use crate::links::{Device, Health, Link, gid_address};
use crate::sample::{DROPS, ERRORS, RECEIVED, RETRANSMITS, SENT, Tcp};
use crate::units::rounded;
use crate::ways::Ways;

/// What every document begins with.
pub fn head(root: &hcomm_topology::Root) -> Value {
    json!({
        "schema": "hcomm-stat/1",
        "version": env!("CARGO_PKG_VERSION"),
        "hostname": root.text("proc/sys/kernel/hostname").filter(|name| !name.is_empty()),
        "sysroot": (!root.is_this_machine()).then(|| root.folder().display().to_string()),
    })
}

/// One listing, over many lines or in one.
pub fn listing(view: &View<'_>, pretty: bool) -> String {
    let mut document = head(view.root);
    let growth = view.growth.as_ref();
    document["interval_s"] = json!(growth.map(|growth| rounded(growth.seconds, 6)));
    document["links"] = view.links.iter().map(|link| link_object(view, link)).collect();
    document["default_routes"] = json!(view.ways.default);
    document["routes"] = routes(&view.ways);
    document["shared_networks"] = json!(view.ways.shared);
    document["tcp"] = json!({
        "segments_sent": view.sample.tcp().map(|tcp| tcp.sent),
        "segments_retransmitted": view.sample.tcp().map(|tcp| tcp.again),
        "interval": growth.and_then(|growth| growth.tcp).map(tcp_object),
    });
    document["jobs"] = view.jobs.jobs.iter().map(job_object).collect();
    let unreadable =
        |(path, reason): &(PathBuf, String)| json!({ "file": path.display().to_string(), "reason": reason });
    document["unreadable"] = view.jobs.unreadable.iter().map(unreadable).collect();
    if pretty { format!("{document:#}\n") } else { format!("{document}\n") }
}

/// The routes of the main table, and whether each is the one of its network that packets take.
fn routes(ways: &Ways) -> Value {
    let used = ways.used();
    let object = |route: &Route| {
        let network = route.network();
        let in_use = !route.reject && used.get(&network) == Some(&route.interface.as_str());
        json!({
            "network": network,
            "interface": route.interface,
            "gateway": route.gateway,
            "metric": route.metric,
            "reject": route.reject,
            "in_use": in_use,
        })
    };
    ways.tables.all.iter().map(object).collect()
}

fn job_object(job: &Job) -> Value {
    json!({
        "name": job.name,
        "program": job.program,
        "world_size": job.world_size,
        "ranks_here": job.ranks,
        "paths": job.paths.iter().map(path_object).collect::<Vec<_>>(),
        "sockets_unknown": job.missed,
    })
}

fn path_object(path: &Path) -> Value {
    let (ends, figures) = (&path.ends, &path.figures);
    let microseconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1000.0);
    json!({
        "rank": ends.rank,
        "peer": ends.peer,
        "transport": ends.transport,
        "rail": ends.interface,
        "local_address": ends.local,
        "remote_address": ends.remote,
        "sockets": path.sockets,
        "state": path.state,
        "round_trip_us": microseconds(figures.round_trip_ns),
        "loss_percent": figures.loss().map(|loss| rounded(loss * 100.0, 6)),
        "retransmits": figures.retransmits,
        "segments_sent": figures.segments_sent,
        "segments_received": figures.segments_received,
        "queued_bytes": figures.queued_bytes,
        "sent_bytes": path.sent_bytes,
        "received_bytes": path.received_bytes,
        // Nothing computes costs yet.
        "cost": Value::Null,
        "route": path.route(),
    })
}

fn tcp_object(tcp: Tcp) -> Value {
    json!({
        "segments_sent": tcp.sent,
        "segments_retransmitted": tcp.again,
        "retransmitted_percent": tcp.percent().map(|percent| rounded(percent, 4)),
    })
}

fn link_object(view: &View<'_>, link: &Link) -> Value {
    let counters = view.sample.links.get(&link.name);
    let growth = view.growth.as_ref();
    let difference = growth.and_then(|growth| growth.links.get(&link.name));
    let per_second =
        |names| growth.and_then(|growth| growth.per_second(&link.name, names)).map(|rate| rounded(rate, 1));
    let (health, reason, fix) = match &link.health {
        Health::Well => ("ok", None, None),
        Health::Idle(reason) => ("idle", Some((*reason).to_owned()), None),
        Health::Unwell { reason, fix } => ("down", Some(reason.clone()), Some(fix.clone())),
        Health::Unknown => ("unknown", None, None),
    };
    let mut object = json!({
        "name": link.name,
        "health": health,
        "reason": reason,
        "fix": fix,
        "state": link.state(),
        "physical_state": link.physical_state(),
        "speed_gbit_per_s": link.speed(),
        "mtu_bytes": link.nic().and_then(|nic| nic.mtu),
        "addresses": link.addresses(),
        "numa_node": link.numa_node(),
        "rx_bytes_per_s": per_second(&RECEIVED),
        "tx_bytes_per_s": per_second(&SENT),
        "total": counters.map(total),
        "interval": difference.map(added),
        "counters_at_ceiling": counters.map(|counters| counters.at_ceiling().collect::<Vec<_>>()),
        "counters": counters.map(|counters| {
            counters.values.iter().map(|(name, counter)| (name.clone(), json!(counter.value))).collect::<serde_json::Map<_, _>>()
        }),
    });
    match &link.device {
        Device::Interface(nic) => {
            object["link_layer"] = json!(if nic.hardware_type == Some(32) { "InfiniBand" } else { "Ethernet" });
            object["interface"] = json!({
                "kind": nic.kind,
                "physical": nic.kind == NicKind::Physical,
                "pci": nic.pci,
                "driver": nic.driver,
                "mac": nic.mac,
                "duplex": nic.duplex,
                "carrier": nic.carrier,
                "master": nic.master,
            });
        }
        Device::Port(port, gids) => {
            object["link_layer"] = json!(port.link_layer);
            object["rdma"] = json!({
                "device": port.device,
                "port": port.port,
                "pci": port.pci,
                "width_lanes": port.width,
                "speed_name": port.speed_name,
                "lid": port.lid,
                "sm_lid": port.sm_lid,
                "firmware": port.firmware,
                "board_id": port.board_id,
                "hca_type": port.hca_type,
                "node_guid": port.node_guid,
                "interfaces": port.interfaces,
                "gid_index": link.gid().map(|gid| gid.index),
                "gid_address": link.gid().map(gid_address),
                "gid_kind": link.gid().map(|gid| gid.kind),
                "gids": gids,
            });
        }
    }
    object
}

fn total(counters: &Counters) -> Value {
    json!({
        "rx_bytes": counters.sum(&RECEIVED),
        "tx_bytes": counters.sum(&SENT),
        "errors": counters.sum(&ERRORS),
        "drops": counters.sum(&DROPS),
        "retransmits": counters.sum(&RETRANSMITS),
    })
}

fn added(difference: &Difference) -> Value {
    json!({
        "reset": difference.reset,
        "rx_bytes": difference.sum(&RECEIVED),
        "tx_bytes": difference.sum(&SENT),
        "errors": difference.sum(&ERRORS),
        "drops": difference.sum(&DROPS),
        "retransmits": difference.sum(&RETRANSMITS),
    })
}
