//! What hardware is here.

pub mod cpus;
