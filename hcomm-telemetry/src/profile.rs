//! Figures of a process's operations, for people and programs.

use std::fmt;

use serde::Serialize;

use crate::names::Kind;
use crate::read::{Operation, Snapshot};

/// What the operations of a process have done so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileStats {
    /// By kind and ranks.
    pub operations: Vec<Profile>,
    /// Operations for whose kind and size there was no room: in no other figure.
    pub unsorted_calls: u64,
    /// Their bytes.
    pub unsorted_bytes: u64,
}

/// Operations of one kind, over ranks of the same number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// Kind.
    pub kind: Kind,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Operations that ended well.
    pub count: u64,
    /// Bytes that they moved, as nccl-tests counts the size of an operation.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Time spent in them in seconds, from the durations that were timed; `None` when none was.
    pub seconds: Option<f64>,
    /// Bytes a second that the busiest wire carried meanwhile; `None` when none was timed.
    pub bus_bandwidth: Option<f64>,
    /// By size, the smallest first: the same operations, with the distribution of their durations.
    pub sizes: Vec<Operation>,
}

impl ProfileStats {
    /// Of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut operations: Vec<Profile> = Vec::new();
        for operation in &snapshot.operations {
            let same = |profile: &&mut Profile| (profile.kind, profile.ranks) == (operation.kind, operation.ranks);
            match operations.iter_mut().find(same) {
                Some(profile) => profile.sizes.push(operation.clone()),
                None => operations.push(Profile::over(operation.clone())),
            }
        }
        operations.iter_mut().for_each(Profile::sum);
        Self { operations, unsorted_calls: snapshot.unsorted_calls, unsorted_bytes: snapshot.unsorted_bytes }
    }
}

impl Profile {
    fn over(first: Operation) -> Self {
        let Operation { kind, ranks, .. } = first;
        Self { kind, ranks, count: 0, bytes: 0, errors: 0, seconds: None, bus_bandwidth: None, sizes: vec![first] }
    }

    fn sum(&mut self) {
        self.sizes.sort_by_key(|operation| operation.class);
        let sum = |of: fn(&Operation) -> u64| self.sizes.iter().map(of).fold(0, u64::saturating_add);
        (self.count, self.bytes, self.errors) = (sum(|o| o.count), sum(|o| o.bytes), sum(|o| o.errors));
        let timed = || self.sizes.iter().filter_map(|o| Some((o, o.mean_ns()? * o.count as f64 / 1e9)));
        let seconds = timed().map(|(_, seconds)| seconds).sum::<f64>();
        let bytes = timed().map(|(operation, _)| operation.bytes as f64).sum::<f64>();
        if timed().next().is_some() {
            self.seconds = Some(seconds);
            self.bus_bandwidth = (seconds > 0.0).then(|| bytes / seconds * crate::bus_factor(self.kind, self.ranks));
        }
    }
}

impl fmt::Display for ProfileStats {
    /// A table: one line a kind and size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        writeln!(
            f,
            "{:<16} {:>6} {:>14} {:>12} {:>18} {:>8} {:>11} {:>11} {:>11} {:>9}",
            "operation",
            "ranks",
            "from size (B)",
            "count",
            "bytes",
            "errors",
            "p50 (us)",
            "p99 (us)",
            "max (us)",
            "bus GB/s"
        )?;
        for operation in self.operations.iter().flat_map(|profile| &profile.sizes) {
            let us = |ns: Option<u64>| number(ns.map(|ns| ns as f64 / 1e3));
            writeln!(
                f,
                "{:<16} {:>6} {:>14} {:>12} {:>18} {:>8} {:>11} {:>11} {:>11} {:>9}",
                operation.kind.name(),
                operation.ranks,
                operation.class_bytes(),
                operation.count,
                operation.bytes,
                operation.errors,
                us(operation.durations.quantile(0.5)),
                us(operation.durations.quantile(0.99)),
                us(operation.max_ns),
                number(operation.bus_bandwidth().map(|bandwidth| bandwidth / 1e9)),
            )?;
        }
        Ok(())
    }
}
