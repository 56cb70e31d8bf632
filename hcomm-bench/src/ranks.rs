//! How this process becomes a rank, or the launcher of ranks. The most explicit wins: a rank that hcomm itself started,
//! then `--hosts` and `--join`, then the variables of another launcher, then ranks on this host.
//!
//! A launcher gives its ranks its own command line, so what flags say reaches every rank by itself.

use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use hcomm_core::Communicator;
use hcomm_core::communicator::Force;
use hcomm_core::config::Config;
use hcomm_core::launch::{self, HostSpec, Launch, Outcome, Place, Plan};
use hcomm_core::topology::cpus::Cpus;

use crate::args::{Placement, Settings};
use crate::failure::{Failure, Result};
use crate::group::Ranks;
use crate::run;

/// How long hosts that join wait for each other, unless `-T` says.
const JOIN_PATIENCE: Duration = Duration::from_secs(300);

/// What this process is.
pub enum Role {
    /// A rank of the job.
    Rank(Box<Ranks>),
    /// It started ranks, which have ended with this exit code.
    Launcher(ExitCode),
}

/// Serves a launcher on another host, if that is what this process was started for. Comes before arguments are read.
pub fn as_agent() -> Option<Result<ExitCode>> {
    launch::run_as_agent().map(|outcome| outcome.map_err(Failure::from).map(end))
}

/// Becomes a rank by what the command line and the environment say.
pub fn become_rank(settings: &Settings) -> Result<Role> {
    let placement = &settings.placement;
    let place = launch::detect(&|name| env::var(name).ok())?;
    let chosen = placement.hosts.is_some() || placement.hostfile.is_some() || placement.join.is_some();
    match place {
        Some(place) if place.source == "hcomm" || !chosen => join(placement, place),
        _ => start(settings),
    }
}

fn join(placement: &Placement, place: Place) -> Result<Role> {
    let mut config = Config::from_environment()?;
    if let Some(timeout) = placement.timeout {
        config.timeout = timeout;
    }
    if let Some(transport) = &placement.transport {
        config.set("--transport", transport)?;
    }
    let configured = Force { algorithm: config.algorithm, chunk_bytes: config.chunk_size, channels: config.channels };
    Ok(Role::Rank(Box::new(Ranks::new(Communicator::join(config, place)?, configured))))
}

fn start(settings: &Settings) -> Result<Role> {
    let launch = Launch {
        plan: plan(settings)?,
        program: env::current_exe().map_err(|e| Failure::run(format!("cannot find this program's file: {e}"), ""))?,
        args: env::args_os().skip(1).collect(),
        environment: Vec::new(),
        bind: true,
        timeout: settings.placement.timeout.unwrap_or(JOIN_PATIENCE),
    };
    Ok(Role::Launcher(end(launch::run(&launch)?)))
}

/// Where ranks are to run, after a look at what can be known before any is started.
fn plan(settings: &Settings) -> Result<Plan> {
    let placement = &settings.placement;
    if let Some(hosts) = hosts(placement)? {
        let words = placement.launch_agent.as_ref().map(|agent| agent.split_whitespace().map(Into::into).collect());
        return Ok(Plan::Hosts { hosts, agent: words, store: placement.store.clone() });
    }
    let ranks = placement.ranks.unwrap_or_else(default_ranks);
    run::check_local_memory(settings, ranks)?;
    Ok(match (&placement.join, placement.nodes) {
        (Some(url), Some(nodes)) => Plan::Join { url: url.clone(), nodes: nodes as usize, ranks },
        _ => Plan::Local { ranks },
    })
}

fn hosts(placement: &Placement) -> Result<Option<Vec<HostSpec>>> {
    if let Some(hosts) = &placement.hosts {
        return Ok(Some(launch::parse_hosts(hosts)?));
    }
    let Some(file) = &placement.hostfile else { return Ok(None) };
    let text = fs::read_to_string(file)
        .map_err(|e| Failure::usage(format!("--hostfile {}: {e}", file.display()), "give a file that can be read"))?;
    Ok(Some(launch::parse_hostfile(&text)?))
}

/// As many ranks as this process may use processors, and at least two: one has nobody to talk to.
fn default_ranks() -> usize {
    Cpus::of_this_process().usable().max(2)
}

fn end(outcome: Outcome) -> ExitCode {
    for words in &outcome.words {
        eprintln!("hcomm-bench: {words}");
    }
    ExitCode::from(outcome.code.clamp(0, 255) as u8)
}
