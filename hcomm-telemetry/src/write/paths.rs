//! The sockets to peers, written by the one thread that reads them.

use std::collections::HashMap;
use std::sync::Arc;

use super::mapping::Part;
use super::recorder::{Recorder, put};
use crate::clock::monotonic_ns;
use crate::layout::{NONE, PathPart};
use crate::path::{PathSample, address_words};
use crate::primitive::{AtomicU64, Ordering};
use crate::seqlock;

/// Writes down the sockets of this process.
#[derive(Debug)]
pub struct PathWriter {
    recorder: Arc<Recorder>,
    open: HashMap<u64, Part<PathPart>>,
    /// Parts of sockets that are closed.
    free: Vec<Part<PathPart>>,
}

impl PathWriter {
    /// One at a time.
    pub(super) fn new(recorder: Arc<Recorder>) -> Self {
        Self { recorder, open: HashMap::new(), free: Vec::new() }
    }

    /// Writes down all sockets that are open now; those that were and are not among them are closed.
    pub fn write(&mut self, samples: &[PathSample]) {
        let mut before = std::mem::take(&mut self.open);
        let kept: Vec<_> = samples.iter().map(|sample| before.remove(&sample.id)).collect();
        for part in before.into_values() {
            seqlock::write(&part.sequence, || part.in_use.store(0, Ordering::Relaxed));
            self.free.push(part);
        }
        let mut missed = 0;
        for (sample, kept) in samples.iter().zip(kept) {
            let is_new = kept.is_none();
            match kept.or_else(|| self.free.pop()).or_else(|| self.recorder.new_path()) {
                Some(part) => {
                    seqlock::write(&part.sequence, || fill(&part, sample, is_new));
                    self.open.insert(sample.id, part);
                }
                None => missed += 1,
            }
        }
        self.recorder.header().paths_missed.store(missed, Ordering::Relaxed);
    }
}

fn fill(part: &PathPart, sample: &PathSample, is_new: bool) {
    let set = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
    let now = monotonic_ns();
    if is_new {
        set(&part.in_use, 1);
        set(&part.peer, sample.peer.into());
        set(&part.transport, sample.transport.into());
        set(&part.communicator, sample.communicator);
        set(&part.lane, u64::from(sample.lane) | u64::from(sample.number) << 32);
        set(&part.opened_ns, now);
        let ends = sample.addresses.map(|(local, remote)| [local, remote]);
        for (at, end) in [&part.local, &part.remote].into_iter().zip(0..) {
            let words = ends.map_or([0; 2], |ends| address_words(ends[end].ip()));
            at.iter().zip(words).for_each(|(at, word)| set(at, word));
        }
        let ports = ends.map(|[local, remote]| u64::from(local.port()) | u64::from(remote.port()) << 32);
        set(&part.ports, ports.unwrap_or(NONE));
        put(&part.interface, &sample.interface);
    }
    set(&part.state, sample.state.map_or(NONE, u64::from));
    set(&part.sampled_ns, now);
    let figures = &sample.figures;
    for (at, value) in [
        (&part.round_trip_ns, figures.round_trip_ns),
        (&part.round_trip_deviation_ns, figures.round_trip_deviation_ns),
        (&part.retransmits, figures.retransmits),
        (&part.segments_sent, figures.segments_sent),
        (&part.segments_received, figures.segments_received),
        (&part.acknowledged_bytes, figures.acknowledged_bytes),
        (&part.received_bytes, figures.received_bytes),
        (&part.queued_bytes, figures.queued_bytes),
    ] {
        set(at, value.unwrap_or(NONE));
    }
}
