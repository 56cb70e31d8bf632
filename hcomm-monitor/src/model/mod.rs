//! What the figures mean. From [`Tick`]s to [`Job`]s; knows no terminal, reads no file, asks no clock.

mod calls;
mod fold;
mod job;
mod links;
mod operations;
mod process;
mod ranks;
#[cfg(test)]
mod tests;

pub use calls::{Call, Calls};
pub use fold::{Fold, Oddity};
pub use job::{Job, Outcome};
pub use links::LinkRow;
pub use operations::{Key, Row, Size};
pub use process::Process;
pub use ranks::{Condition, RankRow};

use crate::source::{Tick, Unread};

/// All that is known.
#[derive(Debug, Clone, Default)]
pub struct Model {
    jobs: Vec<Job>,
    unreadable: Vec<Unread>,
    places: Vec<String>,
    next_id: u64,
    /// Of the latest two ticks.
    times: (Option<u64>, Option<u64>),
    wall_ns: u64,
}

impl Model {
    /// Nothing is known yet. `places` is where the source looks, for people.
    pub fn new(places: Vec<String>) -> Self {
        Self { places, ..Self::default() }
    }

    /// Takes in what the source saw. A job that is over stays until another comes.
    pub fn update(&mut self, tick: Tick) {
        self.times = (self.times.1, Some(tick.at_ns));
        self.wall_ns = tick.wall_ns;
        self.unreadable = tick.unreadable;
        let mut over: Vec<u64> = self.jobs.iter().filter(|job| job.is_over()).map(|job| job.id).collect();
        self.jobs.iter_mut().for_each(Job::begin_tick);
        for snapshot in tick.processes {
            let job = self.jobs.iter_mut().find(|job| !over.contains(&job.id) && job.is_of(&snapshot));
            match job {
                Some(job) => job.take(snapshot, self.times.0, tick.at_ns),
                None => {
                    self.next_id += 1;
                    let mut job = Job::new(self.next_id, &snapshot);
                    job.take(snapshot, self.times.0, tick.at_ns);
                    self.jobs.push(job);
                    // Another has come.
                    self.jobs.retain(|job| !over.contains(&job.id));
                    over.clear();
                }
            }
        }
        self.jobs.iter_mut().for_each(|job| job.end_tick(tick.wall_ns, tick.at_ns));
    }

    /// Jobs in the order in which they were found.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The job with this number.
    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// Counts from now on.
    pub fn reset(&mut self) {
        self.jobs.iter_mut().for_each(Job::reset);
    }

    /// Files that cannot be read.
    pub fn unreadable(&self) -> &[Unread] {
        &self.unreadable
    }

    /// Where the source looks.
    pub fn places(&self) -> &[String] {
        &self.places
    }

    /// Nanoseconds since 1970 at the latest tick.
    pub fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    /// Seconds between the latest two ticks; `None` before there are two.
    pub fn interval_s(&self) -> Option<f64> {
        Some(self.times.1?.saturating_sub(self.times.0?) as f64 / 1e9)
    }
}
