//! The job as this process sees it: its place, its settings, its memory, and the ways to the other ranks. Shared by all
//! communicators of the process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hcomm_telemetry::Recorder;
use serde::{Deserialize, Serialize};

use super::group::Group;
use super::parts::LaneParts;
use super::report::Reporter;
use crate::config::{Config, Debug, SingleCopy};
use crate::control::{Member, Membership, NOTICE, Store, StoreServer};
use crate::engine::Lane;
use crate::error::{Error, Result};
use crate::launch::Place;
use crate::session::handshake::LinkId;
use crate::topology::cpus::Cpus;
use crate::topology::interfaces;
use crate::topology::local::Local;
use crate::transport::shm::{Domain, Heap};
use crate::transport::tcp::{Endpoint, Options, PeerAddress, TcpLink, Tuning};

/// What is known of a rank of the communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Rank.
    pub rank: usize,
    /// Process id on its host.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Index of its host, in order of first appearance.
    pub host_index: usize,
    /// The one processor it is bound to, if it is bound to one.
    pub cpu: Option<usize>,
    /// NUMA node, if known.
    pub numa: Option<usize>,
}

/// A stopped process is silent, not dead: its operations time out before its lease does.
const MIN_LEASE: Duration = Duration::from_secs(30);

/// Frames of a link with several sockets: a part of the tuner's chunk, so that each chunk goes over all of them, and
/// enough bytes for a system call and a header to vanish.
const FRAME_BYTES: u32 = 64 << 10;

/// Interfaces over which a link is spread, at most.
const MOST_RAILS: usize = 16;

/// How long a connection may take to say who it is.
const GREETING: Duration = Duration::from_secs(2);

/// First words of a rank to all others.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    info: RankInfo,
    /// Equal for ranks that may share memory: boot id and network namespace, or `HCOMM_HOST_ID`.
    host_id: String,
    /// Equal for ranks with the same network interfaces, whatever `HCOMM_HOST_ID` says of their hosts.
    network: String,
    /// Where ranks of its host exchange descriptors.
    domain: String,
    /// Processors that it may use, and how many of them at a time.
    processors: Vec<usize>,
    usable: usize,
}

/// Second words: what it can reach, and where it is reached.
#[derive(Debug, Serialize, Deserialize)]
struct Wiring {
    /// Ranks whose memory it has mapped.
    mapped: Vec<usize>,
    /// Of these, those whose other memory it can read.
    reads: Vec<usize>,
    /// Socket addresses, most useful first; empty when all ranks share memory.
    addresses: Vec<String>,
    /// Interfaces as good as the first, that one: the sockets of a link are spread over them.
    rails: u16,
    /// Its part of the first lane.
    lane: Vec<u64>,
}

/// See the module.
pub(crate) struct World {
    pub config: Config,
    pub place: Place,
    pub heap: Arc<Heap>,
    pub domain: Arc<Domain>,
    /// Ranks on this host, and the processors they may use.
    pub local_ranks: usize,
    pub processors: usize,
    pub(super) endpoint: Option<Endpoint>,
    /// Socket addresses by rank.
    addresses: Vec<Vec<String>>,
    pub(super) membership: Option<Membership>,
    server: Option<StoreServer>,
    pub(super) telemetry: Option<Arc<Recorder>>,
    reporter: Option<Reporter>,
    infos: Vec<RankInfo>,
}

