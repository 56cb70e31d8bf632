//! What a job's operations do and how long they take.
//!
//! Each process of a job keeps one memory-mapped file: counters and histograms by kind and size of operation, a ring of recent
//! operations, bytes by peer, and what is under way now. The layout is written down in `docs/telemetry.md`. Whoever owns the
//! process may read the file at any time, also when the process hangs or was killed, and the process does not notice.
//!
//! - [`Recorder`] and [`LaneWriter`] write: no locks, no system calls but for the clock.
//! - [`find`] lists the files of this user, [`Reader`] reads one: [`Snapshot`]s that are consistent while the writer runs at full speed.
//! - [`stalls`] says who waits for whom, [`skews`] how far apart the ranks arrive.
//! - [`export`] makes Prometheus text and Perfetto traces of snapshots, [`flight`] keeps what a failed rank did last.

mod clock;
pub mod export;
pub mod flight;
mod histogram;
mod json;
mod layout;
mod names;
mod path;
mod place;
mod primitive;
mod process;
mod profile;
mod read;
mod seqlock;
mod summary;
mod write;

pub use clock::monotonic_ns;
pub use histogram::{BUCKETS, Histogram};
pub use names::{ALGORITHMS, ELEMENTS, KINDS, Kind, OPERATIONS, TRANSPORTS, bus_factor};
pub use path::{LinkPath, PathFigures, PathSample};
pub use place::{Folder, candidates};
pub use process::{Liveness, ProcessState};
pub use profile::{Profile, ProfileStats};
pub use read::{
    Call, Found, Identity, Lane, Link, Now, Operation, Reader, Record, Skew, Snapshot, Stall, State, Unreadable, find,
    remove_left, skews, stalls,
};
pub use summary::{MOST_SUMMARY_BYTES, Summarizer, read_summary};
pub use write::{Calls, LaneWriter, LinkSample, Options, Part, PathWriter, Recorder, Refused, Shape, Traffic};
