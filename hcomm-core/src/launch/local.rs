//! Starts ranks on this host.
//!
//! Each rank asks the kernel to kill it when its launcher dies, so that not even `kill -9` of the launcher leaves one behind.

#![allow(unsafe_code)] // between fork and exec

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hcomm_topology::{Machine, Root, place_ranks, read_cpus, read_numa};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid, getppid};

use super::supervise::{Outcome, Supervisor, Worker};
use crate::config::{Config, Telemetry};
use crate::error::{Error, Result};

/// How long a rank has to end when asked to, before it is killed.
pub(super) const RANK_PATIENCE: Duration = Duration::from_secs(2);

/// The ranks of a job that run on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalRanks {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Rank of the first of them.
    pub(super) first: usize,
    /// How many of them.
    pub(super) count: usize,
    /// How many in the whole job.
    pub(super) size: usize,
    pub(super) store_url: String,
    pub(super) job_id: String,
    /// Whether each is bound to a processor of its own, as [`place_ranks`] finds good.
    pub(super) bind: bool,
    /// More variables for them.
    pub(super) environment: Vec<(String, String)>,
}

/// A processor of this machine for each of `count` ranks, which `before` others of the job go before. Which processors share a node is as the
/// topology file says, if there is a good one (the ranks complain of a bad one); all else as the system does.
fn places(count: usize, before: usize, topo_file: Option<&Path>) -> Option<Vec<usize>> {
    let root = Root::this_machine();
    let told = topo_file.and_then(|file| Machine::from_file(file).ok()).map(|machine| machine.numa);
    let numa = told.filter(|nodes| !nodes.is_empty()).unwrap_or_else(|| read_numa(&root, &mut Vec::new()));
    let places = place_ranks(&read_cpus(&root, &numa), count, before)?;
    Some(places.into_iter().map(|cpu| cpu as usize).collect())
}

impl LocalRanks {
    /// Starts them all under `supervisor`, and waits until they have ended. The calling thread must live as long as they: the
    /// kernel takes its end for the launcher's.
    ///
    /// # Errors
    /// [`Error::System`] naming the first rank that could not be started; those before it are ended.
    pub(super) fn run(&self, mut supervisor: Supervisor<'_>) -> Result<Outcome> {
        if let Err(error) = self.start(&mut supervisor) {
            supervisor.give_up();
            return Err(error);
        }
        let outcome = supervisor.run();
        if outcome.code != 0 {
            self.tidy_up();
        }
        Ok(outcome)
    }

    /// Removes the telemetry files that ranks have left which had no chance to.
    fn tidy_up(&self) {
        match self.config().telemetry {
            Telemetry::Off => {}
            Telemetry::On => hcomm_telemetry::remove_left(None),
            Telemetry::Folder(folder) => hcomm_telemetry::remove_left(Some(&folder)),
        }
    }

    /// The settings that the ranks will have; they complain themselves of what cannot be read.
    fn config(&self) -> Config {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        // Of two that are the same the later counts, as for the ranks.
        let variables: BTreeMap<String, String> = variables.chain(self.environment.iter().cloned()).collect();
        Config::load(None, variables.into_iter(), &mut |_| ()).unwrap_or_default()
    }

    fn start(&self, supervisor: &mut Supervisor<'_>) -> Result<()> {
        let places = if self.bind { self.places() } else { None };
        for index in 0..self.count {
            let cpu = places.as_ref().and_then(|places| places.get(index).copied());
            let rank = self.first + index;
            let child = self
                .command(index, cpu)?
                .spawn()
                .map_err(|e| Error::system(format!("cannot start rank {rank} ({})", self.program.display()), e))?;
            supervisor.add(Worker { name: format!("rank {rank}"), child, stdin: None });
            if !supervisor.goes_on() {
                break;
            }
        }
        Ok(())
    }

    fn places(&self) -> Option<Vec<usize>> {
        places(self.count, self.first, self.config().topo_file.as_deref())
    }

    fn command(&self, index: usize, cpu: Option<usize>) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let numbers = [
            ("HCOMM_RANK", self.first + index),
            ("HCOMM_WORLD_SIZE", self.size),
            ("HCOMM_LOCAL_RANK", index),
            ("HCOMM_LOCAL_SIZE", self.count),
            ("HCOMM_STORE_SERVED", 1),
        ];
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        command.env("HCOMM_STORE", &self.store_url).env("HCOMM_JOB_ID", &self.job_id);
        let mut mask = CpuSet::new();
        if let Some(cpu) = cpu {
            mask.set(cpu).map_err(|e| Error::system(format!("cannot bind to processor {cpu}"), e))?;
        }
        let launcher = getpid();
        let prepare = move || {
            // The launcher blocks the signals that end it, and a mask outlives exec.
            SigSet::empty().thread_set_mask()?;
            set_pdeathsig(Signal::SIGKILL)?;
            // Had the launcher died before that call, nobody would kill this process.
            if getppid() != launcher {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
            if cpu.is_some() {
                sched_setaffinity(Pid::from_raw(0), &mask)?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls may be made. These are system calls on values
        // that were made before the fork; none allocates or locks, and the errors they make hold a number only.
        unsafe { command.pre_exec(prepare) };
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that puts the machine's processors on nodes of their own, the last on the first node: the first rank goes there.
    #[test]
    fn the_topology_file_orders_the_ranks() {
        let all = read_cpus(&Root::this_machine(), &[]);
        if all.packages.len() > 1 {
            return; // nodes of one package stay together, whatever their numbers
        }
        let Some(usable) = places(all.online.len().min(2), 0, None).filter(|places| places.len() == 2) else { return };
        let mask = |cpu: usize| [cpu as u32].into_iter().collect::<hcomm_topology::CpuSet>().to_mask();
        let file = tempfile::NamedTempFile::new().unwrap();
        for (first, second) in [(usable[0], usable[1]), (usable[1], usable[0])] {
            let node = |id: usize, cpu| format!("<cpu numaid=\"{id}\" affinity=\"{}\"/>", mask(cpu));
            let text = format!("<system version=\"1\">{}{}</system>", node(0, first), node(1, second));
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(places(2, 0, Some(file.path())), Some(vec![first, second]));
        }
        assert_eq!(places(2, 0, Some(Path::new("/nowhere/topo.xml"))), Some(usable), "the ranks say that it is bad");
    }
}
