//! Remote plans: before one runs, all ranks tell each other where their buffers lie: in their heaps, which all have mapped, or
//! elsewhere in their processes, from where the kernel copies if it may.

#![allow(unsafe_code)] // computes addresses in other ranks' heaps

use super::call::Prepared;
use super::drive::{NoHold, drive};
use super::group::Group;
use super::record::Log;
use super::watch::Watch;
use super::world::World;
use crate::engine::{Address, Buffers, Compiled, Lane, LaneFault, Run};
use crate::error::{Error, Result};
use crate::plan::{Buffer, Range, RankPlan, Reach, Step};
use crate::transport::LinkError;

/// Where a buffer lies, as one rank tells another. Two fit into an inline message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Place {
    kind: u64,
    at: u64,
}

impl Place {
    /// Nowhere that another rank could reach.
    pub const NOWHERE: Self = Self { kind: 0, at: 0 };
    /// `at` is an offset in the sender's heap.
    const HEAP: u64 = 1;
    /// `at` is an address in the sender's process.
    const PROCESS: u64 = 2;

    /// Of `len` bytes of this rank; `open` says whether others may read its process.
    pub fn of(world: &World, at: *const u8, len: usize, open: bool) -> Self {
        match world.heap.offset_of(at, len) {
            // An empty buffer has nothing to reach, so it is no hindrance.
            _ if len == 0 => Self { kind: Self::HEAP, at: 0 },
            Some(offset) => Self { kind: Self::HEAP, at: offset },
            None if open => Self { kind: Self::PROCESS, at: at.addr() as u64 },
            None => Self::NOWHERE,
        }
    }

    /// How other ranks reach it.
    pub fn reach(&self) -> Reach {
        match self.kind {
            Self::HEAP => Reach::ReadWrite,
            Self::PROCESS => Reach::Read,
            _ => Reach::Messages,
        }
    }

    /// Where `len` bytes are that rank `from` of the job told of; `None` if nowhere.
    pub fn resolve(&self, world: &World, from: usize, len: usize) -> Option<Address> {
        match self.kind {
            Self::HEAP => world.domain.resolve(from, self.at, len as u64).map(Address::Mapped),
            Self::PROCESS => Some(Address::Process(world.domain.process(from)?, self.at)),
            _ => None,
        }
    }
}

/// Places of input and output.
type Note = [Place; 2];
const NOTE_BYTES: u64 = size_of::<Note>() as u64;

/// The exchange of addresses among all ranks of a communicator, and its result.
pub(crate) struct Exchange {
    plan: Compiled,
    notes: Vec<Note>,
    addresses: Vec<[Address; 2]>,
}

impl Exchange {
    pub fn new(group: &Group) -> Self {
        let n = group.size();
        let note = |buffer, rank: usize| Range { buffer, offset: rank as u64 * NOTE_BYTES, count: NOTE_BYTES };
        let others = || (1..n).map(|distance| (group.me + distance) % n);
        let sends = others().map(|peer| Step::Send { peer, src: note(Buffer::Input, 0) });
        let receives = others().map(|peer| Step::Recv { peer, dst: note(Buffer::Output, peer) });
        let plan = RankPlan { tracks: vec![sends.chain(receives).collect()], scratch: 0, remote: false };
        let plan = Compiled::new(&plan, 1, None, crate::engine::Aliasing::Apart);
        Self { plan, notes: vec![[Place::NOWHERE; 2]; n], addresses: Vec::with_capacity(n) }
    }

    /// Runs the exchange; how all ranks reach each other's buffers. All ranks get the same answer.
    pub fn run(
        &mut self,
        watch: &Watch<'_>,
        log: &mut Log<'_>,
        prepared: &Prepared,
        buffers: Buffers,
        stamp: u32,
        (lane, run): (&mut Lane, &mut Run),
    ) -> Result<Reach> {
        let (world, group) = (watch.world, watch.group);
        let place = |at: *const u8, len: usize| Place::of(world, at, len, group.all_open);
        let mine: Note = [place(buffers.input, prepared.input_bytes), place(buffers.output, prepared.output_bytes)];
        self.notes[group.me] = mine;
        let notes = Buffers { input: mine.as_ptr().cast(), output: self.notes.as_mut_ptr().cast() };
        run.begin(&self.plan, lane, notes, stamp.into());
        // SAFETY: `mine` and `self.notes` outlive the call and hold one note a rank.
        unsafe { drive(lane, run, &self.plan, watch, log, &mut NoHold)? };
        let reaches = || self.notes.as_flattened().iter().map(Place::reach);
        if reaches().any(|reach| reach == Reach::Messages) {
            return Ok(Reach::Messages);
        }
        self.addresses.clear();
        for (rank, note) in self.notes.iter().enumerate() {
            self.addresses.push(match rank == group.me {
                true => [Address::Mapped(buffers.input.cast_mut()), Address::Mapped(buffers.output)],
                false => {
                    let [input, output] = note.map(|place| place.resolve(world, group.world_ranks[rank], 0));
                    [input.ok_or_else(|| nowhere(watch, rank))?, output.ok_or_else(|| nowhere(watch, rank))?]
                }
            });
        }
        Ok(if reaches().any(|reach| reach == Reach::Read) { Reach::Read } else { Reach::ReadWrite })
    }

    /// Input and output of each rank, as seen from this process.
    pub fn addresses(&self) -> &[[Address; 2]] {
        &self.addresses
    }
}

#[cold]
fn nowhere(watch: &Watch<'_>, rank: usize) -> Error {
    let what = "offers memory that is not there".into();
    watch.fault(LaneFault { peer: rank, error: LinkError::Protocol(what) }, None)
}
