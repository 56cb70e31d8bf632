//! Starts ranks on other hosts.
//!
//! On each host the same program runs in agent mode ([`run_as_agent`]): it reads what to start from the first line of its
//! standard input, and ends its ranks when that input closes. So nothing needs to be quoted for a remote shell, nothing
//! shows in `ps`, and a head that is killed leaves no rank on any host.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hosts::HostSpec;
use super::local::{LocalRanks, RANK_PATIENCE};
use super::supervise::{Outcome, Signals, Supervisor, Worker};
use crate::error::{Error, Result};

/// The only argument of a program in agent mode.
pub const AGENT_ARGUMENT: &str = "--hcomm-launch-agent";

/// How long an agent has to end its ranks when asked to.
const AGENT_PATIENCE: Duration = Duration::from_secs(RANK_PATIENCE.as_secs() + 3);

/// What an agent is told. Arguments are bytes: they need not be UTF-8.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Orders {
    args: Vec<Vec<u8>>,
    directory: Vec<u8>,
    environment: Vec<(String, String)>,
    first: usize,
    count: usize,
    size: usize,
    store_url: String,
    job_id: String,
    bind: bool,
}

/// Starts `ranks.program` on each host in agent mode, through `agent` (`CMD HOST PROGRAM ARGUMENT`), or ssh without one;
/// on `localhost` without either. Waits until all have ended.
pub(super) fn run_on_hosts(
    ranks: &LocalRanks,
    hosts: &[HostSpec],
    agent: Option<&[OsString]>,
    signals: &Signals,
) -> Result<Outcome> {
    let mut supervisor = Supervisor::new(signals, AGENT_PATIENCE);
    let mut first = 0;
    for host in hosts {
        let orders = orders(ranks, first, host.ranks);
        first += host.ranks;
        match start_agent(ranks, host, agent, &orders) {
            Ok(worker) => supervisor.add(worker),
            Err(error) => {
                supervisor.give_up();
                return Err(error);
            }
        }
        if !supervisor.goes_on() {
            break;
        }
    }
    Ok(supervisor.run())
}

fn orders(ranks: &LocalRanks, first: usize, count: usize) -> Orders {
    let directory = std::env::current_dir().unwrap_or_default();
    Orders {
        args: ranks.args.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        directory: directory.into_os_string().into_vec(),
        environment: ranks.environment.clone(),
        first,
        count,
        size: ranks.size,
        store_url: ranks.store_url.clone(),
        job_id: ranks.job_id.clone(),
        bind: ranks.bind,
    }
}

fn start_agent(ranks: &LocalRanks, host: &HostSpec, agent: Option<&[OsString]>, orders: &Orders) -> Result<Worker> {
    let failed = |what: String| Error::Startup(format!("cannot start ranks on {}: {what}", host.name));
    let mut command = agent_command(ranks.program.as_os_str(), &host.name, agent);
    let mut child = command
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("{}: {e}", command.get_program().display())))?;
    let mut line = serde_json::to_vec(orders).map_err(|e| failed(e.to_string()))?;
    line.push(b'\n');
    let mut stdin = child.stdin.take();
    if let Some(stdin) = &mut stdin {
        // One that ended already is seen by its exit code, which says more than a broken pipe.
        let _ = stdin.write_all(&line).and_then(|()| stdin.flush());
    }
    Ok(Worker { name: format!("the agent on {}", host.name), child, stdin })
}

fn agent_command(program: &OsStr, host: &str, agent: Option<&[OsString]>) -> Command {
    if let Some([first, rest @ ..]) = agent {
        let mut command = Command::new(first);
        command.args(rest).arg(host).arg(program).arg(AGENT_ARGUMENT);
        return command;
    }
    if host == "localhost" {
        let mut command = Command::new(program);
        command.arg(AGENT_ARGUMENT);
        return command;
    }
    let mut remote = b"exec ".to_vec();
    remote.extend(quote_for_shell(program.as_bytes()));
    remote.extend(format!(" {AGENT_ARGUMENT}").into_bytes());
    let mut command = Command::new("ssh");
    // Without BatchMode it would ask for a password that nobody types. The keep-alives end it when the host is gone.
    command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
    command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "--", host]);
    command.arg(OsString::from_vec(remote));
    command
}

/// In single quotes, where only the quote itself is special.
fn quote_for_shell(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in text {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Whether this process was started as an agent; if so, what became of its ranks. To be asked first thing in `main`.
pub fn run_as_agent() -> Option<Result<Outcome>> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != AGENT_ARGUMENT || args.next().is_some() {
        return None;
    }
    Some(Signals::catch().and_then(|signals| follow_orders(&signals)))
}

fn follow_orders(signals: &Signals) -> Result<Outcome> {
    let program = std::env::current_exe().map_err(|e| Error::system("cannot find this program", e))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Error::system("cannot read the orders", e))?;
    let orders: Orders = serde_json::from_str(&line).map_err(|e| Error::Protocol {
        peer: "the launcher".into(),
        what: format!("orders that cannot be read: {e}"),
    })?;
    // A host may lack the head's directory; programs that need it will say so.
    let _ = std::env::set_current_dir(PathBuf::from(OsString::from_vec(orders.directory)));
    let ranks = LocalRanks {
        program,
        args: orders.args.into_iter().map(OsString::from_vec).collect(),
        first: orders.first,
        count: orders.count,
        size: orders.size,
        store_url: orders.store_url,
        job_id: orders.job_id,
        bind: orders.bind,
        environment: orders.environment,
    };
    ranks.run(Supervisor::new(signals, RANK_PATIENCE).ends_with_stdin())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
        [command.get_program().to_string_lossy().into_owned()].into_iter().chain(args).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn how_agents_are_started() {
        let program = OsStr::new("/opt/it's here/bench");
        let ssh = words(&agent_command(program, "b", None));
        assert!(ssh.starts_with("ssh -o BatchMode=yes "), "{ssh}");
        assert!(ssh.ends_with(" -- b exec '/opt/it'\\''s here/bench' --hcomm-launch-agent"), "{ssh}");
        let agent = [OsString::from("lab"), OsString::from("exec")];
        let own = words(&agent_command(program, "b", Some(&agent)));
        assert_eq!(own, "lab exec b /opt/it's here/bench --hcomm-launch-agent");
        assert_eq!(words(&agent_command(program, "localhost", None)), "/opt/it's here/bench --hcomm-launch-agent");
    }
}
