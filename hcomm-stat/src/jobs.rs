//! The running jobs of this user and the paths between their ranks, out of the jobs' telemetry.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use hcomm_telemetry::{PathFigures, Snapshot, State, find};

/// The jobs at one moment.
#[derive(Debug, Clone, Default)]
pub struct Jobs {
    pub jobs: Vec<Job>,
    /// Files that cannot be read, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// A job's ranks on this host.
#[derive(Debug, Clone)]
pub struct Job {
    pub name: String,
    pub program: String,
    pub world_size: u32,
    pub ranks: Vec<u32>,
    pub paths: Vec<Path>,
    /// Sockets of which nothing is known, as there was no room for them.
    pub missed: u64,
}

/// What the sockets with the same two ends have in common; or shared memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Rank of the job that says so.
    pub rank: u32,
    pub peer: u32,
    pub transport: Option<&'static str>,
    /// Interface at this end, which is the rail.
    pub interface: Option<String>,
    /// Addresses without ports, at this end and the other.
    pub local: Option<std::net::IpAddr>,
    pub remote: Option<std::net::IpAddr>,
}

/// A path from a rank to a peer.
#[derive(Debug, Clone)]
pub struct Path {
    pub ends: Ends,
    /// Sockets that it consists of; none with shared memory.
    pub sockets: u64,
    /// The kernel's word, where it is the same for all sockets; of shared memory, that it is there.
    pub state: Option<&'static str>,
    /// The shortest round trip; the sums of the rest.
    pub figures: PathFigures,
    /// Bytes sent and received by operations; of sockets what the kernel says.
    pub sent_bytes: Option<u64>,
    pub received_bytes: Option<u64>,
}

impl Jobs {
    /// Reads them. Jobs that are over are left out.
    pub fn read() -> Jobs {
        let named = std::env::var_os("HCOMM_TELEMETRY").map(PathBuf::from).filter(|path| path.is_absolute());
        let mut snapshots = Vec::new();
        let mut unreadable = Vec::new();
        for found in find(&named.into_iter().collect::<Vec<_>>()) {
            match found.reader.and_then(|mut reader| reader.snapshot()) {
                Ok(snapshot) if matches!(snapshot.state, State::Running | State::Failed(_)) => snapshots.push(snapshot),
                Ok(_) => {}
                Err(reason) => unreadable.push((found.path, reason.to_string())),
            }
        }
        Jobs { jobs: jobs(&snapshots), unreadable }
    }

    /// With the counters of sockets as they have grown since `earlier`; a path that is new keeps its own.
    pub fn since(mut self, earlier: &Jobs) -> Jobs {
        let before: BTreeMap<(&str, &Ends), &PathFigures> = earlier
            .jobs
            .iter()
            .flat_map(|job| job.paths.iter().map(|path| ((job.name.as_str(), &path.ends), &path.figures)))
            .collect();
        for job in &mut self.jobs {
            for path in &mut job.paths {
                let Some(before) = before.get(&(job.name.as_str(), &path.ends)) else { continue };
                let figures = &mut path.figures;
                // A socket that was closed takes its count with it.
                let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
                figures.retransmits = grown(figures.retransmits, before.retransmits);
                figures.segments_sent = grown(figures.segments_sent, before.segments_sent);
                figures.segments_received = grown(figures.segments_received, before.segments_received);
            }
        }
        self
    }
}

fn jobs(snapshots: &[Snapshot]) -> Vec<Job> {
    let mut jobs: BTreeMap<(&str, u32), Vec<&Snapshot>> = BTreeMap::new();
    for snapshot in snapshots {
        jobs.entry((&snapshot.identity.job, snapshot.identity.world_size)).or_default().push(snapshot);
    }
    let job = |((name, world_size), mut members): ((&str, u32), Vec<&Snapshot>)| {
        members.sort_by_key(|snapshot| snapshot.identity.rank);
        Job {
            name: name.to_owned(),
            program: members[0].identity.program.clone(),
            world_size,
            ranks: members.iter().map(|snapshot| snapshot.identity.rank).collect(),
            paths: members.iter().flat_map(|snapshot| paths(snapshot)).collect(),
            missed: members.iter().map(|snapshot| snapshot.paths_missed).sum(),
        }
    };
    jobs.into_iter().map(job).collect()
}

