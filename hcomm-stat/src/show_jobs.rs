//! Paths of running jobs, as text.

use hcomm_cli::{Cell, Column, Screen, Table, ranges, wrap};

use crate::jobs::{Job, Jobs, Path, memory_groups};
use crate::units;

/// A table a job.
pub fn text(jobs: &Jobs, screen: Screen) -> String {
    let mut text = String::new();
    for job in &jobs.jobs {
        let head = format!("job {}, {}: {} of {} ranks here", job.name, job.program, job.ranks.len(), job.world_size);
        text += &wrap(&head, screen);
        text += &table(job, screen);
        if job.missed > 0 {
            let more = format!("{} more sockets, of which nothing is known: there was no room for them", job.missed);
            text += &wrap(&more, screen);
        }
    }
    for (path, reason) in &jobs.unreadable {
        text += &wrap(&format!("skipped {}: {reason}", path.display()), screen);
    }
    text
}

fn table(job: &Job, screen: Screen) -> String {
    let groups = memory_groups(job);
    let sockets: Vec<&Path> = job.paths.iter().filter(|path| path.ends.transport != Some("shm")).collect();
    if groups.is_empty() && sockets.is_empty() {
        return wrap("no path has carried anything yet", screen);
    }
    let mut table = Table::new([
        Column::text("RANK"),
        Column::text("PEER"),
        Column::text("TRANSPORT"),
        Column::text("RAIL").shrink_to(8).drop_rank(2),
        Column::text("LOCAL").shrink_to(12).drop_rank(4),
        Column::text("REMOTE").shrink_to(12).drop_rank(3),
        Column::number("SOCKETS").drop_rank(6),
        Column::text("STATE"),
        Column::number("RTT"),
        Column::number("LOSS"),
        Column::number("QUEUED").drop_rank(5),
        Column::number("COST").drop_rank(7),
        Column::text("ROUTE").drop_rank(1),
    ]);
    for group in groups {
        let ranks = ranges(&group);
        let unknown = Cell::unknown;
        table.row([
            Cell::from(ranks.clone()),
            Cell::from(ranks),
            Cell::from("shm"),
            unknown(),
            unknown(),
            unknown(),
            unknown(),
            Cell::from("mapped").good(),
            unknown(),
            unknown(),
            unknown(),
            unknown(),
            Cell::from("direct"),
        ]);
    }
    for path in sockets {
        table.row(row(path));
    }
    table.render(screen)
}

fn row(path: &Path) -> Vec<Cell> {
    let ends = &path.ends;
    let state = Cell::of(path.state);
    let loss = path.figures.loss();
    let loss_cell = Cell::of(loss.map(|loss| units::percent(loss * 100.0)));
    vec![
        Cell::from(ends.rank.to_string()),
        Cell::from(ends.peer.to_string()),
        Cell::of(ends.transport),
        Cell::of(ends.interface.as_deref()),
        Cell::of(ends.local),
        Cell::of(ends.remote),
        Cell::from(path.sockets.to_string()),
        match path.is_well() {
            Some(true) => state.good(),
            Some(false) => state.bad(),
            None => state,
        },
        Cell::of(path.figures.round_trip_ns.map(units::time)),
        if loss.is_some_and(|loss| loss > 0.0) { loss_cell.warning() } else { loss_cell },
        Cell::of(path.figures.queued_bytes.map(units::bytes)),
        Cell::unknown(),
        Cell::from(path.route()),
    ]
}
