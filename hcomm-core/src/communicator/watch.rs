//! What a waiting call looks at, and the errors that it ends with: each names ranks, and all ranks of a job agree on the
//! first failure through the control plane.

use std::time::{Duration, Instant};

use super::call::describe;
use super::group::Group;
use super::world::World;
use crate::control::Verdict;
use crate::engine::LaneFault;
use crate::error::{Error, OperationName, RankName, Result};
use crate::transport::LinkError;

/// A call under way, for questions about it.
pub(crate) struct Watch<'a> {
    pub world: &'a World,
    pub group: &'a Group,
    /// What its lane's calls are told apart by in the control plane.
    pub activity: u64,
    pub name: &'a OperationName,
    pub number: u64,
    /// With whom it is, where that is not the whole group.
    pub only: Vec<usize>,
}

/// A death is seen on a connection before the control plane knows whether the rank had left in good order.
const VERDICT_PATIENCE: Duration = Duration::from_secs(2);

impl Watch<'_> {
    /// Looks at what the control plane knows and at the deadline. `since` is when the call last moved, `waits_for` are the
    /// ranks of the group without which it cannot go on.
    pub fn check(&self, since: Option<Instant>, waits_for: impl Iterator<Item = usize>) -> Result<()> {
        let waited = since.map(|since| since.elapsed()).unwrap_or_default();
        let Some(membership) = &self.world.membership else { return Ok(()) };
        if let Some(verdict) = membership.verdict() {
            return Err(self.error_of(verdict, waited));
        }
        // A rank that died becomes the verdict; one that left in good order will never come either. Others may well have
        // left: their part was done.
        if waited > VERDICT_PATIENCE {
            let vanished = self.world.domain.closed_peers();
            for rank in waits_for {
                let world_rank = self.group.world_ranks[rank];
                if membership.has_left(world_rank) {
                    return Err(self.lost(rank, "it has left the job".into(), waited));
                }
                if vanished.contains(&world_rank) {
                    return Err(self.lost(rank, "its process ended".into(), waited));
                }
            }
        }
        if waited > self.world.config.timeout {
            let timeout = |missing| Error::Timeout { operation: self.operation(), waited, missing };
            return Err(match self.missing() {
                Ok(missing) => self.agreed(timeout(missing), waited),
                // Without the store there is nothing to agree by.
                Err(error) => timeout(self.silent_store(&error)),
            });
        }
        Ok(())
    }

    /// The error behind a link's fault.
    pub fn fault(&self, fault: LaneFault, since: Option<Instant>) -> Error {
        let waited = since.map(|since| since.elapsed()).unwrap_or_default();
        match fault.error {
            LinkError::Closed(cause) => self.lost(fault.peer, cause, waited),
            LinkError::Stamp { .. } | LinkError::Length { .. } => {
                let (mine, theirs) = self.disagreement(fault.peer);
                let error =
                    Error::Mismatch { rank: self.name(self.group.me), mine, peer: self.name(fault.peer), theirs };
                self.agreed(error, waited)
            }
            LinkError::Protocol(what) => {
                let peer = format!("{} on {}", self.name(fault.peer), self.group.ranks[fault.peer].host);
                self.agreed(Error::Protocol { peer, what }, waited)
            }
            LinkError::Memory(cause) => {
                let what = format!("read memory of {} on {}", self.name(fault.peer), self.group.ranks[fault.peer].host);
                let advice = "HCOMM_SINGLE_COPY=off copies buffers through shared memory instead";
                self.agreed(Error::system(what, format!("{cause}; {advice} ({})", self.operation())), waited)
            }
        }
    }

    /// Whether the buffers that `rank` of the group lent for this call were its own to the end: had it failed, they would have been its
    /// user's again, and what was read there is void.
    #[inline]
    pub fn stands(&self, rank: usize) -> Result<()> {
        match self.world.domain.gave_up(self.group.world_ranks[rank]) {
            true => Err(self.lost(rank, "an operation of it failed".into(), Duration::ZERO)),
            false => Ok(()),
        }
    }

    fn operation(&self) -> OperationName {
        OperationName(format!("{} #{}", self.name, self.number))
    }

    /// `rank` of the group, for errors.
    fn name(&self, rank: usize) -> RankName {
        self.group.name(self.group.world_ranks[rank])
    }

    /// `rank` (of the group) is lost, or whoever the job agrees was lost first.
    fn lost(&self, rank: usize, cause: String, waited: Duration) -> Error {
        let world_rank = self.group.world_ranks[rank];
        match &self.world.membership {
            Some(membership) => self.error_of(&membership.report_lost(world_rank, &cause), waited),
            None => Error::PeerLost {
                rank: self.name(rank),
                host: self.group.ranks[rank].host.clone(),
                cause,
                operation: self.operation(),
                waited,
            },
        }
    }

    /// This rank's own error, told to the others; an earlier failure of the job wins.
    fn agreed(&self, error: Error, waited: Duration) -> Error {
        let Some(membership) = &self.world.membership else { return error };
        match &*membership.report_abort(&error.to_string()) {
            Verdict::Aborted { rank, .. } if *rank == self.world.place.rank => error,
            verdict => self.error_of(verdict, waited),
        }
    }

    fn error_of(&self, verdict: &Verdict, waited: Duration) -> Error {
        match verdict {
            Verdict::Lost { rank, host, cause } => Error::PeerLost {
                rank: self.group.name(*rank),
                host: host.clone(),
                cause: cause.clone(),
                operation: self.operation(),
                waited,
            },
            Verdict::Aborted { rank, text } => Error::Aborted { rank: self.group.name(*rank), cause: text.clone() },
        }
    }

    /// The ranks that have not come to this call, in words.
    fn missing(&self) -> Result<String> {
        let Some(membership) = &self.world.membership else { return Ok("nothing is known of the others".into()) };
        let world_rank = |rank: &usize| self.group.world_ranks[*rank];
        let laggards = match self.only[..] {
            [] => membership.laggards(self.activity, self.number, self.group.world_ranks.iter().copied())?,
            // Messages have no call number: wherever their partners are, it is not here.
            _ => membership.laggards(self.activity, u64::MAX, self.only.iter().map(world_rank))?,
        };
        if laggards.is_empty() {
            // One that was stopped in the middle of the call has come to it.
            let all = membership.laggards(self.activity, u64::MAX, self.group.world_ranks.iter().copied())?;
            let stopped = all.iter().filter(|one| one.is_silent()).map(|one| {
                let silent = one.silent.unwrap_or_default().as_secs_f64();
                format!(
                    "{} on {} has come to this call, but is silent for {silent:.1} s",
                    self.group.name(one.rank),
                    one.host
                )
            });
            let stopped = stopped.collect::<Vec<_>>().join("; ");
            return Ok(match stopped.is_empty() {
                true => "all ranks have come to this call, but its data does not move; look at the links between them"
                    .into(),
                false => stopped,
            });
        }
        Ok(laggards.iter().map(|one| one.describe(self.group.name(one.rank))).collect::<Vec<_>>().join("; "))
    }

    /// Who is missing, when the store that would know does not answer.
    fn silent_store(&self, error: &Error) -> String {
        match self.world.place.store_rank.filter(|rank| *rank != self.world.place.rank) {
            Some(rank) => {
                format!(
                    "{} on {}, which serves the store, does not answer ({error})",
                    self.group.name(rank),
                    self.world.host_of(rank)
                )
            }
            None => format!("who has not come is not known: {error}"),
        }
    }

    /// Where the calls of this rank and of `peer` part: this rank's, and the peer's.
    ///
    /// A call that only sends is over before anyone can object, so that it may have been an earlier one than that which met
    /// the wrong message.
    fn disagreement(&self, peer: usize) -> (OperationName, OperationName) {
        // The peer's next heartbeat tells of the call that it is in now.
        std::thread::sleep(2 * self.world.config.heartbeat_interval);
        let recent = |rank: usize| {
            let calls = self.world.membership.as_ref()?.recent_calls(self.activity, self.group.world_ranks[rank]);
            calls.ok().filter(|calls| !calls.is_empty() && self.only.is_empty())
        };
        let name = |(number, words): &(u64, String)| OperationName(format!("{words} #{number}"));
        let (Some(mine), Some(theirs)) = (recent(self.group.me), recent(peer)) else {
            return (self.operation(), OperationName("something else".into()));
        };
        let other_at =
            |(number, words): &&(u64, String)| theirs.iter().find(|other| other.0 == *number && other.1 != *words);
        if let Some((mine, theirs)) = mine.iter().rev().find_map(|call| Some((call, other_at(&call)?))) {
            return (name(mine), name(theirs));
        }
        let theirs = match &theirs[0] {
            latest if latest.0 == self.number => OperationName(format!(
                "{} #{} with other counts of single ranks, in place or not, or with other settings",
                latest.1, latest.0
            )),
            latest => name(latest),
        };
        (self.operation(), theirs)
    }
}

impl World {
    pub(super) const DESCRIBE: fn(&[u64; 4]) -> String = describe;
}
