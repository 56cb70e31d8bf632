//! How this process becomes a rank, or the launcher of ranks.

use std::process::ExitCode;

use hcomm_core::Communicator;
use hcomm_core::communicator::Force;

use crate::args::Settings;
use crate::failure::Result;
use crate::group::Ranks;
use crate::run;

/// What this process is.
pub enum Role {
    /// A rank of the job.
    Rank(Box<Ranks>),
    /// It started ranks, which have ended with this exit code.
    Launcher(ExitCode),
}

/// Becomes a rank by what the command line and the environment say.
pub fn become_rank(settings: &Settings) -> Result<Role> {
    let ranks = settings.placement.ranks.unwrap_or_else(default_ranks);
    run::check_local_memory(settings, ranks)?;
    Ok(Role::Rank(Box::new(Ranks::new(Communicator::init()?, Force::default()))))
}

/// As many ranks as this process may use processors, and at least two: one has nobody to talk to.
fn default_ranks() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}
