//! What was measured: one [`Row`] a size, with a [`Cell`] out of place and one in place. All outputs are made from these.

use hcomm_core::communicator::{RankInfo, RunInfo};
use hcomm_core::{DataType, ReduceOp};

use crate::workload::Workload;

/// The times of one cell, in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Times {
    /// The headline: the mean of the clock-free loop, of the rank that `-a` chose.
    pub mean: f64,
    /// Shortest single iteration (of the slowest rank in each, as all that follow).
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile (nearest rank).
    pub p99: f64,
    /// Longest.
    pub max: f64,
    /// Standard deviation over mean of the single iterations.
    pub cv: f64,
    /// Part of the single iterations that took more than three times the median.
    pub outliers: f64,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Timed iterations.
    pub iterations: u64,
    /// Times of an operation.
    pub times: Times,
    /// CPU time of an operation in microseconds, mean of ranks.
    pub cpu_us: f64,
    /// Each rank's own mean time of an operation in microseconds.
    pub rank_us: Vec<f64>,
    /// Wrong elements over all ranks; `None` when nothing was checked.
    pub wrong: Option<u64>,
    /// Bytes written outside the buffers, over all ranks.
    pub out_of_bounds: u64,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What.
    pub workload: Workload,
    /// Element type.
    pub dtype: DataType,
    /// Operation, where elements are combined.
    pub op: Option<ReduceOp>,
    /// Root, where there is one.
    pub root: Option<usize>,
    /// Ranks.
    pub ranks: usize,
    /// Size as nccl-tests counts it.
    pub bytes: u64,
    /// Elements as nccl-tests counts them.
    pub count: u64,
    /// How the library ran it.
    pub run: RunInfo,
    /// Separate buffers.
    pub out_of_place: Cell,
    /// One buffer, where the collective can.
    pub in_place: Option<Cell>,
}

/// What all rows have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// All ranks.
    pub ranks: Vec<RankInfo>,
    /// Transport of the first exchange.
    pub transport: &'static str,
    /// `iters 20  warm-up 5  check on  seed 1`.
    pub settings: String,
}

/// Sums over rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Wrong elements.
    pub wrong: u64,
    /// Bytes out of bounds.
    pub out_of_bounds: u64,
    busbw: f64,
    cells: u64,
}

impl Cell {
    /// Whether a result was found wrong; no bandwidth is reported then.
    pub fn is_wrong(&self) -> bool {
        self.wrong.is_some_and(|wrong| wrong > 0) || self.out_of_bounds > 0
    }
}

impl Row {
    /// Both cells.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        std::iter::once(&self.out_of_place).chain(&self.in_place)
    }

    /// Algorithm bandwidth in 10^9 bytes a second; `None` for a wrong result or one too short to be timed.
    pub fn algbw(&self, cell: &Cell) -> Option<f64> {
        (!cell.is_wrong() && cell.times.mean > 0.0).then(|| self.bytes as f64 / cell.times.mean / 1e3)
    }

    /// Bus bandwidth, likewise.
    pub fn busbw(&self, cell: &Cell) -> Option<f64> {
        self.algbw(cell).map(|algbw| algbw * self.workload.bus_factor(self.ranks))
    }

    /// Name of the operation as in nccl-tests.
    pub fn op_name(&self) -> &'static str {
        self.op.map_or("none", ReduceOp::name)
    }

    /// Root as in nccl-tests: -1 where there is none.
    pub fn root_number(&self) -> i64 {
        self.root.map_or(-1, |root| root as i64)
    }
}

impl Header {
    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.ranks.iter().map(|info| info.host_index + 1).max().unwrap_or(1)
    }
}

impl Totals {
    /// Adds a row.
    pub fn add(&mut self, row: &Row) {
        for cell in row.cells() {
            self.wrong += cell.wrong.unwrap_or(0);
            self.out_of_bounds += cell.out_of_bounds;
            if let Some(busbw) = row.busbw(cell) {
                self.busbw += busbw;
                self.cells += 1;
            }
        }
    }

    /// Mean bus bandwidth over the cells that have one; `None` without any.
    pub fn average_busbw(&self) -> Option<f64> {
        (self.cells > 0).then(|| self.busbw / self.cells as f64)
    }
}

impl Times {
    /// Statistics of single iterations (nanoseconds), beside the headline mean (microseconds).
    pub fn new(mean: f64, samples_ns: &[f64]) -> Times {
        let mut sorted = samples_ns.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len().max(1) as f64;
        // Nearest rank: the smallest sample that at least this part of all samples does not exceed.
        let percentile = |part: f64| {
            let rank = (part * count).ceil().max(1.0) as usize;
            sorted.get(rank - 1).copied().unwrap_or(0.0) / 1e3
        };
        let average = sorted.iter().sum::<f64>() / count;
        let variance = sorted.iter().map(|sample| (sample - average).powi(2)).sum::<f64>() / count;
        let p50 = percentile(0.5);
        let slow = sorted.iter().filter(|sample| **sample > 3e3 * p50).count();
        Times {
            mean,
            min: percentile(0.0),
            p50,
            p99: percentile(0.99),
            max: percentile(1.0),
            cv: if average > 0.0 { variance.sqrt() / average } else { 0.0 },
            outliers: slow as f64 / count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_samples() {
        let samples: Vec<f64> = (1..=100).map(|i| f64::from(i) * 1000.0).collect();
        let times = Times::new(50.0, &samples);
        assert_eq!((times.min, times.p50, times.p99, times.max), (1.0, 50.0, 99.0, 100.0));
        assert!((times.cv - 28.866 / 50.5).abs() < 1e-4);
        let one = Times::new(1.0, &[2000.0]);
        assert_eq!((one.min, one.p50, one.p99, one.max, one.cv), (2.0, 2.0, 2.0, 2.0, 0.0));
        let slow = Times::new(1.0, &[1.0, 1.0, 1.0, 4.0]);
        assert_eq!(slow.outliers, 0.25);
    }
}
