//! What the benchmark needs of a communicator, as a trait: so that the measuring, the checks and the output are tested
//! with a simple, plainly right group of threads, and the real communicator is only one of two implementations.

use hcomm_core::communicator::{Force, RankInfo, RunInfo};
use hcomm_core::plan::Counts;
use hcomm_core::{Algorithm, Buffer, Call, Collective, Communicator, DataType, ReduceOp, Result};

/// Memory of one rank, as `--buffers` asked for it.
pub enum Memory {
    /// Reachable by the other ranks of the host.
    Registered(Buffer<u8>),
    /// Ordinary heap memory.
    Plain(Vec<u8>),
}

impl Memory {
    /// Zeroed ordinary memory, or the number of bytes that could not be had.
    pub fn plain(bytes: usize) -> Result<Memory> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(bytes).map_err(|e| hcomm_core::Error::Memory {
            what: "plain buffers",
            needed_bytes: bytes as u64,
            cause: e.to_string(),
        })?;
        memory.resize(bytes, 0);
        Ok(Memory::Plain(memory))
    }
}

impl std::ops::Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Memory::Registered(buffer) => buffer,
            Memory::Plain(bytes) => bytes,
        }
    }
}

impl std::ops::DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Registered(buffer) => buffer,
            Memory::Plain(bytes) => bytes,
        }
    }
}

/// The ranks of a job, seen from one of them. Method for method the [`Communicator`]'s contract.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait Group {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    fn ranks(&self) -> &[RankInfo];
    fn alloc(&self, bytes: usize, registered: bool) -> Result<Memory>;
    fn run(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<()>;
    fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<()>;
    fn last_run(&self) -> RunInfo;
    fn force(&mut self, force: Force) -> Result<()>;
    fn supports(&self, call: &Call, algorithm: Algorithm) -> Result<()>;
    fn all_gather_bytes(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Waits for all ranks.
    fn barrier(&mut self) -> Result<()> {
        self.run(&barrier_call(), &[], &mut [])
    }

    /// Every rank's value, in rank order.
    fn all_gather_u64(&mut self, mine: u64) -> Result<Vec<u64>> {
        self.all_gather_bytes(&mine.to_le_bytes())?.iter().map(|bytes| decode_u64(bytes)).collect()
    }

    /// Every rank's list, in rank order; all lists have the same length.
    fn all_gather_u64s(&mut self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        let mut all = vec![Vec::with_capacity(mine.len()); self.size()];
        for part in mine.chunks(GATHER_LIMIT / 8) {
            let bytes: Vec<u8> = part.iter().flat_map(|v| v.to_le_bytes()).collect();
            for (list, theirs) in all.iter_mut().zip(self.all_gather_bytes(&bytes)?) {
                for value in theirs.chunks(8) {
                    list.push(decode_u64(value)?);
                }
            }
        }
        Ok(all)
    }
}

/// Bytes that `all_gather_bytes` takes at most.
const GATHER_LIMIT: usize = 4096;

/// The call that only synchronises.
pub fn barrier_call() -> Call {
    Call { collective: Collective::Barrier, counts: Counts::Even(0), dtype: DataType::U8, op: ReduceOp::Sum, root: 0 }
}

fn decode_u64(bytes: &[u8]) -> Result<u64> {
    let array = bytes.try_into().map_err(|_| hcomm_core::Error::Protocol {
        peer: "a rank".to_owned(),
        what: format!("{} bytes where 8 were expected", bytes.len()),
    })?;
    Ok(u64::from_le_bytes(array))
}

/// The real ranks. What the environment and the configuration fix stays fixed where the command line says nothing.
pub struct Ranks {
    communicator: Communicator,
    configured: Force,
    forced: Force,
}

impl Ranks {
    /// Wraps a communicator whose settings fix `configured`.
    pub fn new(communicator: Communicator, configured: Force) -> Ranks {
        Ranks { communicator, configured, forced: configured }
    }
}

impl Group for Ranks {
    fn rank(&self) -> usize {
        self.communicator.rank()
    }
    fn size(&self) -> usize {
        self.communicator.size()
    }
    fn ranks(&self) -> &[RankInfo] {
        self.communicator.ranks()
    }
    fn alloc(&self, bytes: usize, registered: bool) -> Result<Memory> {
        if registered { self.communicator.alloc(bytes).map(Memory::Registered) } else { Memory::plain(bytes) }
    }
    fn run(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<()> {
        self.communicator.run(call, input, output)
    }
    fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<()> {
        self.communicator.run_in_place(call, buffer)
    }
    fn last_run(&self) -> RunInfo {
        self.communicator.last_run()
    }
    fn force(&mut self, force: Force) -> Result<()> {
        self.forced = Force {
            algorithm: force.algorithm.or(self.configured.algorithm),
            chunk_bytes: force.chunk_bytes.or(self.configured.chunk_bytes),
            channels: force.channels.or(self.configured.channels),
        };
        self.communicator.force(self.forced)
    }
    fn supports(&self, call: &Call, algorithm: Algorithm) -> Result<()> {
        self.communicator.supports(call, algorithm)
    }
    fn all_gather_bytes(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.communicator.all_gather_bytes(mine)
    }
    /// The barriers of the benchmark itself are not bound to the algorithm under test, which may not know barriers.
    fn barrier(&mut self) -> Result<()> {
        let bound = self.forced != Force::default();
        if bound {
            self.communicator.force(Force::default())?;
        }
        self.communicator.run(&barrier_call(), &[], &mut [])?;
        if bound {
            self.communicator.force(self.forced)?;
        }
        Ok(())
    }
}
