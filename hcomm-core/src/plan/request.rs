//! What a request means: its sizes, and whether it makes sense.

use super::{Algorithm, Collective, Counts, Request};
use crate::error::{Error, Result};

impl Request {
    /// Elements that rank i gives to the block layout of gathering and scattering collectives.
    pub(super) fn block(&self, rank: usize) -> u64 {
        match &self.counts {
            Counts::Even(count) => *count,
            Counts::PerRank(counts) => counts.get(rank).copied().unwrap_or(0),
            Counts::Matrix(_) => 0,
        }
    }

    /// What rank `from` sends to rank `to` in an all_to_all.
    pub(super) fn pair(&self, from: usize, to: usize) -> u64 {
        match &self.counts {
            Counts::Even(count) => *count,
            Counts::PerRank(_) => 0,
            Counts::Matrix(counts) => counts.get(from * self.ranks + to).copied().unwrap_or(0),
        }
    }

    /// Elements before rank i's block.
    pub(super) fn displacement(&self, rank: usize) -> u64 {
        match &self.counts {
            Counts::Even(count) => *count * rank as u64,
            _ => (0..rank).map(|before| self.block(before)).sum(),
        }
    }

    fn total(&self) -> u64 {
        self.displacement(self.ranks)
    }

    /// Elements of `rank`'s input.
    pub fn input_count(&self, rank: usize) -> u64 {
        match self.collective {
            Collective::AllReduce | Collective::Reduce | Collective::SendRecv => self.block(rank),
            Collective::AllGather | Collective::Gather => self.block(rank),
            Collective::Broadcast => self.on_root(rank, self.block(rank)),
            Collective::ReduceScatter => self.total(),
            Collective::Scatter => self.on_root(rank, self.total()),
            Collective::AllToAll => (0..self.ranks).map(|to| self.pair(rank, to)).sum(),
            Collective::Barrier => 0,
        }
    }

    /// Elements of `rank`'s output.
    pub fn output_count(&self, rank: usize) -> u64 {
        match self.collective {
            Collective::AllReduce | Collective::Broadcast | Collective::SendRecv => self.block(rank),
            Collective::ReduceScatter | Collective::Scatter => self.block(rank),
            Collective::Reduce => self.on_root(rank, self.block(rank)),
            Collective::AllGather => self.total(),
            Collective::Gather => self.on_root(rank, self.total()),
            Collective::AllToAll => (0..self.ranks).map(|from| self.pair(from, rank)).sum(),
            Collective::Barrier => 0,
        }
    }

    fn on_root(&self, rank: usize, count: u64) -> u64 {
        if rank == self.root { count } else { 0 }
    }

    /// Whether input and output of `rank` share memory: not where it has but one of them.
    pub(super) fn in_place_at(&self, rank: usize) -> bool {
        let root_only = matches!(
            self.collective,
            Collective::Broadcast | Collective::Reduce | Collective::Scatter | Collective::Gather
        );
        self.in_place && self.collective != Collective::Barrier && (!root_only || rank == self.root)
    }

    /// Whether [`super::build`] can answer this request, without building anything.
    ///
    /// # Errors
    /// [`Error::Argument`] for a request without meaning, [`Error::Unsuited`] where the algorithm does not fit it.
    pub fn supports(&self) -> Result<()> {
        self.check()?;
        match self.algorithm.unsuited(self) {
            None => Ok(()),
            Some(reason) => Err(Error::Unsuited {
                algorithm: self.algorithm.name(),
                collective: self.collective.name(),
                reason: reason.to_string(),
            }),
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::Argument { call: self.collective.name(), reason });
        let n = self.ranks;
        if n == 0 {
            return wrong("a collective needs at least 1 rank".into());
        }
        if self.root >= n {
            return wrong(format!("root {} of {n} ranks: the last rank is {}", self.root, n - 1));
        }
        if self.chunk == 0 || self.channels == 0 {
            return wrong(format!("chunk {} and channels {} must be at least 1", self.chunk, self.channels));
        }
        if let Some(hosts) = self.hosts.as_ref().filter(|hosts| hosts.len() != n) {
            return wrong(format!("{} hosts given for {n} ranks", hosts.len()));
        }
        let blocks = matches!(
            self.collective,
            Collective::ReduceScatter | Collective::AllGather | Collective::Scatter | Collective::Gather
        );
        let total = match &self.counts {
            Counts::Even(count) if blocks || self.collective == Collective::AllToAll => count.checked_mul(n as u64),
            Counts::Even(count) => Some(*count),
            Counts::PerRank(_) if !blocks => return wrong("takes one count, not one for each rank".into()),
            Counts::Matrix(_) if self.collective != Collective::AllToAll => {
                return wrong("takes no count for each pair of ranks".into());
            }
            Counts::PerRank(counts) if counts.len() != n => {
                return wrong(format!("{} counts given for {n} ranks", counts.len()));
            }
            Counts::Matrix(counts) if counts.len() != n * n => {
                return wrong(format!("{} counts given for {n} x {n} ranks", counts.len()));
            }
            Counts::PerRank(counts) | Counts::Matrix(counts) => {
                counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count))
            }
        };
        match total {
            Some(_) => Ok(()),
            None => wrong("the counts add up to more than 64 bits hold".into()),
        }
    }
}

