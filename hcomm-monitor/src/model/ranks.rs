//! Rows of ranks: how each is, what it is in, and for whom it waits.

use hcomm_telemetry::{Now, State};

use super::process::Process;

/// How a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// It runs.
    Running,
    /// It is stopped (SIGSTOP, a debugger).
    Stopped,
    /// It left the job in good order.
    Ended,
    /// An operation failed: the error.
    Failed(String),
    /// It is gone without a word.
    Killed,
}

impl Condition {
    pub(super) fn of(process: &Process) -> Self {
        match &process.latest.state {
            State::Ended => Condition::Ended,
            State::Failed(error) => Condition::Failed(error.clone()),
            State::Killed => Condition::Killed,
            State::Running if process.latest.stopped == Some(true) => Condition::Stopped,
            State::Running => Condition::Running,
        }
    }

    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Condition::Running => "running",
            Condition::Stopped => "stopped",
            Condition::Ended => "ended",
            Condition::Failed(_) => "failed",
            Condition::Killed => "killed",
        }
    }
}

/// A rank.
#[derive(Debug, Clone)]
pub struct RankRow {
    /// Rank in the job.
    pub rank: u32,
    /// Process id.
    pub pid: u32,
    /// Host.
    pub host: String,
    /// How it is.
    pub condition: Condition,
    /// The operation that it has been in for longest, if any,
    pub now: Option<Now>,
    /// and for how long, in nanoseconds; `None` for a short call that is not timed.
    pub inside_ns: Option<u64>,
    /// Median of how much later than the first rank it came to calls, in nanoseconds; `None` before any could be compared.
    pub late_p50_ns: Option<u64>,
    /// 99th percentile of that.
    pub late_p99_ns: Option<u64>,
    /// Share of the compared calls to which it came last.
    pub last_share: Option<f64>,
    /// Calls that ended well, since it joined the job.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl RankRow {
    pub(super) fn of(process: &Process) -> Self {
        let snapshot = &process.latest;
        let inside = |now: &Now| now.since_ns.map(|since| snapshot.taken_ns.saturating_sub(since));
        let now = if process.is_over() {
            None
        } else {
            snapshot.lanes.iter().filter_map(|lane| lane.now.as_ref()).max_by_key(|now| inside(now))
        };
        let (calls, bytes) = snapshot.total();
        Self {
            rank: snapshot.identity.rank,
            pid: snapshot.identity.pid,
            host: snapshot.identity.host.clone(),
            condition: Condition::of(process),
            now: now.cloned(),
            inside_ns: now.and_then(inside),
            late_p50_ns: process.lateness.quantile(0.5),
            late_p99_ns: process.lateness.quantile(0.99),
            last_share: (process.compared > 0).then(|| process.last_in as f64 / process.compared as f64),
            calls,
            bytes,
        }
    }
}
