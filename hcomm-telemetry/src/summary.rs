//! A snapshot small enough to be published to other hosts at an interval: what matters for the whole job, within a bound of bytes.

use std::cmp::Reverse;

use crate::histogram::Histogram;
use crate::read::{Operation, Snapshot};

/// Longest summary that is read, in bytes.
pub const MOST_SUMMARY_BYTES: usize = 64 << 10;

/// Lanes in which something is under way that are told, the longest first; beside them always the first of the job.
const LANES: usize = 4;
/// Links with the most bytes.
const LINKS: usize = 8;
/// Sockets that sent most again.
const PATHS: usize = 4;
/// Bytes of an error.
const ERROR: usize = 512;

/// Makes the summaries of one process.
///
/// An operation that was in one is in all later ones, so that the difference of two is what was done between them.
#[derive(Debug)]
pub struct Summarizer {
    most: usize,
    kept: Vec<(crate::Kind, u8, u32)>,
}

impl Summarizer {
    /// For summaries of at most `most` bytes, of which some thousands are needed.
    pub fn new(most: usize) -> Self {
        Self { most: most.min(MOST_SUMMARY_BYTES), kept: Vec::new() }
    }

    /// The snapshot in JSON, without what there is no room for. Operations without room are counted as those of which the kind is
    /// not known.
    pub fn encode(&mut self, mut snapshot: Snapshot) -> String {
        shrink(&mut snapshot);
        let operations = std::mem::take(&mut snapshot.operations);
        let rest = text(&snapshot).len();
        self.choose(&operations, rest);
        for operation in operations {
            if self.kept.contains(&operation.key()) {
                snapshot.operations.push(coarse(operation));
            } else {
                snapshot.unsorted_calls = snapshot.unsorted_calls.saturating_add(operation.count);
                snapshot.unsorted_bytes = snapshot.unsorted_bytes.saturating_add(operation.bytes);
            }
        }
        text(&snapshot)
    }

    /// Which operations are told: those that were, and where there is room those that took most time.
    fn choose(&mut self, operations: &[Operation], rest: usize) {
        let size = |operation: &Operation| text(&coarse(operation.clone())).len() + 1;
        let of_key = |key: &_| operations.iter().find(|operation| operation.key() == *key);
        let mut total = rest;
        // Numbers grow: what was the last to come in is the first to go.
        self.kept.retain(|key| {
            total += of_key(key).map_or(0, size);
            total <= self.most
        });
        let mut new: Vec<&Operation> = operations.iter().filter(|new| !self.kept.contains(&new.key())).collect();
        new.sort_by_key(|operation| Reverse(operation.total_ns));
        for operation in new {
            total += size(operation);
            // With some space to grow.
            if total > self.most / 4 * 3 {
                break;
            }
            self.kept.push(operation.key());
        }
    }
}

/// Reads a summary, from anybody.
///
/// # Errors
/// It is too long, or none.
pub fn read_summary(bytes: &[u8]) -> Result<Snapshot, String> {
    if bytes.len() > MOST_SUMMARY_BYTES {
        return Err(format!("{} bytes, where a summary has at most {MOST_SUMMARY_BYTES}", bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn text<T: serde::Serialize>(value: &T) -> String {
    // Nothing in it can fail to be written: keys are texts and numbers are finite.
    serde_json::to_string(value).unwrap_or_default()
}

/// Leaves of all but the operations what fits.
fn shrink(snapshot: &mut Snapshot) {
    snapshot.records = Vec::new();
    if let crate::State::Failed(error) = &mut snapshot.state {
        let mut end = error.len().min(ERROR);
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        error.truncate(end);
    }
    let age = |lane: &crate::Lane| lane.now.as_ref().map(|now| now.since_ns.unwrap_or(u64::MAX));
    snapshot.lanes.sort_by_key(|lane| ((lane.communicator, lane.lane) != (0, 0), age(lane).is_none(), age(lane)));
    snapshot.lanes.truncate(1 + LANES);
    snapshot.lanes.iter_mut().for_each(|lane| lane.recent.truncate(1));
    snapshot.links.sort_by_key(|link| Reverse(link.sent_bytes.saturating_add(link.received_bytes)));
    snapshot.links.truncate(LINKS);
    snapshot.links.sort_by_key(|link| link.peer);
    snapshot.paths.sort_by_key(|path| Reverse((path.figures.retransmits, path.figures.round_trip_ns)));
    snapshot.paths.truncate(PATHS);
}

/// With a histogram of two buckets for each doubling: durations are then within a fifth of what they were.
fn coarse(mut operation: Operation) -> Operation {
    const WIDTH: usize = 8;
    let mut counts = vec![0_u64; crate::BUCKETS];
    for (bucket, count) in operation.durations.pairs() {
        // Below sixteen there is a bucket for each nanosecond already.
        let at = if bucket < 16 { bucket } else { bucket / WIDTH * WIDTH + WIDTH / 2 };
        counts[at] = counts[at].saturating_add(count);
    }
    operation.durations = Histogram::from_counts(counts);
    operation
}
