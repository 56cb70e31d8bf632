//! The summaries that the ranks of a job publish in its store (`HCOMM_SUMMARY_INTERVAL`): the whole job from one place.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hcomm_cli::{Failure, Result};
use hcomm_core::control::{Change, LIVES, Observer, SUMMARIES, is_lost};
use hcomm_telemetry::{Liveness, Snapshot, State, monotonic_ns, read_summary};

use super::{Source, Tick, Unread, is_over};

/// How long a store may take to be reached: the job may just be starting.
const PATIENCE: Duration = Duration::from_secs(10);

/// A rank: where its store is, and its number as text.
type Key = (String, String);

/// Reads a store.
pub struct Store {
    observer: Observer,
    /// Only jobs whose names begin so.
    job: Option<String>,
    ranks: BTreeMap<Key, Rank>,
    /// Summaries that cannot be read, by the name of the rank's value.
    unreadable: BTreeMap<String, String>,
}

/// What is known of a rank.
#[derive(Default)]
struct Rank {
    latest: Option<Snapshot>,
    /// The store saw it die.
    lost: bool,
    /// Its end was told.
    told: bool,
}

impl Store {
    /// The store at `url`; only jobs whose names begin with `job`.
    ///
    /// # Errors
    /// There is no store.
    pub fn open(url: &str, job: Option<String>) -> Result<Self> {
        let observer = Observer::open(url, PATIENCE).map_err(|error| {
            Failure::run(
                error.to_string(),
                "the URL is that of HCOMM_STORE, or what the launcher says with HCOMM_DEBUG=info",
            )
        })?;
        Ok(Self { observer, job, ranks: BTreeMap::new(), unreadable: BTreeMap::new() })
    }

    fn take(&mut self, change: Change) {
        let Change { place, key, value } = change;
        if let Some(rank) = key.strip_prefix(LIVES) {
            self.ranks.entry((place, rank.to_owned())).or_default().lost = is_lost(&value);
        } else if let Some(rank) = key.strip_prefix(SUMMARIES) {
            let name = format!("{place} {key}");
            match read_summary(&value) {
                Ok(snapshot) => {
                    self.unreadable.remove(&name);
                    let rank = self.ranks.entry((place, rank.to_owned())).or_default();
                    *rank = Rank { latest: Some(snapshot), lost: rank.lost, told: false };
                }
                Err(reason) => _ = self.unreadable.insert(name, reason),
            }
        }
    }
}

impl Rank {
    /// As the job sees it from here.
    fn state(&self) -> Option<Snapshot> {
        let mut snapshot = self.latest.clone()?;
        // Clocks of several hosts are not compared: without it all ranks are of one job.
        snapshot.identity.boot_id.clear();
        if self.lost && snapshot.state == State::Running {
            snapshot.state = State::Killed;
        }
        snapshot.liveness = match snapshot.state {
            State::Ended | State::Killed => Liveness::Dead,
            _ if self.lost => Liveness::Dead,
            _ => snapshot.liveness,
        };
        Some(snapshot)
    }
}

impl Source for Store {
    fn poll(&mut self) -> Result<Option<Tick>> {
        // A store that is gone has told all that it knew.
        let Ok(changes) = self.observer.changes(&[SUMMARIES, LIVES]) else { return Ok(None) };
        changes.into_iter().for_each(|change| self.take(change));
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut processes = Vec::with_capacity(self.ranks.len());
        for rank in self.ranks.values_mut().filter(|rank| !rank.told) {
            let Some(snapshot) = rank.state() else { continue };
            if self.job.as_ref().is_some_and(|name| !snapshot.identity.job.starts_with(name.as_str())) {
                continue;
            }
            rank.told = is_over(&snapshot);
            processes.push(snapshot);
        }
        let unread = |(name, reason): (&String, &String)| Unread { path: name.into(), reason: reason.clone() };
        Ok(Some(Tick {
            at_ns: monotonic_ns(),
            wall_ns: wall.as_nanos() as u64,
            processes,
            unreadable: self.unreadable.iter().map(unread).collect(),
        }))
    }

    fn places(&self) -> Vec<String> {
        vec![self.observer.url().to_owned()]
    }
}
