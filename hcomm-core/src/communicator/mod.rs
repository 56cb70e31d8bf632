//! The public interface: a [`Communicator`] connects the ranks of a job and runs collectives over them.
//!
//! A call is turned into a plan once a shape ([`call::Prepared`]); after that a blocking call is: compare with the last
//! shape, begin a run, drive it in the caller's thread. Everything a call needs is kept from call to call.

mod buffer;
mod call;
mod drive;
mod group;
mod prepare;
mod remote;
mod typed;
mod world;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

pub use buffer::Buffer;
pub use call::{Call, RunInfo};
pub use world::RankInfo;

use crate::config::Config;
use crate::engine::{Buffers, Compiled, Lane, Run};
use crate::error::{Error, Result};
use crate::launch::Place;
use crate::plan::{Algorithm, Collective, Counts};
use crate::reduce::{DataType, Element, ReduceOp};
use call::Prepared;
use group::Group;
use world::World;

/// Fixes what the tuner would choose; `None` leaves it to the tuner. Must be equal on all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Force {
    /// Algorithm.
    pub algorithm: Option<Algorithm>,
    /// Chunk size in bytes, at least one element.
    pub chunk_bytes: Option<u64>,
    /// Channels, 1 to [`Communicator::MAX_CHANNELS`].
    pub channels: Option<usize>,
}

/// What a plan is kept under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    call: Call,
    in_place: bool,
    force: Force,
}

/// Ranks of a job, connected. One communicator is used by one thread at a time.
pub struct Communicator {
    world: Arc<World>,
    group: Arc<Group>,
    lane: Lane,
    run: Run,
    plans: HashMap<Key, Rc<Prepared>>,
    last: Option<(Key, Rc<Prepared>)>,
    last_info: RunInfo,
    /// The exchange of addresses before a remote plan; made at first use.
    addresses: Option<remote::Exchange>,
    force: Force,
    /// Calls made, so that the next one has a number.
    calls: u64,
    splits: u32,
    broken: Option<Error>,
}

impl Communicator {
    /// Most channels of a call: each has links of its own.
    pub const MAX_CHANNELS: usize = crate::engine::MAX_TRACKS;

    /// Joins the job that the environment describes (hcomm's own launcher, torchrun, Slurm, Open MPI, PMI, Kubernetes), with
    /// the settings of the environment; a process that was not launched by any is a job of one rank.
    ///
    /// # Errors
    /// A bad setting, or ranks that do not find each other within `HCOMM_TIMEOUT`.
    pub fn init() -> Result<Self> {
        let config = Config::from_environment()?;
        let place = crate::launch::detect(&|name| std::env::var(name).ok())?.unwrap_or_else(Place::alone);
        Self::join(config, place)
    }

    /// Joins a job at a given place with given settings.
    ///
    /// # Errors
    /// Ranks that do not find each other within the timeout.
    pub fn join(config: Config, place: Place) -> Result<Self> {
        let force =
            Force { algorithm: config.algorithm, chunk_bytes: config.chunk_size, channels: config.channels };
        let (world, group, lane) = world::start(config, place)?;
        let mut communicator = Self::over(world, group, lane);
        communicator.force(force)?;
        Ok(communicator)
    }

    fn over(world: Arc<World>, group: Arc<Group>, lane: Lane) -> Self {
        let last_info =
            RunInfo { algorithm: Algorithm::Direct, chunk_bytes: 0, channels: 1, transport: group.transport() };
        Self {
            world,
            group,
            lane,
            run: Run::default(),
            plans: HashMap::new(),
            last: None,
            last_info,
            addresses: None,
            force: Force::default(),
            calls: 0,
            splits: 0,
            broken: None,
        }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.group.me
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// All ranks of this communicator.
    pub fn ranks(&self) -> &[RankInfo] {
        &self.group.ranks
    }

    /// Zeroed registered memory of `count` elements.
    ///
    /// # Errors
    /// Not enough shared memory.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Buffer<T>> {
        Buffer::new(&self.world.heap, count)
    }

