//! Counters of interfaces and RDMA ports, and what two samples of them say: traffic, a reset, a wrap, or a counter that has stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Root;

/// A counter as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Its value.
    pub value: u64,
    /// It stopped at the largest value it can hold: at least so much happened, and more is not counted.
    pub at_ceiling: bool,
}

/// The counters of one interface or port at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// By the kernel's names; those in bytes end with `_bytes`.
    pub values: BTreeMap<String, Counter>,
    /// What tells one device from the next of the same name (the interface's index).
    #[serde(skip)]
    pub identity: Option<u64>,
}

impl Counters {
    /// The value of a counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.values.get(name).map(|counter| counter.value)
    }

    /// The sum of those that are there.
    pub fn sum(&self, names: &[&str]) -> Option<u64> {
        names.iter().filter_map(|name| self.get(name)).reduce(u64::saturating_add)
    }

    /// The names of counters that have stopped.
    pub fn at_ceiling(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|(_, counter)| counter.at_ceiling).map(|(name, _)| name.as_str())
    }
}

/// `/sys/class/net/NAME/statistics` (kernel documentation, `ABI/testing/sysfs-class-net-statistics`).
pub fn interface_counters(root: &Root, name: &str) -> Counters {
    let folder = Path::new("sys/class/net").join(name);
    let mut counters = Counters { identity: root.number(folder.join("ifindex")), ..Counters::default() };
    for name in root.list(folder.join("statistics")) {
        if let Some(value) = root.number(folder.join("statistics").join(&name)) {
            counters.values.insert(name, Counter { value, at_ceiling: false });
        }
    }
    if let Some(value) = root.number(folder.join("carrier_changes")) {
        counters.values.insert("carrier_changes".to_owned(), Counter { value, at_ceiling: false });
    }
    counters
}

/// `counters` and `hw_counters` of an RDMA port (kernel documentation, `ABI/stable/sysfs-class-infiniband`). The two data counters are kept
/// by the hardware in units of 4 bytes, whatever the width of the link (InfiniBand specification, PortCounters), and are given in bytes
/// as `port_rcv_data_bytes` and `port_xmit_data_bytes`. What is no number (`N/A (no PMA)`) is left out.
pub fn rdma_counters(root: &Root, device: &str, port: u32) -> Counters {
    let port = PathBuf::from(format!("sys/class/infiniband/{device}/ports/{port}"));
    let mut counters = Counters::default();
    for folder in ["counters", "hw_counters"] {
        for name in root.list(port.join(folder)) {
            let Some(value) = root.number::<u64>(port.join(folder).join(&name)) else { continue };
            let at_ceiling = folder == "counters" && ceiling(&name) == Some(value);
            let (name, value) = match name.as_str() {
                "port_rcv_data" | "port_xmit_data" => (format!("{name}_bytes"), value.saturating_mul(4)),
                _ => (name, value),
            };
            // `lifespan` is a setting: how long the values are kept before they are asked for again.
            if name != "lifespan" {
                counters.values.insert(name, Counter { value, at_ceiling });
            }
        }
    }
    counters
}

/// Where a counter of the InfiniBand specification's PortCounters stops. Some adapters have wider ones; those do not stop there, and
/// stand at exactly this value for one event only.
fn ceiling(name: &str) -> Option<u64> {
    let bits = match name {
        "local_link_integrity_errors" | "excessive_buffer_overrun_errors" => 4,
        "link_error_recovery" | "link_downed" | "port_rcv_constraint_errors" | "port_xmit_constraint_errors" => 8,
        "symbol_error"
        | "port_rcv_errors"
        | "port_rcv_remote_physical_errors"
        | "port_rcv_switch_relay_errors"
        | "port_xmit_discards"
        | "VL15_dropped" => 16,
        "port_xmit_data" | "port_rcv_data" | "port_xmit_packets" | "port_rcv_packets" | "port_xmit_wait" => 32,
        _ => return None,
    };
    Some((1 << bits) - 1)
}

/// What happened between two samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The counters began anew in between (driver reloaded, device replaced, somebody cleared them): no difference is known.
    pub reset: bool,
    /// By how much each grew; those that have stopped, or are in one sample only, are left out.
    pub grown: BTreeMap<String, u64>,
}

impl Difference {
    /// By how much a counter grew.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.grown.get(name).copied()
    }

    /// The sum of those that are known.
    pub fn sum(&self, names: &[&str]) -> Option<u64> {
        names.iter().filter_map(|name| self.get(name)).reduce(u64::saturating_add)
    }
}

