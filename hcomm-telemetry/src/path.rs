//! One socket to a peer: what is known of it, as it is written and as it is read.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::json;

/// States of a TCP socket, by the kernel's numbers (`TCP_ESTABLISHED` is 1, tcp(7) `tcpi_state`).
pub(crate) const STATES: [&str; 12] = [
    "unknown",
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
];

/// A path to a peer: one socket, while it is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkPath {
    /// Rank of the peer in the job.
    pub peer: u32,
    /// Transport.
    #[serde(default, deserialize_with = "json::transport")]
    pub transport: json::Name,
    /// Communicator that it serves,
    pub communicator: u64,
    /// the lane of that,
    pub lane: u32,
    /// and its number among the sockets of the link, which share the load.
    pub number: u32,
    /// Interface that has the local address, if any has.
    pub interface: Option<String>,
    /// Address at this end.
    pub local: Option<SocketAddr>,
    /// Address at the other end.
    pub remote: Option<SocketAddr>,
    /// State in the kernel's words (`established`), if known.
    #[serde(default, deserialize_with = "json::socket_state")]
    pub state: json::Name,
    /// `CLOCK_MONOTONIC` when it was first read.
    pub opened_ns: u64,
    /// `CLOCK_MONOTONIC` when it was read last.
    pub sampled_ns: u64,
    /// What was read.
    #[serde(flatten)]
    pub figures: PathFigures,
}

impl LinkPath {
    /// The share of segments that were sent again, of those that carried data; `None` when that is not known, or none were sent.
    /// What was sent again need not have been lost.
    pub fn loss(&self) -> Option<f64> {
        self.figures.loss()
    }
}

/// What the system counts of a socket; `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathFigures {
    /// Smoothed round trip in nanoseconds,
    pub round_trip_ns: Option<u64>,
    /// and its mean deviation.
    pub round_trip_deviation_ns: Option<u64>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Segments with data sent, those sent again too.
    pub segments_sent: Option<u64>,
    /// Segments with data received.
    pub segments_received: Option<u64>,
    /// Bytes that the other end has acknowledged; the kernel counts the opening of the connection as one.
    pub acknowledged_bytes: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// Bytes handed to the kernel that the other end has not acknowledged.
    pub queued_bytes: Option<u64>,
}

impl PathFigures {
    /// See [`LinkPath::loss`].
    pub fn loss(&self) -> Option<f64> {
        let sent = self.segments_sent.filter(|&sent| sent > 0)?;
        Some(self.retransmits? as f64 / sent as f64)
    }
}

/// What was read of a socket, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSample {
    /// Tells it from every other socket of this process, earlier and later.
    pub id: u64,
    /// Rank of the peer in the job.
    pub peer: u32,
    /// Number in [`crate::TRANSPORTS`].
    pub transport: u8,
    /// Communicator that it serves,
    pub communicator: u64,
    /// the lane of that,
    pub lane: u32,
    /// and its number among the sockets of the link.
    pub number: u32,
    /// Name of the interface; empty if not known.
    pub interface: String,
    /// Addresses at this end and the other.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The kernel's number.
    pub state: Option<u8>,
    /// What was read.
    pub figures: PathFigures,
}

/// An address in two words; IPv4 as an IPv6 address that holds it (RFC 4291, 2.5.5.2).
pub(crate) fn address_words(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| octets[at + i]));
    [half(0), half(8)]
}

/// The address in two words.
pub(crate) fn address_of(words: [u64; 2]) -> IpAddr {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&words[0].to_ne_bytes());
    octets[8..].copy_from_slice(&words[1].to_ne_bytes());
    Ipv6Addr::from(octets).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["10.1.2.3", "::1", "fd00::7:1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(address_words(address)), address);
        }
        // In the order of the network, as they are printed.
        assert_eq!(address_words("10.1.2.3".parse().unwrap())[1].to_ne_bytes(), [0, 0, 255, 255, 10, 1, 2, 3]);
    }

    #[test]
    fn loss_is_known_once_something_was_sent() {
        let figures = |retransmits, segments_sent| PathFigures { retransmits, segments_sent, ..PathFigures::default() };
        assert_eq!(figures(Some(3), Some(300)).loss(), Some(0.01));
        assert_eq!(
            [figures(Some(0), Some(0)), figures(None, Some(9)), figures(Some(1), None)].map(|f| f.loss()),
            [None; 3]
        );
    }
}
