//! One entry for the tools: [`run`] starts a job as its [`Plan`] says, and waits for it.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::agent::run_on_hosts;
use super::hosts::HostSpec;
use super::local::{LocalRanks, RANK_PATIENCE};
use super::supervise::{Alarm, Outcome, Signals, Supervisor};
use super::{bind_address, join};
use crate::config::Debug;
use crate::control::{StoreServer, split_address};
use crate::error::{Error, Result};

/// Where the ranks of a job run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// So many on this host.
    Local {
        /// Ranks.
        ranks: usize,
        /// Where they meet; an address that the launcher serves without one.
        store: Option<String>,
    },
    /// On these hosts, started from here.
    Hosts {
        /// Hosts and their ranks.
        hosts: Vec<HostSpec>,
        /// `--launch-agent`: run as `CMD HOST PROGRAM ARGUMENT`; ssh without one.
        agent: Option<Vec<OsString>>,
        /// `tcp://address:port` under which the hosts reach this one, or `file:///dir`, which all of them share; an address
        /// is found out without one.
        store: Option<String>,
    },
    /// On this host and on others where the same command is typed.
    Join {
        /// `tcp://head:port` or `file:///dir`.
        url: String,
        /// Number of hosts.
        nodes: usize,
        /// Ranks on this host.
        ranks: usize,
    },
}

/// How often it is seen whether all nodes have come.
const MEETING_LOOK: Duration = Duration::from_millis(5);

/// A job to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Where.
    pub plan: Plan,
    /// What each rank runs.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables for the ranks, beside those that say who they are.
    pub environment: Vec<(String, String)>,
    /// Whether each rank is bound to a processor of its own, where a host has several ranks and enough processors for them.
    pub bind: bool,
    /// How long hosts that join wait for each other.
    pub timeout: Duration,
    /// What the launcher says on stderr.
    pub debug: Debug,
}

/// Runs the job and waits until every rank has ended. Catches SIGINT, SIGTERM and SIGHUP meanwhile, which end all ranks; so it
/// is to be called before other threads are made, and from one that lives as long as the job.
///
/// # Errors
/// [`Error::Startup`], [`Error::Store`] or [`Error::System`] when the job cannot start; nothing of it is left then.
pub fn run(launch: &Launch) -> Result<Outcome> {
    let signals = Signals::catch()?;
    match &launch.plan {
        Plan::Local { ranks, store } => {
            let job_id = new_job_id();
            let (_server, store_url) = open_store(&[], store.as_deref(), &job_id)?;
            let ranks = local_ranks(launch, 0, *ranks, *ranks, store_url, job_id);
            ranks.run(Supervisor::new(&signals, RANK_PATIENCE))
        }
        Plan::Hosts { hosts, agent, store } => {
            let job_id = new_job_id();
            let (server, store_url) = open_store(hosts, store.as_deref(), &job_id)?;
            let size = hosts.iter().map(|host| host.ranks).sum();
            let ranks = local_ranks(launch, 0, 0, size, store_url, job_id);
            let outcome = run_on_hosts(&ranks, hosts, agent.as_deref(), &signals)?;
            match server {
                // A job of one rank needs no store.
                Some(server) if outcome.code == 0 && size > 1 && server.served() < size => {
                    Err(Error::Startup(format!(
                        "only {} of {size} ranks came, though nothing failed: the launch agent is run as COMMAND HOST PROGRAM \
                     ARGUMENT, and must run PROGRAM on HOST and pass its standard input on",
                        server.served()
                    )))
                }
                _ => Ok(outcome),
            }
        }
        Plan::Join { url, nodes, ranks } => run_joined(launch, url, *nodes, *ranks, &signals),
    }
}

/// Serves the store that `hosts` (none: this host alone) are to meet at, unless it is a directory. Its URL, for ranks.
fn open_store(hosts: &[HostSpec], store: Option<&str>, job_id: &str) -> Result<(Option<StoreServer>, String)> {
    if let Some(url) = store.filter(|url| url.starts_with("file://")) {
        return Ok((None, url.to_owned()));
    }
    let server = StoreServer::start(head_address(hosts, store)?, job_id)?;
    let url = store.map_or_else(|| format!("tcp://{}", server.address()), str::to_owned);
    Ok((Some(server), url))
}