/// The difference between two samples. A counter that fell was reset, and then all were; or it is kept in 32 bits and wrapped, which
/// is believed only if every counter that fell stood near its end before and near its beginning after.
pub fn difference(before: &Counters, after: &Counters) -> Difference {
    let pairs = || after.values.iter().filter_map(|(name, now)| Some((name, before.values.get(name)?, now)));
    let mut fell = pairs().filter(|(_, then, now)| now.value < then.value).peekable();
    let replaced = before.identity != after.identity;
    if replaced || fell.peek().is_some() && !fell.all(|(_, then, now)| wrapped(then.value, now.value)) {
        return Difference { reset: true, ..Difference::default() };
    }
    let counting = pairs().filter(|(_, then, now)| !then.at_ceiling && !now.at_ceiling);
    let grown = counting.map(|(name, then, now)| {
        let grown = if now.value < then.value { (now.value + (1 << 32)) - then.value } else { now.value - then.value };
        (name.clone(), grown)
    });
    Difference { reset: false, grown: grown.collect() }
}

/// Whether a counter that fell may have 32 bits and have wrapped: from its last quarter into its first.
fn wrapped(then: u64, now: u64) -> bool {
    let quarter = 1_u64 << 30;
    then < 1 << 32 && then >= 3 * quarter && now < quarter
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counters(values: &[(&str, u64)]) -> Counters {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), Counter { value, at_ceiling: false }));
        Counters { values: values.collect(), identity: Some(2) }
    }

    #[test]
    fn traffic_wraps_and_resets_are_told_apart() {
        let before = counters(&[("rx_bytes", 4_294_967_000), ("rx_packets", 1000)]);
        let traffic = difference(&before, &counters(&[("rx_bytes", 4_294_967_100), ("rx_packets", 1001), ("new", 1)]));
        assert_eq!((traffic.reset, traffic.get("rx_bytes"), traffic.get("new")), (false, Some(100), None));
        let wrap = difference(&before, &counters(&[("rx_bytes", 704), ("rx_packets", 1001)]));
        assert_eq!((wrap.reset, wrap.get("rx_bytes"), wrap.get("rx_packets")), (false, Some(1000), Some(1)));
        let reset = difference(&before, &counters(&[("rx_bytes", 704), ("rx_packets", 9)]));
        assert_eq!((reset.reset, reset.get("rx_bytes")), (true, None));
        let one = difference(&counters(&[("rx_bytes", 5_000_000_000)]), &counters(&[("rx_bytes", 1000)]));
        assert!(one.reset, "64 bits do not wrap");
        let replaced = Counters { identity: Some(3), ..counters(&[("rx_bytes", 4_294_967_100)]) };
        assert!(difference(&before, &replaced).reset);
    }

    /// F11, and counters that have stopped.
    #[test]
    fn ports_count_words_and_stop() {
        let folder = tempfile::tempdir().unwrap();
        let port = folder.path().join("sys/class/infiniband/mlx5_0/ports/1");
        std::fs::create_dir_all(port.join("counters")).unwrap();
        std::fs::create_dir_all(port.join("hw_counters")).unwrap();
        for (name, text) in [
            ("counters/port_rcv_data", "1000\n"),
            ("counters/port_xmit_data", "4294967295\n"),
            ("counters/link_downed", "255\n"),
            ("counters/symbol_error", "255\n"),
            ("counters/port_xmit_wait", "N/A (no PMA)\n"),
            ("hw_counters/out_of_sequence", "65535\n"),
            ("hw_counters/lifespan", "10\n"),
        ] {
            std::fs::write(port.join(name), text).unwrap();
        }
        let sample = rdma_counters(&Root::at(folder.path()), "mlx5_0", 1);
        assert_eq!(sample.get("port_rcv_data_bytes"), Some(4000));
        assert_eq!(sample.at_ceiling().collect::<Vec<_>>(), ["link_downed", "port_xmit_data_bytes"]);
        assert_eq!((sample.get("port_xmit_wait"), sample.get("lifespan")), (None, None));
        let still = difference(&sample, &sample);
        assert_eq!((still.get("port_rcv_data_bytes"), still.get("port_xmit_data_bytes")), (Some(0), None));
    }

    proptest! {
        #[test]
        fn what_grew_is_what_was_added(start in 0..u64::MAX / 2, traffic in 0..u64::MAX / 2) {
            let (before, after) = (counters(&[("a", start)]), counters(&[("a", start + traffic)]));
            prop_assert_eq!(difference(&before, &after).get("a"), Some(traffic));
        }

        #[test]
        fn a_wrap_of_32_bits_gives_the_traffic(room in 1..1_u64 << 30, traffic in 0..1_u64 << 30) {
            let (start, traffic) = ((1 << 32) - room, room + traffic / 2);
            let (before, after) = (counters(&[("a", start)]), counters(&[("a", (start + traffic) % (1 << 32))]));
            if traffic - room < 1 << 30 {
                prop_assert_eq!(difference(&before, &after).get("a"), Some(traffic));
            }
        }
    }
}
