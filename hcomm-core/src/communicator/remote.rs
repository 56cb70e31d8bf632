//! Remote plans: before one runs, all ranks tell each other where their buffers lie in their heaps, and whether they are
//! registered at all.

#![allow(unsafe_code)] // computes addresses in other ranks' heaps

use super::call::Prepared;
use super::drive::{NoHold, drive};
use super::group::Group;
use super::record::Log;
use super::watch::Watch;
use crate::engine::{Buffers, Compiled, Lane, Run};
use crate::error::Result;
use crate::plan::{Buffer, Range, RankPlan, Step};

/// Offsets of input and output in the sender's heap, or [`PLAIN`]. Short enough for an inline message.
type Note = [u64; 2];
const NOTE_BYTES: u64 = size_of::<Note>() as u64;

/// A buffer that is not in the heap.
const PLAIN: u64 = u64::MAX;

/// The exchange of addresses among all ranks of a communicator, and its result.
pub(crate) struct Exchange {
    plan: Compiled,
    notes: Vec<Note>,
    addresses: Vec<(*mut u8, *mut u8)>,
}

// SAFETY: the addresses are of memory shared by processes anyway; who uses them follows the plan.
unsafe impl Send for Exchange {}

impl Exchange {
    pub fn new(group: &Group) -> Self {
        let n = group.size();
        let note = |buffer, rank: usize| Range { buffer, offset: rank as u64 * NOTE_BYTES, count: NOTE_BYTES };
        let others = || (1..n).map(|distance| (group.me + distance) % n);
        let sends = others().map(|peer| Step::Send { peer, src: note(Buffer::Input, 0) });
        let receives = others().map(|peer| Step::Recv { peer, dst: note(Buffer::Output, peer) });
        let plan = RankPlan { tracks: vec![sends.chain(receives).collect()], scratch: 0, remote: false };
        let plan = Compiled::new(&plan, 1, None, crate::engine::Aliasing::Apart);
        Self { plan, notes: vec![[PLAIN; 2]; n], addresses: Vec::with_capacity(n) }
    }

    /// Runs the exchange; whether every rank's buffers can be reached by all. All ranks get the same answer.
    pub fn all_registered(
        &mut self,
        watch: &Watch<'_>,
        log: &mut Log<'_>,
        prepared: &Prepared,
        buffers: Buffers,
        stamp: u32,
        (lane, run): (&mut Lane, &mut Run),
    ) -> Result<bool> {
        let heap = &watch.world.heap;
        // An empty buffer has nothing to reach, so it is no hindrance.
        let offset = |at: *const u8, len: usize| if len == 0 { 0 } else { heap.offset_of(at, len).unwrap_or(PLAIN) };
        let mine: Note = [offset(buffers.input, prepared.input_bytes), offset(buffers.output, prepared.output_bytes)];
        self.notes[watch.group.me] = mine;
        let notes = Buffers { input: mine.as_ptr().cast(), output: self.notes.as_mut_ptr().cast() };
        run.begin(&self.plan, lane, notes, stamp.into());
        // SAFETY: `mine` and `self.notes` outlive the call and hold one note a rank.
        unsafe { drive(lane, run, &self.plan, watch, log, &mut NoHold)? };
        if self.notes.iter().flatten().any(|&offset| offset == PLAIN) {
            return Ok(false);
        }
        self.addresses.clear();
        for (rank, note) in self.notes.iter().enumerate() {
            let world_rank = watch.group.world_ranks[rank];
            let base = watch.world.domain.peer_base(world_rank).map_or(std::ptr::null_mut(), |(base, _)| base);
            self.addresses.push((base.wrapping_add(note[0] as usize), base.wrapping_add(note[1] as usize)));
        }
        Ok(true)
    }

    /// (input, output) of each rank, as seen from this process.
    pub fn addresses(&self) -> &[(*mut u8, *mut u8)] {
        &self.addresses
    }
}
