//! Rows as JSON and CSV have them: keys have their units, unknown is null.

use hcomm_telemetry::{LinkPath, Operation};
use serde::Serialize;

use crate::model::{Call, Condition, Job, LinkRow, Outcome, Process, RankRow, Row, Size};

/// A finished call.
#[derive(Debug, Default, Serialize)]
pub struct CallLine<'a> {
    time_unix_ns: u64,
    job: &'a str,
    communicator: u64,
    lane: u32,
    number: u64,
    operation: &'static str,
    bytes: u64,
    duration_ns: u64,
    /// Whether it began up to a millisecond earlier than it was seen to wait.
    began_earlier: bool,
    failed: bool,
    /// Calls that it stands for, itself among them.
    stands_for: u64,
    algorithm: Option<&'static str>,
    transport: Option<&'static str>,
    slowest_rank: u32,
    last_rank: Option<u32>,
    last_rank_late_ns: Option<u64>,
}

impl<'a> CallLine<'a> {
    /// Of a call of `job`.
    pub fn of(job: &'a Job, call: &Call) -> Self {
        let last = call.last();
        Self {
            time_unix_ns: call.wall_ns,
            job: &job.name,
            communicator: call.communicator,
            lane: call.lane,
            number: call.number,
            operation: call.kind.name(),
            bytes: call.bytes,
            duration_ns: call.duration_ns,
            began_earlier: call.late_start,
            failed: call.failed,
            stands_for: call.weight,
            algorithm: call.algorithm,
            transport: call.transport,
            slowest_rank: call.slowest,
            last_rank: last.map(|(rank, _)| rank),
            last_rank_late_ns: last.map(|(_, late)| late),
        }
    }
}

/// Operations of a kind and size. Counts and rates are those of one rank.
#[derive(Debug, Default, Serialize)]
pub struct OperationLine<'a> {
    job: &'a str,
    operation: &'static str,
    /// Size of each; unknown when they differ.
    size_bytes: Option<u64>,
    /// All are at least so large, and less than twice that.
    from_bytes: u64,
    ranks: u32,
    calls: u64,
    bytes: u64,
    errors: u64,
    timed_calls: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    calls_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    interval_p50_ns: Option<u64>,
    bus_bandwidth_bytes_per_s: Option<f64>,
    algorithm: Option<&'static str>,
    transport: Option<&'static str>,
    channels: Option<u8>,
    chunk_bytes: Option<u32>,
    dtype: Option<&'static str>,
}

impl<'a> OperationLine<'a> {
    /// Of a row of `job`.
    pub fn of(job: &'a Job, row: &Row) -> Self {
        let Operation { algorithm, transport, channels, chunk_bytes, element, .. } = row.total;
        let quantile = |of: &Operation, q| of.durations.quantile(q);
        Self {
            job: &job.name,
            operation: row.total.kind.name(),
            size_bytes: match row.size() {
                Size::Each(bytes) => Some(bytes),
                Size::From(_) => None,
            },
            from_bytes: row.total.class_bytes(),
            ranks: row.total.ranks,
            calls: row.calls(),
            bytes: row.bytes(),
            errors: row.total.errors,
            timed_calls: row.total.timed,
            p50_ns: quantile(&row.total, 0.5),
            p99_ns: quantile(&row.total, 0.99),
            max_ns: row.total.max_ns,
            calls_per_s: row.calls_per_s,
            bytes_per_s: row.bytes_per_s,
            interval_p50_ns: row.interval.as_ref().and_then(|interval| quantile(interval, 0.5)),
            bus_bandwidth_bytes_per_s: row.bus_bandwidth(),
            algorithm,
            transport,
            channels,
            chunk_bytes,
            dtype: element,
        }
    }
}

/// A rank.
#[derive(Debug, Serialize)]
pub struct RankLine {
    rank: u32,
    host: String,
    pid: u32,
    state: &'static str,
    error: Option<String>,
    operation: Option<&'static str>,
    operation_number: Option<u64>,
    operation_bytes: Option<u64>,
    inside_ns: Option<u64>,
    awaited_ranks: Vec<u32>,
    late_p50_ns: Option<u64>,
    late_p99_ns: Option<u64>,
    last_share: Option<f64>,
    calls: u64,
    bytes: u64,
}

impl From<RankRow> for RankLine {
    fn from(row: RankRow) -> Self {
        let now = row.now.as_ref();
        Self {
            rank: row.rank,
            state: row.condition.word(),
            operation: now.map(|now| now.kind.name()),
            operation_number: now.map(|now| now.number),
            operation_bytes: now.and_then(|now| now.bytes),
            inside_ns: row.inside_ns,
            awaited_ranks: now.map_or(Vec::new(), |now| now.awaited.clone()),
            host: row.host,
            pid: row.pid,
            error: match row.condition {
                Condition::Failed(error) => Some(error),
                _ => None,
            },
            late_p50_ns: row.late_p50_ns,
            late_p99_ns: row.late_p99_ns,
            last_share: row.last_share,
            calls: row.calls,
            bytes: row.bytes,
        }
    }
}

/// Traffic of a rank with a peer.
#[derive(Debug, Serialize)]
pub struct LinkLine {
    rank: u32,
    peer: u32,
    transport: Option<&'static str>,
    sent_bytes: u64,
    received_bytes: u64,
    sent_bytes_per_s: Option<f64>,
    received_bytes_per_s: Option<f64>,
    round_trip_ns: Option<u64>,
    retransmits: Option<u64>,
    queued_bytes: Option<u64>,
}

impl From<LinkRow> for LinkLine {
    fn from(row: LinkRow) -> Self {
        let link = row.link;
        Self {
            rank: row.rank,
            peer: link.peer,
            transport: link.transport,
            sent_bytes: link.sent_bytes,
            received_bytes: link.received_bytes,
            sent_bytes_per_s: row.sent_per_s,
            received_bytes_per_s: row.received_per_s,
            round_trip_ns: link.round_trip_ns,
            retransmits: link.retransmits,
            queued_bytes: link.queued_bytes,
        }
    }
}

/// A socket of a rank.
#[derive(Debug, Serialize)]
pub struct PathLine<'a> {
    rank: u32,
    #[serde(flatten)]
    path: &'a LinkPath,
}

impl<'a> PathLine<'a> {
    /// Those of a process.
    pub fn of(process: &'a Process) -> impl Iterator<Item = Self> {
        let rank = process.latest.identity.rank;
        process.latest.paths.iter().map(move |path| Self { rank, path })
    }
}

/// How a job is.
#[derive(Debug, Serialize)]
pub struct OutcomeLine {
    state: &'static str,
    killed_ranks: Vec<u32>,
    failed_ranks: Vec<u32>,
    error: Option<String>,
}

impl From<Outcome> for OutcomeLine {
    fn from(outcome: Outcome) -> Self {
        let (state, (killed_ranks, failed_ranks, error)) = match outcome {
            Outcome::Running => ("running", Default::default()),
            Outcome::Ended => ("ended", Default::default()),
            Outcome::Failed(killed, failed, error) => {
                ("failed", (killed, failed, Some(error).filter(|error| !error.is_empty())))
            }
        };
        Self { state, killed_ranks, failed_ranks, error }
    }
}
