//! The public interface: a [`Communicator`] connects the ranks of a job and runs collectives over them.
//!
//! A call is turned into a plan once a shape; after that a blocking call is: compare with the last shape, begin a run, drive it
//! in the caller's thread. Everything a call needs is kept from call to call.
//!
//! | | blocking | in the background |
//! |---|---|---|
//! | typed slices | [`Communicator::all_reduce`], [`Communicator::broadcast`], ... | [`Communicator::start_all_reduce`] |
//! | a [`Call`], typed at run time | [`Communicator::run`], [`Communicator::run_in_place`] | [`Communicator::start`], [`Communicator::start_in_place`] |
//! | point to point | [`Communicator::send`], [`Communicator::receive`], [`Communicator::send_receive`] | |

mod background;
mod buffer;
mod call;
mod drive;
mod group;
mod p2p;
mod parts;
mod prepare;
mod publish;
mod record;
mod remote;
mod report;
mod request;
mod typed;
mod watch;
mod world;

use std::collections::HashMap;
use std::sync::Arc;

pub use background::Priority;
pub use buffer::Buffer;
pub use call::{Call, RunInfo};
pub use hcomm_telemetry::ProfileStats;
pub use request::{Completed, Request};
pub use world::RankInfo;

use crate::config::Config;
use crate::engine::{Buffers, Lane};
use crate::error::{Error, Result};
use crate::launch::Place;
use crate::plan::{Algorithm, Collective, Counts, Reach};
use crate::reduce::{DataType, Element, ReduceOp};
use background::Background;
use call::Prepared;
use drive::{Context, NoHold};
use group::Group;
use parts::LaneParts;
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
///
/// A process joins its job once ([`Communicator::init`]) and makes further communicators by [`Communicator::split`]. Dropping
/// the last one leaves the job in good order; a rank that others still wait for is then lost to them.
pub struct Communicator {
    world: Arc<World>,
    group: Arc<Group>,
    context: Context,
    background: Option<Background>,
    plans: HashMap<Key, Arc<Prepared>>,
    last: Option<(Key, Arc<Prepared>)>,
    force: Force,
    /// Calls made, so that the next one has a number.
    calls: u64,
    /// Messages sent to and received from each rank, outside of collectives.
    messages: Vec<(u64, u64)>,
    /// What telemetry counts the latest of them as.
    message_shape: Option<Arc<hcomm_telemetry::Shape>>,
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
        let force = Force { algorithm: config.algorithm, chunk_bytes: config.chunk_size, channels: config.channels };
        let (world, group, lane) = world::start(config, place)?;
        let mut communicator = Self::over(world, group, lane);
        communicator.force(force)?;
        Ok(communicator)
    }

    fn over(world: Arc<World>, group: Arc<Group>, lane: Lane) -> Self {
        Self {
            context: Context::new(&world, &group, 0, lane),
            world,
            group,
            background: None,
            plans: HashMap::new(),
            last: None,
            force: Force::default(),
            calls: 0,
            messages: Vec::new(),
            message_shape: None,
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
        let (input_bytes, output_bytes) = self.select(call, false)?;
        self.check_length(call, "input", input.len(), input_bytes)?;
        self.check_length(call, "output", output.len(), output_bytes)?;
        self.execute(Buffers { input: input.as_ptr(), output: output.as_mut_ptr() })
    }

    /// Runs `call` in place: `buffer` is the larger of input and output, the other lies in it as
    /// [`crate::plan::Request::in_place`] says.
    ///
    /// # Errors
    /// As for [`Communicator::run`].
    pub fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<()> {
        let (input_bytes, output_bytes) = self.select(call, true)?;
        self.check_length(call, "the buffer", buffer.len(), input_bytes.max(output_bytes))?;
        let buffers = self.in_place_buffers(call, buffer.as_mut_ptr());
        self.execute(buffers)
    }

    /// How the latest call ran.
    pub fn last_run(&self) -> RunInfo {
        let mut info = match &self.last {
            Some((_, prepared)) => prepared.info.clone(),
            None => {
                RunInfo { algorithm: Algorithm::Direct, chunk_bytes: 0, channels: 1, transport: self.group.transport() }
            }
        };
        if self.context.ran != Reach::Messages {
            info.algorithm = Algorithm::Direct;
            info.chunk_bytes = 0;
            info.channels = 1;
        }
        info
    }

    /// What the operations of this process have done so far, over all its communicators: how often, bytes, time, bandwidth, by size.
    /// `None` without telemetry (`HCOMM_TELEMETRY`).
    pub fn profile_stats(&self) -> Option<ProfileStats> {
        self.world.profile_stats()
    }

    /// Fixes algorithm, chunk size or channels from now on.
    ///
    /// # Errors
    /// A value out of range.
    pub fn force(&mut self, force: Force) -> Result<()> {
        let fail =
            |name: &str, value: String, allowed: String| Err(Error::Setting { name: name.into(), value, allowed });
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
        call.check(self.size())?;
        let force = Force { algorithm: Some(algorithm), ..Force::default() };
        prepare::request(&self.group, &self.world.config, call, false, &force).0.supports()
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
        // Of the calls here the tuner decides, and plans made for them serve them alone.
        let kept = std::mem::take(&mut self.force);
        let last = self.last.take();
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
        self.last = last.filter(|_| self.broken.is_none());
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
        let parts = group.as_ref().map(|group| LaneParts::reserve(&self.world, &group.shared)).transpose()?;
        let all = self.all_gather_words(&parts.as_ref().map_or_else(Vec::new, LaneParts::encode))?;
        let (Some(group), Some(parts)) = (group, parts) else { return Ok(None) };
        let theirs: Vec<Vec<u64>> = members.iter().map(|&rank| all[rank].clone()).collect();
        let lane = parts.connect(&self.world, &group, 0, &theirs)?;
        let mut communicator = Self::over(Arc::clone(&self.world), group, lane);
        communicator.force = self.force;
        Ok(Some(communicator))
    }

    /// As [`Communicator::all_gather_bytes`], for words.
    fn all_gather_words(&mut self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        let bytes: Vec<u8> = mine.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = self.all_gather_bytes(&bytes)?;
        let words = |bytes: Vec<u8>| {
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
        };
        Ok(all.into_iter().map(words).collect())
    }

    fn check_length(&self, call: &Call, name: &str, have: usize, need: usize) -> Result<()> {
        if have >= need {
            return Ok(());
        }
        let reason = format!("{name} holds {have} bytes, {call} needs {need}");
        Err(Error::Argument { call: call.collective.name(), reason })
    }

    fn in_place_buffers(&self, call: &Call, base: *mut u8) -> Buffers {
        let (input, output) = prepare::in_place_offsets(call, self.rank());
        Buffers { input: base.wrapping_add(input).cast_const(), output: base.wrapping_add(output) }
    }

    /// Makes the plan of a call the one at hand: the last one when the call is the same, else from the cache, else made now.
    /// Returns the bytes of input and output that it needs.
    #[inline]
    fn select(&mut self, call: &Call, in_place: bool) -> Result<(usize, usize)> {
        if let Some((key, prepared)) = &self.last
            && key.call == *call
            && key.in_place == in_place
        {
            return Ok((prepared.input_bytes, prepared.output_bytes));
        }
        self.select_another(call, in_place)
    }

    #[cold]
    fn select_another(&mut self, call: &Call, in_place: bool) -> Result<(usize, usize)> {
        self.check_whole()?;
        let key = Key { call: call.clone(), in_place, force: self.force };
        let prepared = match self.plans.get(&key) {
            Some(prepared) => Arc::clone(prepared),
            None => {
                let prepared =
                    Arc::new(prepare::prepare(&self.group, &self.world.config, call, in_place, &self.force)?);
                if self.plans.len() >= MAX_PLANS {
                    self.plans.clear();
                }
                self.plans.insert(key.clone(), Arc::clone(&prepared));
                prepared
            }
        };
        let bytes = (prepared.input_bytes, prepared.output_bytes);
        self.last = Some((key, prepared));
        Ok(bytes)
    }

    /// Refuses what comes after a failure.
    fn check_whole(&self) -> Result<()> {
        match self.broken.as_ref().or_else(|| self.background.as_ref()?.failure()) {
            Some(error) => Err(Error::Broken(error.to_string())),
            None => Ok(()),
        }
    }

    /// The plan of a call, to be shared with a background thread.
    fn prepared(&mut self, call: &Call, in_place: bool) -> Result<Arc<Prepared>> {
        self.select(call, in_place)?;
        match &self.last {
            Some((_, prepared)) => Ok(Arc::clone(prepared)),
            None => Err(Error::Broken("no plan was made".into())),
        }
    }

    /// Runs the plan at hand.
    #[inline]
    fn execute(&mut self, buffers: Buffers) -> Result<()> {
        if self.background.is_some() {
            self.check_whole()?;
        }
        let Self { world, group, context, last: Some((_, prepared)), calls, .. } = self else {
            return Err(Error::Broken("no plan was made".into()));
        };
        *calls += 1;
        match context.execute(world, group, prepared, buffers, *calls, &mut NoHold) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// From now on every call fails.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        let error = self.world.record_failure(error);
        self.broken = Some(error.clone());
        self.last = None;
        error
    }
}

/// Shapes kept before the cache starts anew: a training step has tens, a sweep hundreds.
const MAX_PLANS: usize = 1024;