/// Connects this process with the job; the group of all ranks and its first lane.
pub(crate) fn start(config: Config, place: Place) -> Result<(Arc<World>, Arc<Group>, Lane)> {
    let deadline = Instant::now() + config.timeout;
    let (server, store) = if place.size > 1 {
        let (server, store) = place.open_store(config.timeout, config.debug)?;
        (server, Some(store))
    } else {
        (None, None)
    };
    let meeting = Meeting { store: store.clone(), place: place.clone(), deadline, debug: config.debug };
    let heap = Heap::new()?;
    let mut domain = Domain::start(&place.job_id, place.rank, Arc::clone(&heap))?;

    let cpus = Cpus::of_this_process();
    let facts = Local::new(config.topo_file.as_deref())?;
    let node = facts.numa_node(&cpus);
    let hello = Hello {
        info: this_rank(&place, &cpus, node)?,
        host_id: place.host_id.clone().map_or_else(network_id, Ok)?,
        network: network_id()?,
        domain: domain.address(),
        usable: cpus.usable(),
        processors: cpus.allowed,
    };
    let hellos: Vec<Hello> = meeting.exchange("hello", &hello)?;
    let mut hosts: Vec<&str> = Vec::new();
    let mut infos = Vec::with_capacity(hellos.len());
    for hello in &hellos {
        let host_index = hosts.iter().position(|&id| id == hello.host_id).unwrap_or_else(|| {
            hosts.push(&hello.host_id);
            hosts.len() - 1
        });
        infos.push(RankInfo { host_index, ..hello.info.clone() });
    }
    let first_like = |hello: &Hello| hellos.iter().position(|other| other.network == hello.network).unwrap_or_default();
    let networks: Vec<usize> = hellos.iter().map(first_like).collect();
    let here = infos[place.rank].host_index;
    let local = |rank: usize| infos[rank].host_index == here;
    let local_ranks = (0..place.size).filter(|&rank| local(rank)).count();
    let processors = processors_of(hellos.iter().zip(&infos).filter(|(_, i)| i.host_index == here).map(|(h, _)| h));

    let neighbours: Vec<(usize, String)> = (0..place.size)
        .filter(|&rank| rank != place.rank && local(rank) && config.transport.shm)
        .map(|rank| (rank, hellos[rank].domain.clone()))
        .collect();
    let mapped = domain.connect(&neighbours, deadline.saturating_duration_since(Instant::now()))?;
    if !config.transport.tcp && mapped.len() + 1 < place.size {
        let far = (0..place.size).find(|rank| *rank != place.rank && !mapped.contains(rank)).unwrap_or_default();
        return Err(Error::Setting {
            name: "HCOMM_TRANSPORT".into(),
            value: "shm".into(),
            allowed: format!(
                "rank {far} on {} shares no memory with rank {}; use auto or tcp",
                infos[far].host, place.rank
            ),
        });
    }
    let endpoint = if mapped.len() + 1 < place.size {
        Some(open_endpoint(
            &config,
            &place,
            |name| node.is_some() && facts.numa_node_of_interface(name) == node,
            networks.iter().all(|&network| network == networks[0]),
        )?)
    } else {
        None
    };
    let (endpoint, rails) = endpoint.map_or((None, 0), |(endpoint, rails)| (Some(endpoint), rails));

    let mut world = World {
        local_ranks,
        processors,
        config,
        heap,
        domain: Arc::new(domain),
        endpoint,
        addresses: Vec::new(),
        membership: None,
        server,
        telemetry: None,
        reporter: None,
        infos,
        place,
    };
    world.telemetry = world.start_telemetry();
    let shared: Vec<bool> = (0..world.place.size).map(|rank| mapped.contains(&rank)).collect();
    let parts = LaneParts::reserve(&world, &shared)?;
    let addresses = world.endpoint.as_ref().map(Endpoint::addresses).unwrap_or_default();
    let reads = readable(&world, &mapped);
    let wiring = Wiring { mapped, reads, addresses, rails, lane: parts.encode() };
    let wirings: Vec<Wiring> = meeting.exchange("wiring", &wiring)?;
    check_agreement(&world, &wirings)?;
    let open = open_ranks(&world, &wirings)?;
    world.addresses = usable_addresses(&networks, &wirings)?;
    // All ranks see the same wirings, so all take the same number.
    let rails = wirings.iter().map(|wiring| wiring.rails).filter(|&rails| rails > 0).min().unwrap_or(1);
    if let Some(endpoint) = &world.endpoint {
        endpoint.use_sockets(rails);
    }
    let shared_store = store.clone();
    if let Some(store) = store {
        world.membership = Some(Membership::join(
            store,
            Member {
                rank: world.place.rank,
                hosts: world.infos.iter().map(|info| info.host.clone()).collect(),
                heartbeat: world.config.heartbeat_interval,
                lease: world.config.timeout.max(MIN_LEASE),
                store_rank: world.place.store_rank,
                describe: World::DESCRIBE,
                ..Member::default()
            },
        )?);
    }
    world.reporter = world.start_reporter(shared_store);
    let world = Arc::new(world);
    let world_ranks = (0..world.place.size).collect();
    let group = Group::new(0, world.place.rank, world.infos.clone(), world_ranks, shared, open, usize::from(rails));
    let theirs: Vec<Vec<u64>> = wirings.into_iter().map(|wiring| wiring.lane).collect();
    let lane = parts.connect(&world, &group, 0, &theirs)?;
    Ok((world, Arc::new(group), lane))
}

/// Rank a maps b exactly when b maps a, or plans would differ between ranks.
fn check_agreement(world: &World, wirings: &[Wiring]) -> Result<()> {
    for (rank, wiring) in wirings.iter().enumerate() {
        for &other in &wiring.mapped {
            let mutual = wirings.get(other).is_some_and(|theirs| theirs.mapped.contains(&rank));
            if !mutual {
                let name = |rank: usize| world.infos.get(rank).map_or("?", |info| info.host.as_str());
                return Err(Error::Startup(format!(
                    "rank {rank} on {} maps the memory of rank {other} on {}, which cannot map back; set \
                     HCOMM_TRANSPORT=tcp, or different HCOMM_HOST_ID for them",
                    name(rank),
                    name(other)
                )));
            }
        }
    }
    Ok(())
}

