//! `--join tcp://head:29500 --nodes 4`: the same command typed on each host, which then find each other.
//!
//! Whoever has the address serves the store and is node 0; the others are numbered as they come. Each node keeps a lease
//! while its ranks run, so that the end of one ends all.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bind_address;
use super::supervise::Alarm;
use crate::config::Debug;
use crate::control::{NOTICE, Store, StoreServer, connect_telling, split_address};
use crate::error::{Error, Result};

/// How long the node that serves the store waits for the others to end.
const LINGER: Duration = Duration::from_secs(30);
/// A node counts as gone after this long without a sign of life.
const NODE_LEASE: Duration = Duration::from_secs(30);
const NODES: &str = "join/node/";
const LOST: &[u8] = b"lost";

/// This host's part in a job that hosts joined.
pub(super) struct Node {
    store: Arc<dyn Store>,
    server: Option<StoreServer>,
    index: usize,
    /// Rank of the first local rank.
    pub(super) first: usize,
    /// Ranks of all nodes.
    pub(super) size: usize,
}

/// Meets the other nodes at `url`. A long wait is told at [`Debug::Warn`].
///
/// # Errors
/// [`Error::Startup`] naming the nodes that have come when not all do within `timeout`, when there are more than `nodes`, or
/// when they do not agree on their number; [`Error::Store`] when nobody serves the store.
pub(super) fn meet(
    url: &str,
    job_id: &str,
    nodes: usize,
    ranks: usize,
    timeout: Duration,
    debug: Debug,
) -> Result<Node> {
    let start = Instant::now();
    let server = try_to_serve(url, job_id)?;
    let mut tell = |waiting: &str| debug.say(Debug::Warn, || waiting.to_owned());
    let store = connect_telling(url, job_id, timeout, &mut tell)?;
    // With a server the others count from 1; without, they count among themselves.
    let index = match &server {
        Some(_) => 0,
        None => store.add("join/arrived", 1)? as usize - usize::from(!url.starts_with("tcp://")),
    };
    if index >= nodes {
        return Err(Error::Startup(format!("{url} has all of its {nodes} nodes already: this one is one too many")));
    }
    let host = nix::unistd::gethostname().map_or_else(|_| "?".into(), |name| name.to_string_lossy().replace(' ', "-"));
    let mine = format!("{nodes} {ranks} {host}");
    store.lease(&format!("{NODES}{index}"), mine.as_bytes(), LOST, NODE_LEASE)?;
    let all = wait_for_all(&*store, nodes, timeout.saturating_sub(start.elapsed()), &mut tell)?;
    let first = all[..index].iter().map(|(ranks, _)| ranks).sum();
    let size = all.iter().map(|(ranks, _)| ranks).sum();
    Ok(Node { store, server, index, first, size })
}

/// Serves the store when the address in `url` is of this host and nobody else has it.
fn try_to_serve(url: &str, job_id: &str) -> Result<Option<StoreServer>> {
    let Some(address) = url.strip_prefix("tcp://") else { return Ok(None) };
    let (host, port) = split_address(url, address)?;
    let address = bind_address(url, &host, port)?;
    if address.ip().is_unspecified() && host.parse() != Ok(address.ip()) {
        return Ok(None); // the name is of another host
    }
    Ok(StoreServer::start(address, job_id).ok()) // taken by another node of this host: that one serves
}

