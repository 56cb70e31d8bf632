//! What is written, each form in a file of its own.

mod csv;
mod folded;
mod json;
mod lines;
mod log;
mod news;
mod once;
mod rows;

use hcomm_cli::Failure;

use crate::model::Model;

pub use lines::Lines;
pub use news::say;
pub use once::once;

/// Nothing to attach to.
pub fn no_job(model: &Model) -> Failure {
    let mut text = format!("no job to attach to: looked in {}", model.places().join(", "));
    for unread in model.unreadable() {
        text += &format!("; skipped {}: {}", unread.path.display(), unread.reason);
    }
    Failure::run(text, "a job with HCOMM_TELEMETRY=0 is not seen; without --once, hcomm-monitor waits for one")
}