/// Those of the `mapped` ranks whose memory this one can read, if it is to.
fn readable(world: &World, mapped: &[usize]) -> Vec<usize> {
    if world.config.single_copy == SingleCopy::Off {
        return Vec::new();
    }
    let (mut readable, mut refusals) = (Vec::new(), Vec::new());
    for &rank in mapped {
        match world.domain.process(rank).map(|process| process.probe()) {
            Some(Ok(())) => readable.push(rank),
            Some(Err(refusal)) => refusals.push(format!("{rank} ({refusal})")),
            None => {}
        }
    }
    if !refusals.is_empty() {
        world.config.debug.say(Debug::Info, || {
            format!(
                "rank {}: the system does not let it read the memory of rank {}: ordinary buffers go through shared memory",
                world.place.rank,
                refusals.join(", ")
            )
        });
    }
    readable
}

/// By rank: whether it can read all ranks that it has mapped, and they it. The same on all ranks.
fn open_ranks(world: &World, wirings: &[Wiring]) -> Result<Vec<bool>> {
    let reads = |rank: usize, other: usize| wirings.get(rank).is_some_and(|wiring| wiring.reads.contains(&other));
    let mut open = Vec::with_capacity(wirings.len());
    for (rank, wiring) in wirings.iter().enumerate() {
        let shut = wiring.mapped.iter().find(|&&other| !(reads(rank, other) && reads(other, rank)));
        if let (Some(&other), SingleCopy::On) = (shut, world.config.single_copy) {
            let (reader, read) = if reads(rank, other) { (other, rank) } else { (rank, other) };
            return Err(Error::Setting {
                name: "HCOMM_SINGLE_COPY".into(),
                value: "on".into(),
                allowed: format!(
                    "rank {reader} on {} cannot read the memory of rank {read} (kernel.yama.ptrace_scope, a container, or its \
                     own HCOMM_SINGLE_COPY forbids it); use auto or off",
                    world.host_of(reader)
                ),
            });
        }
        open.push(shut.is_none());
    }
    Ok(open)
}

/// Ranks of one network may offer the same addresses.
fn usable_addresses(networks: &[usize], wirings: &[Wiring]) -> Result<Vec<Vec<String>>> {
    let mut offers = Vec::with_capacity(wirings.len());
    for (rank, wiring) in wirings.iter().enumerate() {
        let parsed: std::result::Result<Vec<_>, _> = wiring.addresses.iter().map(|text| text.parse()).collect();
        offers.push(parsed.map_err(|error| Error::Protocol {
            peer: format!("rank {rank}"),
            what: format!("offers {:?}, not socket addresses: {error}", wiring.addresses),
        })?);
    }
    interfaces::drop_shared(&mut offers, networks)?;
    Ok(offers.into_iter().map(|offer| offer.iter().map(ToString::to_string).collect()).collect())
}

/// Exchanges of values between all ranks through the store.
struct Meeting {
    store: Option<Arc<dyn Store>>,
    place: Place,
    deadline: Instant,
    debug: Debug,
}

impl Meeting {
    /// Publishes `mine` and returns everyone's, by rank.
    fn exchange<T: Serialize + for<'a> Deserialize<'a>>(&self, what: &str, mine: &T) -> Result<Vec<T>> {
        let fail = |rank: usize, cause: String| Error::Protocol { peer: format!("rank {rank}"), what: cause };
        let encoded = serde_json::to_vec(mine).map_err(|error| Error::Startup(error.to_string()))?;
        let decode = |rank: usize, bytes: &[u8]| {
            serde_json::from_slice(bytes).map_err(|error| fail(rank, format!("its {what} cannot be read: {error}")))
        };
        let Some(store) = &self.store else { return Ok(vec![decode(0, &encoded)?]) };
        store.set(&format!("{what}/{}", self.place.rank), &encoded)?;
        let mut all = Vec::with_capacity(self.place.size);
        for rank in 0..self.place.size {
            let bytes = self.wait(&**store, what, rank).map_err(|error| {
                let size = self.place.size;
                Error::Startup(format!(
                    "rank {rank} of {size} has not come ({what}): {error}; look at that rank's own output"
                ))
            })?;
            all.push(decode(rank, &bytes)?);
        }
        Ok(all)
    }

