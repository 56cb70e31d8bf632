//! `--once`: how the jobs are now.

use hcomm_cli::{Cell, Column, Readers, Result, Screen, Table};

use super::news::{say, standing};
use super::{csv, folded, json};
use crate::args::Watch;
use crate::model::{Condition, Job, Model, RankRow, Row, Size};
use crate::units;

/// A job of more ranks has equal ones on one line.
const MOST_RANKS: usize = 16;

/// Writes it to stdout in the form that was asked for.
///
/// # Errors
/// Stdout cannot be written.
pub fn once(watch: &Watch, model: &Model) -> Result<Readers> {
    hcomm_cli::write(match watch {
        Watch { json: true, .. } => json::line(model),
        Watch { csv: true, .. } => csv::operations(model),
        _ => {
            model
                .unreadable()
                .iter()
                .for_each(|unread| say(&format!("skipped {}: {}", unread.path.display(), unread.reason)));
            let screen = Screen::stdout(watch.no_color);
            model.jobs().iter().map(|job| text(job, screen)).collect::<Vec<_>>().join("\n")
        }
    })
}

fn text(job: &Job, screen: Screen) -> String {
    let ranks = job.processes().len();
    let mut lines =
        vec![format!("job {}: {}, {ranks} of {} ranks seen, {}", job.name, job.program, job.world_size, job.outcome())];
    lines.extend(job.stalls().iter().filter(|_| !job.is_over()).map(standing));
    if job.missed > 0 {
        lines.push(format!("{} timed operations were overwritten before they were read", job.missed));
    }
    let words: String = lines.iter().map(|line| hcomm_cli::printable(line) + "\n").collect();
    let ranks = if ranks > MOST_RANKS { folded::table(job, screen) } else { self::ranks(job).render(screen) };
    words + &operations(job).render(screen) + &ranks
}

fn operations(job: &Job) -> Table {
    let mut table = Table::new([
        Column::text("OPERATION"),
        Column::number("SIZE"),
        Column::number("RANKS").drop_rank(4),
        Column::number("CALLS"),
        Column::number("CALLS/S").drop_rank(3),
        Column::number("BYTES/S"),
        Column::number("P50"),
        Column::number("P99").drop_rank(1),
        Column::number("MAX").drop_rank(2),
        Column::number("BUS").drop_rank(2),
        Column::text("ALGORITHM").drop_rank(5),
        Column::number("ERRORS").drop_rank(3),
    ]);
    for row in job.operations() {
        table.row(operation(row));
    }
    table
}

fn operation(row: &Row) -> Vec<Cell> {
    let quantile = |q| Cell::of(row.total.durations.quantile(q).map(units::duration));
    let errors = Cell::from(row.total.errors.to_string());
    vec![
        Cell::from(row.total.kind.name()),
        Cell::from(match row.size() {
            Size::Each(bytes) => units::size(bytes),
            Size::From(bytes) => format!("{}+", units::size(bytes)),
        }),
        Cell::from(row.total.ranks.to_string()),
        Cell::from(units::count(row.calls())),
        Cell::of(row.calls_per_s.map(units::rate)),
        Cell::of(row.bytes_per_s.map(units::bandwidth)),
        quantile(0.5),
        quantile(0.99),
        Cell::of(row.total.max_ns.map(units::duration)),
        Cell::of(row.bus_bandwidth().map(units::bandwidth)),
        Cell::of(row.total.algorithm),
        if row.total.errors > 0 { errors.bad() } else { errors },
    ]
}

fn ranks(job: &Job) -> Table {
    let mut table = Table::new([
        Column::number("RANK"),
        Column::text("HOST").shrink_to(8).drop_rank(3),
        Column::number("PID").drop_rank(2),
        Column::text("STATE"),
        Column::text("IN"),
        Column::number("FOR"),
        Column::text("AWAITS").drop_rank(1),
        Column::number("LATE_P50").drop_rank(4),
        Column::number("LAST").drop_rank(4),
        Column::number("CALLS"),
        Column::number("BYTES").drop_rank(1),
    ]);
    for row in job.ranks() {
        table.row(rank(&row));
    }
    table
}

fn rank(row: &RankRow) -> Vec<Cell> {
    let state = Cell::from(row.condition.word());
    vec![
        Cell::from(row.rank.to_string()),
        Cell::from(row.host.as_str()),
        Cell::from(row.pid.to_string()),
        match row.condition {
            Condition::Running | Condition::Ended => state,
            Condition::Stopped => state.warning(),
            Condition::Failed(_) | Condition::Killed => state.bad(),
        },
        Cell::of(row.now.as_ref().map(|now| format!("{} #{}", now.kind, now.number))),
        Cell::of(row.inside_ns.map(units::duration)),
        Cell::of(row.now.as_ref().filter(|now| !now.awaited.is_empty()).map(|now| units::ranks(&now.awaited))),
        Cell::of(row.late_p50_ns.map(units::duration)),
        Cell::of(row.last_share.map(|share| format!("{:.0}%", 100.0 * share))),
        Cell::from(units::count(row.calls)),
        Cell::from(units::size(row.bytes)),
    ]
}
