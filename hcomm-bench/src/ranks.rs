//! How this process becomes a rank, or the launcher of ranks. The most explicit wins: a rank that hcomm itself started,
//! then `--hosts` and `--join`, then the variables of another launcher, then ranks on this host.
//!
//! A launcher gives its ranks its own command line, so what flags say reaches every rank by itself.

use std::env;
use std::fs;
use std::process::ExitCode;

use hcomm_cli::{Failure, Result};
use hcomm_core::communicator::Force;
use hcomm_core::config::{self, Config, Debug, SETTINGS};
use hcomm_core::launch::{self, HostSpec, Launch, Outcome, Plan};
use hcomm_core::topology::cpus::Cpus;
use hcomm_core::{Communicator, Error};

use crate::args::{Placement, Settings};
use crate::group::Ranks;
use crate::run;

/// Set for ranks that hcomm's own launcher started.
const SERVED: &str = "HCOMM_STORE_SERVED";

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
    let mut warnings = Vec::new();
    let config = configure(placement, &mut warnings)?;
    let launched = env::var_os(SERVED).is_some();
    let lookup = |name: &str| match name {
        // A launcher's word goes before the flag, which was told to the launcher.
        "HCOMM_STORE" if !launched => config.store.clone(),
        name => env::var(name).ok(),
    };
    let place = launch::detect(&lookup)?;
    let chosen = placement.hosts.is_some() || placement.hostfile.is_some() || placement.join.is_some();
    let place = place.filter(|place| place.source == "hcomm" || !chosen);
    if place.as_ref().is_none_or(|place| place.rank == 0 && !launched) {
        for warning in warnings {
            config.debug.say(Debug::Warn, || warning);
        }
    }
    match place {
        Some(place) => {
            let configured =
                Force { algorithm: config.algorithm, chunk_bytes: config.chunk_size, channels: config.channels };
            Ok(Role::Rank(Box::new(Ranks::new(Communicator::join(config, place)?, configured))))
        }
        None => start(settings, &config),
    }
}

/// Defaults, then the file, then the environment, then flags.
fn configure(placement: &Placement, warnings: &mut Vec<String>) -> Result<Config> {
    let file = placement.config.as_deref();
    let loaded = Config::load(file, config::environment(), &mut |warning| warnings.push(warning));
    let mut config = loaded.map_err(|error| match error {
        Error::System { .. } => Failure { code: 2, ..Failure::from(error) }, // a file that cannot be read
        error => error.into(),
    })?;
    if let Some(timeout) = placement.timeout {
        config.timeout = timeout;
    }
    for (flag, value) in [("--transport", &placement.transport), ("--store", &placement.store)] {
        if let Some(value) = value {
            config.set(flag, value)?;
        }
    }
    Ok(config)
}

fn start(settings: &Settings, config: &Config) -> Result<Role> {
    let plan = plan(settings, config)?;
    let launch = Launch {
        environment: if matches!(plan, Plan::Hosts { .. }) { carried() } else { Vec::new() },
        plan,
        program: env::current_exe().map_err(|e| Failure::run(format!("cannot find this program's file: {e}"), ""))?,
        args: env::args_os().skip(1).collect(),
        bind: true,
        timeout: config.timeout,
        debug: config.debug,
    };
    Ok(Role::Launcher(end(launch::run(&launch)?)))
}

/// Settings of the environment that hold on every host; ssh hands none of them on.
fn carried() -> Vec<(String, String)> {
    let of_all_hosts = |name: &str| SETTINGS.iter().any(|setting| setting.name == name && name != "HCOMM_HOST_ID");
    config::environment().filter(|(name, _)| of_all_hosts(name) || name == "HCOMM_CONFIG").collect()
}

/// Where ranks are to run, after a look at what can be known before any is started.
fn plan(settings: &Settings, config: &Config) -> Result<Plan> {
    let placement = &settings.placement;
    if let Some(hosts) = hosts(placement)? {
        let words = placement.launch_agent.as_ref().map(|agent| agent.split_whitespace().map(Into::into).collect());
        return Ok(Plan::Hosts { hosts, agent: words, store: config.store.clone() });
    }
    let ranks = placement.ranks.unwrap_or_else(default_ranks);
    run::check_local_memory(settings, ranks)?;
    Ok(match (&placement.join, placement.nodes) {
        (Some(url), Some(nodes)) => Plan::Join { url: url.clone(), nodes: nodes as usize, ranks },
        _ => Plan::Local { ranks, store: config.store.clone() },
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
