//! What one thread writes.
//!
//! A call that is short and of the same shape as the last costs two comparisons and one counter. Of those one in
//! [`crate::layout::Header::stride`] is timed, by two readings of the clock, and stands for the ones since the last; calls that are long enough for
//! two readings not to matter are all timed, and so is any that goes to sleep, from then on.

use std::sync::Arc;

use super::mapping::Part;
use super::recorder::Recorder;
use crate::clock::monotonic_ns;
use crate::histogram::bucket_of;
use crate::layout::{Calls, ERROR, LATE_START, LanePart, LinkPart, NO_RANK, NONE, RING, SLEPT, SlotPart, class_of};
use crate::names::Kind;
use crate::primitive::{AtomicU64, Ordering};
use crate::seqlock;
use crate::write::publish;

/// What is known of a call before it runs; made once a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Kind.
    pub kind: Kind,
    /// Number in [`crate::ALGORITHMS`].
    pub algorithm: u8,
    /// Number in [`crate::TRANSPORTS`].
    pub transport: u8,
    /// Parallel parts.
    pub channels: u8,
    /// Number in [`crate::ELEMENTS`].
    pub element: u8,
    /// Number in [`crate::OPERATIONS`].
    pub operation: u8,
    /// Root or partner, as its rank in the communicator.
    pub peer: Option<u32>,
    /// Largest message; 0 for messages that are not cut.
    pub chunk_bytes: u32,
    /// Size of the operation, as nccl-tests counts it.
    pub bytes: u64,
    /// What goes to each peer and comes from it.
    pub traffic: Vec<Traffic>,
}

/// Bytes of one call to and from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Its rank in the job.
    pub peer: u32,
    /// Number in [`crate::TRANSPORTS`].
    pub transport: u8,
    /// Bytes sent to it, or written into its memory.
    pub sent_bytes: u64,
    /// Bytes received from it, or read from its memory.
    pub received_bytes: u64,
}

impl Shape {
    fn what(&self, flags: u8) -> u64 {
        let bytes =
            [self.kind.0, self.algorithm, self.transport, flags, self.channels, self.element, self.operation, 0];
        u64::from_le_bytes(bytes)
    }

    fn chunk_peer(&self) -> u64 {
        u64::from(self.chunk_bytes) | u64::from(self.peer.unwrap_or(NO_RANK)) << 32
    }
}

/// The shape at hand, with where it is counted.
#[derive(Debug)]
struct Current {
    shape: Arc<Shape>,
    slot: Option<(usize, Part<SlotPart>)>,
    /// As the shape's traffic; `None` where there was no room.
    links: Vec<Option<Part<LinkPart>>>,
}

/// Shapes that a lane remembers beside the one at hand.
const EARLIER: usize = 8;

/// Writes down the calls of one thread.
#[derive(Debug)]
pub struct LaneWriter {
    recorder: Arc<Recorder>,
    index: usize,
    part: Part<LanePart>,
    communicator: u64,
    current: Option<Current>,
    /// Address of its shape, which it keeps; compared for every call.
    at_hand: usize,
    /// Shapes that were at hand before it, the latest last: a training step calls a few in turn.
    earlier: Vec<Current>,
    /// Calls from this number on are timed.
    next_timed: u64,
    /// When the call under way began; 0 when it is not timed.
    start_ns: u64,
    flags: u8,
    stride: u64,
    always_timed_ns: u64,
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// There is one writer, so that no atomic addition is needed.
#[inline]
fn add(word: &AtomicU64, value: u64) {
    set(word, get(word).wrapping_add(value));
}

impl LaneWriter {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        index: usize,
        part: Part<LanePart>,
        communicator: u64,
        lane: u64,
    ) -> Self {
        seqlock::write(&part.sequence, || {
            set(&part.communicator, communicator);
            set(&part.lane, lane);
            set(&part.in_use, 1);
            set(&part.now_what, NONE);
            set(&part.slot, NONE);
            set(&part.flushed, get(&part.calls));
        });
        part.recent.clear();
        let (stride, always_timed_ns) = (get(&recorder.header().stride), get(&recorder.header().always_timed_ns));
        Self {
            recorder,
            index,
            part,
            communicator,
            current: None,
            at_hand: 0,
            earlier: Vec::with_capacity(EARLIER),
            next_timed: 0,
            start_ns: 0,
            flags: 0,
            stride,
            always_timed_ns,
        }
    }

    /// Where every call is written down in words.
    pub fn calls(&self) -> Part<Calls> {
        self.part.map(|part| &part.recent)
    }

