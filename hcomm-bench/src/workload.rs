//! What is measured: a collective (even or uneven), and its shape at one message size, with nccl-tests' meaning of "size".
//!
//! The size of a row is the larger buffer of the rank that has the largest. Where the buffer is made of one block a rank, it
//! is rounded down to a multiple of the ranks; nccl-tests also rounds blocks to 16 bytes, which makes its small rows empty,
//! so here a block has at least one element instead.

use std::sync::Arc;

use hcomm_core::plan::Counts;
use hcomm_core::{Call, Collective, DataType, ReduceOp};

/// A collective as it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// What runs.
    pub collective: Collective,
    /// Whether ranks take part with different counts, one in four of them with none.
    pub uneven: bool,
}

/// Relative counts of ranks 0, 1, 2, 3, 0, ... in uneven workloads.
const WEIGHTS: [u64; 4] = [3, 1, 2, 0];

impl Workload {
    /// Every workload, in the order of `all`.
    pub fn all() -> Vec<Workload> {
        let even = Collective::ALL.into_iter().map(|collective| Workload { collective, uneven: false });
        let uneven = [Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll]
            .map(|collective| Workload { collective, uneven: true });
        even.chain(uneven).collect()
    }

    /// Name as in tables and JSON.
    pub fn name(self) -> &'static str {
        match (self.collective, self.uneven) {
            (Collective::AllGather, true) => "all_gather_v",
            (Collective::ReduceScatter, true) => "reduce_scatter_v",
            (Collective::AllToAll, true) => "all_to_all_v",
            (collective, _) => collective.name(),
        }
    }

    /// Reads a name in any of the usual spellings: `all_reduce`, `allreduce`, `all-reduce`, `AllReduce`, `alltoallv`, `bcast`.
    pub fn parse(name: &str) -> Option<Workload> {
        let plain = |s: &str| s.chars().filter(|c| !matches!(c, '_' | '-')).collect::<String>().to_ascii_lowercase();
        let wanted = match plain(name).as_str() {
            "bcast" => "broadcast".to_owned(),
            other => other.to_owned(),
        };
        Workload::all().into_iter().find(|workload| plain(workload.name()) == wanted)
    }

    /// Whether it has buffers at all, and so can run in place.
    pub fn moves_data(self) -> bool {
        self.collective != Collective::Barrier
    }

    /// Bus bandwidth over algorithm bandwidth, as in nccl-tests' `doc/PERFORMANCE.md`.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self.collective {
            Collective::AllReduce => 2.0 * (n - 1.0) / n,
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Scatter
            | Collective::Gather => (n - 1.0) / n,
            Collective::Broadcast | Collective::Reduce | Collective::SendRecv | Collective::Barrier => 1.0,
        }
    }
}

/// A workload at one size: the call, and the size of every buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The call.
    pub call: Call,
    /// Number of ranks.
    pub ranks: usize,
    /// The size printed.
    pub bytes: u64,
    /// The count printed: elements of one block where there are blocks, else of the buffer; the mean block when uneven.
    pub count: u64,
}

/// Where the two ends of an in-place run lie in the one buffer, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    /// Length of the buffer.
    pub count: u64,
    /// Where this rank's input begins.
    pub input_at: u64,
    /// Where this rank's output begins.
    pub output_at: u64,
}

impl Shape {
    /// The shape of `workload` nearest to `bytes`.
    pub fn new(workload: Workload, dtype: DataType, op: ReduceOp, root: usize, ranks: usize, bytes: u64) -> Shape {
        let elements = bytes / dtype.size() as u64;
        let n = ranks as u64;
        let blocks = match workload.collective {
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Scatter
            | Collective::Gather => n,
            _ => 1,
        };
        let wanted = if bytes == 0 { 0 } else { elements.max(blocks) };
        let (counts, count) = match workload {
            Workload { collective: Collective::Barrier, .. } => (Counts::Even(0), 0),
            Workload { collective: Collective::AllToAll, uneven: true } => {
                (Counts::Matrix(uneven_matrix(wanted, ranks)), wanted / n)
            }
            Workload { uneven: true, .. } => (Counts::PerRank(uneven_counts(wanted, ranks)), wanted / n),
            _ => (Counts::Even(wanted / blocks), wanted / blocks),
        };
        let root = if workload.collective.rooted() { root } else { 0 };
        let call = Call { collective: workload.collective, counts, dtype, op, root };
        let mut shape = Shape { call, ranks, bytes: 0, count };
        let largest = (0..ranks).map(|r| shape.input_count(r).max(shape.output_count(r))).max().unwrap_or(0);
        shape.bytes = largest * dtype.size() as u64;
        shape
    }

