//! The members of a communicator and where they are.

use std::sync::Arc;

use super::world::RankInfo;
use crate::error::RankName;

/// Who is in a communicator. Immutable once made.
#[derive(Debug)]
pub(crate) struct Group {
    /// The same on all members, different for every communicator of the job.
    pub id: u64,
    /// This rank's place among `ranks`.
    pub me: usize,
    /// Members, numbered from 0 in this communicator.
    pub ranks: Vec<RankInfo>,
    /// Each member's rank in the job.
    pub world_ranks: Vec<usize>,
    /// Host index of each member; `None` when all are on one host.
    pub hosts: Option<Arc<[usize]>>,
    /// NUMA node of each member, numbered from 0; `None` unless all are on one host, each on a node that is known, and on several.
    pub nodes: Option<Arc<[usize]>>,
    /// Network interfaces that the sockets to each other host are spread over, at least 1.
    pub nics: usize,
    /// Members whose memory this rank can map (by place in the group; this rank not among them).
    pub shared: Vec<bool>,
    /// Every member shares memory with every other.
    pub all_shared: bool,
    /// Members that may read the memory of all others of their host, and be read by them; the same on all members.
    pub open: Vec<bool>,
    /// Every member shares memory with every other and is open.
    pub all_open: bool,
}

impl Group {
    pub fn new(
        id: u64,
        me: usize,
        ranks: Vec<RankInfo>,
        world_ranks: Vec<usize>,
        shared: Vec<bool>,
        open: Vec<bool>,
        nics: usize,
    ) -> Self {
        let hosts = several(ranks.iter().map(|rank| Some(rank.host_index)));
        let nodes = if hosts.is_none() { several(ranks.iter().map(|rank| rank.numa)) } else { None };
        let all_shared = shared.iter().enumerate().all(|(rank, &s)| s || rank == me) && hosts.is_none();
        let all_open = all_shared && open.iter().all(|&open| open);
        Self { id, me, ranks, world_ranks, hosts, nodes, nics, shared, all_shared, open, all_open }
    }

    /// A rank of the job, for errors.
    pub fn name(&self, job_rank: usize) -> RankName {
        RankName { rank: self.world_ranks.iter().position(|&rank| rank == job_rank), job_rank }
    }

    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Hosts, at least 1.
    pub fn host_count(&self) -> usize {
        count(self.hosts.as_deref())
    }

    /// NUMA nodes that the members of one host are on; 1 also where they are not known, or there are several hosts.
    pub fn node_count(&self) -> usize {
        count(self.nodes.as_deref())
    }

    /// The group of `members` (ranks of this group, in the new order); this rank is one of them.
    pub fn subset(&self, id: u64, members: &[usize]) -> Self {
        let me = members.iter().position(|&m| m == self.me).expect("a rank makes only groups that it is in");
        let ranks =
            members.iter().enumerate().map(|(rank, &member)| RankInfo { rank, ..self.ranks[member].clone() }).collect();
        let world_ranks = members.iter().map(|&m| self.world_ranks[m]).collect();
        let [shared, open] = [&self.shared, &self.open].map(|all| members.iter().map(|&m| all[m]).collect());
        Self::new(id, me, ranks, world_ranks, shared, open, self.nics)
    }

    /// What carries the messages, as shown in tables.
    pub fn transport(&self) -> &'static str {
        let local = self.shared.iter().any(|&s| s);
        let remote = self.shared.iter().enumerate().any(|(rank, &s)| !s && rank != self.me);
        match (local, remote) {
            (false, false) => "self",
            (true, false) => "shm",
            (false, true) => "tcp",
            (true, true) => "shm+tcp",
        }
    }
}

/// Places numbered from 0 in order of first appearance; `None` where there is but one, or one is not known.
fn several(places: impl Iterator<Item = Option<usize>>) -> Option<Arc<[usize]>> {
    let mut order: Vec<usize> = Vec::new();
    let number = |place: Option<usize>| {
        let place = place?;
        Some(order.iter().position(|&known| known == place).unwrap_or_else(|| {
            order.push(place);
            order.len() - 1
        }))
    };
    let numbers: Option<Vec<usize>> = places.map(number).collect();
    numbers.filter(|_| order.len() > 1).map(Into::into)
}

