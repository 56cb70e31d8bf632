//! One execution of a compiled plan, as a state machine.

#![allow(unsafe_code)] // walks raw buffers whose lifetimes the communicator holds

use super::compile::{
    Action, Compiled, CompiledStep, Hazard, INPUT, OUTPUT, Place, SCRATCH, remote_input, remote_output,
};
use super::lane::{Lane, LaneFault};
use crate::transport::Recv;
use crate::transport::shm::PeerProcess;

/// The memory of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffers {
    pub input: *const u8,
    pub output: *mut u8,
}

// SAFETY: a plain pair of addresses; who runs a plan owns the memory behind them for as long as the run lives.
unsafe impl Send for Buffers {}

/// Where another rank's buffer is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Address {
    /// Mapped here.
    Mapped(*mut u8),
    /// At an address of its own process, from where it can only be copied.
    Process(PeerProcess, u64),
}

// SAFETY: an address is a number; who uses it follows a plan.
unsafe impl Send for Address {}

/// A reduction that moves more than this is far beyond the caches, and stores past them: a line that will be written whole
/// is then not read first. In place it has just been read.
const STREAM_BYTES: usize = 12 << 20;

/// What the messages of a run are marked with: the same both ways in a collective.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamps {
    pub sent: u32,
    pub received: u32,
}

impl From<u32> for Stamps {
    fn from(stamp: u32) -> Self {
        Self { sent: stamp, received: stamp }
    }
}

/// Result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    /// The run is complete and its buffers are free.
    Done,
    /// Something moved.
    Moved,
    /// Nothing could move.
    Stuck,
}

/// Where a track is.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    step: usize,
    /// Bytes received by the step at hand.
    received: usize,
    /// The message of the step at hand has come whole (only its forwarding is left).
    complete: bool,
}

/// State of a run. Reused from call to call, so that a warm call allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Run {
    cursors: Vec<Cursor>,
    /// Messages posted on each (peer, track) link before this run; only kept where the plan has hazards.
    before: Vec<u64>,
    bases: Vec<*mut u8>,
    /// The processes that the bases of other ranks, from the first one on, are addresses in; `None` for what is mapped.
    processes: Vec<Option<PeerProcess>>,
    stamps: Stamps,
    /// Scratch for pointers of `Reduce`.
    srcs: Vec<*const u8>,
    dsts: Vec<*mut u8>,
}

// SAFETY: the addresses in `bases` are used by the one thread that polls the run; see `Buffers`.
unsafe impl Send for Run {}

impl Run {
    /// Prepares to run `plan` on `buffers`.
    pub fn begin(&mut self, plan: &Compiled, lane: &mut Lane, buffers: Buffers, stamps: Stamps) {
        self.stamps = stamps;
        self.cursors.clear();
        self.cursors.resize(plan.tracks.len(), Cursor::default());
        let scratch = lane.scratch(plan.scratch_bytes);
        self.bases.clear();
        self.bases.extend([buffers.input.cast_mut(), buffers.output, scratch]);
        debug_assert_eq!((INPUT, OUTPUT, SCRATCH), (0, 1, 2));
        self.processes.clear();
        if !plan.hazards.is_empty() {
            lane.posted_counts(plan.tracks.len(), &mut self.before);
        }
    }

    /// Adds the addresses of every rank's buffers, for a remote plan; input and output by rank.
    pub fn set_remote(&mut self, addresses: &[[Address; 2]]) {
        debug_assert_eq!(self.bases.len(), remote_input(0) as usize);
        debug_assert_eq!(remote_output(0) + 1, remote_input(1));
        for address in addresses.as_flattened() {
            let (base, process) = match *address {
                Address::Mapped(base) => (base, None),
                Address::Process(process, at) => (std::ptr::without_provenance_mut(at as usize), Some(process)),
            };
            self.bases.push(base);
            self.processes.push(process);
        }
    }

    /// The rank and process in which a place is, if it is one that can only be copied from.
    #[inline]
    fn process_of(&self, place: Place) -> Option<(usize, &PeerProcess)> {
        let other = place.region.checked_sub(remote_input(0))? as usize;
        Some((other / 2, self.processes.get(other)?.as_ref()?))
    }

    /// Moves what can be moved.
    ///
    /// # Safety
    /// The buffers given to `begin` (and the remote addresses) are valid for what the plan reads and writes, and stay so
    /// until `Done` is returned or the lane is dropped.
    pub unsafe fn poll(&mut self, plan: &Compiled, lane: &mut Lane) -> Result<Polled, LaneFault> {
        let mut moved = false;
        let mut done = true;
        for (index, track) in plan.tracks.iter().enumerate() {
            while let Some(step) = track.steps.get(self.cursors[index].step) {
                // SAFETY: the caller's promise.
                match unsafe { self.advance(plan, lane, index, step)? } {
                    Polled::Done => moved = true,
                    Polled::Moved => {
                        moved = true;
                        done = false;
                        break;
                    }
                    Polled::Stuck => {
                        done = false;
                        break;
                    }
                }
            }
            if track.steps.is_empty() {
                continue;
            }
            for &peer in &track.peers {
                if let Some(link) = lane.link(peer, index)
                    && link.sends_done() != link.sends_posted()
                {
                    moved |= link.progress().map_err(|e| LaneFault::link(peer, e))?;
                    done &= link.sends_done() == link.sends_posted();
                }
            }
        }
        Ok(match (done, moved) {
            (true, _) => Polled::Done,
            (false, true) => Polled::Moved,
            (false, false) => Polled::Stuck,
        })
    }

