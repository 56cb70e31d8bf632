//! Ranks: how late they come, what they are in, and for whom they wait.

use hcomm_telemetry::{Now, Stall};

use super::super::grid::{Cell, Column, Grid};
use super::super::look::Tone;
use super::call;
use crate::model::{Condition, Job, RankRow};
use crate::units;

/// From this on a rank that is inside a call counts as waiting: it sleeps then.
const WAITS_NS: u64 = 1_000_000;
/// Ranks on a line of the map.
const MAP_WIDTH: usize = 64;

pub const HELP: &[&str] = &[
    "STATE      running, stopped (SIGSTOP, a debugger), ended, failed, killed",
    "IN, SINCE  the call that it is in, and for how long",
    "WAITS FOR  ranks without which that call could not go on when it last looked",
    "LATE P50   how much later than the first rank it came to calls: half of them, and 99 of 100",
    "LAST       share of the calls to which it came last",
    "The map (more ranks than lines): . runs  w waits  ! has not come  S stopped  F failed  x killed  e ended",
];

/// The table.
pub fn grid(job: &Job, room: usize) -> Grid {
    let columns = vec![
        Column::number("RANK", "rank", 4),
        Column::number("PID", "pid", 0).drop_rank(4),
        Column::text("HOST", "host").shrink_to(8).drop_rank(6),
        Column::text("STATE", "state").usual(7),
        Column::number("LATE P50", "late_p50_ns", 6).drop_rank(1),
        Column::number("LATE P99", "late_p99_ns", 6).drop_rank(1),
        Column::number("LAST", "last_share", 4).drop_rank(2),
        Column::text("IN", "call").usual(16).shrink_to(10),
        Column::number("SINCE", "inside_ns", 6),
        Column::text("WAITS FOR", "waits_for").usual(13).shrink_to(9),
        Column::number("CALLS", "calls", 6).drop_rank(3),
        Column::number("BYTES", "bytes", 6).drop_rank(5),
    ];
    let ranks: Vec<RankRow> = job.ranks().collect();
    let heading = if ranks.len() > room { map(job, &ranks, room / 3) } else { Vec::new() };
    let mut grid = Grid { columns, heading, empty: "no rank", ..Grid::default() };
    ranks.iter().for_each(|rank| grid.row(row(rank, job.stalls())));
    grid
}

fn row(rank: &RankRow, stalls: &[Stall]) -> Vec<Cell> {
    let late = late_to(rank.rank, stalls);
    let inside = match (&rank.now, late) {
        (_, Some(stall)) => Cell::text(format!("before {}", call(stall.kind, stall.bytes))).tone(Tone::Bad),
        (Some(now), None) => Cell::text(call(now.kind, now.bytes)),
        (None, None) => Cell::unknown(),
    };
    let waits = rank.now.as_ref().and_then(awaited);
    vec![
        Cell::integer(u64::from(rank.rank), units::count),
        Cell::integer(u64::from(rank.pid), |pid| pid.to_string()),
        Cell::text(rank.host.clone()),
        Cell::text(rank.condition.word()).tone(tone(&rank.condition)),
        Cell::integer(rank.late_p50_ns, units::duration),
        Cell::integer(rank.late_p99_ns, units::duration),
        Cell::real(rank.last_share, |share| format!("{:.0}%", 100.0 * share)),
        inside,
        Cell::integer(rank.inside_ns, units::duration),
        waits.map_or_else(Cell::unknown, Cell::text),
        Cell::integer(rank.calls, units::count),
        Cell::integer(rank.bytes, units::size),
    ]
}

/// The call that waits for this rank.
fn late_to(rank: u32, stalls: &[Stall]) -> Option<&Stall> {
    stalls.iter().find(|stall| stall.late.iter().any(|(late, _)| *late == rank))
}

/// For whom it waits.
fn awaited(now: &Now) -> Option<String> {
    let more = now.awaited_count.saturating_sub(now.awaited.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!now.awaited.is_empty()).then(|| units::ranks(&now.awaited) + &more)
}

/// The tone of a condition.
fn tone(condition: &Condition) -> Tone {
    match condition {
        Condition::Running => Tone::Good,
        Condition::Stopped => Tone::Warning,
        Condition::Ended => Tone::Faint,
        Condition::Failed(_) | Condition::Killed => Tone::Bad,
    }
}

/// A character each rank, so that many are seen at once; nothing if that takes more than `most` lines.
fn map(job: &Job, ranks: &[RankRow], most: usize) -> Vec<(Tone, String)> {
    let lines = ranks.chunks(MAP_WIDTH).map(|chunk| {
        let signs: String = chunk.iter().map(|rank| sign(rank, job.stalls())).collect();
        (Tone::Plain, format!("{:>5} {signs}", chunk[0].rank))
    });
    let lines: Vec<_> = lines.collect();
    if lines.len() > most { Vec::new() } else { lines }
}

fn sign(rank: &RankRow, stalls: &[Stall]) -> char {
    match rank.condition {
        Condition::Stopped => 'S',
        Condition::Failed(_) => 'F',
        Condition::Killed => 'x',
        Condition::Ended => 'e',
        Condition::Running if late_to(rank.rank, stalls).is_some() => '!',
        Condition::Running if rank.inside_ns.is_some_and(|ns| ns >= WAITS_NS) => 'w',
        Condition::Running => '.',
    }
}