    /// Waits for a rank's value until the deadline, and says so when it takes long.
    fn wait(&self, store: &dyn Store, what: &str, rank: usize) -> Result<Vec<u8>> {
        let key = &format!("{what}/{rank}");
        let left = || self.deadline.saturating_duration_since(Instant::now());
        if left() > NOTICE {
            match store.wait(key, NOTICE) {
                Err(_) if store.broken().is_none() => {
                    let (size, most) = (self.place.size, left().as_secs());
                    self.place
                        .tell(self.debug, &format!("waiting for rank {rank} of {size} ({what}), {most} s at most"));
                }
                done => return done,
            }
        }
        store.wait(key, left())
    }
}

/// Processors that the ranks of a host have together: bound to one each, ten ranks have ten.
fn processors_of<'a>(ranks: impl Iterator<Item = &'a Hello>) -> usize {
    let (mut all, mut quotas) = (BTreeSet::<usize>::new(), 0);
    for rank in ranks {
        all.extend(&rank.processors);
        quotas += rank.usable;
    }
    all.len().min(quotas).max(1)
}

fn this_rank(place: &Place, cpus: &Cpus, node: Option<u32>) -> Result<RankInfo> {
    let host = nix::unistd::gethostname().map_err(|error| Error::system("gethostname", error))?;
    Ok(RankInfo {
        rank: place.rank,
        pid: std::process::id(),
        host: place.host_id.clone().unwrap_or_else(|| host.to_string_lossy().into_owned()),
        host_index: 0,
        cpu: cpus.bound_to(),
        numa: node.map(|node| node as usize),
    })
}

/// What ranks that can share memory have in common: the running kernel, and the network namespace in which they meet.
fn network_id() -> Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(|error| Error::system("/proc/sys/kernel/random/boot_id", error))?;
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

/// The endpoint, and on how many interfaces traffic is to be spread. `near` says which interfaces are next to this rank's memory.
fn open_endpoint(
    config: &Config,
    place: &Place,
    near: impl Fn(&str) -> bool,
    one_network: bool,
) -> Result<(Endpoint, u16)> {
    let mut found = interfaces::list()?;
    for interface in &mut found {
        interface.near = near(&interface.name);
    }
    let filter = config.socket_ifname.as_deref().map(interfaces::Filter::parse).transpose()?;
    let choices = interfaces::choose(&found, filter.as_ref(), one_network)?;
    for choice in &choices {
        config.debug.say(Debug::Info, || choice.to_string());
    }
    let debug = config.debug;
    let rails = interfaces::rails(&choices).min(MOST_RAILS) as u16;
    let endpoint = Endpoint::start(Options {
        job: place.job_id.clone(),
        rank: place.rank,
        local: choices.into_iter().map(|choice| choice.subnet).collect(),
        frame_bytes: FRAME_BYTES,
        queue: config.tx_queue_size,
        tuning: Tuning { receive_buffer: config.rx_buffer_size.map(|bytes| bytes as usize), ..Tuning::default() },
        timeout: config.timeout,
        retry: config.retry_timeout,
        greeting: GREETING,
        log: Some(Arc::new(move |line: &str| debug.say(Debug::Info, || line.to_owned()))),
    })?;
    Ok((endpoint, rails))
}

impl World {
    /// Whether ranks are on several hosts.
    pub(super) fn has_several_hosts(&self) -> bool {
        self.infos.iter().any(|info| info.host_index > 0)
    }

    pub fn host_of(&self, rank: usize) -> &str {
        &self.infos[rank].host
    }

    /// A link to another rank over sockets.
    pub fn tcp_link(&self, rank: usize, id: LinkId) -> Result<TcpLink> {
        let endpoint = self.endpoint.as_ref().ok_or_else(|| {
            Error::Startup(format!("no way to rank {rank}: it shares no memory with rank {}", self.place.rank))
        })?;
        endpoint.link(&PeerAddress { rank, addresses: self.addresses[rank].clone() }, id)
    }
}

impl Drop for World {
    /// Leaves in good order: the others must not take the end of this process for a death, and whoever serves the store
    /// serves until the others are done.
    fn drop(&mut self) {
        drop(self.reporter.take());
        let mut patience = Duration::from_secs(30);
        // This rank's own connection ends with its membership; without one the start has failed in the middle.
        let mut own = 1;
        if let Some(membership) = self.membership.take() {
            own = 0;
            if membership.verdict().is_some() {
                // A failed job ends: the others still read why, but one that hangs is not waited for.
                patience = Duration::from_secs(2);
            }
            membership.leave();
        }
        if let Some(server) = self.server.take() {
            server.wait_for_clients_to_leave(own, patience);
        }
    }
}
