//! `--json`: all that is known, a line a look. Schema `hcomm-monitor/1`: keys stay, and have their units; unknown is null.

use hcomm_telemetry::Stall;
use serde::Serialize;

use super::rows::{CallLine, LinkLine, OperationLine, OutcomeLine, PathLine, RankLine};
use crate::model::{Job, Model};
use crate::source::Unread;

/// Name and version of the form.
pub const SCHEMA: &str = "hcomm-monitor/1";

#[derive(Debug, Serialize)]
struct Look<'a> {
    schema: &'static str,
    time_unix_ns: u64,
    /// Seconds since the look before.
    interval_s: Option<f64>,
    jobs: Vec<JobObject<'a>>,
    unreadable: &'a [Unread],
}

#[derive(Debug, Serialize)]
struct JobObject<'a> {
    job: &'a str,
    /// Tells it from every other job of this run of the monitor.
    id: u64,
    boot_id: &'a str,
    program: &'a str,
    world_size: u32,
    ranks_seen: usize,
    started_unix_ns: u64,
    ended_unix_ns: Option<u64>,
    outcome: OutcomeLine,
    /// Timed operations that were overwritten before they were read.
    missed: u64,
    calls_per_rank: Option<u64>,
    /// Calls that ended since the look before.
    calls: Vec<CallLine<'a>>,
    operations: Vec<OperationLine<'a>>,
    ranks: Vec<RankLine>,
    links: Vec<LinkLine>,
    /// Sockets that are open.
    paths: Vec<PathLine<'a>>,
    stalls: &'a [Stall],
}

impl<'a> JobObject<'a> {
    fn of(job: &'a Job) -> Self {
        Self {
            job: &job.name,
            id: job.id,
            boot_id: &job.boot_id,
            program: &job.program,
            world_size: job.world_size,
            ranks_seen: job.processes().len(),
            started_unix_ns: job.started_wall_ns,
            ended_unix_ns: job.ended_wall_ns,
            outcome: job.outcome().into(),
            missed: job.missed,
            calls_per_rank: job.calls_per_rank(),
            calls: job.calls.finished().map(|call| CallLine::of(job, call)).collect(),
            operations: job.operations().iter().map(|row| OperationLine::of(job, row)).collect(),
            ranks: job.ranks().map(RankLine::from).collect(),
            links: job.links().map(LinkLine::from).collect(),
            paths: job.processes().flat_map(PathLine::of).collect(),
            stalls: if job.is_over() { &[] } else { job.stalls() },
        }
    }
}

/// The latest look, with the end of the line.
pub fn line(model: &Model) -> String {
    let look = Look {
        schema: SCHEMA,
        time_unix_ns: model.wall_ns(),
        interval_s: model.interval_s(),
        jobs: model.jobs().iter().map(JobObject::of).collect(),
        unreadable: model.unreadable(),
    };
    // It has texts for keys and no failing parts: the only reasons for which this could not be written.
    serde_json::to_string(&look).unwrap_or_default() + "\n"
}
