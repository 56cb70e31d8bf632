//! A lane: the links of one thread to all members of a communicator, and how that thread sleeps.

#![allow(unsafe_code)] // passes raw buffers on to links

use std::sync::Arc;
use std::time::Duration;

use super::wait::WaitPolicy;
use crate::error::{Error, Result};
use crate::transport::shm::{Doorbell, Heap, HeapRange};
use crate::transport::{Link, LinkError, Recv};

/// Independent tracks that a plan may have: each (peer, track) has a link of its own. A track keeps one message in flight, so
/// some are needed to keep a wire busy while a chunk is reduced; more than a few only share it.
pub(crate) const MAX_TRACKS: usize = 4;

/// A link's fault, with the peer at its other end.
#[derive(Debug)]
pub(crate) struct LaneFault {
    pub peer: usize,
    pub error: LinkError,
}

impl LaneFault {
    pub fn link(peer: usize, error: LinkError) -> Self {
        Self { peer, error }
    }
}

/// Links of one thread at a time.
pub(crate) struct Lane {
    size: usize,
    /// By `track * size + peer`; none to this rank itself.
    links: Vec<Option<Link>>,
    /// None where no rank shares memory with this one and so none could ring.
    doorbell: Option<Doorbell>,
    policy: WaitPolicy,
    /// 64-byte aligned by its element.
    scratch: Vec<Block>,
    pollfds: Vec<libc::pollfd>,
    has_sockets: bool,
    /// After the links, which say goodbye in it.
    _memory: Option<LaneMemory>,
}

/// The channels of a lane, given back when every peer has let go of them too: a slower one may still read the last messages
/// there.
pub(crate) struct LaneMemory {
    pub heap: Arc<Heap>,
    pub range: HeapRange,
    /// Where each peer writes that it has left.
    pub words: Vec<u64>,
}

impl Drop for LaneMemory {
    fn drop(&mut self) {
        self.heap.retire(self.range, std::mem::take(&mut self.words));
    }
}

/// A cache line of scratch.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block(#[allow(dead_code)] [u8; 64]);

impl Lane {
    /// `links` by `track * size + peer`.
    pub fn new(
        size: usize,
        links: Vec<Option<Link>>,
        doorbell: Option<Doorbell>,
        policy: WaitPolicy,
        memory: Option<LaneMemory>,
    ) -> Self {
        let has_sockets = links.iter().any(|link| matches!(link, Some(Link::Tcp(_))));
        Self { size, links, doorbell, policy, scratch: Vec::new(), pollfds: Vec::new(), has_sockets, _memory: memory }
    }

    pub fn policy(&self) -> WaitPolicy {
        self.policy
    }

    /// Index of a (peer, track) in lists that a lane makes.
    #[inline]
    pub fn index(&self, peer: usize, track: usize) -> usize {
        track * self.size + peer
    }

    /// The peer of [`Lane::index`].
    pub fn peer(&self, index: usize) -> usize {
        index % self.size
    }

    /// Peers that have not taken all that was sent to them.
    pub fn unsent(&self) -> impl Iterator<Item = usize> {
        let waits = |link: &Link| link.sends_done() != link.sends_posted();
        let links = self.links.iter().enumerate();
        links.filter(move |(_, link)| link.as_ref().is_some_and(waits)).map(|(index, _)| self.peer(index))
    }

    #[inline]
    pub fn link(&mut self, peer: usize, track: usize) -> Option<&mut Link> {
        let index = self.index(peer, track);
        self.links.get_mut(index)?.as_mut()
    }

    /// Messages posted so far on each link of the first `tracks` tracks.
    pub fn posted_counts(&self, tracks: usize, out: &mut Vec<u64>) {
        out.clear();
        let links = &self.links[..(tracks * self.size).min(self.links.len())];
        out.extend(links.iter().map(|link| link.as_ref().map_or(0, Link::sends_posted)));
    }

    /// Scratch of at least `bytes`, kept from run to run; its content is what the last run left.
    pub fn scratch(&mut self, bytes: usize) -> *mut u8 {
        let blocks = bytes.div_ceil(size_of::<Block>());
        if self.scratch.len() < blocks {
            self.scratch.resize(blocks, Block([0; 64]));
        }
        self.scratch.as_mut_ptr().cast()
    }

    /// Queues a message; `false` when the link takes no more now.
    ///
    /// # Safety
    /// As for [`Link::post_send`].
    #[inline]
    pub unsafe fn post(
        &mut self,
        peer: usize,
        track: usize,
        src: *const u8,
        len: usize,
        stamp: u32,
    ) -> std::result::Result<bool, LaneFault> {
        let link = self.link(peer, track).ok_or_else(|| no_link(peer))?;
        // SAFETY: the caller's promise.
        unsafe { link.post_send(src, len, stamp) }.map_err(|e| LaneFault::link(peer, e))
    }

    /// Receives what has come of the next message of a peer.
    ///
    /// # Safety
    /// As for [`Link::poll_recv`].
    #[inline]
    pub unsafe fn poll_recv(
        &mut self,
        peer: usize,
        track: usize,
        recv: &mut Recv<'_>,
    ) -> std::result::Result<bool, LaneFault> {
        let link = self.link(peer, track).ok_or_else(|| no_link(peer))?;
        // SAFETY: the caller's promise.
        unsafe { link.poll_recv(recv) }.map_err(|e| LaneFault::link(peer, e))
    }

    /// Announces a sleep: from now on peers ring. Links must be polled once more before [`Lane::sleep`].
    pub fn arm(&mut self) {
        if let Some(doorbell) = &mut self.doorbell {
            doorbell.prepare();
        }
    }

    /// Takes the announcement back.
    pub fn disarm(&mut self) {
        if let Some(doorbell) = &mut self.doorbell {
            doorbell.cancel();
        }
    }

    /// Sleeps until a peer rings, a socket is ready, or `nap` is over. `awaited` are the links (by [`Lane::index`]) from
    /// which messages are awaited, and their bytes: what comes on others must not end the sleep.
    pub fn sleep(&mut self, nap: Duration, awaited: &[(usize, usize)]) {
        if !self.has_sockets {
            match &mut self.doorbell {
                Some(doorbell) => doorbell.sleep_futex(nap),
                None => std::thread::sleep(nap),
            }
            return;
        }
        self.pollfds.clear();
        let mut nap = nap;
        for (index, link) in self.links.iter().enumerate() {
            if let Some(Link::Tcp(link)) = link {
                let message = awaited.iter().find(|(link, _)| *link == index).map(|(_, bytes)| *bytes);
                let sooner = link.sleep(message, &mut self.pollfds);
                nap = sooner.map_or(nap, |sooner| nap.min(sooner));
            }
        }
        let slept = match &mut self.doorbell {
            Some(doorbell) => doorbell.sleep_poll(&mut self.pollfds, nap),
            None => poll(&mut self.pollfds, nap),
        };
        if slept.is_err() {
            // Polling goes on without a sleep that the system refuses; only the processor notices.
            std::thread::yield_now();
        }
    }
}

fn poll(fds: &mut [libc::pollfd], timeout: Duration) -> Result<()> {
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos() as _ };
    // SAFETY: the array has as many entries as are named, and no signal mask is given.
    match unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &timeout, std::ptr::null()) } {
        -1 => Err(Error::system("poll", std::io::Error::last_os_error())),
        _ => Ok(()),
    }
}

#[cold]
fn no_link(peer: usize) -> LaneFault {
    LaneFault { peer, error: LinkError::Protocol("the plan uses a link that this lane does not have".into()) }
}
