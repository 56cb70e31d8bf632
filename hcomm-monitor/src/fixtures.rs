//! Made-up processes and what they did, for tests.

use std::path::PathBuf;

use hcomm_telemetry::{Histogram, Identity, Kind, Lane, Link, Liveness, Now, Operation, Record, Snapshot, State};

use crate::source::Tick;

/// 2026-03-01 10:01:00 UTC.
pub const WALL_NS: u64 = 1_772_359_260_000_000_000;
/// `CLOCK_MONOTONIC` then.
pub const BOOT_NS: u64 = 5_000_000_000_000;

pub const ALL_REDUCE: Kind = Kind(0);
pub const BROADCAST: Kind = Kind(3);
/// A rank of the job `job` as it is `after_ms` after its begin; it has made no call.
pub fn rank(job: &str, rank: u32, world_size: u32, after_ms: u64) -> Snapshot {
    Snapshot {
        identity: Identity {
            path: PathBuf::from(format!("/dev/shm/hcomm-1000/{job}.{rank}.{}.telemetry", 4700 + rank)),
            job: job.into(),
            rank,
            world_size,
            host: "alpha".into(),
            boot_id: "boot".into(),
            program: "train".into(),
            pid: 4700 + rank,
            pid_namespace: Some(1),
            process_start_ticks: 7,
            started_ns: BOOT_NS,
            wall_offset_ns: (WALL_NS - BOOT_NS) as i64,
        },
        state: State::Running,
        liveness: Liveness::Alive,
        stopped: Some(false),
        taken_ns: BOOT_NS + after_ms * 1_000_000,
        operations: Vec::new(),
        lanes: vec![Lane {
            communicator: 0,
            lane: 0,
            ranks: world_size,
            begun: 0,
            ended: 0,
            now: None,
            recent: Vec::new(),
        }],
        links: Vec::new(),
        paths: Vec::new(),
        paths_missed: 0,
        records: Vec::new(),
        missed: 0,
        unsorted_calls: 0,
        unsorted_bytes: 0,
        lanes_missed: 0,
        whole: true,
        stride: 251,
        always_timed_ns: 10_000,
    }
}

/// Operations of a rank: `count` of `bytes` each, all of which were timed and took from `ns` on, the last ones longest.
pub fn operation(kind: Kind, ranks: u32, bytes: u64, count: u64, ns: u64, algorithm: &'static str) -> Operation {
    let mut durations = Histogram::default();
    durations.record(ns, count - count / 5);
    durations.record(ns * 3 / 2, count / 5 - count / 50);
    durations.record(ns * 10, count / 50);
    Operation {
        kind,
        class: bytes.checked_ilog2().map_or(0, |log| log as u8 + 1),
        ranks,
        count,
        bytes: count * bytes,
        errors: 0,
        timed: count,
        total_ns: count * ns,
        min_ns: Some(ns),
        max_ns: Some(ns * 10),
        algorithm: Some(algorithm),
        transport: Some("shm"),
        channels: Some(1),
        chunk_bytes: None,
        element: Some("f32"),
        last_end_ns: Some(BOOT_NS),
        durations,
    }
}

/// The record of call `number`, which began `after_us` after the begin of the job.
pub fn record(number: u64, kind: Kind, bytes: u64, after_us: u64, duration_us: u64) -> Record {
    Record {
        communicator: 0,
        lane: 0,
        number,
        kind,
        bytes,
        start_ns: BOOT_NS + 1000 * after_us,
        duration_ns: 1000 * duration_us,
        weight: 1,
        algorithm: Some("ring"),
        transport: Some("shm"),
        channels: 1,
        chunk_bytes: None,
        element: Some("f32"),
        operation: Some("sum"),
        peer: None,
        slept: false,
        late_start: false,
        failed: false,
    }
}

pub fn link(peer: u32, transport: &'static str, bytes: u64) -> Link {
    let socket = transport == "tcp";
    Link {
        peer,
        transport: Some(transport),
        sent_bytes: bytes,
        received_bytes: bytes / 2,
        round_trip_ns: socket.then_some(85_000),
        retransmits: socket.then_some(u64::from(peer % 2) * 3),
        queued_bytes: socket.then_some(65536),
        sampled_ns: socket.then_some(BOOT_NS),
    }
}

/// Inside call `number` since `after_ms`, waiting for `awaited`.
pub fn inside(snapshot: &mut Snapshot, number: u64, after_ms: u64, awaited: &[u32]) {
    let lane = &mut snapshot.lanes[0];
    (lane.begun, lane.ended) = (number, number - 1);
    lane.now = Some(Now {
        number,
        kind: ALL_REDUCE,
        bytes: Some(1 << 20),
        since_ns: Some(BOOT_NS + 1_000_000 * after_ms),
        late_start: false,
        slept_ns: Some(BOOT_NS + 1_000_000 * after_ms),
        awaited: awaited.to_vec(),
        awaited_count: awaited.len() as u64,
    });
}

pub fn tick(after_ms: u64, processes: Vec<Snapshot>) -> Tick {
    Tick {
        at_ns: BOOT_NS + after_ms * 1_000_000,
        wall_ns: WALL_NS + after_ms * 1_000_000,
        processes,
        unreadable: Vec::new(),
    }
}
