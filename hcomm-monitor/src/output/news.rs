//! Words on stderr: jobs that came and went, operations that stand, files that cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use hcomm_telemetry::Stall;

use crate::model::{Job, Model};
use crate::units;

/// What was told already.
#[derive(Debug, Default)]
pub struct News {
    /// Lines by job; `None` when its end was told.
    lines: BTreeMap<u64, Option<u64>>,
    /// Calls that stand: job, communicator, lane, number, and how they are called.
    stalls: BTreeMap<(u64, u64, u32, u64), String>,
    unreadable: BTreeSet<String>,
}

impl News {
    /// Tells what is new.
    pub fn tell(&mut self, model: &Model) {
        for job in model.jobs() {
            self.job(job);
        }
        self.stalls(model);
        let unreadable: BTreeSet<String> =
            model.unreadable().iter().map(|unread| format!("{}: {}", unread.path.display(), unread.reason)).collect();
        for text in unreadable.difference(&self.unreadable) {
            say(&format!("skipped {text}"));
        }
        self.unreadable = unreadable;
    }

    fn job(&mut self, job: &Job) {
        let lines = self.lines.entry(job.id).or_insert_with(|| {
            say(&format!("job {}: {} of {} ranks, {}", job.name, job.processes().count(), job.world_size, job.program));
            Some(0)
        });
        if let Some(lines) = lines {
            *lines += job.calls.finished().count() as u64;
        }
        if job.is_over()
            && let Some(lines) = lines.take()
        {
            say(&ending(job, lines));
        }
    }

    fn stalls(&mut self, model: &Model) {
        let mut now = BTreeMap::new();
        for job in model.jobs().iter().filter(|job| !job.is_over()) {
            for stall in job.stalls() {
                let key = (job.id, stall.communicator, stall.lane, stall.number);
                let known = self.stalls.remove(&key);
                if known.is_none() {
                    say(&format!("job {}: {}", job.name, standing(stall)));
                }
                now.insert(key, known.unwrap_or_else(|| format!("{} #{}", stall.kind, stall.number)));
            }
        }
        for ((job, ..), call) in std::mem::replace(&mut self.stalls, now) {
            if let Some(job) = model.job(job).filter(|job| !job.is_over()) {
                say(&format!("job {}: {call} stands no longer", job.name));
            }
        }
    }
}

/// A call that stands, and because of whom.
pub fn standing(stall: &Stall) -> String {
    let bytes = stall.bytes.map_or(String::new(), |bytes| format!(" of {}", units::size(bytes)));
    let mut text = format!(
        "{} #{}{bytes} stands since {}: {} inside",
        stall.kind,
        stall.number,
        units::duration(stall.age_ns),
        units::ranks(&stall.inside)
    );
    let mut add = |what: &str, ranks: &[u32]| {
        if !ranks.is_empty() {
            text += &format!(", {} {what}", units::ranks(ranks));
        }
    };
    let late: Vec<u32> = stall.late.iter().map(|(rank, _)| *rank).collect();
    add("not come", &late);
    add("stopped", &stall.stopped);
    add("gone", &stall.gone);
    add("awaited", &stall.awaited);
    text
}

fn ending(job: &Job, lines: u64) -> String {
    let mut text = format!("job {}: {}", job.name, job.outcome());
    if job.missed > 0 {
        text += &format!("; {} timed operations of its ranks were not read in time and are missing", job.missed);
    }
    if let Some(calls) = job.calls_per_rank() {
        text += &format!("; {calls} calls of each rank, {lines} lines");
    }
    text
}

/// A sentence for people.
pub fn say(text: &str) {
    // Where nobody hears there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "hcomm-monitor: {}", hcomm_cli::printable(text));
}