impl Algorithm {
    /// Whether every element is folded from left to right by rank, in one go: then the bits depend on the data alone,
    /// not on counts, chunk size or channels. True as well where nothing is reduced.
    pub fn rank_ordered(self, collective: Collective) -> bool {
        !collective.reduces() || self == Algorithm::Direct
    }

    /// Why this algorithm is wrong for `request`, if it is. With one rank every algorithm is a copy.
    fn unsuited(self, request: &Request) -> Option<&'static str> {
        use Collective as C;
        if request.ranks == 1 {
            return None;
        }
        let (does, reason): (&[Collective], _) = match self {
            Algorithm::Ring => (
                &[C::AllReduce, C::ReduceScatter, C::AllGather, C::SendRecv],
                "a ring passes blocks around all ranks (all_reduce, reduce_scatter, all_gather, sendrecv); \
                 try chain, binomial or direct",
            ),
            Algorithm::RecursiveDoubling => (
                &[C::AllReduce, C::AllGather, C::Barrier],
                "it doubles what each rank knows (all_reduce, all_gather, barrier); try halving_doubling or direct",
            ),
            Algorithm::HalvingDoubling => (
                &[C::AllReduce, C::ReduceScatter],
                "it halves vectors while reducing (all_reduce, reduce_scatter); try recursive_doubling or direct",
            ),
            Algorithm::Tree => (
                &[C::AllReduce, C::Broadcast, C::Reduce],
                "a tree carries whole vectors (all_reduce, broadcast, reduce); try ring, binomial or direct",
            ),
            Algorithm::Direct => return None,
            Algorithm::Bruck => (
                &[C::AllGather, C::AllToAll, C::Barrier],
                "it moves blocks in log2(ranks) rounds (all_gather, all_to_all, barrier); try recursive_doubling or direct",
            ),
            Algorithm::Pairwise => (
                &[C::AllToAll, C::ReduceScatter, C::SendRecv],
                "it exchanges blocks pair by pair (all_to_all, reduce_scatter, sendrecv); try ring or direct",
            ),
            Algorithm::Binomial => (
                &[C::Broadcast, C::Reduce, C::Scatter, C::Gather],
                "it grows a tree from one root (broadcast, reduce, scatter, gather); try tree or direct",
            ),
            Algorithm::Chain => (
                &[C::AllReduce, C::Broadcast, C::Reduce],
                "a chain carries whole vectors (all_reduce, broadcast, reduce); try ring, binomial or direct",
            ),
            Algorithm::Hierarchical => (
                &[C::AllReduce, C::ReduceScatter, C::AllGather, C::Broadcast, C::Reduce, C::Barrier],
                "data meant for one rank gains nothing from going through others of its host; try binomial, pairwise or direct",
            ),
        };
        if !does.contains(&request.collective) {
            return Some(reason);
        }
        match (self, request.collective, &request.counts) {
            (Algorithm::RecursiveDoubling, C::AllGather, _) if !request.ranks.is_power_of_two() => {
                Some("its all_gather needs a power of two of ranks; bruck takes any number")
            }
            (Algorithm::Bruck, C::AllToAll, Counts::Matrix(_)) => {
                Some("its all_to_all needs equal counts, as blocks travel through other ranks; pairwise takes any")
            }
            _ => None,
        }
    }
}