    /// The links from which messages are awaited now, by [`Lane::index`], and their bytes.
    pub fn awaited(&self, plan: &Compiled, lane: &Lane, out: &mut Vec<(usize, usize)>) {
        out.clear();
        for (index, (track, cursor)) in plan.tracks.iter().zip(&self.cursors).enumerate() {
            if let Some(CompiledStep { action: Action::Recv { peer, len, .. }, .. }) = track.steps.get(cursor.step)
                && !cursor.complete
            {
                out.push((lane.index(*peer, index), *len));
            }
        }
    }

    /// One step: `Done` when the track may go on to the next.
    ///
    /// # Safety
    /// As for [`Run::poll`].
    #[inline]
    unsafe fn advance(
        &mut self,
        plan: &Compiled,
        lane: &mut Lane,
        track: usize,
        step: &CompiledStep,
    ) -> Result<Polled, LaneFault> {
        if !step.hazards.is_empty()
            && !self.clear_of(&plan.hazards[step.hazards.start as usize..step.hazards.end as usize], lane, track)?
        {
            return Ok(Polled::Stuck);
        }
        match &step.action {
            Action::Send { peer, src, len } => {
                let src = self.at(*src);
                // SAFETY: the source lives until the run is done, and hazards keep later steps from writing to it before.
                if !unsafe { lane.post(*peer, track, src, *len, self.stamps.sent)? } {
                    return Ok(Polled::Stuck);
                }
            }
            Action::Recv { peer, dst, operand, len, forward } => {
                let dst = self.at(*dst);
                let cursor = &self.cursors[track];
                if !cursor.complete {
                    let mut recv = Recv {
                        dst,
                        operand: operand.map_or(std::ptr::null(), |place| self.at(place)),
                        reducer: operand.and(plan.reducer.as_ref()),
                        len: *len,
                        done: cursor.received,
                        stamp: self.stamps.received,
                    };
                    // SAFETY: `dst` and the operand are inside the buffers given to `begin`; tracks do not share
                    // ranges that are written (verified), and hazards were cleared above.
                    let moved = unsafe { lane.poll_recv(*peer, track, &mut recv)? };
                    let received = recv.done;
                    let cursor = &mut self.cursors[track];
                    cursor.received = received;
                    if !moved {
                        return Ok(Polled::Stuck);
                    }
                    if received < *len {
                        return Ok(Polled::Moved);
                    }
                    cursor.complete = true;
                }
                if let Some(to) = forward {
                    // SAFETY: as for `Send`.
                    if !unsafe { lane.post(*to, track, dst, *len, self.stamps.sent)? } {
                        return Ok(Polled::Stuck);
                    }
                }
            }
            Action::Reduce { srcs, dsts, count } => {
                if *count > 0 {
                    self.srcs.clear();
                    self.dsts.clear();
                    for place in srcs {
                        let at = self.at(*place).cast_const();
                        self.srcs.push(at);
                    }
                    for place in dsts {
                        let at = self.at(*place);
                        self.dsts.push(at);
                    }
                    let reducer = plan.reducer.as_ref().expect("a plan that reduces has kernels");
                    let moved = count * reducer.element_size() * (srcs.len() + dsts.len());
                    let in_place = self.dsts.iter().any(|dst| self.srcs.contains(&dst.cast_const()));
                    // SAFETY: all ranges lie in buffers that `begin` and `set_remote` were given; plans are verified
                    // to keep them apart or equal.
                    unsafe {
                        if moved >= STREAM_BYTES && !in_place {
                            reducer.combine_many_streaming(&self.dsts, &self.srcs, *count);
                        } else {
                            reducer.combine_many(&self.dsts, &self.srcs, *count);
                        }
                    }
                }
            }
            Action::Copy { src, dst, len } => {
                let process = self.process_of(*src);
                debug_assert!(self.process_of(*dst).is_none(), "a plan that writes to what can only be read");
                let (src, dst) = (self.at(*src), self.at(*dst));
                if let Some((peer, process)) = process {
                    // SAFETY: the destination lies in the buffers given to `begin`, which nobody else writes to.
                    unsafe { process.read(src.addr() as u64, dst, *len) }.map_err(|e| LaneFault::link(peer, e))?;
                } else if src != dst && *len > 0 {
                    // SAFETY: as above; different ranges of a verified plan do not overlap.
                    unsafe { std::ptr::copy_nonoverlapping(src, dst, *len) };
                }
            }
        }
        let cursor = &mut self.cursors[track];
        *cursor = Cursor { step: cursor.step + 1, ..Cursor::default() };
        Ok(Polled::Done)
    }

    #[inline]
    fn at(&self, place: Place) -> *mut u8 {
        // Wrapping: an empty buffer may have any base address, and nothing of it is accessed.
        self.bases[place.region as usize].wrapping_add(place.offset)
    }

    /// Whether the messages that a write must wait for have left; pushes them on if not.
    fn clear_of(&self, hazards: &[Hazard], lane: &mut Lane, track: usize) -> Result<bool, LaneFault> {
        for hazard in hazards {
            let before = self.before[lane.index(hazard.peer, track)];
            let Some(link) = lane.link(hazard.peer, track) else { continue };
            if link.sends_done() < before + hazard.number {
                link.progress().map_err(|e| LaneFault::link(hazard.peer, e))?;
                if link.sends_done() < before + hazard.number {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
