//! Ranks that are alike as one line.

use hcomm_cli::{Cell, Column, Screen, Table};

use crate::model::{Fold, Job, Model, Oddity};
use crate::units;

/// The ranks of all jobs, under a line each that says when and which.
pub fn jobs(model: &Model, screen: Screen) -> String {
    let time = units::time_of_day(model.wall_ns());
    let job = |job: &Job| {
        let (ranks, all) = (job.processes().len(), job.world_size);
        let line = format!("{time}  job {}: {ranks} of {all} ranks seen, {}", job.name, job.outcome());
        format!("{}\n{}", hcomm_cli::printable(&line), table(job, screen))
    };
    model.jobs().iter().map(job).collect()
}

/// The ranks of a job, those that are odd first.
pub fn table(job: &Job, screen: Screen) -> String {
    let mut table = Table::new([
        Column::number("COUNT"),
        Column::text("RANKS").shrink_to(16),
        Column::text("HOSTS").shrink_to(8).drop_rank(2),
        Column::text("STATE"),
        Column::text("WHAT").shrink_to(24),
        Column::number("CALLS"),
        Column::number("CALLS/S").drop_rank(4),
        Column::number("INSIDE").drop_rank(3),
        Column::number("BYTES").drop_rank(1),
        Column::number("RESENT").drop_rank(5),
    ]);
    for fold in job.folds() {
        table.row(row(&fold));
    }
    table.render(screen)
}

fn row(fold: &Fold) -> Vec<Cell> {
    let span = |(least, most): (u64, u64), text: fn(u64) -> String| {
        let (least, most) = (text(least), text(most));
        Cell::from(if least == most { least } else { format!("{least}..{most}") })
    };
    let state = Cell::from(fold.condition.word());
    let what = fold.oddity.as_ref().map(words);
    vec![
        Cell::from(fold.ranks.len().to_string()),
        Cell::from(hcomm_cli::ranges(&fold.ranks)),
        Cell::from(match fold.hosts.as_slice() {
            [host] => host.clone(),
            hosts => format!("{} hosts", hosts.len()),
        }),
        match fold.oddity {
            Some(Oddity::Failed(_) | Oddity::Killed) => state.bad(),
            Some(Oddity::Stopped) => state.warning(),
            _ => state,
        },
        what.map_or_else(Cell::default, |what| Cell::from(what).warning()),
        span(fold.calls, units::count),
        Cell::of(fold.calls_per_s.map(units::rate)),
        Cell::of(fold.inside.map(percent)),
        span(fold.bytes, units::size),
        Cell::of(fold.retransmits.map(units::count)),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// What is odd, for people.
fn words(oddity: &Oddity) -> String {
    match oddity {
        Oddity::Failed(error) => error.clone(),
        Oddity::Killed => "gone without a word".into(),
        Oddity::Stopped => "stopped: continue with SIGCONT".into(),
        Oddity::Missing => "others wait for these".into(),
        Oddity::Standing(kind, ns) => format!("in {kind} for {}", units::duration(*ns)),
        Oddity::Silent(ns) => format!("not heard of for {}", units::duration(*ns)),
        Oddity::Lossy(share) => format!("{:.1}% of a path's segments sent again", 100.0 * share),
        Oddity::Late(share) => format!("last to {} of the calls", percent(*share)),
        Oddity::Busy(share) => format!("only {} of the time inside: others wait", percent(*share)),
    }
}
