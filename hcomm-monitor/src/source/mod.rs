//! Where figures come from.

mod live;
mod replay;
mod store;
mod tap;

use std::path::PathBuf;

use hcomm_cli::Result;
use hcomm_telemetry::{Identity, Liveness, Snapshot, State};
use serde::{Deserialize, Serialize};

pub use live::{Live, Selection};
pub use replay::Replay;
pub use store::Store;
pub use tap::{Tap, Tapped};

/// Gives the state of all processes, again and again.
pub trait Source {
    /// The state now; `None` when nothing more can come.
    ///
    /// # Errors
    /// There is nothing to attach to.
    fn poll(&mut self) -> Result<Option<Tick>>;

    /// Where it looks, for people.
    fn places(&self) -> Vec<String>;

    /// Whether more comes as time goes by; a recording is all there already.
    fn is_live(&self) -> bool {
        true
    }

    /// What is to be said when all has been shown.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// All processes at one time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tick {
    /// `CLOCK_MONOTONIC` of the host that looked, in nanoseconds. Each snapshot has its own time, which counts for its figures.
    pub at_ns: u64,
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// Each process that lives, and once more one that is over: its last state.
    pub processes: Vec<Snapshot>,
    /// Files that cannot be read.
    pub unreadable: Vec<Unread>,
}

/// A file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unread {
    /// Where it lies.
    pub path: PathBuf,
    /// Why, for people.
    pub reason: String,
}

/// Whether a process will not change any more.
pub fn is_over(snapshot: &Snapshot) -> bool {
    snapshot.state == State::Ended || snapshot.liveness == Liveness::Dead
}

/// Whether two snapshots are of one process.
pub fn is_same_process(a: &Snapshot, b: &Snapshot) -> bool {
    let (a, b) = (&a.identity, &b.identity);
    let id = |of: &Identity| (of.rank, of.pid, of.pid_namespace, of.process_start_ticks, of.started_ns);
    id(a) == id(b) && a.path == b.path
}
