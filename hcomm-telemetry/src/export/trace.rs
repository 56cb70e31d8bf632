//! Traces in the JSON form of Chrome's trace viewer, which Perfetto opens ("Trace Event Format", Google): a rank is a process, a lane
//! of a communicator is a thread, an operation is a complete event. Times are microseconds since a base.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::read::{Identity, Lane, Now, Record, Snapshot};

/// The events of a trace, made as snapshots come.
#[derive(Debug, Default)]
pub struct Trace {
    /// Nanoseconds since 1970 that are subtracted from all times: microseconds since then would lose their fractions.
    base: Option<u64>,
    processes: BTreeMap<Process, u32>,
    /// Ids of processes and threads that have a name.
    named: BTreeSet<(u32, u32)>,
    /// By boot: what makes time since 1970 of its clock. One value for all ranks of it, although the wall clock may have been set
    /// between the starts of two, or calls that were at once would not be so in the trace.
    offsets: BTreeMap<String, i64>,
}

/// Boot of the host, process id in its namespace, start, and rank: a test may have several in one process.
type Process = (String, u32, Option<u64>, u64, u32);

impl Trace {
    /// The events of the records that have come since the last call, and the names of what is new. Give all snapshots of one time
    /// together: the first of them have the base.
    pub fn events(&mut self, snapshots: &[Snapshot]) -> Vec<Value> {
        let mut events = Vec::new();
        if self.base.is_none() {
            self.base = snapshots.iter().map(|snapshot| snapshot.identity.wall_ns(snapshot.identity.started_ns)).min();
        }
        for snapshot in snapshots {
            let process = self.process(&snapshot.identity, &mut events);
            for record in &snapshot.records {
                let thread = self.thread(process, record.communicator, record.lane, &mut events);
                events.push(self.complete(process, thread, &snapshot.identity, record));
            }
        }
        events
    }

    /// The events of what is under way: begins without an end. The last events of a trace.
    pub fn under_way(&mut self, snapshots: &[Snapshot]) -> Vec<Value> {
        let mut events = Vec::new();
        for snapshot in snapshots {
            let process = self.process(&snapshot.identity, &mut events);
            for lane in &snapshot.lanes {
                let Some(Now { since_ns: Some(since), .. }) = lane.now else { continue };
                let thread = self.thread(process, lane.communicator, lane.lane, &mut events);
                events.extend(lane.now.as_ref().map(|now| {
                    json!({
                        "ph": "B",
                        "name": now.kind.name(),
                        "cat": category(now.kind),
                        "pid": process,
                        "tid": thread,
                        "ts": self.time(&snapshot.identity, since),
                        "args": begun(lane, now),
                    })
                }));
            }
        }
        events
    }

    fn complete(&self, process: u32, thread: u32, identity: &Identity, record: &Record) -> Value {
        json!({
            "ph": "X",
            "name": record.kind.name(),
            "cat": category(record.kind),
            "pid": process,
            "tid": thread,
            "ts": self.time(identity, record.start_ns),
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

    /// Microseconds since the base; less than 0 when its host's clock is behind.
    fn time(&self, identity: &Identity, monotonic_ns: u64) -> f64 {
        let offset = self.offsets.get(&identity.boot_id).copied().unwrap_or(identity.wall_offset_ns);
        let wall = monotonic_ns.saturating_add_signed(offset);
        (i128::from(wall) - i128::from(self.base.unwrap_or(0))) as f64 / 1e3
    }

    /// The id of a process: its rank, or the next free number if that is taken (two jobs, a rank that was started again).
    fn process(&mut self, identity: &Identity, events: &mut Vec<Value>) -> u32 {
        self.offsets.entry(identity.boot_id.clone()).or_insert(identity.wall_offset_ns);
        let Identity { rank, host, pid, job, boot_id, pid_namespace, process_start_ticks, .. } = identity;
        let key = (boot_id.clone(), *pid, *pid_namespace, *process_start_ticks, *rank);
        if let Some(id) = self.processes.get(&key) {
            return *id;
        }
        let taken = |id: &u32| self.processes.values().any(|other| other == id);
        let next = || self.processes.values().max().map_or(0, |most| most.saturating_add(1));
        let id = if taken(rank) { next() } else { *rank };
        self.processes.insert(key, id);
        let name = format!("rank {rank} ({job}, {host}, pid {pid})");
        let about = |what: &str, args: Value| json!({ "ph": "M", "name": what, "pid": id, "tid": 0, "args": args });
        events.push(about("process_name", json!({ "name": name })));
        events.push(about("process_sort_index", json!({ "sort_index": id })));
        id
    }

    /// The id of a thread: positive, fits 31 bits, and the same on all ranks.
    fn thread(&mut self, process: u32, communicator: u64, lane: u32, events: &mut Vec<Value>) -> u32 {
        let id = (communicator >> 41) as u32 * 256 + (lane & 0xff) + 1;
        if self.named.insert((process, id)) {
            let whose =
                if communicator == 0 { "all ranks".to_owned() } else { format!("communicator {communicator:x}") };
            let name = format!("{whose}, lane {lane}");
            events
                .push(json!({ "ph": "M", "name": "thread_name", "pid": process, "tid": id, "args": { "name": name } }));
        }
        id
    }
}

fn category(kind: crate::Kind) -> &'static str {
    if kind.is_message() { "message" } else { "collective" }
}

fn begun(lane: &Lane, now: &Now) -> Value {
    json!({
        "number": now.number,
        "bytes": now.bytes,
        "ranks": lane.ranks,
        "awaited_ranks": now.awaited,
        "late_start": now.late_start,
    })
}
