//! One process: its latest state, and what came since the one before.

use hcomm_telemetry::{Histogram, Link, Operation, Snapshot};

use crate::source::{is_over, is_same_process};

/// A process of a job.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its latest state. Its counters and links are those of the latest look at which all parts were of one moment.
    pub latest: Snapshot,
    /// What was done between the latest two looks; `None` when there are none, it was over before, or the parts of the latest are
    /// not of one moment.
    pub interval: Option<Interval>,
    /// How much later than the first rank it came to calls; one count a call.
    pub lateness: Histogram,
    /// Calls to which it came last, of those to which the ranks' ways could be compared.
    pub last_in: u64,
    /// Calls of which its lateness is known.
    pub compared: u64,
    /// Counters when counting began; empty for those since its start.
    base: Vec<Operation>,
    /// When the counters were read; `None` when their parts are not of one moment.
    counted_ns: Option<u64>,
    /// By lane: the latest collective that had ended at the look before.
    ended_before: Vec<((u64, u32), u64)>,
    /// When it was seen to have changed last, by the clock of the one who looks.
    pub changed_ns: u64,
    pub(super) seen_in_tick: bool,
}

/// What was done between two looks.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Seconds that were measured, never 0.
    pub seconds: f64,
    /// Operations that ended.
    pub operations: Vec<Operation>,
    /// Links as they were at its begin.
    pub links: Vec<Link>,
}

impl Process {
    /// A process seen for the first time. `since_ns`: when it was looked for before; if it began later, all that it did is of this
    /// interval.
    pub fn new(latest: Snapshot, since_ns: Option<u64>, at_ns: u64) -> Self {
        let started = latest.identity.started_ns;
        let began_since = since_ns.is_some_and(|since| started >= since);
        let counted_ns = latest.whole.then_some(latest.taken_ns);
        let interval = counted_ns
            .filter(|_| began_since)
            .and_then(|now| seconds(started, now))
            .map(|seconds| Interval { seconds, operations: latest.operations.clone(), links: Vec::new() });
        Self {
            counted_ns,
            latest,
            interval,
            lateness: Histogram::default(),
            last_in: 0,
            compared: 0,
            base: Vec::new(),
            ended_before: Vec::new(),
            changed_ns: at_ns,
            seen_in_tick: true,
        }
    }

    /// Whether `snapshot` is of this process.
    pub fn is_same(&self, snapshot: &Snapshot) -> bool {
        is_same_process(&self.latest, snapshot)
    }

    /// Takes in its state at a later time.
    pub fn take(&mut self, mut latest: Snapshot, at_ns: u64) {
        self.seen_in_tick = true;
        if latest.taken_ns == self.latest.taken_ns {
            // Published at an interval of its own, and not again since: what is known of the rates stays.
            let Snapshot { state, liveness, stopped, .. } = latest;
            (self.latest.state, self.latest.liveness, self.latest.stopped) = (state, liveness, stopped);
            return;
        }
        self.changed_ns = at_ns;
        let before = self.counted_ns;
        if latest.whole {
            self.interval = before.and_then(|before| seconds(before, latest.taken_ns)).map(|seconds| Interval {
                seconds,
                operations: latest.operations_since(&self.latest),
                links: std::mem::take(&mut self.latest.links),
            });
            self.counted_ns = Some(latest.taken_ns);
        } else {
            // Counts of different moments make no rate. Those of before stand until there are better ones.
            self.interval = None;
            if before.is_some() {
                latest.operations = std::mem::take(&mut self.latest.operations);
                latest.links = std::mem::take(&mut self.latest.links);
                latest.unsorted_calls = self.latest.unsorted_calls;
                latest.unsorted_bytes = self.latest.unsorted_bytes;
            }
        }
        self.ended_before = self.latest.lanes.iter().map(|lane| ((lane.communicator, lane.lane), lane.ended)).collect();
        self.latest = latest;
    }

    /// It was not seen in this tick: nothing is known of the interval.
    pub fn miss(&mut self) {
        self.interval = None;
    }

    /// Whether it will not change any more.
    pub fn is_over(&self) -> bool {
        is_over(&self.latest)
    }

    /// Counters since counting began.
    pub fn totals(&self) -> impl Iterator<Item = Operation> + '_ {
        self.latest.operations.iter().map(|now| match self.base.iter().find(|then| then.key() == now.key()) {
            None => now.clone(),
            Some(then) => {
                let mut since = now.since(then);
                // The longest of all time is that since then if it has grown, else it is known as well as the histogram is.
                since.max_ns =
                    now.max_ns.filter(|&max| Some(max) > then.max_ns).or_else(|| since.durations.quantile(1.0));
                since
            }
        })
    }

    /// Counts from now on.
    pub fn reset(&mut self) {
        self.base.clone_from(&self.latest.operations);
        self.lateness = Histogram::default();
        (self.last_in, self.compared) = (0, 0);
    }

    /// The number up to which all calls of a lane are over and written down, if the process has that lane.
    ///
    /// A record is written shortly after a call is marked as ended, and surely before the next one begins.
    pub fn is_past(&self, communicator: u64, lane: u32) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let mine = self.latest.lanes.iter().find(|mine| (mine.communicator, mine.lane) == (communicator, lane))?;
        let before =
            self.ended_before.iter().find(|(key, _)| *key == (communicator, lane)).map_or(0, |(_, ended)| *ended);
        Some(mine.begun.saturating_sub(1).max(before))
    }
}

fn seconds(from_ns: u64, to_ns: u64) -> Option<f64> {
    (to_ns > from_ns).then(|| (to_ns - from_ns) as f64 / 1e9)
}
