//! Rows of operations: what all ranks of a job did of one kind and size.

use std::collections::VecDeque;

use hcomm_telemetry::{Kind, Operation};

use super::process::Process;

/// Intervals whose rates are kept.
const HISTORY: usize = 300;

/// Kind, size class, and ranks of the communicator.
pub type Key = (Kind, u8, u32);

/// Operations of one kind and size class. Counts and rates are those of one rank, the mean over the ranks that made any: the same
/// for all ranks of a communicator, and right also where some ranks of the job are on other hosts.
#[derive(Debug, Clone)]
pub struct Row {
    /// Since counting began, the sum over the ranks.
    pub total: Operation,
    /// In the interval, the sum over the ranks; `None` when nothing is known of it.
    pub interval: Option<Operation>,
    /// Ranks that made any.
    pub ranks: u64,
    /// Calls a second of the interval, of a rank.
    pub calls_per_s: Option<f64>,
    /// Bytes a second of the interval, of a rank.
    pub bytes_per_s: Option<f64>,
    /// [`Row::bytes_per_s`] of the latest intervals, the last one last.
    pub history: VecDeque<Option<f64>>,
}

impl Row {
    /// What tells it from others.
    pub fn key(&self) -> Key {
        self.total.key()
    }

    /// Calls of a rank.
    pub fn calls(&self) -> u64 {
        mean(self.total.count, self.ranks)
    }

    /// Bytes of a rank.
    pub fn bytes(&self) -> u64 {
        mean(self.total.bytes, self.ranks)
    }

    /// Bus bandwidth within the operations of the interval, in bytes a second; `None` when none of them was timed.
    pub fn bus_bandwidth(&self) -> Option<f64> {
        self.interval.as_ref().and_then(Operation::bus_bandwidth)
    }

    /// The size, if all its operations had the same; else the smallest of its class is known.
    pub fn size(&self) -> Size {
        match self.total.bytes.checked_div(self.total.count) {
            Some(bytes) if bytes * self.total.count == self.total.bytes => Size::Each(bytes),
            _ => Size::From(self.total.class_bytes()),
        }
    }
}

/// The size of the operations of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Their mean is a whole number: as good as surely the size of each.
    Each(u64),
    /// At least this, and less than twice as much.
    From(u64),
}

/// To the nearest: ranks may be a call apart.
fn mean(sum: u64, ranks: u64) -> u64 {
    sum.saturating_add(ranks / 2).checked_div(ranks).unwrap_or(0)
}

/// The rows of a job, by key. `before` are those of the last tick, whose history goes on.
pub(super) fn rows(processes: &[Process], before: &[Row]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for process in processes {
        for total in process.totals() {
            match rows.iter_mut().find(|row| row.key() == total.key()) {
                Some(row) => {
                    row.total.add(&total);
                    row.ranks += 1;
                }
                None => rows.push(Row {
                    total,
                    interval: None,
                    ranks: 1,
                    calls_per_s: None,
                    bytes_per_s: None,
                    history: VecDeque::new(),
                }),
            }
        }
    }
    for row in &mut rows {
        measure(row, processes);
        if let Some(before) = before.iter().find(|before| before.key() == row.key()) {
            row.history.clone_from(&before.history);
        }
        row.history.push_back(row.bytes_per_s);
        if row.history.len() > HISTORY {
            row.history.pop_front();
        }
    }
    rows.sort_by_key(Row::key);
    rows
}

/// The interval: each rank over the time that was measured for it.
fn measure(row: &mut Row, processes: &[Process]) {
    let key = row.key();
    let makes = |process: &&Process| process.latest.operations.iter().any(|operation| operation.key() == key);
    let (mut ranks, mut calls, mut bytes) = (0.0, 0.0, 0.0);
    for process in processes.iter().filter(makes) {
        let Some(interval) = &process.interval else { continue };
        ranks += 1.0;
        let Some(done) = interval.operations.iter().find(|operation| operation.key() == key) else { continue };
        calls += done.count as f64 / interval.seconds;
        bytes += done.bytes as f64 / interval.seconds;
        match &mut row.interval {
            Some(sum) => sum.add(done),
            none => *none = Some(done.clone()),
        }
    }
    if ranks > 0.0 {
        row.calls_per_s = Some(calls / ranks);
        row.bytes_per_s = Some(bytes / ranks);
    }
}