    /// Elements of `rank`'s input.
    pub fn input_count(&self, rank: usize) -> u64 {
        match self.call.collective {
            Collective::AllReduce | Collective::Reduce | Collective::SendRecv => self.block(rank),
            Collective::Broadcast => self.at_root(rank, self.block(rank)),
            Collective::ReduceScatter => self.total(),
            Collective::Scatter => self.at_root(rank, self.total()),
            Collective::AllGather | Collective::Gather => self.block(rank),
            Collective::AllToAll => (0..self.ranks).map(|to| self.pair(rank, to)).sum(),
            Collective::Barrier => 0,
        }
    }

    /// Elements of `rank`'s output.
    pub fn output_count(&self, rank: usize) -> u64 {
        match self.call.collective {
            Collective::AllReduce | Collective::Broadcast | Collective::SendRecv => self.block(rank),
            Collective::Reduce => self.at_root(rank, self.block(rank)),
            Collective::ReduceScatter | Collective::Scatter => self.block(rank),
            Collective::AllGather => self.total(),
            Collective::Gather => self.at_root(rank, self.total()),
            Collective::AllToAll => (0..self.ranks).map(|from| self.pair(from, rank)).sum(),
            Collective::Barrier => 0,
        }
    }

    /// How `rank`'s buffer is laid out when the call runs in place.
    pub fn in_place(&self, rank: usize) -> InPlace {
        let (input, output) = (self.input_count(rank), self.output_count(rank));
        let own = self.offset(rank);
        let (input_at, output_at) = match self.call.collective {
            Collective::AllGather => (own, 0),
            Collective::Gather if rank == self.call.root => (own, 0),
            Collective::ReduceScatter => (0, own),
            Collective::Scatter if rank == self.call.root => (0, own),
            _ => (0, 0),
        };
        InPlace { count: input.max(output), input_at, output_at }
    }

    /// Elements of `rank`'s block.
    pub fn block(&self, rank: usize) -> u64 {
        match &self.call.counts {
            Counts::Even(count) => *count,
            Counts::PerRank(counts) => counts[rank],
            Counts::Matrix(_) => 0,
        }
    }

    /// Where `rank`'s block begins.
    pub fn offset(&self, rank: usize) -> u64 {
        match &self.call.counts {
            Counts::Even(count) => count * rank as u64,
            Counts::PerRank(counts) => counts[..rank].iter().sum(),
            Counts::Matrix(_) => 0,
        }
    }

    /// Elements that `from` sends to `to` in an all-to-all.
    pub fn pair(&self, from: usize, to: usize) -> u64 {
        match &self.call.counts {
            Counts::Even(count) => *count,
            Counts::PerRank(counts) => counts[to],
            Counts::Matrix(counts) => counts[from * self.ranks + to],
        }
    }

    /// Bytes that the buffers of `rank` need: the input, and the output, which also serves as the buffer of in-place runs.
    pub fn memory_bytes(&self, rank: usize) -> u128 {
        let output = self.output_count(rank).max(self.in_place(rank).count);
        (u128::from(self.input_count(rank)) + u128::from(output)) * self.call.dtype.size() as u128
    }

    fn total(&self) -> u64 {
        (0..self.ranks).map(|rank| self.block(rank)).sum()
    }

    fn at_root(&self, rank: usize, count: u64) -> u64 {
        if rank == self.call.root { count } else { 0 }
    }
}

/// `total` elements over the ranks by weight; rank 0 takes what does not divide.
fn uneven_counts(total: u64, ranks: usize) -> Arc<[u64]> {
    let weight = |rank: usize| WEIGHTS[rank % 4];
    let sum: u64 = (0..ranks).map(weight).sum();
    let mut counts: Vec<u64> = (0..ranks).map(|rank| share(total, weight(rank), sum)).collect();
    counts[0] += total - counts.iter().sum::<u64>();
    counts.into()
}

