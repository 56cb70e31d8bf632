//! What is written, each form in a file of its own.

mod log;

pub use log::Log;