fn run_joined(launch: &Launch, url: &str, nodes: usize, ranks: usize, signals: &Signals) -> Result<Outcome> {
    let job_id = std::env::var("HCOMM_JOB_ID").unwrap_or_else(|_| "join".into());
    // The others may be long in coming, and who interrupts that is to be heard: so another thread waits for them.
    let (timeout, debug) = (launch.timeout, launch.debug);
    let (meeting_url, meeting_id) = (url.to_owned(), job_id.clone());
    let meeting = std::thread::Builder::new()
        .name("hcomm-meet".into())
        .spawn(move || join::meet(&meeting_url, &meeting_id, nodes, ranks, timeout, debug))
        .map_err(|e| Error::system("cannot start a thread", e))?;
    while !meeting.is_finished() {
        if let Some(number) = signals.wait(MEETING_LOOK) {
            return Ok(Outcome { code: 128 + number, words: Vec::new() }); // what has been met so far ends with the process
        }
    }
    let node =
        meeting.join().map_err(|_| Error::Startup("the thread that meets the other nodes panicked".into()))??;
    let alarm = Alarm::new()?;
    let watch = node.watch(alarm.clone())?;
    let ranks = local_ranks(launch, node.first, ranks, node.size, url.to_owned(), job_id);
    let outcome = ranks.run(Supervisor::new(signals, RANK_PATIENCE).listens_to(alarm));
    node.end(watch, outcome.as_ref().map_or(1, |outcome| outcome.code));
    outcome
}

fn local_ranks(
    launch: &Launch,
    first: usize,
    count: usize,
    size: usize,
    store_url: String,
    job_id: String,
) -> LocalRanks {
    let Launch { program, args, environment, bind, .. } = launch.clone();
    LocalRanks { program, args, first, count, size, store_url, job_id, bind, environment }
}

/// Of no other job that may still run, on whatever host.
fn new_job_id() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

/// Where the head serves the store so that `hosts` reach it.
fn head_address(hosts: &[HostSpec], store: Option<&str>) -> Result<SocketAddr> {
    if let Some(url) = store {
        let address = url.strip_prefix("tcp://").unwrap_or_default(); // an error below, then
        let (host, port) = split_address(url, address)?;
        return bind_address(url, &host, port);
    }
    let others: Vec<&HostSpec> = hosts.iter().filter(|host| host.name != "localhost").collect();
    if others.is_empty() {
        return Ok((Ipv4Addr::LOCALHOST, 0).into());
    }
    // The address that the kernel would send from is one that answers come back to.
    let routed = others.iter().find_map(|host| source_address_to(&host.name)).filter(|ip| !ip.is_loopback());
    let address = routed.or_else(most_useful_address).ok_or_else(|| {
        Error::Interface("none of this host's addresses can be reached from others: name one with --store".into())
    })?;
    Ok(SocketAddr::new(address, 0))
}

fn source_address_to(host: &str) -> Option<IpAddr> {
    let bare = host.rsplit('@').next().unwrap_or(host);
    let target = (bare, 9).to_socket_addrs().ok()?.next()?;
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?; // sends nothing
    socket.local_addr().ok().map(|address| address.ip())
}

/// For hosts whose names only the launch agent understands. Bridges of containers and virtual machines have the same
/// address on every host, and come last; IPv4 before IPv6.
fn most_useful_address() -> Option<IpAddr> {
    let mut found = Vec::new();
    for interface in getifaddrs().ok()? {
        let up = interface.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING);
        let Some(address) = interface.address.filter(|_| up) else { continue };
        let ip: IpAddr = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => v4.ip().into(),
            (_, Some(v6)) => v6.ip().into(),
            _ => continue,
        };
        let link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        if !ip.is_loopback() && !link_local {
            let virtual_bridge = ["docker", "virbr", "br-", "veth", "cni", "flannel", "podman", "lxc"]
                .iter()
                .any(|prefix| interface.interface_name.starts_with(prefix));
            found.push((virtual_bridge, ip.is_ipv6(), ip));
        }
    }
    found.sort();
    found.first().map(|(_, _, ip)| *ip)
}
