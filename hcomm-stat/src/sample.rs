//! Counters at one moment, and what happened between two.

use std::collections::BTreeMap;
use std::time::Instant;

use hcomm_topology::Root;
use hcomm_topology::net::{
    Counters, Difference, Protocols, difference, interface_counters, protocol_counters, rdma_counters,
};

use crate::links::{Device, Link};

/// Counters of interfaces and of ports that make up a figure. `rx_missed_errors` is not part of `rx_dropped`, and the special errors
/// are part of `rx_errors` and `tx_errors` (kernel documentation, `networking/statistics`).
pub const RECEIVED: [&str; 2] = ["rx_bytes", "port_rcv_data_bytes"];
pub const SENT: [&str; 2] = ["tx_bytes", "port_xmit_data_bytes"];
pub const PACKETS: [&str; 4] = ["rx_packets", "tx_packets", "port_rcv_packets", "port_xmit_packets"];
pub const ERRORS: [&str; 11] = [
    "rx_errors",
    "tx_errors",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
];
pub const DROPS: [&str; 6] =
    ["rx_dropped", "tx_dropped", "rx_missed_errors", "port_xmit_discards", "VL15_dropped", "out_of_buffer"];
/// Of mlx5 (kernel and vendor documentation of `hw_counters`): timeouts, gaps in sequence, receiver not ready, adaptive retransmission.
pub const RETRANSMITS: [&str; 5] =
    ["local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err", "roce_adp_retrans"];

/// All counters at one moment.
#[derive(Debug)]
pub struct Sample {
    pub at: Instant,
    /// By the name of the link.
    pub links: BTreeMap<String, Counters>,
    pub protocols: Protocols,
}

impl Sample {
    /// Reads them.
    pub fn take(root: &Root, links: &[Link]) -> Sample {
        let at = Instant::now();
        let counters = |link: &Link| match &link.device {
            Device::Interface(nic) => interface_counters(root, &nic.name),
            Device::Port(port, _) => rdma_counters(root, &port.device, port.port),
        };
        let links = links.iter().map(|link| (link.name.clone(), counters(link))).collect();
        Sample { at, links, protocols: protocol_counters(root) }
    }

    /// A counter of a protocol that only grows.
    pub fn protocol(&self, protocol: &str, name: &str) -> Option<u64> {
        self.protocols.get(protocol)?.get(name).and_then(|value| u64::try_from(*value).ok())
    }

    /// TCP segments sent, without those sent again, and those sent again (RFC 1213, tcpOutSegs and tcpRetransSegs).
    pub fn tcp(&self) -> Option<Tcp> {
        Some(Tcp { sent: self.protocol("Tcp", "OutSegs")?, again: self.protocol("Tcp", "RetransSegs")? })
    }
}

/// TCP segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    pub sent: u64,
    pub again: u64,
}

impl Tcp {
    /// Which part was sent again, in percent; `None` if nothing was sent.
    pub fn percent(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.again as f64 * 100.0 / self.sent as f64)
    }
}

/// What happened between two samples.
#[derive(Debug)]
pub struct Growth {
    pub seconds: f64,
    /// By the name of the link; one that is new has none.
    pub links: BTreeMap<String, Difference>,
    pub tcp: Option<Tcp>,
}

impl Growth {
    pub fn between(before: &Sample, after: &Sample) -> Growth {
        let pair = |(name, now): (&String, &Counters)| Some((name.clone(), difference(before.links.get(name)?, now)));
        let tcp = || {
            let (then, now) = (before.tcp()?, after.tcp()?);
            Some(Tcp { sent: now.sent.checked_sub(then.sent)?, again: now.again.checked_sub(then.again)? })
        };
        Growth {
            seconds: after.at.saturating_duration_since(before.at).as_secs_f64(),
            links: after.links.iter().filter_map(pair).collect(),
            tcp: tcp(),
        }
    }

    /// What was added a second to the first of these counters that the link has.
    pub fn per_second(&self, link: &str, names: &[&str]) -> Option<f64> {
        let difference = self.links.get(link)?;
        let grown = names.iter().find_map(|name| difference.get(name))?;
        (self.seconds > 0.0).then(|| grown as f64 / self.seconds)
    }
}
