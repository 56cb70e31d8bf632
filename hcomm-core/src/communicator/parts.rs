//! How a lane comes to be: each rank reserves its part of the shared memory, tells the members where it lies, and
//! connects to theirs.

#![allow(unsafe_code)] // vouches for the memory of channels

use std::sync::Arc;

use super::group::Group;
use super::world::World;
use crate::engine::{Lane, LaneMemory, MAX_TRACKS, WaitPolicy};
use crate::error::{Error, Result};
use crate::session::handshake::LinkId;
use crate::transport::Link;
use crate::transport::shm::{Channel, Doorbell, HeapRange, Parts, ShmLink};

/// This rank's part of a new lane, before the others know of it.
pub(crate) struct LaneParts {
    doorbell: Option<Doorbell>,
    /// All channels.
    memory: Option<HeapRange>,
    /// By `track * size + peer`: offset of the channel to that peer, for peers that share memory.
    channels: Vec<Option<u64>>,
}

/// Says "no offset" in the encoded form.
const NONE: u64 = u64::MAX;

/// Bulk bytes of each channel: the pieces in flight should stay in the processor's own cache, and many ranks on few
/// processors gain nothing from deep queues.
fn bulk(local_ranks: usize) -> usize {
    match local_ranks {
        0..=4 => Channel::BULK,
        5..=8 => Channel::BULK / 2,
        _ => Channel::BULK / 4,
    }
}

impl LaneParts {
    /// Reserves a doorbell, and for each member that shares memory a channel a track.
    pub fn reserve(world: &World, shared: &[bool]) -> Result<Self> {
        let any = shared.iter().any(|&s| s);
        let doorbell = any.then(|| Doorbell::new(&world.heap)).transpose()?;
        // One reservation for all: each costs a system call.
        let bytes = Channel::size(bulk(world.local_ranks));
        let count = shared.iter().filter(|&&s| s).count() * MAX_TRACKS;
        let memory = any.then(|| world.heap.alloc(count * bytes, Channel::ALIGN)).transpose()?;
        let mut next = memory.map_or(0, |range| range.offset);
        let mut channels = Vec::with_capacity(shared.len() * MAX_TRACKS);
        for &shared in (0..MAX_TRACKS).flat_map(|_| shared) {
            channels.push(shared.then_some(next));
            next += if shared { bytes as u64 } else { 0 };
        }
        Ok(Self { doorbell, memory, channels })
    }

    /// What the members need to know: the doorbell's offset, then the channels'.
    pub fn encode(&self) -> Vec<u64> {
        let doorbell = self.doorbell.as_ref().map_or(NONE, Doorbell::offset);
        let channels = self.channels.iter().map(|channel| channel.unwrap_or(NONE));
        std::iter::once(doorbell).chain(channels).collect()
    }

    /// Connects to the members' parts, given in their encoded forms by rank of the group.
    pub fn connect(self, world: &World, group: &Group, lane: u32, theirs: &[Vec<u64>]) -> Result<Lane> {
        let size = group.size();
        let offset = |rank: usize, index: usize| -> Result<u64> {
            let offset = theirs.get(rank).and_then(|part| part.get(index)).copied();
            offset.filter(|&offset| offset != NONE).ok_or_else(|| {
                Error::Startup(format!("rank {rank} offers no shared memory, though it is on this host"))
            })
        };
        let words = self.channels.iter().flatten().map(|&channel| Channel::left_word(channel)).collect();
        let memory = self.memory.map(|range| LaneMemory { heap: Arc::clone(&world.heap), range, words });
        let mut links = Vec::with_capacity(self.channels.len());
        for (index, channel) in self.channels.into_iter().enumerate() {
            let (track, peer) = (index / size, index % size);
            links.push(match channel {
                _ if peer == group.me => None,
                Some(outgoing) => {
                    let parts = Parts {
                        outgoing,
                        incoming: offset(peer, 1 + track * size + group.me)?,
                        peer_bell: offset(peer, 0)?,
                        bulk: bulk(world.local_ranks),
                    };
                    // SAFETY: the channels were reserved for this pair, track and lane alone, fresh and zero, and are
                    // retired only when both sides have left; the doorbell is the peer's for this lane.
                    Some(Link::Shm(unsafe { ShmLink::new(&world.domain, group.world_ranks[peer], &parts)? }))
                }
                None => {
                    let id = LinkId { communicator: group.id, lane: lane * MAX_TRACKS as u32 + track as u32 };
                    Some(Link::Tcp(world.tcp_link(group.world_ranks[peer], id)?))
                }
            });
        }
        let sockets = links.iter().any(|link| matches!(link, Some(Link::Tcp(_))));
        let policy = WaitPolicy::new(world.local_ranks, world.processors, sockets);
        Ok(Lane::new(size, links, self.doorbell, policy, memory))
    }
}
