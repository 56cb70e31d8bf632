//! RDMA ports: state, GID table, memory that may be locked.

use hcomm_cli::shell_word;
use hcomm_topology::net::GidKind;
use hcomm_topology::{RdmaPort, RdmaPortState};

use super::Context;
use crate::links::{Health, Link, gid_address, state_word};

pub fn run(context: &mut Context<'_>) {
    let ports: Vec<(String, Health, RdmaPort)> = context
        .links
        .iter()
        .filter_map(|link| Some((link.name.clone(), link.health.clone(), link.port()?.clone())))
        .collect();
    for (name, health, port) in ports {
        let state = port.state.map(state_word).unwrap_or_default();
        match health {
            Health::Well | Health::Idle(_) => context.ok("rdma-state", &name, state),
            Health::Unwell { reason, fix } => context.fail("rdma-state", &name, format!("{state}: {reason}"), fix),
            Health::Unknown => context.unknown("rdma-state", &name, "not told"),
        }
        if port.link_layer.as_deref() == Some("Ethernet") {
            gid(context, &name, &port);
        }
    }
}

/// F15: the entry that is used by default may not leave the link.
fn gid(context: &mut Context<'_>, name: &str, port: &RdmaPort) {
    let address = match port.interfaces.first() {
        Some(interface) => format!("ip address add ADDRESS/PREFIX dev {}", shell_word(interface)),
        None => {
            let (device, port) = (&port.device, port.port);
            format!("give its interface an address; rdma link show {device}/{port} names it")
        }
    };
    let table = context.root.is_folder(format!("sys/class/infiniband/{}/ports/{}/gids", port.device, port.port));
    let link = context.links.iter().find(|link| link.name == name);
    let Some(gid) = link.and_then(Link::gid).cloned() else {
        return match (table, port.state) {
            (false, _) => context.unknown("rdma-gid", name, "there is no GID table"),
            (true, Some(RdmaPortState::Active)) => context.fail("rdma-gid", name, "the GID table is empty", address),
            (true, _) => context.warn("rdma-gid", name, "the GID table is empty", address),
        };
    };
    let what = format!("index {}: {}", gid.index, gid_address(&gid));
    match (gid.kind, gid.is_routable()) {
        (Some(GidKind::RoceV2), true) => context.ok(
            "rdma-gid",
            name,
            format!("{what}, RoCE v2; HCOMM_IB_GID_INDEX={0} NCCL_IB_GID_INDEX={0}", gid.index),
        ),
        (Some(GidKind::RoceV2), false) => {
            context.warn("rdma-gid", name, format!("{what} does not leave the link"), address)
        }
        (Some(GidKind::InfiniBandOrRoceV1), _) => {
            let fix = format!("cma_roce_mode -d {} -p {} -m 2; {address}", port.device, port.port);
            context.warn("rdma-gid", name, format!("{what}: there is RoCE v1 only, which no router forwards"), fix)
        }
        (None, _) => context.unknown("rdma-gid", name, format!("{what}, of a kind that is not told")),
    }
}
