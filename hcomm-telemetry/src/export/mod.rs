//! Snapshots in the forms of other tools; nothing is read or written here.

mod prometheus;
mod trace;

pub use prometheus::prometheus;
pub use trace::Trace;
