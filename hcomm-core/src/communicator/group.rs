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
    ) -> Self {
        let mut order: Vec<usize> = Vec::new();
        let hosts: Vec<usize> = ranks
            .iter()
            .map(|rank| match order.iter().position(|&host| host == rank.host_index) {
                Some(at) => at,
                None => {
                    order.push(rank.host_index);
                    order.len() - 1
                }
            })
            .collect();
        let all_shared = shared.iter().enumerate().all(|(rank, &s)| s || rank == me) && order.len() == 1;
        let hosts = (order.len() > 1).then(|| hosts.into());
        let all_open = all_shared && open.iter().all(|&open| open);
        Self { id, me, ranks, world_ranks, hosts, shared, all_shared, open, all_open }
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
        self.hosts.as_ref().map_or(1, |hosts| hosts.iter().max().map_or(1, |&most| most + 1))
    }

    /// The group of `members` (ranks of this group, in the new order); this rank is one of them.
    pub fn subset(&self, id: u64, members: &[usize]) -> Self {
        let me = members.iter().position(|&m| m == self.me).expect("a rank makes only groups that it is in");
        let ranks =
            members.iter().enumerate().map(|(rank, &member)| RankInfo { rank, ..self.ranks[member].clone() }).collect();
        let world_ranks = members.iter().map(|&m| self.world_ranks[m]).collect();
        let [shared, open] = [&self.shared, &self.open].map(|all| members.iter().map(|&m| all[m]).collect());
        Self::new(id, me, ranks, world_ranks, shared, open)
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
        Group::new(7, me, ranks, world_ranks, shared, open)
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
        let group = Group::new(7, 0, ranks, vec![0, 1], vec![false; 2], vec![false; 2]);
        assert_eq!((group.host_count(), group.all_shared, group.transport()), (1, false, "tcp"));
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
