//! The public interface: a [`Communicator`] connects the ranks of a job and runs collectives over them.
//!
//! (Contract first: bodies follow.)

use crate::error::Result;
use crate::plan::{Algorithm, Collective, Counts};
use crate::reduce::{DataType, Element, ReduceOp};

/// A collective to run, typed at run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// What.
    pub collective: Collective,
    /// Elements each rank takes part with.
    pub counts: Counts,
    /// Element type.
    pub dtype: DataType,
    /// Operation of reducing collectives, else ignored.
    pub op: ReduceOp,
    /// Root of rooted collectives, else 0.
    pub root: usize,
}

/// How a call ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Largest message in bytes; 0 where the message was not cut.
    pub chunk_bytes: u64,
    /// Parallel parts.
    pub channels: usize,
    /// `shm`, `tcp`, `shm+tcp`, or `self` with one rank.
    pub transport: &'static str,
}

/// What is known of a rank of the communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankInfo {
    /// Rank.
    pub rank: usize,
    /// Process id on its host.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Index of its host, in order of first appearance.
    pub host_index: usize,
    /// The one processor it is bound to, if it is bound to one.
    pub cpu: Option<usize>,
    /// NUMA node, if known.
    pub numa: Option<usize>,
}

/// Fixes what the tuner would choose; `None` leaves it to the tuner. Must be equal on all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Force {
    /// Algorithm.
    pub algorithm: Option<Algorithm>,
    /// Chunk size in bytes.
    pub chunk_bytes: Option<u64>,
    /// Channels.
    pub channels: Option<usize>,
}

/// Memory that every rank of this host can reach: collectives on it need no copies ("registered").
/// Dereferences to a slice.
pub struct Buffer<T: Element> {
    marker: std::marker::PhantomData<T>,
}

impl<T: Element> std::ops::Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        unimplemented!()
    }
}

impl<T: Element> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unimplemented!()
    }
}

/// An operation under way; it owns its buffers until it is waited for.
pub struct Request {}

/// Ranks of a job, connected. One communicator is used by one thread at a time.
pub struct Communicator {}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl Communicator {
    /// Joins the job that the environment describes (hcomm's own launcher, torchrun, Slurm, Open MPI, PMI, Kubernetes); a
    /// process that was not launched by any is a job of one rank.
    pub fn init() -> Result<Self> {
        unimplemented!()
    }
    /// This rank.
    pub fn rank(&self) -> usize {
        unimplemented!()
    }
    /// Number of ranks.
    pub fn size(&self) -> usize {
        unimplemented!()
    }
    /// All ranks.
    pub fn ranks(&self) -> &[RankInfo] {
        unimplemented!()
    }
    /// Zeroed registered memory.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Buffer<T>> {
        unimplemented!()
    }
    /// Runs `call` out of place. Buffer lengths in bytes as the collective says; too short is an error.
    pub fn run(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<()> {
        unimplemented!()
    }
    /// Runs `call` in place: `buffer` is the larger of input and output, the other lies at this rank's block in it
    /// (see [`crate::plan::Request::in_place`]).
    pub fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<()> {
        unimplemented!()
    }
    /// Starts `call`; the request owns the buffers meanwhile.
    pub fn start(&mut self, call: &Call, input: Buffer<u8>, output: Buffer<u8>) -> Result<Request> {
        unimplemented!()
    }
    /// How the latest call ran.
    pub fn last_run(&self) -> RunInfo {
        unimplemented!()
    }
    /// Fixes algorithm, chunk size or channels from now on. Errors when a value is out of range.
    pub fn force(&mut self, force: Force) -> Result<()> {
        unimplemented!()
    }
    /// Whether `call` can run with `algorithm`; the error says why not.
    pub fn supports(&self, call: &Call, algorithm: Algorithm) -> Result<()> {
        unimplemented!()
    }
    /// Gathers one small value of each rank (at most 4 KiB) to all, for the tools' own figures.
    pub fn all_gather_bytes(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        unimplemented!()
    }
}
