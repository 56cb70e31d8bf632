//! What a telemetry file says, as values.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::json;
use crate::layout::{AWAITED, RECENT, class_floor};
use crate::names::{Kind, bus_factor};
use crate::path::LinkPath;
use crate::process::Liveness;

/// Whose file it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Where the file lies (or lay, when the process has ended).
    #[serde(serialize_with = "json::path")]
    pub path: PathBuf,
    /// Name of the job.
    pub job: String,
    /// Rank in the job.
    pub rank: u32,
    /// Ranks of the job.
    pub world_size: u32,
    /// Host, as the job calls it.
    pub host: String,
    /// Identity of that boot of the host: ranks with the same one share a clock.
    pub boot_id: String,
    /// Name of the program.
    pub program: String,
    /// Process id, in its own pid namespace.
    pub pid: u32,
    /// Inode of that namespace, if known.
    pub pid_namespace: Option<u64>,
    /// Start of the process in clock ticks since boot; tells it from a later one with the same id.
    pub process_start_ticks: u64,
    /// `CLOCK_MONOTONIC` when it joined the job, in nanoseconds.
    pub started_ns: u64,
    /// What must be added to a time of `CLOCK_MONOTONIC` to get nanoseconds since 1970.
    pub wall_offset_ns: i64,
}

impl Identity {
    /// Nanoseconds since 1970 of a time of `CLOCK_MONOTONIC`.
    pub fn wall_ns(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add_signed(self.wall_offset_ns)
    }
}

/// What becomes of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs.
    Running,
    /// It left the job in good order.
    Ended,
    /// An operation failed; its error.
    Failed(String),
    /// It is gone without a word.
    Killed,
}

/// Operations of one kind and size class, over ranks of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Kind.
    pub kind: Kind,
    /// Size class: 0 for no bytes, else 1 more than the base-2 logarithm of the bytes, rounded down.
    pub class: u8,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Operations that ended well: every one.
    pub count: u64,
    /// Bytes that they moved, as nccl-tests counts the size of an operation: every one's.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Operations that were timed. Short ones are timed by sample.
    pub timed: u64,
    /// Sum of the durations in the histogram, in nanoseconds.
    pub total_ns: u64,
    /// Shortest that was timed.
    pub min_ns: Option<u64>,
    /// Longest that was timed.
    pub max_ns: Option<u64>,
    /// How the latest timed one ran: algorithm,
    #[serde(default, deserialize_with = "json::algorithm")]
    pub algorithm: json::Name,
    /// transport,
    #[serde(default, deserialize_with = "json::transport")]
    pub transport: json::Name,
    /// parallel parts,
    pub channels: Option<u8>,
    /// and largest message; `None` where messages are not cut.
    pub chunk_bytes: Option<u32>,
    /// Element type of the latest timed one.
    #[serde(default, deserialize_with = "json::element")]
    pub element: json::Name,
    /// `CLOCK_MONOTONIC` when the latest timed one ended.
    pub last_end_ns: Option<u64>,
    /// Durations. A sample counts for all operations since the last sample, so that the total nears `count`.
    pub durations: Histogram,
}

impl Operation {
    /// Smallest size of its class in bytes.
    pub fn class_bytes(&self) -> u64 {
        class_floor(self.class)
    }

