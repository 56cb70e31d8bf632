//! Reading: [`find`] the files, open one with [`Reader`], take [`Snapshot`]s.

mod decode;
mod jobs;
mod late;
mod reader;
mod snapshot;

pub(crate) use jobs::remove_dead;
pub use jobs::{Found, find, remove_left};
pub use late::{Skew, Stall, skews, stalls};
pub use reader::{Reader, Unreadable};
pub use snapshot::{Call, Identity, Lane, Link, Now, Operation, Record, Snapshot, State};
