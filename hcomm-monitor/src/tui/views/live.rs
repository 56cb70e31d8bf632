//! The latest calls, newest first.

use super::super::grid::{Cell, Column, Grid};
use super::super::look::Tone;
use crate::model::{Call, Job};
use crate::units;

pub const HELP: &[&str] = &[
    "TIME      when the first rank began, in local time",
    "BYTES     size of the operation as nccl-tests counts it",
    "DURATION  of the slowest rank; with + when it began earlier than it was seen to wait, by less than a millisecond",
    "SLOWEST   that rank; LAST: the rank that came last; LATE: how much later than the first",
    "NUMBER    of the call on its communicator; FOR: calls that this one, timed by sample, stands for",
];

/// The table.
pub fn grid(job: &Job) -> Grid {
    let columns = vec![
        Column::text("TIME", "unix_ns"),
        Column::text("OP_TYPE", "op_type").usual(9),
        Column::number("BYTES", "bytes", 6),
        Column::number("DURATION", "duration_ns", 8),
        Column::number("SLOWEST", "slowest_rank", 0).drop_rank(5),
        Column::number("LAST", "last_rank", 0).drop_rank(2),
        Column::number("LATE", "late_ns", 6).drop_rank(2),
        Column::text("ALGORITHM", "algorithm").usual(9).shrink_to(6).drop_rank(1),
        Column::text("TRANSPORT", "transport").drop_rank(4),
        Column::number("NUMBER", "number", 0).drop_rank(3),
        Column::number("FOR", "weight", 0).drop_rank(6),
    ];
    let mut heading = Vec::new();
    if job.missed > 0 {
        let text = format!("{} timed operations were overwritten before they were read", units::count(job.missed));
        heading.push((Tone::Warning, text));
    }
    let empty = "no operation has ended since this job was found; short ones are timed by sample, one in 251";
    let mut grid = Grid { columns, heading, empty, ..Grid::default() };
    job.calls.recent().for_each(|call| grid.row(row(call)));
    grid
}

fn row(call: &Call) -> Vec<Cell> {
    let last = call.last();
    let text = |name: Option<&str>| name.map_or_else(Cell::unknown, Cell::text);
    let duration = Cell::integer(call.duration_ns, units::duration).and(if call.late_start { "+" } else { "" });
    vec![
        Cell::integer(call.wall_ns, units::time_of_day),
        Cell::text(call.kind.title()),
        Cell::integer(call.bytes, units::size),
        if call.failed { duration.and(" failed").tone(Tone::Bad) } else { duration },
        Cell::integer(u64::from(call.slowest), units::count),
        Cell::integer(last.map(|(rank, _)| u64::from(rank)), units::count),
        Cell::integer(last.map(|(_, late)| late), units::duration),
        text(call.algorithm),
        text(call.transport),
        Cell::integer(call.number, |number| number.to_string()),
        Cell::integer(call.weight, units::count),
    ]
}
