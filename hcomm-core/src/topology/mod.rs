//! What this machine is made of, read from files under a root so that another machine's tree can be read as well.

pub mod cpus;
pub mod interfaces;