fn count(places: Option<&[usize]>) -> usize {
    places.map_or(1, |places| places.iter().max().map_or(1, |&most| most + 1))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Rank `me` of ranks on hosts, a letter each; those of one host share memory.
    pub(in crate::communicator) fn group(me: usize, hosts: &str) -> Group {
        let index = |host: char| usize::from(host as u8 - b'a');
        let info = |(rank, host): (usize, char)| RankInfo {
            rank,
            pid: 100 + rank as u32,
            host: host.to_string(),
            host_index: index(host),
            cpu: None,
            numa: None,
        };
        let ranks: Vec<RankInfo> = hosts.chars().enumerate().map(info).collect();
        let shared = ranks.iter().map(|other| other.rank != me && other.host_index == ranks[me].host_index).collect();
        let world_ranks = (0..ranks.len()).collect();
        let open = vec![true; ranks.len()];
        Group::new(7, me, ranks, world_ranks, shared, open, 1)
    }

    #[test]
    fn hosts_and_transports() {
        let facts = |me, hosts| {
            let group = group(me, hosts);
            (group.host_count(), group.all_shared, group.transport())
        };
        assert_eq!(facts(0, "a"), (1, true, "self"));
        assert_eq!(facts(1, "aaa"), (1, true, "shm"));
        assert_eq!(facts(0, "ab"), (2, false, "tcp"));
        assert_eq!(facts(0, "aab"), (2, false, "shm+tcp"));
        assert_eq!(facts(2, "aab"), (2, false, "tcp"));
        assert_eq!(group(0, "abab").hosts.as_deref(), Some(&[0, 1, 0, 1][..]));
    }

    #[test]
    fn ranks_of_one_host_that_share_no_memory_use_sockets() {
        let ranks = group(0, "aa").ranks;
        let group = Group::new(7, 0, ranks, vec![0, 1], vec![false; 2], vec![false; 2], 1);
        assert_eq!((group.host_count(), group.all_shared, group.transport()), (1, false, "tcp"));
    }

    #[test]
    fn numa_nodes_count_on_one_host_where_all_are_known() {
        let on = |hosts: &str, numa: &[Option<usize>]| {
            let mut ranks = group(0, hosts).ranks;
            ranks.iter_mut().zip(numa).for_each(|(rank, node)| rank.numa = *node);
            let members = (0..ranks.len()).collect();
            let all = vec![true; hosts.len()];
            Group::new(7, 0, ranks, members, all.clone(), all, 1)
        };
        let two = on("aaaa", &[Some(8), Some(8), Some(0), Some(0)]);
        assert_eq!((two.nodes.as_deref(), two.node_count()), (Some(&[0, 0, 1, 1][..]), 2));
        assert_eq!(two.subset(9, &[0, 1]).node_count(), 1);
        assert_eq!(on("aa", &[Some(0), Some(0)]).node_count(), 1);
        assert_eq!(on("aa", &[Some(0), None]).node_count(), 1, "not known");
        assert_eq!(on("ab", &[Some(0), Some(1)]).node_count(), 1, "nodes of different hosts");
    }

    #[test]
    fn a_subset_is_numbered_anew() {
        let part = group(3, "aabbb").subset(9, &[4, 3, 0]).subset(11, &[1, 0]);
        assert_eq!((part.id, part.me, part.size()), (11, 0, 2));
        assert_eq!(part.world_ranks, [3, 4]);
        assert_eq!(part.ranks.iter().map(|info| (info.rank, info.pid)).collect::<Vec<_>>(), [(0, 103), (1, 104)]);
        assert_eq!((part.host_count(), part.all_shared, part.transport()), (1, true, "shm"), "both are on host b");
        let names = [3, 4, 0].map(|job_rank| part.name(job_rank).to_string());
        let expected = ["rank 0 (rank 3 of the job)", "rank 1 (rank 4 of the job)"];
        assert_eq!(names[..2], expected);
        assert_eq!(names[2], "rank 0 of the job (not in this communicator)");
        let apart = group(3, "aabbb").subset(9, &[4, 3, 0]);
        assert_eq!((apart.hosts.as_deref(), apart.shared), (Some(&[0, 0, 1][..]), vec![true, false, false]));
    }
}