/// What each rank sends to each: the rank that sends most sends about `total`.
fn uneven_matrix(total: u64, ranks: usize) -> Arc<[u64]> {
    let weight = |from: usize, to: usize| WEIGHTS[(from + to) % 4];
    let most = (0..ranks).map(|from| (0..ranks).map(|to| weight(from, to)).sum()).max().unwrap_or(1);
    let total = if total == 0 { 0 } else { total.max(most) };
    let pairs = (0..ranks).flat_map(|from| (0..ranks).map(move |to| share(total, weight(from, to), most)));
    pairs.collect::<Vec<u64>>().into()
}

fn share(total: u64, weight: u64, sum: u64) -> u64 {
    (u128::from(total) * u128::from(weight) / u128::from(sum)) as u64 // weight <= sum, so it fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &str, ranks: usize, bytes: u64) -> Shape {
        Shape::new(Workload::parse(name).unwrap(), DataType::F32, ReduceOp::Sum, 0, ranks, bytes)
    }

    #[test]
    fn names_are_read_in_the_usual_spellings() {
        for (spelling, name) in [
            ("allreduce", "all_reduce"),
            ("all-reduce", "all_reduce"),
            ("AllReduce", "all_reduce"),
            ("alltoall", "all_to_all"),
            ("alltoallv", "all_to_all_v"),
            ("bcast", "broadcast"),
            ("send_recv", "sendrecv"),
            ("reduce-scatter-v", "reduce_scatter_v"),
        ] {
            assert_eq!(Workload::parse(spelling).map(Workload::name), Some(name), "{spelling}");
        }
        assert_eq!(Workload::parse("all_redcue"), None);
        assert!(Workload::all().iter().all(|w| Workload::parse(w.name()) == Some(*w)));
    }

    #[test]
    fn sizes_and_counts_follow_nccl_tests() {
        // (collective, ranks, asked, size printed, count printed)
        for (name, ranks, asked, bytes, count) in [
            ("all_reduce", 2, 8, 8, 2),
            ("all_reduce", 3, 1024, 1024, 256),
            ("all_reduce", 2, 7, 4, 1),
            ("all_gather", 2, 1024, 1024, 128),
            ("all_gather", 3, 1024, 1020, 85),
            ("reduce_scatter", 4, 1024, 1024, 64),
            ("all_to_all", 3, 1024, 1020, 85),
            ("scatter", 2, 1024, 1024, 128),
            ("gather", 2, 1024, 1024, 128),
            ("broadcast", 3, 1024, 1024, 256),
            ("sendrecv", 3, 1024, 1024, 256),
            ("all_gather", 16, 8, 64, 1),
            ("barrier", 4, 1024, 0, 0),
            ("all_reduce", 2, 0, 0, 0),
        ] {
            let shape = shape(name, ranks, asked);
            assert_eq!((shape.bytes, shape.count), (bytes, count), "{name} over {ranks} ranks, {asked} bytes");
        }
    }

    #[test]
    fn uneven_counts_add_up_and_hold_a_zero() {
        for ranks in 1..=17 {
            for bytes in [4, 1024, 1 << 20, 8 << 60] {
                let gather = shape("all_gather_v", ranks, bytes);
                assert_eq!(gather.output_count(0), (bytes / 4).max(ranks as u64));
                let exchange = shape("all_to_all_v", ranks, bytes);
                let sent: u128 = (0..ranks).map(|r| u128::from(exchange.input_count(r))).sum();
                let received: u128 = (0..ranks).map(|r| u128::from(exchange.output_count(r))).sum();
                assert_eq!(sent, received);
                assert!(exchange.bytes > 0);
            }
        }
        assert_eq!(shape("all_gather_v", 4, 1024).block(3), 0);
    }

    #[test]
    fn in_place_buffers_hold_both_ends() {
        for workload in Workload::all().into_iter().filter(|w| w.moves_data()) {
            for ranks in 1..6 {
                for root in 0..ranks {
                    let shape = Shape::new(workload, DataType::I32, ReduceOp::Sum, root, ranks, 4096);
                    for rank in 0..ranks {
                        let place = shape.in_place(rank);
                        assert!(place.input_at + shape.input_count(rank) <= place.count, "{}", workload.name());
                        assert!(place.output_at + shape.output_count(rank) <= place.count, "{}", workload.name());
                    }
                }
            }
        }
    }
}
