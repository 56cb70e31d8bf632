//! Who this rank is ([`detect`]), and how ranks are started.
//!
//! A rank learns its [`Place`] from the environment of whatever started it. Nothing here decides what runs on the same host
//! as what: launchers know, but get it wrong in containers, so the transports find out by facts.
//!
//! A program can start its own ranks, as `hcomm-bench` does. [`run`] starts it again for each rank, on this host, on others through an
//! agent ([`Plan::Hosts`]; the program then asks [`run_as_agent`] first thing in `main`), or together with hosts where the same
//! command was typed ([`Plan::Join`]):
//!
//! ```standalone_crate
//! use std::time::Duration;
//!
//! use hcomm_core::config::Debug;
//! use hcomm_core::launch::{self, Launch, Plan};
//! use hcomm_core::{Communicator, Error, ReduceOp};
//!
//! fn main() -> hcomm_core::Result<()> {
//!     if launch::detect(&|name| std::env::var(name).ok())?.is_none() {
//!         let outcome = launch::run(&Launch {
//!             plan: Plan::Local { ranks: 2, store: None },
//!             program: std::env::current_exe().map_err(|cause| Error::system("find this program", cause))?,
//!             args: std::env::args_os().skip(1).collect(),
//!             environment: Vec::new(),
//!             bind: true,
//!             timeout: Duration::from_secs(60),
//!             debug: Debug::Warn,
//!         })?;
//!         outcome.words.iter().for_each(|line| eprintln!("{line}"));
//!         std::process::exit(outcome.code);
//!     }
//!     let mut ranks = Communicator::init()?;
//!     let mut sum = [0u64];
//!     ranks.all_reduce(&[10 + ranks.rank() as u64], &mut sum, ReduceOp::Sum)?;
//!     assert_eq!((ranks.size(), sum), (2, [21]));
//!     Ok(())
//! }
//! ```

mod agent;
mod environment;
mod hosts;
mod join;
mod local;
mod nodelist;
mod run;
mod supervise;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

pub use agent::{AGENT_ARGUMENT, run_as_agent};
pub use environment::detect;
pub use hosts::{HostSpec, parse_hostfile, parse_hosts};
pub use run::{Launch, Plan, run};
pub use supervise::Outcome;

use crate::config::Debug;
use crate::control::{Store, StoreServer, connect_telling, split_address};
use crate::error::{Error, Result};

/// How long ranks try to reach a store that was served before they were started.
const SERVED_PATIENCE: Duration = Duration::from_secs(10);

/// A rank of a job, as its launcher describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Index of this rank on its host, if the launcher says so.
    pub local_rank: Option<usize>,
    /// Number of ranks on this host, if the launcher says so.
    pub local_size: Option<usize>,
    /// Where the ranks meet.
    pub store_url: String,
    /// What tells this job from others at the same store.
    pub job_id: String,
    /// `HCOMM_HOST_ID`, which overrides what is taken for one host.
    pub host_id: Option<String>,
    /// The rank that serves the store, where a rank does (for [`crate::control::Member::store_rank`]).
    pub store_rank: Option<usize>,
    /// Whether it is this one.
    pub serve_store: bool,
    /// Who started this rank: `hcomm`, `torchrun`, `slurm`, `open mpi`, `pmi`, `pmix` or `kubernetes`.
    pub source: &'static str,
}

impl Place {
    /// A job of one rank: a process that nothing launched.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            local_rank: Some(0),
            local_size: Some(1),
            store_url: String::new(),
            job_id: format!("alone-{}", std::process::id()),
            host_id: None,
            store_rank: None,
            serve_store: false,
            source: "alone",
        }
    }

    /// Connects to the store of the job, after starting it where this rank serves it. The server must be kept until all
    /// ranks have left ([`StoreServer::wait_for_clients_to_leave`]). A long wait is told at [`Debug::Warn`].
    ///
    /// # Errors
    /// [`Error::Store`] when the store's address cannot be had, or nobody serves it within `timeout`. A store that a launcher
    /// serves is there before any rank: it is not waited for that long.
    pub fn open_store(&self, timeout: Duration, debug: Debug) -> Result<(Option<StoreServer>, Arc<dyn Store>)> {
        let server = if self.serve_store { Some(serve(&self.store_url, &self.job_id)?) } else { None };
        let served_before = self.store_rank.is_none() && self.store_url.starts_with("tcp://");
        let patience = if served_before { timeout.min(SERVED_PATIENCE) } else { timeout };
        let store = connect_telling(&self.store_url, &self.job_id, patience, &mut |waiting| self.tell(debug, waiting));
        let store = store.map_err(|error| match error {
            Error::Store { url, what } if served_before => Error::Store {
                what: format!(
                    "{what}; the launcher serves it: {}",
                    match url.contains("//127.") {
                        true => "is the loopback interface up (ip link set lo up)?",
                        false => "name an address with --store that this host can reach",
                    }
                ),
                url,
            },
            error => error,
        })?;
        Ok((server, store))
    }

    /// Says what is waited for; one rank of a host is enough.
    pub(crate) fn tell(&self, debug: Debug, waiting: &str) {
        if self.local_rank.unwrap_or(0) == 0 {
            debug.say(Debug::Warn, || format!("rank {}: {waiting}", self.rank));
        }
    }
}

/// Serves the store at `url`, which names this host.
fn serve(url: &str, job_id: &str) -> Result<StoreServer> {
    let address = url.strip_prefix("tcp://").ok_or_else(|| Error::Setting {
        name: "HCOMM_STORE".into(),
        value: url.into(),
        allowed: "tcp://host:port, to be served by a rank".into(),
    })?;
    let (host, port) = split_address(url, address)?;
    StoreServer::start(bind_address(url, &host, port)?, job_id)
}

/// The local address that `host` stands for; all addresses when none of them is of this host, as behind an address
/// translation or a virtual service address.
fn bind_address(url: &str, host: &str, port: u16) -> Result<SocketAddr> {
    let resolved = (host, port).to_socket_addrs();
    let resolved = resolved
        .map_err(|e| Error::Store { url: url.into(), what: format!("cannot resolve {host}: {e}") })?
        .collect::<Vec<_>>();
    let is_local = |address: &&SocketAddr| match TcpListener::bind((address.ip(), 0)) {
        Ok(_) => true,
        Err(e) => e.kind() != ErrorKind::AddrNotAvailable,
    };
    if let Some(local) = resolved.iter().find(is_local) {
        return Ok(*local);
    }
    let any = match resolved.first() {
        Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    Ok(SocketAddr::new(any, port))
}
