//! The views: each makes a table of what is known of a job.

pub mod histogram;
pub mod jobs;
mod links;
mod live;
pub mod operations;
mod ranks;

use hcomm_telemetry::Kind;

use super::grid::Grid;
use super::state::State;
use crate::model::{Model, Size};
use crate::units;

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Operations by kind and size.
    Operations,
    /// The latest calls.
    Live,
    /// Ranks.
    Ranks,
    /// Durations of one operation.
    Histogram,
    /// Traffic between ranks.
    Links,
    /// All jobs.
    Jobs,
}

impl View {
    /// In their order.
    pub const ALL: [View; 6] = [View::Operations, View::Live, View::Ranks, View::Histogram, View::Links, View::Jobs];

    /// The view so many places further.
    pub fn next(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            View::Operations => "operations",
            View::Live => "live",
            View::Ranks => "ranks",
            View::Histogram => "histogram",
            View::Links => "links",
            View::Jobs => "jobs",
        }
    }

    /// What its columns mean, a line each.
    pub fn help(self) -> &'static [&'static str] {
        match self {
            View::Operations => operations::HELP,
            View::Live => live::HELP,
            View::Ranks => ranks::HELP,
            View::Histogram => histogram::HELP,
            View::Links => links::HELP,
            View::Jobs => jobs::HELP,
        }
    }
}

/// The rows of the shown view before they are searched and sorted. `room` is how many rows can be seen, for those views that
/// can choose.
pub fn grid(state: &State, model: &Model, room: usize) -> Grid {
    let job = state.job(model);
    match (state.view, job) {
        (View::Jobs, job) => jobs::grid(model, job),
        (_, None) => Grid::default(),
        (View::Operations, Some(job)) => operations::grid(job),
        (View::Live, Some(job)) => live::grid(job),
        (View::Ranks, Some(job)) => ranks::grid(job, room),
        (View::Histogram, Some(job)) => histogram::grid(state, model, job, room),
        (View::Links, Some(job)) => links::grid(job),
    }
}

/// The size of the operations of a row.
fn size(size: Size) -> String {
    match size {
        Size::Each(bytes) => units::size(bytes),
        Size::From(bytes) => units::size(bytes) + "..",
    }
}

/// A call: `AllReduce 1MB`.
fn call(kind: Kind, bytes: Option<u64>) -> String {
    let size = bytes.map(|bytes| format!(" {}", units::size(bytes)));
    kind.title() + &size.unwrap_or_default()
}
