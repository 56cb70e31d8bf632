//! `--log`: a line each operation.

use std::collections::BTreeMap;
use std::io::Write;

use hcomm_cli::{Readers, Result};

use crate::model::{Call, Job, Model};
use crate::units;

/// Writes operations to stdout as they end, and words about jobs to stderr.
#[derive(Debug, Default)]
pub struct Log {
    begun: bool,
    /// Lines by job; `None` when its end was told.
    lines: BTreeMap<u64, Option<u64>>,
    unreadable: Vec<String>,
}

impl Log {
    /// What is new.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn write(&mut self, model: &Model) -> Result<Readers> {
        let mut text = String::new();
        if !self.begun {
            self.begun = true;
            text += "TIME          OP_TYPE    BYTES   DURATION\n";
            if model.jobs().is_empty() {
                say(&format!("no job yet; waiting for one in {}", model.places().join(", ")));
            }
        }
        self.tell(model);
        let mut calls: Vec<&Call> = model.jobs().iter().flat_map(|job| job.calls.finished()).collect();
        calls.sort_by_key(|call| call.wall_ns);
        calls.iter().for_each(|call| text += &line(call));
        if text.is_empty() { Ok(Readers::Listening) } else { hcomm_cli::write(text) }
    }

    /// Jobs that came and went, and files that cannot be read.
    fn tell(&mut self, model: &Model) {
        for job in model.jobs() {
            let lines = self.lines.entry(job.id).or_insert_with(|| {
                say(&format!(
                    "job {}: {} of {} ranks, {}",
                    job.name,
                    job.processes().count(),
                    job.world_size,
                    job.program
                ));
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
        let unreadable: Vec<String> =
            model.unreadable().iter().map(|unread| format!("{}: {}", unread.path.display(), unread.reason)).collect();
        for text in unreadable.iter().filter(|text| !self.unreadable.contains(text)) {
            say(&format!("skipped {text}"));
        }
        self.unreadable = unreadable;
    }
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

fn say(text: &str) {
    // Where nobody hears there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "hcomm-monitor: {text}");
}

fn line(call: &Call) -> String {
    let more = if call.late_start { "+" } else { "" };
    let failed = if call.failed { " failed" } else { "" };
    format!(
        "{}  {:<9}  {:<6}  {}{more}{failed}\n",
        units::time_of_day(call.wall_ns),
        call.kind.title(),
        units::size(call.bytes),
        units::duration(call.duration_ns),
    )
}