/// Ranks and host of each node, once all have come.
fn wait_for_all(
    store: &dyn Store,
    nodes: usize,
    timeout: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<(usize, String)>> {
    let start = Instant::now();
    let end = start + timeout;
    let mut told = false;
    let mut come: Vec<Option<(usize, String)>> = vec![None; nodes];
    let mut revision = 0;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let (next, changes) = store.watch(NODES, revision, left.min(NOTICE))?;
        revision = next;
        for (key, value) in changes {
            let index = key.strip_prefix(NODES).and_then(|index| index.parse::<usize>().ok());
            let Some(slot) = index.and_then(|index| come.get_mut(index)) else { continue };
            *slot = Some(read_node(&key, &value, nodes, slot.as_ref())?);
        }
        if come.iter().all(Option::is_some) {
            return Ok(come.into_iter().flatten().collect());
        }
        let here: Vec<&str> = come.iter().flatten().map(|(_, host)| host.as_str()).collect();
        let (count, here) = (here.len(), here.join(", "));
        if !told && start.elapsed() >= NOTICE {
            told = true;
            tell(&format!(
                "waiting for other nodes, {} s at most: {count} of {nodes} have come ({here})",
                timeout.as_secs()
            ));
        }
        if left.is_zero() {
            return Err(Error::Startup(format!(
                "only {count} of {nodes} nodes have come within {timeout:.1?} ({here}): start the same command on the others"
            )));
        }
    }
}

fn read_node(key: &str, value: &[u8], nodes: usize, before: Option<&(usize, String)>) -> Result<(usize, String)> {
    if value == LOST {
        let host = before.map_or(key, |(_, host)| host);
        return Err(Error::Startup(format!("the node on {host} ended while the others were waiting")));
    }
    let text = String::from_utf8_lossy(value);
    let mut words = text.split(' ');
    let mut number = || words.next()?.parse::<usize>().ok();
    let (Some(theirs), Some(ranks), Some(host)) = (number(), number(), words.next()) else {
        return Err(Error::Protocol { peer: key.into(), what: format!("{text:?} instead of a node") });
    };
    if theirs != nodes {
        return Err(Error::Startup(format!("--nodes is {nodes} here and {theirs} on {host}")));
    }
    Ok((ranks, host.to_owned()))
}

impl Node {
    /// Raises `alarm` when another node fails or is gone.
    pub(super) fn watch(&self, alarm: Alarm) -> Result<Watch> {
        let (store, mine) = (self.store.clone(), format!("{NODES}{}", self.index));
        let stop = format!("join/stop/{}", self.index);
        let stop_key = stop.clone();
        let watch = move || {
            let mut revision = 0;
            loop {
                let Ok((next, changes)) = store.watch("join/", revision, Duration::from_secs(5)) else {
                    // A store that is gone for good took the node that served it along.
                    match store.broken() {
                        Some(cause) => return alarm.raise(format!("the node that serves the store is gone ({cause})")),
                        None => continue,
                    }
                };
                revision = next;
                for (key, value) in &changes {
                    if *key == stop_key {
                        return;
                    }
                    let node = key.strip_prefix(NODES).filter(|_| *key != mine);
                    if let Some(node) = node
                        && value == LOST
                    {
                        alarm.raise(format!("node {node} ended without a word"));
                    }
                    if let Some(node) = key.strip_prefix("join/failed/") {
                        alarm.raise(format!("node {node} failed: {}", String::from_utf8_lossy(value)));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("hcomm-join".into()).spawn(watch);
        let thread = thread.map_err(|e| Error::system("cannot start a thread", e))?;
        Ok(Watch { store: self.store.clone(), stop, thread: Some(thread) })
    }

    /// Tells the others how this node ended, and keeps serving until they have ended too.
    pub(super) fn end(self, watch: Watch, code: i32) {
        drop(watch);
        if code != 0 {
            let text = format!("exit code {code}");
            let _ = self.store.set(&format!("join/failed/{}", self.index), text.as_bytes());
        }
        // Our own connection is the one that may stay. Who left by force is seen by the lease.
        if let Some(server) = &self.server {
            server.wait_for_clients_to_leave(1, LINGER);
        }
    }
}

/// A thread that watches the other nodes; ends when dropped.
pub(super) struct Watch {
    store: Arc<dyn Store>,
    stop: String,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let told = self.store.set(&self.stop, b"");
        if let Some(thread) = self.thread.take()
            && (told.is_ok() || self.store.broken().is_some())
        {
            let _ = thread.join();
        }
    }
}