    /// Runs `call` out of place. Lengths in bytes as the collective says (see [`Collective`]); too short is an error.
    ///
    /// # Errors
    /// Bad arguments; a rank that died, stayed silent, or called something else. After one of the latter the communicator
    /// takes no more calls.
    pub fn run(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<()> {
        let prepared = self.prepared(call, false)?;
        let check = |name, have: usize, need: usize| {
            if have >= need {
                return Ok(());
            }
            let reason = format!("{name} holds {have} bytes, {call} needs {need}");
            Err(Error::Argument { call: call.collective.name(), reason })
        };
        check("input", input.len(), prepared.input_bytes)?;
        check("output", output.len(), prepared.output_bytes)?;
        self.execute(&prepared, Buffers { input: input.as_ptr(), output: output.as_mut_ptr() })
    }

    /// Runs `call` in place: `buffer` is the larger of input and output, the other lies in it as
    /// [`crate::plan::Request::in_place`] says.
    ///
    /// # Errors
    /// As for [`Communicator::run`].
    pub fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<()> {
        let prepared = self.prepared(call, true)?;
        let need = prepared.input_bytes.max(prepared.output_bytes);
        if buffer.len() < need {
            let reason = format!("the buffer holds {} bytes, {call} needs {need}", buffer.len());
            return Err(Error::Argument { call: call.collective.name(), reason });
        }
        let (input, output) = prepare::in_place_offsets(call, self.rank());
        let base = buffer.as_mut_ptr();
        let buffers = Buffers { input: base.wrapping_add(input).cast_const(), output: base.wrapping_add(output) };
        self.execute(&prepared, buffers)
    }

    /// How the latest call ran.
    pub fn last_run(&self) -> RunInfo {
        self.last_info.clone()
    }

    /// Fixes algorithm, chunk size or channels from now on.
    ///
    /// # Errors
    /// A value out of range.
    pub fn force(&mut self, force: Force) -> Result<()> {
        let fail = |name: &str, value: String, allowed: String| {
            Err(Error::Setting { name: name.into(), value, allowed })
        };
        if force.chunk_bytes == Some(0) {
            return fail("chunk size", "0".into(), "at least 1 byte".into());
        }
        if let Some(channels) = force.channels.filter(|c| !(1..=Self::MAX_CHANNELS).contains(c)) {
            return fail("channels", channels.to_string(), format!("1 to {}", Self::MAX_CHANNELS));
        }
        self.force = force;
        self.last = None;
        Ok(())
    }

    /// Whether `call` can run with `algorithm`; the error says why not.
    ///
    /// # Errors
    /// [`Error::Unsuited`].
    pub fn supports(&self, call: &Call, algorithm: Algorithm) -> Result<()> {
        let force = Force { algorithm: Some(algorithm), ..Force::default() };
        crate::plan::supports(&prepare::request(&self.group, &self.world.config, call, false, &force).0)
    }

    /// Gathers one small value of each rank to all, for figures about a run. Values may differ in length.
    ///
    /// # Errors
    /// As for [`Communicator::run`].
    pub fn all_gather_bytes(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let n = self.size();
        let call = |count, dtype| Call {
            collective: Collective::AllGather,
            counts: Counts::Even(count),
            dtype,
            op: ReduceOp::Sum,
            root: 0,
        };
        let mut lengths = vec![0u8; 8 * n];
        let kept = std::mem::take(&mut self.force);
        let gathered = (|| {
            self.run(&call(1, DataType::U64), &(mine.len() as u64).to_ne_bytes(), &mut lengths)?;
            let lengths: Vec<usize> =
                lengths.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().expect("8 bytes")) as usize).collect();
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let mut padded = mine.to_vec();
            padded.resize(longest, 0);
            let mut all = vec![0u8; longest * n];
            self.run(&call(longest as u64, DataType::U8), &padded, &mut all)?;
            Ok((0..n).map(|r| all[r * longest..r * longest + lengths[r]].to_vec()).collect())
        })();
        self.force = kept;
        gathered
    }

    /// Splits into communicators of the ranks that gave the same `colour`, ordered by (`key`, rank); `None` joins none.
    /// All ranks call it.
    ///
    /// # Errors
    /// As for [`Communicator::run`].
    pub fn split(&mut self, colour: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        let mut mine = vec![u8::from(colour.is_some())];
        mine.extend(colour.unwrap_or(0).to_le_bytes());
        mine.extend(key.to_le_bytes());
        let answers = self.all_gather_bytes(&mine)?;
        let mut members: Vec<(i64, usize)> = answers
            .iter()
            .enumerate()
            .filter(|(_, a)| colour.is_some() && a[..5] == mine[..5])
            .map(|(rank, a)| (i64::from_le_bytes(a[5..13].try_into().expect("8 bytes")), rank))
            .collect();
        members.sort_unstable();
        let members: Vec<usize> = members.into_iter().map(|(_, rank)| rank).collect();
        self.splits += 1;
        let id = call::hash_of(&(self.group.id, self.splits, colour));
        let group = (!members.is_empty()).then(|| Arc::new(self.group.subset(id, &members)));
        // Every rank takes part in the exchange, also those that join nothing.
        let parts = group.as_ref().map(|group| world::LaneParts::reserve(&self.world, group, 0)).transpose()?;
        let offered = parts.as_ref().map_or_else(Vec::new, world::LaneParts::encode);
        let all = self.all_gather_bytes(&offered)?;
        let (Some(group), Some(parts)) = (group, parts) else { return Ok(None) };
        let theirs: Vec<&[u8]> = members.iter().map(|&rank| all[rank].as_slice()).collect();
        let lane = parts.connect(&self.world, &group, 0, &theirs)?;
        let mut communicator = Self::over(Arc::clone(&self.world), group, lane);
        communicator.force = self.force;
        Ok(Some(communicator))
    }

    /// The plan of a call: the last one when the call is the same, else from the cache, else made now.
    fn prepared(&mut self, call: &Call, in_place: bool) -> Result<Rc<Prepared>> {
        if let Some((key, prepared)) = &self.last {
            if key.call == *call && key.in_place == in_place {
                return Ok(Rc::clone(prepared));
            }
        }
        if let Some(error) = &self.broken {
            return Err(Error::Broken(error.to_string()));
        }
        let key = Key { call: call.clone(), in_place, force: self.force };
        let prepared = match self.plans.get(&key) {
            Some(prepared) => Rc::clone(prepared),
            None => {
                let prepared = Rc::new(prepare::prepare(&self.group, &self.world.config, call, in_place, &self.force)?);
                if self.plans.len() >= MAX_PLANS {
                    self.plans.clear();
                }
                self.plans.insert(key.clone(), Rc::clone(&prepared));
                prepared
            }
        };
        self.last = Some((key, Rc::clone(&prepared)));
        Ok(prepared)
    }

    fn execute(&mut self, prepared: &Rc<Prepared>, buffers: Buffers) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(Error::Broken(error.to_string()));
        }
        self.calls += 1;
        let result = self.drive_call(prepared, buffers);
        if let Err(error) = &result {
            self.broken = Some(error.clone());
            self.last = None;
        }
        result
    }
}

/// Shapes kept before the cache starts anew: a training step has tens, a sweep hundreds.
const MAX_PLANS: usize = 1024;

/// Two plans of a call: over messages, and over mapped memory.
type Plans = (Arc<Compiled>, Option<Arc<Compiled>>);
