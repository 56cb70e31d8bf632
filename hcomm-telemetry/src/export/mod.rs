//! Snapshots in the forms of other tools: pure functions.

mod prometheus;
mod trace;

pub use prometheus::prometheus;
pub use trace::{trace, trace_event, trace_metadata};
