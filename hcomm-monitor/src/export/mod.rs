//! What goes elsewhere than to stdout, beside what is shown: taps on the source.

mod file;
mod http;
mod metrics;
mod recording;
mod trace;

pub use metrics::Metrics;
pub use recording::{Recording, SCHEMA, merge};
pub use trace::TraceFile;