    /// Mean duration in nanoseconds; `None` when none was timed.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.durations.total() > 0).then(|| self.total_ns as f64 / self.durations.total() as f64)
    }

    /// Bytes a second within operations; `None` when none was timed, or none took time.
    pub fn algorithm_bandwidth(&self) -> Option<f64> {
        let seconds = self.mean_ns()? * self.count as f64 / 1e9;
        (seconds > 0.0).then(|| self.bytes as f64 / seconds)
    }

    /// [`Operation::algorithm_bandwidth`] times [`bus_factor`]: what the busiest wire carried.
    pub fn bus_bandwidth(&self) -> Option<f64> {
        Some(self.algorithm_bandwidth()? * bus_factor(self.kind, self.ranks))
    }

    /// What came after `earlier`, an older state of this one. Shortest and longest are of all time and so are left out.
    pub fn since(&self, earlier: &Operation) -> Operation {
        Operation {
            count: self.count.saturating_sub(earlier.count),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            timed: self.timed.saturating_sub(earlier.timed),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            min_ns: None,
            max_ns: None,
            durations: self.durations.since(&earlier.durations),
            ..self.clone()
        }
    }

    /// What tells it from others.
    pub fn key(&self) -> (Kind, u8, u32) {
        (self.kind, self.class, self.ranks)
    }

    /// Adds that of another lane or rank.
    pub fn add(&mut self, other: &Operation) {
        let later = other.last_end_ns > self.last_end_ns;
        let most = |a: Option<u64>, b: Option<u64>, by: fn(u64, u64) -> u64| match (a, b) {
            (Some(a), Some(b)) => Some(by(a, b)),
            (a, b) => a.or(b),
        };
        if later {
            self.algorithm = other.algorithm;
            self.transport = other.transport;
            self.channels = other.channels;
            self.chunk_bytes = other.chunk_bytes;
            self.element = other.element;
            self.last_end_ns = other.last_end_ns;
        }
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
        self.timed = self.timed.saturating_add(other.timed);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.min_ns = most(self.min_ns, other.min_ns, u64::min);
        self.max_ns = most(self.max_ns, other.max_ns, u64::max);
        self.durations.add(&other.durations);
    }
}

/// A timed operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Communicator.
    pub communicator: u64,
    /// Lane of the communicator; 0 is the caller's thread.
    pub lane: u32,
    /// Number of the call on its lane, the same on all ranks; of a message, among those of its direction.
    pub number: u64,
    /// Kind.
    pub kind: Kind,
    /// Size in bytes.
    pub bytes: u64,
    /// Begin, by `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// Operations that it stands for, itself among them.
    pub weight: u64,
    /// Algorithm.
    #[serde(default, deserialize_with = "json::algorithm")]
    pub algorithm: json::Name,
    /// Transport.
    #[serde(default, deserialize_with = "json::transport")]
    pub transport: json::Name,
    /// Parallel parts.
    pub channels: u8,
    /// Largest message; `None` where messages are not cut.
    pub chunk_bytes: Option<u32>,
    /// Element type.
    #[serde(default, deserialize_with = "json::element")]
    pub element: json::Name,
    /// Operation of a reduction, else one without meaning.
    #[serde(default, deserialize_with = "json::operation")]
    pub operation: json::Name,
    /// Partner of a message or root, by its rank in the communicator.
    pub peer: Option<u32>,
    /// Whether it waited so long that it slept.
    pub slept: bool,
    /// Whether it began earlier than `start_ns`, which is when it was first seen to wait.
    pub late_start: bool,
    /// Whether it failed.
    pub failed: bool,
}

/// One of the latest calls, timed or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number on the lane.
    pub number: u64,
    /// Kind.
    pub kind: Kind,
    /// Elements, per rank or in sum as the collective counts.
    pub count: u64,
    /// Whether every rank has as many.
    pub even: bool,
    /// Element type.
    #[serde(default, deserialize_with = "json::element")]
    pub element: json::Name,
    /// Operation of a reduction, else one without meaning.
    #[serde(default, deserialize_with = "json::operation")]
    pub operation: json::Name,
    /// Root of rooted collectives, else 0.
    pub root: u64,
}

/// An operation under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Number of the call on its lane; of a message, among those of its direction.
    pub number: u64,
    /// Kind.
    pub kind: Kind,
    /// Size in bytes; `None` for a short call that is not being timed.
    pub bytes: Option<u64>,
    /// Begin by `CLOCK_MONOTONIC`; `None` for a short call that is not being timed.
    pub since_ns: Option<u64>,
    /// Whether it began earlier than `since_ns`, which is when it was first seen to wait.
    pub late_start: bool,
    /// When it last went to sleep, waiting; `None` when it has not. It wakes at least every 50 ms.
    pub slept_ns: Option<u64>,
    /// Ranks of the job without which it could not go on then: the first of them,
    #[serde(deserialize_with = "json::at_most::<AWAITED, _, _>")]
    pub awaited: Vec<u32>,
    /// and how many there are.
    pub awaited_count: u64,
}

