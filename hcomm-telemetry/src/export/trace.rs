//! Traces in the JSON form of Chrome's trace viewer, which Perfetto opens ("Trace Event Format", Google): a rank is a process, a lane
//! of a communicator is a thread, an operation is a complete event. Times are microseconds since a base.

use serde_json::{Value, json};

use crate::read::{Identity, Record, Snapshot};

/// A whole trace of snapshots. The base is the begin of the first operation.
pub fn trace(snapshots: &[Snapshot]) -> Value {
    let starts = snapshots.iter().flat_map(|s| s.records.iter().map(|record| s.identity.wall_ns(record.start_ns)));
    let base = starts.min().unwrap_or(0);
    let mut events = Vec::new();
    for snapshot in snapshots {
        events.extend(trace_metadata(&snapshot.identity));
        events.extend(snapshot.records.iter().map(|record| trace_event(&snapshot.identity, record, base)));
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

/// The events that name a rank; once for each.
pub fn trace_metadata(identity: &Identity) -> [Value; 2] {
    let Identity { rank, host, pid, job, .. } = identity;
    let name = format!("rank {rank} ({job}, {host}, pid {pid})");
    [
        json!({ "ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": { "name": name } }),
        json!({ "ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": { "sort_index": rank } }),
    ]
}

/// An operation. `base_unix_ns` is subtracted from its begin: seen from 1970, microseconds would lose their fractions.
pub fn trace_event(identity: &Identity, record: &Record, base_unix_ns: u64) -> Value {
    let start = identity.wall_ns(record.start_ns).saturating_sub(base_unix_ns);
    json!({
        "ph": "X",
        "name": record.kind.name(),
        "cat": if record.kind.is_message() { "message" } else { "collective" },
        "pid": identity.rank,
        "tid": thread(record),
        "ts": start as f64 / 1e3,
        "dur": record.duration_ns as f64 / 1e3,
        "args": {
            "number": record.number,
            "bytes": record.bytes,
            "algorithm": record.algorithm,
            "transport": record.transport,
            "chunk_bytes": record.chunk_bytes,
            "peer": record.peer,
            "stands_for": record.weight,
            "slept": record.slept,
            "late_start": record.late_start,
            "failed": record.failed,
        },
    })
}

/// A thread id that is positive, fits 31 bits, and is the same on all ranks.
fn thread(record: &Record) -> u32 {
    let communicator = (record.communicator >> 41) as u32;
    communicator << 8 | record.lane & 0xff
}
