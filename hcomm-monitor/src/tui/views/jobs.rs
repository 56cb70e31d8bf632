//! All jobs, to choose among.

use super::super::grid::{Cell, Column, Grid};
use super::super::look::Tone;
use super::super::state::State;
use super::View;
use crate::model::{Job, Model, Outcome};
use crate::units;

pub const HELP: &[&str] = &[
    "Jobs of this user on this host; enter shows the marked one, > stands before the one that is shown",
    "HERE     ranks of it on this host, of how many in all",
    "RATE     bytes a second of all its operations, of one rank, over the last interval",
];

/// The table.
pub fn grid(model: &Model, shown: Option<&Job>) -> Grid {
    let columns = vec![
        Column::text("", "shown"),
        Column::text("JOB", "job").shrink_to(8),
        Column::text("PROGRAM", "program").shrink_to(8).drop_rank(3),
        Column::number("HERE", "ranks_here", 0).drop_rank(2),
        Column::number("RANKS", "ranks", 0),
        Column::number("STARTED", "started_unix_ns", 12).drop_rank(4),
        Column::number("CALLS", "calls", 6).drop_rank(1),
        Column::number("RATE", "bytes_per_s", 8).drop_rank(1),
        Column::text("STATE", "state").shrink_to(7),
    ];
    let mut grid = Grid { columns, empty: "no job yet", ..Grid::default() };
    for job in model.jobs() {
        let rates: Vec<f64> = job.operations().iter().filter_map(|row| row.bytes_per_s).collect();
        let outcome = job.outcome();
        grid.row([
            Cell::text(if shown.is_some_and(|shown| shown.id == job.id) { ">" } else { "" }),
            Cell::text(job.name.clone()),
            Cell::text(job.program.clone()),
            Cell::integer(job.processes().len() as u64, units::count),
            Cell::integer(u64::from(job.world_size), units::count),
            Cell::integer(job.started_wall_ns, units::time_of_day),
            Cell::integer(job.calls_per_rank(), units::count),
            Cell::real((!rates.is_empty()).then(|| rates.iter().sum()), units::bandwidth),
            Cell::text(outcome.to_string()).tone(tone(&outcome)),
        ]);
    }
    grid
}

/// The tone of an outcome.
pub fn tone(outcome: &Outcome) -> Tone {
    match outcome {
        Outcome::Running => Tone::Good,
        Outcome::Ended => Tone::Warning,
        Outcome::Failed(..) => Tone::Bad,
    }
}

/// The jobs in the order in which they stand on the screen.
pub fn ids(state: &State, model: &Model) -> Vec<u64> {
    let order = grid(model, state.job(model)).order(&state.filter, state.sort(View::Jobs));
    order.into_iter().filter_map(|number| model.jobs().get(number).map(|job| job.id)).collect()
}