/// One thread's operations on one communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Communicator; 0 is that of all ranks.
    pub communicator: u64,
    /// Number of the lane in it.
    pub lane: u32,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Latest collective that began, from 1; 0 for none.
    pub begun: u64,
    /// Latest collective that ended well.
    pub ended: u64,
    /// What is under way.
    pub now: Option<Now>,
    /// The latest calls, the last one first.
    #[serde(deserialize_with = "json::at_most::<RECENT, _, _>")]
    pub recent: Vec<Call>,
}

impl Lane {
    /// Whether a collective is under way.
    pub fn is_inside(&self) -> bool {
        self.begun != self.ended
    }
}

/// Traffic with one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its rank in the job.
    pub peer: u32,
    /// Transport.
    #[serde(default, deserialize_with = "json::transport")]
    pub transport: json::Name,
    /// Bytes sent to it. Short calls are added when the next one is timed.
    pub sent_bytes: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
    /// Smoothed round trip of its sockets, if known: the shortest of them.
    pub round_trip_ns: Option<u64>,
    /// Segments sent again, if known, also on sockets that are closed.
    pub retransmits: Option<u64>,
    /// Bytes handed to the kernel and not yet acknowledged by the other end, if known.
    pub queued_bytes: Option<u64>,
    /// `CLOCK_MONOTONIC` when the last three were read.
    pub sampled_ns: Option<u64>,
}

/// One process at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Whose.
    pub identity: Identity,
    /// What becomes of it.
    pub state: State,
    /// Whether its process lives.
    pub liveness: Liveness,
    /// Whether it is stopped (SIGSTOP, a debugger); `None` when it cannot be looked up.
    pub stopped: Option<bool>,
    /// `CLOCK_MONOTONIC` when it was taken.
    pub taken_ns: u64,
    /// By kind, size and ranks, in that order.
    #[serde(deserialize_with = "json::at_most::<4096, _, _>")]
    pub operations: Vec<Operation>,
    /// Lanes in use.
    #[serde(deserialize_with = "json::at_most::<4096, _, _>")]
    pub lanes: Vec<Lane>,
    /// By peer.
    #[serde(deserialize_with = "json::at_most::<{ 1 << 16 }, _, _>")]
    pub links: Vec<Link>,
    /// Sockets that are open, by peer.
    #[serde(default, deserialize_with = "json::at_most::<{ 1 << 16 }, _, _>")]
    pub paths: Vec<LinkPath>,
    /// Sockets that are open, for which there was no room.
    #[serde(default)]
    pub paths_missed: u64,
    /// Timed operations since the reader's last snapshot, by their start.
    #[serde(deserialize_with = "json::at_most::<{ 1 << 20 }, _, _>")]
    pub records: Vec<Record>,
    /// Timed operations since then that were overwritten before they were read.
    pub missed: u64,
    /// Operations, and their bytes, for whose kind and size there was no room: counted only here.
    pub unsorted_calls: u64,
    /// Their bytes.
    pub unsorted_bytes: u64,
    /// Lanes for which there was no room: nothing is known of their operations.
    pub lanes_missed: u64,
    /// Whether every part is of one moment. If not, calls that a lane was just adding up may be missing, or counted twice.
    pub whole: bool,
    /// One of how many short operations is timed.
    pub stride: u64,
    /// Operations at least this long are all timed.
    pub always_timed_ns: u64,
}

impl Snapshot {
    /// Operations since `earlier`, a snapshot of the same process; those of which there were none are left out.
    pub fn operations_since(&self, earlier: &Snapshot) -> Vec<Operation> {
        let before = |now: &Operation| earlier.operations.iter().find(|then| then.key() == now.key());
        let since = |now: &Operation| before(now).map_or_else(|| now.clone(), |then| now.since(then));
        self.operations.iter().map(since).filter(|operation| operation.count > 0 || operation.errors > 0).collect()
    }

    /// Operations that ended well, and their bytes.
    pub fn total(&self) -> (u64, u64) {
        let sum = |of: fn(&Operation) -> u64, rest| self.operations.iter().map(of).fold(rest, u64::saturating_add);
        (sum(|o| o.count, self.unsorted_calls), sum(|o| o.bytes, self.unsorted_bytes))
    }
}