    /// A call begins. `number` tells it apart on its lane, and is the same on all ranks.
    #[inline]
    pub fn begin(&mut self, number: u64, shape: &Arc<Shape>) {
        if number >= self.next_timed || !self.is_current(shape) {
            self.begin_timed(number, shape);
        }
    }

    /// A message begins, as [`LaneWriter::begin`]; messages are numbered apart from collectives.
    pub fn begin_message(&mut self, number: u64, shape: &Arc<Shape>) {
        self.choose(shape);
        self.start(number, shape, number.is_multiple_of(self.stride) || self.is_worth_timing());
    }

    /// The call has ended; `shape` is what it turned out to be.
    #[inline]
    pub fn end(&mut self, number: u64, shape: &Arc<Shape>) {
        if self.start_ns != 0 || !self.is_current(shape) {
            self.end_timed(number, shape);
        } else {
            add(&self.part.calls, 1);
        }
    }

    #[inline]
    fn is_current(&self, shape: &Arc<Shape>) -> bool {
        self.at_hand == Arc::as_ptr(shape).addr()
    }

    /// The call has failed. What it was waiting for stays to be seen.
    pub fn fail(&mut self, number: u64, shape: &Arc<Shape>) {
        self.choose(shape);
        self.flush();
        let start = if self.start_ns == 0 { monotonic_ns() } else { self.start_ns };
        if let Some(slot) = self.slot() {
            seqlock::write(&slot.sequence, || add(&slot.errors, 1));
        }
        let duration = monotonic_ns().saturating_sub(start);
        self.record(number, shape, start, duration, ERROR, 1);
        self.start_ns = 0;
    }

    /// The call is about to sleep. `since_ns` is when it was first seen to wait, `awaited` are the ranks (of the job) without
    /// which it cannot go on.
    pub fn sleeps(&mut self, number: u64, shape: &Arc<Shape>, since_ns: u64, awaited: impl Iterator<Item = u32>) {
        if self.start_ns == 0 {
            self.start_ns = since_ns.max(1);
            self.flags = LATE_START;
        }
        self.flags |= SLEPT;
        let part = &*self.part;
        let now = monotonic_ns();
        seqlock::write(&part.sequence, || {
            self.write_now(number, shape);
            set(&part.now_slept_ns, now);
            let mut count = 0;
            for rank in awaited {
                if let Some(place) = part.awaited_ranks.get(count) {
                    set(place, rank.into());
                }
                count += 1;
            }
            set(&part.awaited, count as u64);
        });
    }

    #[cold]
    fn begin_timed(&mut self, number: u64, shape: &Arc<Shape>) {
        self.choose(shape);
        self.start(number, shape, number >= self.next_timed);
    }

    fn start(&mut self, number: u64, shape: &Shape, timed: bool) {
        self.flags = 0;
        self.start_ns = if timed { monotonic_ns() } else { 0 };
        if timed {
            seqlock::write(&self.part.sequence, || {
                self.write_now(number, shape);
                set(&self.part.now_slept_ns, 0);
                set(&self.part.awaited, 0);
            });
        }
    }

    /// Within the sequence lock.
    fn write_now(&self, number: u64, shape: &Shape) {
        let part = &*self.part;
        set(&part.now_what, shape.what(self.flags));
        set(&part.now_number, number);
        set(&part.now_bytes, shape.bytes);
        set(&part.now_since_ns, self.start_ns);
    }

    #[cold]
    fn end_timed(&mut self, number: u64, shape: &Arc<Shape>) {
        self.choose(shape);
        add(&self.part.calls, 1);
        if self.start_ns == 0 {
            return;
        }
        self.flush();
        let start = std::mem::take(&mut self.start_ns);
        let end = monotonic_ns();
        let duration = end.saturating_sub(start);
        let slept = self.flags & SLEPT != 0;
        let mut weight = 1;
        if let Some(slot) = self.slot() {
            if !slept {
                // It stands for all since the last that were too short to be seen; each that slept stands for itself.
                weight = get(&slot.count).saturating_sub(get(&slot.weight)).max(1);
            }
            seqlock::write(&slot.sequence, || {
                add(&slot.timed, 1);
                add(&slot.weight, weight);
                add(&slot.total_ns, duration.saturating_mul(weight));
                add(&slot.histogram[bucket_of(duration)], weight);
                set(&slot.min_ns, get(&slot.min_ns).min(duration));
                set(&slot.max_ns, get(&slot.max_ns).max(duration));
                set(&slot.what, shape.what(self.flags));
                set(&slot.chunk_peer, shape.chunk_peer());
                set(&slot.last_end_ns, end);
            });
        }
        seqlock::write(&self.part.sequence, || set(&self.part.now_what, NONE));
        self.record(number, shape, start, duration, self.flags, weight);
        if shape.kind.is_message() {
            // Messages are numbered apart.
        } else if duration >= self.always_timed_ns {
            self.next_timed = number + 1;
        } else {
            // The same calls on all ranks, so that their starts can be compared.
            self.next_timed = number - number % self.stride + self.stride;
        }
    }