/// The paths of a rank: its sockets by their ends, and peers whose memory it shares.
fn paths(snapshot: &Snapshot) -> Vec<Path> {
    let rank = snapshot.identity.rank;
    let mut paths: BTreeMap<Ends, Path> = BTreeMap::new();
    for socket in &snapshot.paths {
        let ip = |address: Option<SocketAddr>| address.map(|address| address.ip());
        let ends = Ends {
            rank,
            peer: socket.peer,
            transport: socket.transport,
            interface: socket.interface.clone(),
            local: ip(socket.local),
            remote: ip(socket.remote),
        };
        let path = |figures: PathFigures| Path {
            ends: ends.clone(),
            sockets: 1,
            state: socket.state,
            sent_bytes: figures.acknowledged_bytes,
            received_bytes: figures.received_bytes,
            figures,
        };
        match paths.get_mut(&ends) {
            Some(known) => known.add(&path(socket.figures)),
            None => _ = paths.insert(ends.clone(), path(socket.figures)),
        }
    }
    let with_sockets: BTreeSet<u32> = snapshot.paths.iter().map(|socket| socket.peer).collect();
    let others = snapshot.links.iter().filter(|link| !with_sockets.contains(&link.peer));
    let memory = others.map(|link| Path {
        ends: Ends { rank, peer: link.peer, transport: link.transport, interface: None, local: None, remote: None },
        sockets: 0,
        state: (link.transport == Some("shm")).then_some("mapped"),
        figures: PathFigures {
            round_trip_ns: link.round_trip_ns,
            retransmits: link.retransmits,
            queued_bytes: link.queued_bytes,
            ..PathFigures::default()
        },
        sent_bytes: Some(link.sent_bytes),
        received_bytes: Some(link.received_bytes),
    });
    let mut all: Vec<Path> = memory.collect();
    all.extend(paths.into_values());
    all.sort_by(|a, b| a.ends.cmp(&b.ends));
    all
}

impl Path {
    /// Another socket with the same ends.
    fn add(&mut self, other: &Path) {
        // A sum of which a part is unknown is unknown.
        let sum = |a: &mut Option<u64>, b: Option<u64>| *a = a.zip(b).map(|(a, b)| a.saturating_add(b));
        self.sockets += other.sockets;
        self.state = self.state.filter(|&state| Some(state) == other.state);
        let (mine, theirs) = (&mut self.figures, &other.figures);
        mine.round_trip_ns = mine.round_trip_ns.into_iter().chain(theirs.round_trip_ns).min();
        sum(&mut mine.retransmits, theirs.retransmits);
        sum(&mut mine.segments_sent, theirs.segments_sent);
        sum(&mut mine.segments_received, theirs.segments_received);
        sum(&mut mine.queued_bytes, theirs.queued_bytes);
        sum(&mut self.sent_bytes, other.sent_bytes);
        sum(&mut self.received_bytes, other.received_bytes);
    }

    /// Whether it is usable, if that is known.
    pub fn is_well(&self) -> Option<bool> {
        self.state.map(|state| ["established", "mapped"].contains(&state))
    }

    /// Nothing is relayed: each path that carries anything is the way that is used.
    pub fn route(&self) -> &'static str {
        "direct"
    }
}

/// Ranks that exchange through memory, directly or by others: so that a host of many ranks is a line.
pub fn memory_groups(job: &Job) -> Vec<Vec<u32>> {
    let mut groups: Vec<BTreeSet<u32>> = Vec::new();
    for path in job.paths.iter().filter(|path| path.ends.transport == Some("shm")) {
        let mut group = BTreeSet::from([path.ends.rank, path.ends.peer]);
        groups.retain(|other| {
            let touches = !other.is_disjoint(&group);
            if touches {
                group.extend(other);
            }
            !touches
        });
        groups.push(group);
    }
    groups.sort();
    groups.into_iter().map(|group| group.into_iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rank: u32, peer: u32, transport: &'static str) -> Path {
        let ends = Ends { rank, peer, transport: Some(transport), interface: None, local: None, remote: None };
        let figures = PathFigures { retransmits: Some(2), segments_sent: Some(100), ..PathFigures::default() };
        Path { ends, sockets: 1, state: Some("established"), figures, sent_bytes: Some(5), received_bytes: None }
    }

    fn job(paths: Vec<Path>) -> Job {
        Job { name: "j".into(), program: "p".into(), world_size: 9, ranks: vec![0], paths, missed: 0 }
    }

    #[test]
    fn sockets_of_a_path_add_up_and_what_one_does_not_know_is_unknown() {
        let mut sum = path(0, 1, "tcp");
        sum.add(&Path { state: Some("close_wait"), figures: PathFigures::default(), ..path(0, 1, "tcp") });
        assert_eq!((sum.sockets, sum.state, sum.sent_bytes, sum.received_bytes), (2, None, Some(10), None));
        assert_eq!((sum.figures.retransmits, sum.figures.loss(), sum.is_well()), (None, None, None));
    }

    #[test]
    fn ranks_that_share_memory_are_one_group() {
        let ring = (0..6).map(|rank| path(rank, (rank + 1) % 6, "shm"));
        let all = ring.chain([path(8, 7, "shm"), path(0, 7, "tcp")]).collect();
        assert_eq!(memory_groups(&job(all)), [vec![0, 1, 2, 3, 4, 5], vec![7, 8]]);
    }

    #[test]
    fn in_an_interval_the_counters_are_what_was_added() {
        let jobs = |retransmits, segments_sent| {
            let mut path = path(0, 1, "tcp");
            path.figures = PathFigures { retransmits, segments_sent, ..PathFigures::default() };
            Jobs { jobs: vec![job(vec![path])], unreadable: Vec::new() }
        };
        let grown = jobs(Some(5), Some(400)).since(&jobs(Some(2), Some(100)));
        assert_eq!(grown.jobs[0].paths[0].figures.loss(), Some(0.01));
        let closed = jobs(Some(1), Some(10)).since(&jobs(Some(2), Some(100)));
        assert_eq!(closed.jobs[0].paths[0].figures.loss(), None);
    }
}
