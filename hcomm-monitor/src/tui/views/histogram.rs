//! Durations of one operation.

use hcomm_telemetry::Histogram;

use super::super::grid::{self, Cell, Column, Graph, Grid};
use super::super::look::Tone;
use super::super::state::State;
use super::{operations, size};
use crate::model::{Job, Key, Model, Row};
use crate::units;

/// Buckets of the histogram for each doubling.
const PER_OCTAVE: u64 = 16;

pub const HELP: &[&str] = &[
    "Durations of one operation on all ranks, since the job began or since r; up and down choose the operation",
    "FROM       the first duration of a range; the next line is where it ends",
    "COUNT      operations of the range; those timed by sample count for all that they stand for",
    "SHARE, SUM of all: in this range, and up to its end",
    "MARK       where the median, the 99th and the 99.9th percentile, and the longest lie",
];

/// The operations that can be chosen, in their order.
pub fn operations(state: &State, model: &Model) -> Vec<Key> {
    operations::keys(state, model)
}

/// The table: as fine as `room` rows allow.
pub fn grid(state: &State, model: &Model, job: &Job, room: usize) -> Grid {
    let columns = vec![
        Column::number("FROM", "from_ns", 6),
        Column::number("COUNT", "count", 6),
        Column::number("SHARE", "share", 6).drop_rank(1),
        Column::number("SUM", "cumulative_share", 6).drop_rank(2),
        Column::text("MARK", "mark").drop_rank(3),
    ];
    let mut grid = Grid { columns, graph: Some(""), empty: "no operation was timed yet", ..Grid::default() };
    let keys = operations(state, model);
    let at = state.operation.and_then(|key| keys.iter().position(|&other| other == key)).unwrap_or(0);
    let Some(row) = keys.get(at).and_then(|key| job.operations().iter().find(|row| row.key() == *key)) else {
        return grid;
    };
    grid.heading = vec![(Tone::Strong, heading(row, at, keys.len()))];
    let durations = &row.total.durations;
    let marks = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
    let marks: Vec<(u64, &str)> =
        marks.iter().filter_map(|&(q, name)| durations.quantile(q).map(|ns| (ns, name))).collect();
    let ranges = ranges(durations, room.saturating_sub(1).max(1));
    let most = ranges.iter().map(|range| range.count).max().unwrap_or(0).max(1) as f64;
    let all = durations.total().max(1) as f64;
    let mut sum = 0_u64;
    for range in ranges {
        sum = sum.saturating_add(range.count);
        let within: Vec<&str> =
            marks.iter().filter(|(ns, _)| (range.from..range.to).contains(ns)).map(|(_, name)| *name).collect();
        let share = |count: u64| Cell::real(Some(count as f64 / all), |share| format!("{:.1}%", 100.0 * share));
        let cells = vec![
            Cell::integer(range.from, units::duration),
            Cell::integer(range.count, units::count),
            share(range.count),
            share(sum),
            Cell::text(within.join(" ")),
        ];
        grid.rows.push(grid::Row { cells, graph: Graph::Bar(range.count as f64 / most) });
    }
    grid
}

fn heading(row: &Row, at: usize, of: usize) -> String {
    let total = &row.total;
    let value = |q| total.durations.quantile(q).map_or_else(|| units::UNKNOWN.into(), units::duration);
    format!(
        "{} {}, {} ranks ({} of {of}): {} calls, p50 {}, p99 {}, max {}",
        total.kind.title(),
        size(row.size()),
        total.ranks,
        at + 1,
        units::count(row.calls()),
        value(0.5),
        value(0.99),
        total.max_ns.map_or_else(|| units::UNKNOWN.into(), units::duration),
    )
}

/// Durations from `from` to below `to`.
struct Range {
    from: u64,
    to: u64,
    count: u64,
}

/// The part of the histogram that is filled, in at most `most` ranges of as many buckets each, or of whole doublings.
fn ranges(durations: &Histogram, most: usize) -> Vec<Range> {
    let filled: Vec<(u64, u64, u64)> = durations.filled().collect();
    let (Some(&(first, ..)), Some(&(last, ..))) = (filled.first(), filled.last()) else { return Vec::new() };
    let mut width = 1;
    while number(last) / width - number(first) / width >= most as u64 {
        width *= 2;
    }
    let (first, last) = (number(first) / width, number(last) / width);
    let mut ranges: Vec<Range> =
        (first..=last).map(|at| Range { from: start(at * width), to: start((at + 1) * width), count: 0 }).collect();
    for (from, _, count) in filled {
        let range = &mut ranges[(number(from) / width - first) as usize];
        range.count = range.count.saturating_add(count);
    }
    ranges
}

/// The number of the bucket that holds `ns`: below two doublings each has its own, as the histogram itself counts.
fn number(ns: u64) -> u64 {
    if ns < PER_OCTAVE {
        return ns;
    }
    let octave = u64::from(ns.ilog2() - PER_OCTAVE.ilog2());
    (octave + 1) * PER_OCTAVE + (ns >> octave) - PER_OCTAVE
}

/// The first duration of a bucket.
fn start(number: u64) -> u64 {
    match number / PER_OCTAVE {
        0 => number,
        octave => (PER_OCTAVE + number % PER_OCTAVE) << (octave - 1).min(58),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_everything_once_without_gaps() {
        let mut durations = Histogram::default();
        [3, 20, 1_000, 1_001, 50_000, 7_000_000].iter().for_each(|&ns| durations.record(ns, 2));
        for most in [1, 2, 5, 20, 1000] {
            let ranges = ranges(&durations, most);
            assert!(ranges.len() <= most && !ranges.is_empty());
            assert_eq!(ranges.iter().map(|range| range.count).sum::<u64>(), 12);
            assert!(ranges.windows(2).all(|pair| pair[0].to == pair[1].from), "{most}");
            assert!(ranges[0].from <= 3 && ranges[ranges.len() - 1].to > 7_000_000);
            for (ns, times) in [(20, 2), (50_000, 2)] {
                let within = ranges.iter().find(|range| (range.from..range.to).contains(&ns)).unwrap();
                assert!(within.count >= times);
            }
        }
    }

    #[test]
    fn all_durations_have_a_place() {
        let mut durations = Histogram::default();
        [0, u64::MAX].iter().for_each(|&ns| durations.record(ns, 1));
        assert_eq!(ranges(&durations, 10).iter().map(|range| range.count).sum::<u64>(), 2);
    }
}
