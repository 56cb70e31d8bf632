//! The flight record: what a rank did last, and what it waits for, written when an operation fails.
//!
//! JSON lines, so that a file that is cut short still says something. The first line has `"line": "process"` and
//! `"schema": "hcomm-flight/1"`; then come the lanes (with the latest calls, timed or not), the timed operations, oldest first, and
//! the counters by kind and size. Times ending in `_unix_ns` are since 1970.

mod read;

use serde_json::{Value, json};

pub use read::{FlightLane, FlightNow, FlightRecord, NoRecord};

use crate::read::{Lane, Operation, Record, Snapshot};

/// Name and version of the form.
pub const SCHEMA: &str = "hcomm-flight/1";

/// Timed operations in a record at most: the latest.
const RECORDS: usize = 256;

/// The record of a rank whose operation failed with `error` (and its stable code).
pub fn lines(snapshot: &Snapshot, code: &str, error: &str) -> String {
    let mut values = vec![process(snapshot, code, error)];
    values.extend(snapshot.lanes.iter().map(|lane| lane_line(snapshot, lane)));
    let older = snapshot.records.len().saturating_sub(RECORDS);
    values.extend(snapshot.records.iter().skip(older).map(|record| record_line(snapshot, record)));
    values.extend(snapshot.operations.iter().map(operation_line));
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn process(snapshot: &Snapshot, code: &str, error: &str) -> Value {
    let identity = &snapshot.identity;
    json!({
        "line": "process",
        "schema": SCHEMA,
        "job": identity.job,
        "rank": identity.rank,
        "world_size": identity.world_size,
        "host": identity.host,
        "pid": identity.pid,
        "program": identity.program,
        "started_unix_ns": identity.wall_ns(identity.started_ns),
        "written_unix_ns": identity.wall_ns(snapshot.taken_ns),
        "code": code,
        "error": error,
        "missed_records": snapshot.missed,
        "stride": snapshot.stride,
    })
}

fn lane_line(snapshot: &Snapshot, lane: &Lane) -> Value {
    let unix = |ns: u64| snapshot.identity.wall_ns(ns);
    let now = lane.now.as_ref().map(|now| {
        json!({
            "number": now.number,
            "operation": now.kind,
            "bytes": now.bytes,
            "since_unix_ns": now.since_ns.map(unix),
            "late_start": now.late_start,
            "waited_ns": now.since_ns.map(|since| snapshot.taken_ns.saturating_sub(since)),
            "awaited_ranks": now.awaited,
            "awaited_count": now.awaited_count,
        })
    });
    json!({
        "line": "lane",
        "communicator": lane.communicator,
        "lane": lane.lane,
        "ranks": lane.ranks,
        "begun": lane.begun,
        "ended": lane.ended,
        "now": now,
        "calls": lane.recent,
    })
}

fn record_line(snapshot: &Snapshot, record: &Record) -> Value {
    json!({
        "line": "record",
        "communicator": record.communicator,
        "lane": record.lane,
        "number": record.number,
        "operation": record.kind,
        "bytes": record.bytes,
        "start_unix_ns": snapshot.identity.wall_ns(record.start_ns),
        "duration_ns": record.duration_ns,
        "stands_for": record.weight,
        "algorithm": record.algorithm,
        "transport": record.transport,
        "chunk_bytes": record.chunk_bytes,
        "peer": record.peer,
        "slept": record.slept,
        "late_start": record.late_start,
        "failed": record.failed,
    })
}

fn operation_line(operation: &Operation) -> Value {
    json!({
        "line": "operation",
        "operation": operation.kind,
        "class_bytes": operation.class_bytes(),
        "ranks": operation.ranks,
        "count": operation.count,
        "bytes": operation.bytes,
        "errors": operation.errors,
        "p50_ns": operation.durations.quantile(0.5),
        "p99_ns": operation.durations.quantile(0.99),
        "max_ns": operation.max_ns,
    })
}
