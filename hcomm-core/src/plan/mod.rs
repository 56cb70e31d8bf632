//! A collective is a plan: a pure function of (collective, ranks, counts, algorithm, chunk size) gives each rank an
//! ordered list of [`Step`]s over ranges of named buffers. No plan does I/O and none knows of sockets, so one plan can be
//! run, verified, simulated and printed.
//!
//! Offsets and counts are in elements, 64 bits wide. The steps of two ranks match in order per (peer, track): the n-th
//! `Send` of rank a to rank b on a track meets the n-th receiving step of rank b from rank a on that track, and both have
//! the same count. Tracks of one rank progress independently of each other; the steps of one track run in order.
//!
//! Sends are asynchronous: a `Send` step ends when the message is queued. The engine holds back a later step of any
//! track that would overwrite a range still being sent, so plans need not care.
//!
//! Three rules of ours follow from that, and [`verify`] enforces them:
//! - *One message in flight per link and track suffices.* A track never needs a queue deeper than one message, so no
//!   transport has to buffer a whole plan. Depth comes from tracks: `channels` cuts the data into parts that travel side by
//!   side. (The other way, many sends ahead on one track, deadlocks as soon as a queue is shorter than the plan assumed.)
//! - *No step both waits for a message and overwrites what its own rank is still sending to the same partner*, or two
//!   such ranks would hold each other back for ever. In place, an exchange therefore receives into scratch first.
//! - *Input is never written.* In place the output is written, and algorithms read what they need of it before.
//!
//! An algorithm is a function over a group (a list of ranks and one's own index) and ranges; it knows
//! neither requests nor hosts, so that `hierarchical` composes the others over parts of ranks and data.

mod binomial;
mod bruck;
mod builder;
mod chain;
mod direct;
mod explain;
mod group;
mod halving_doubling;
mod hierarchical;
mod make;
mod pairwise;
mod pipeline;
mod recursive_doubling;
mod remote;
mod request;
mod ring;
#[cfg(test)]
mod tests;
mod tree;
mod verify;

use std::fmt;
use std::sync::Arc;

pub use make::build;
pub use verify::{Fault, Traffic, verify, verify_plans};

/// What is to be done, over all ranks of a communicator.
///
/// Buffer sizes in elements, with `counts[i]` as in [`Counts`] and n ranks: see each variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collective {
    /// Input and output `count` on every rank.
    AllReduce,
    /// Input sum(counts), output counts\[rank\].
    ReduceScatter,
    /// Input counts\[rank\], output sum(counts).
    AllGather,
    /// Input `count` on the root (its own output holds a copy as well), output `count` everywhere.
    Broadcast,
    /// Input `count` everywhere, output `count` on the root, none elsewhere.
    Reduce,
    /// Input sum(counts) on the root, output counts\[rank\].
    Scatter,
    /// Input counts\[rank\], output sum(counts) on the root.
    Gather,
    /// Input: block for each rank, in rank order; output: block from each rank, in rank order.
    AllToAll,
    /// Rank r sends `count` to r+1 and receives `count` from r-1 (modulo n), as nccl-tests' sendrecv.
    SendRecv,
    /// No buffers.
    Barrier,
}

/// Elements each rank takes part with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Counts {
    /// The same for every rank (for AllToAll: the same for every pair).
    Even(u64),
    /// One count a rank (uneven all_gather, reduce_scatter, gather, scatter).
    PerRank(Arc<[u64]>),
    /// `matrix[i * n + j]`: what rank i sends to rank j (uneven all_to_all).
    Matrix(Arc<[u64]>),
}

/// How it is done. Where one is wrong for a collective, [`build`] says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// Each rank talks to its two neighbours: the fewest bytes on every link.
    Ring,
    /// Partners at doubling distances exchange all they have: the fewest steps for short messages.
    RecursiveDoubling,
    /// Partners exchange halves: the fewest bytes in a logarithmic number of steps.
    HalvingDoubling,
    /// Double binary tree, pipelined.
    Tree,
    /// Every rank talks to every other, reductions in rank order. Does every collective.
    Direct,
    /// A logarithmic number of rounds for any number of ranks, more bytes.
    Bruck,
    /// One partner a step.
    Pairwise,
    /// Binomial tree from the root.
    Binomial,
    /// From neighbour to neighbour, pipelined.
    Chain,
    /// Within hosts, between hosts, within hosts again.
    Hierarchical,
}