    fn record(&self, number: u64, shape: &Shape, start_ns: u64, duration_ns: u64, flags: u8, weight: u64) {
        let part = &*self.part;
        let index = get(&part.ring_done);
        publish(&part.ring_begun, &part.ring_done, || {
            let record = &part.ring[index as usize % RING];
            set(&record.index, index);
            set(&record.number, number);
            set(&record.communicator, self.communicator);
            set(&record.start_ns, start_ns);
            set(&record.duration_ns, duration_ns);
            set(&record.bytes, shape.bytes);
            set(&record.what, shape.what(flags));
            set(&record.chunk_peer, shape.chunk_peer());
            set(&record.weight, weight);
        });
    }

    /// Makes `shape` the one at hand.
    fn choose(&mut self, shape: &Arc<Shape>) {
        if self.is_current(shape) {
            return;
        }
        self.flush();
        let known = self.earlier.iter().position(|earlier| Arc::ptr_eq(&earlier.shape, shape));
        let next = match known {
            Some(at) => self.earlier.remove(at),
            None => self.look_up(shape),
        };
        let part = &*self.part;
        seqlock::write(&part.sequence, || {
            set(&part.slot, next.slot.as_ref().map_or(NONE, |(index, _)| *index as u64));
            set(&part.call_bytes, shape.bytes);
        });
        self.at_hand = Arc::as_ptr(shape).addr();
        if let Some(last) = self.current.replace(next) {
            if self.earlier.len() >= EARLIER {
                self.earlier.remove(0);
            }
            self.earlier.push(last);
        }
        if !shape.kind.is_message() && self.is_worth_timing() {
            self.next_timed = 0;
        }
    }

    #[cold]
    fn look_up(&self, shape: &Arc<Shape>) -> Current {
        let slot = self.recorder.slot(self.index, shape.kind.0, class_of(shape.bytes));
        let links = shape.traffic.iter().map(|t| self.recorder.link(t.peer, t.transport)).collect();
        Current { shape: Arc::clone(shape), slot, links }
    }

    /// Where the shape at hand is counted.
    fn slot(&self) -> Option<&SlotPart> {
        self.current.as_ref()?.slot.as_ref().map(|(_, slot)| &**slot)
    }

    /// Whether calls like the one at hand are long, or none was timed yet.
    fn is_worth_timing(&self) -> bool {
        let Some(slot) = self.slot() else { return false };
        let mean = get(&slot.total_ns).checked_div(get(&slot.weight));
        mean.is_none_or(|mean| mean >= self.always_timed_ns)
    }

    /// Counts what has ended since the last time.
    fn flush(&mut self) {
        let part = &*self.part;
        let calls = get(&part.calls);
        let pending = calls.wrapping_sub(get(&part.flushed));
        let Some(current) = self.current.as_ref().filter(|_| pending > 0) else { return };
        let bytes = pending.wrapping_mul(current.shape.bytes);
        seqlock::write(&part.sequence, || {
            set(&part.flushed, calls);
            match &current.slot {
                Some((_, slot)) => seqlock::write(&slot.sequence, || {
                    add(&slot.count, pending);
                    add(&slot.bytes, bytes);
                }),
                None => {
                    add(&part.unsorted_calls, pending);
                    add(&part.unsorted_bytes, bytes);
                }
            }
        });
        for (link, traffic) in current.links.iter().zip(&current.shape.traffic) {
            let Some(link) = link else { continue };
            // Shared with the other lanes.
            link.sent_bytes.fetch_add(pending.wrapping_mul(traffic.sent_bytes), Ordering::Relaxed);
            link.received_bytes.fetch_add(pending.wrapping_mul(traffic.received_bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        self.flush();
        seqlock::write(&self.part.sequence, || set(&self.part.in_use, 0));
        self.recorder.give_back(self.index);
    }
}
