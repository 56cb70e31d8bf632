//! Numbers in the file and the names behind them. Part of the layout: append only, never renumber.

use std::fmt;

/// Kinds of operations, by number.
pub const KINDS: [&str; 13] = [
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
    "sendrecv",
    "barrier",
    "send",
    "receive",
    "send_receive",
];

/// Algorithms, by number.
pub const ALGORITHMS: [&str; 10] = [
    "ring",
    "recursive_doubling",
    "halving_doubling",
    "tree",
    "direct",
    "bruck",
    "pairwise",
    "binomial",
    "chain",
    "hierarchical",
];

/// Transports, by number.
pub const TRANSPORTS: [&str; 5] = ["self", "shm", "tcp", "shm+tcp", "rdma"];

/// Element types, by number.
pub const ELEMENTS: [&str; 10] = ["f64", "f32", "f16", "bf16", "i8", "u8", "i32", "u32", "i64", "u64"];

/// Operations of reductions, by number.
pub const OPERATIONS: [&str; 5] = ["sum", "prod", "min", "max", "avg"];

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u8);

impl Kind {
    /// A message sent.
    pub const SEND: Kind = Kind(10);
    /// A message received.
    pub const RECEIVE: Kind = Kind(11);
    /// A message sent and one received at once.
    pub const SEND_RECEIVE: Kind = Kind(12);

    /// Its name, as in flags and tables; `?` for a number that this version does not know.
    pub fn name(self) -> &'static str {
        name_of(&KINDS, self.0).unwrap_or("?")
    }

    /// Whether it is a message between two ranks, and no collective.
    pub fn is_message(self) -> bool {
        (Kind::SEND.0..=Kind::SEND_RECEIVE.0).contains(&self.0)
    }

    /// Its name as logs write it: `AllReduce`.
    pub fn title(self) -> String {
        let capital = |word: &str| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
        };
        self.name().split('_').map(capital).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name behind a number; `None` for one that this version does not know.
pub(crate) fn name_of(names: &[&'static str], number: u8) -> Option<&'static str> {
    names.get(usize::from(number)).copied()
}

/// Bus bandwidth over algorithm bandwidth, as nccl-tests' `doc/PERFORMANCE.md` defines it; 1 where it defines none.
pub fn bus_factor(kind: Kind, ranks: u32) -> f64 {
    let n = f64::from(ranks.max(1));
    match kind.name() {
        "all_reduce" => 2.0 * (n - 1.0) / n,
        "reduce_scatter" | "all_gather" | "all_to_all" | "scatter" | "gather" => (n - 1.0) / n,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        assert_eq!((Kind(0).name(), Kind(0).title()), ("all_reduce", "AllReduce".into()));
        assert_eq!((Kind::SEND.name(), Kind::RECEIVE.name()), ("send", "receive"));
        assert_eq!((Kind::SEND_RECEIVE.title().as_str(), Kind(200).name()), ("SendReceive", "?"));
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(bus_factor(Kind(0), 4), 1.5);
        assert_eq!(bus_factor(Kind(2), 4), 0.75);
        assert_eq!(bus_factor(Kind(3), 4), 1.0);
        assert_eq!(bus_factor(Kind(0), 1), 0.0);
    }
}