/// The question to which a plan is the answer. Equal requests give equal plans on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// What.
    pub collective: Collective,
    /// How.
    pub algorithm: Algorithm,
    /// Number of ranks, at least 1.
    pub ranks: usize,
    /// Elements.
    pub counts: Counts,
    /// Root of rooted collectives, else 0.
    pub root: usize,
    /// Largest message in elements, at least 1.
    pub chunk: u64,
    /// Parallel rings (or other independent parts); at least 1.
    pub channels: usize,
    /// Host index of each rank, in order of first appearance; `None` is one host.
    pub hosts: Option<Arc<[usize]>>,
    /// The input is the output's memory: for AllReduce, Broadcast, Reduce at the same offset; for AllGather and Gather the
    /// input lies at this rank's block of the output; for ReduceScatter and Scatter the output lies at this rank's block of
    /// the input; for AllToAll and SendRecv both begin at the same address. Ranks that have only one of the two (Reduce,
    /// Gather, Scatter and Broadcast away from the root) have nothing in place, and their input is left as it is.
    pub in_place: bool,
    /// How ranks reach each other's input and output; with more than messages `Direct` uses operands of other ranks in `Reduce` and
    /// `Copy`.
    pub reach: Reach,
}

/// How ranks reach each other's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reach {
    /// Not at all: by messages.
    Messages,
    /// Any rank can copy what it needs of any other's (one host, `process_vm_readv`): operands of other ranks are sources of `Copy`
    /// only. Collectives that reduce have no such plan, and go by messages.
    Read,
    /// Every rank can read and write every other rank's (one host, registered buffers).
    ReadWrite,
}

/// A buffer of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// What the rank brings; never written.
    Input,
    /// The result.
    Output,
    /// Memory of the plan's own, of [`RankPlan::scratch`] elements.
    Scratch,
}

/// A run of elements in one of this rank's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// The buffer.
    pub buffer: Buffer,
    /// Elements before the first.
    pub offset: u64,
    /// Elements.
    pub count: u64,
}

/// A run of elements in this rank's buffers (`rank` is `None`) or, in remote plans, in another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Whose buffers; `None` is one's own.
    pub rank: Option<usize>,
    /// Which elements.
    pub range: Range,
}

/// One thing a rank does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Step {
    /// Queues `src` for `peer`. A count of 0 is a note: it carries order, no data.
    Send { peer: usize, src: Range },
    /// Waits for the next message of `peer` and puts it into `dst`.
    Recv { peer: usize, dst: Range },
    /// `dst = operand op received`; `operand` may be `dst`.
    RecvReduce { peer: usize, operand: Range, dst: Range },
    /// `dst = operand op received`, and `dst` goes on to `to`.
    RecvReduceSend { from: usize, operand: Range, dst: Range, to: usize },
    /// `dst = received`, and goes on to `to`.
    RecvSend { from: usize, dst: Range, to: usize },
    /// The left fold of `srcs` (equal counts, at least two), stored in each of `dsts`. A destination may be one of the
    /// sources.
    Reduce { srcs: Vec<Operand>, dsts: Vec<Operand> },
    /// Copies; `src` and `dst` do not overlap unless they are equal.
    Copy { src: Operand, dst: Operand },
}

/// What one rank does for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPlan {
    /// Independent lists; each progresses in order.
    pub tracks: Vec<Vec<Step>>,
    /// Elements of scratch that the steps use.
    pub scratch: u64,
    /// Whether `Reduce` and `Copy` name other ranks' buffers. The engine then begins with an exchange of addresses, after
    /// which every rank is known to have entered; the plan itself must make sure, by notes, that no rank leaves while
    /// another still uses its buffers.
    pub remote: bool,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 10] = [
        Algorithm::Ring,
        Algorithm::RecursiveDoubling,
        Algorithm::HalvingDoubling,
        Algorithm::Tree,
        Algorithm::Direct,
        Algorithm::Bruck,
        Algorithm::Pairwise,
        Algorithm::Binomial,
        Algorithm::Chain,
        Algorithm::Hierarchical,
    ];

    /// Name as in flags and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::RecursiveDoubling => "recursive_doubling",
            Algorithm::HalvingDoubling => "halving_doubling",
            Algorithm::Tree => "tree",
            Algorithm::Direct => "direct",
            Algorithm::Bruck => "bruck",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Binomial => "binomial",
            Algorithm::Chain => "chain",
            Algorithm::Hierarchical => "hierarchical",
        }
    }
}

impl Collective {
    /// Every collective.
    pub const ALL: [Collective; 10] = [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::Scatter,
        Collective::Gather,
        Collective::AllToAll,
        Collective::SendRecv,
        Collective::Barrier,
    ];

    /// Name as in flags and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::Scatter => "scatter",
            Collective::Gather => "gather",
            Collective::AllToAll => "all_to_all",
            Collective::SendRecv => "sendrecv",
            Collective::Barrier => "barrier",
        }
    }

    /// Whether elements are combined (and so the operation matters).
    pub const fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
    }

    /// Whether one rank is special.
    pub const fn rooted(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Scatter | Collective::Gather)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
