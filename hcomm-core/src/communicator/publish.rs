//! Summaries of this rank's telemetry in the store, for tools that look at the whole job from one place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hcomm_telemetry::{Reader, Recorder, State, Summarizer};

use super::world::World;
use crate::config::Summaries;
use crate::control::{SUMMARIES, Store};

/// How often, where nobody said.
const INTERVAL: Duration = Duration::from_secs(2);
/// Ranks to which the store listens in that time; with more ranks each is heard less often.
const RANKS_PER_INTERVAL: u32 = 2000;
/// Bytes that all summaries of a job may have together: half of what a store holds.
const ALL_BYTES: usize = 64 << 20;
/// Bytes of one, at least and at most.
const BYTES: std::ops::RangeInclusive<usize> = (4 << 10)..=(32 << 10);

/// What publishes.
pub(super) struct Publisher {
    store: Arc<dyn Store>,
    key: String,
    interval: Duration,
    next: Instant,
    reader: Reader,
    summarizer: Summarizer,
}

impl World {
    /// What publishes the telemetry in `recorder`, if the job is to.
    pub(super) fn publisher(&self, recorder: &Recorder, store: Option<Arc<dyn Store>>) -> Option<Publisher> {
        let interval = interval(self.config.summaries, self.has_several_hosts(), self.place.size)?;
        let most = (ALL_BYTES / self.place.size.max(1)).clamp(*BYTES.start(), *BYTES.end());
        Some(Publisher {
            store: store?,
            key: format!("{SUMMARIES}{}", self.place.rank),
            interval,
            next: Instant::now(),
            reader: Reader::of(recorder).ok()?,
            summarizer: Summarizer::new(most),
        })
    }
}

fn interval(summaries: Summaries, several_hosts: bool, ranks: usize) -> Option<Duration> {
    match summaries {
        Summaries::Off => None,
        Summaries::Every(interval) => Some(interval),
        Summaries::Auto if !several_hosts => None,
        Summaries::Auto => {
            let turns = u32::try_from(ranks).unwrap_or(u32::MAX).div_ceil(RANKS_PER_INTERVAL);
            Some(INTERVAL.saturating_mul(turns.max(1)))
        }
    }
}

impl Publisher {
    /// How long there is nothing to do.
    pub fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Publishes, if it is time. A store that does not answer is asked again an interval after it was given up.
    pub fn step(&mut self) {
        if self.left().is_zero() {
            self.publish(false);
            self.next = Instant::now() + self.interval;
        }
    }

    /// Says that this rank has left; after it nothing is published.
    pub fn end(&mut self) {
        self.publish(true);
    }

    fn publish(&mut self, ends: bool) {
        // One that broke never comes back.
        if self.store.broken().is_some() {
            return;
        }
        let Ok(mut snapshot) = self.reader.snapshot() else { return };
        if ends && snapshot.state == State::Running {
            snapshot.state = State::Ended;
        }
        // What is not published now is in the next one: all counters are since the start.
        let _ = self.store.set(&self.key, self.summarizer.encode(snapshot).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_hears_of_so_many_ranks_at_a_time() {
        let auto = |several, ranks| interval(Summaries::Auto, several, ranks);
        assert_eq!(auto(false, 64), None);
        assert_eq!((auto(true, 2), auto(true, 2000)), (Some(INTERVAL), Some(INTERVAL)));
        assert_eq!(auto(true, 10_000), Some(5 * INTERVAL));
        assert_eq!(interval(Summaries::Off, true, 2), None);
        let every = Summaries::Every(Duration::from_millis(300));
        assert_eq!(interval(every, false, 10_000), Some(Duration::from_millis(300)));
    }
}
