//! [`ShmLink`]: two rings, one a direction, and the doorbells of the two threads that use them.
//!
//! Small messages are copied when they are posted. Others wait in a queue of fixed size and go piece by piece: the sender
//! copies a piece in, the receiver copies or reduces it out of the ring, both at once. A call moves at most one piece, so
//! that a caller with several links, or both directions of one, keeps all of them moving.

use std::sync::Arc;

use super::Domain;
use super::doorbell::Bell;
use super::primitive::light_fence;
use super::ring::{BLOCK, Consumer, LEFT, LINE_PAYLOAD, Memory, Next, Piece, Producer, copy_small};
use crate::error::Error;
use crate::transport::{LinkError, Recv};

/// Messages that may wait to be sent.
const PENDING: u64 = 256;

/// Layout of a channel, the memory of one direction of a link. It lies in the sender's heap.
pub(crate) struct Channel;

impl Channel {
    /// Alignment in bytes.
    pub const ALIGN: usize = 128;
    /// Bulk bytes that keep both directions of a link within a second-level cache of 512 KiB.
    pub const BULK: usize = 128 << 10;

    /// Bytes of a channel with `bulk` bytes (a power of two, at least 4096) for pieces in flight.
    pub const fn size(bulk: usize) -> usize {
        Memory::size(bulk).next_multiple_of(Channel::ALIGN)
    }

    /// For [`Heap::retire`](super::Heap::retire): the word of the channel at `offset` that says that the peer has dropped its
    /// link and touches the channel no more.
    pub const fn left_word(offset: u64) -> u64 {
        offset + LEFT as u64
    }
}

/// Where the parts of a link lie. `outgoing` and `my_bell` are offsets in this rank's heap, the others in the peer's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// Channel of this rank's messages, `Channel::size(bulk)` bytes.
    pub outgoing: u64,
    /// Channel of the peer's messages, as large.
    pub incoming: u64,
    /// Doorbell of the peer's thread.
    pub peer_bell: u64,
    /// Bulk bytes of both channels.
    pub bulk: usize,
}

/// A link to a rank of the same host.
pub(crate) struct ShmLink {
    producer: Producer,
    consumer: Consumer,
    peer_bell: *const Bell,
    posted: u64,
    done: u64,
    /// Messages `done..posted`, at their number modulo [`PENDING`].
    pending: Box<[Pending]>,
    largest_piece: u64,
    bell_offset: u64,
    peer: usize,
    /// Keeps the mappings.
    domain: Arc<Domain>,
}

#[derive(Clone, Copy)]
struct Pending {
    src: *const u8,
    len: u64,
    sent: u64,
    stamp: u32,
}

// SAFETY: the pointers lead to shared memory that the domain keeps mapped, and to sources whose validity the callers
// vouch for, in whatever thread.
unsafe impl Send for ShmLink {}

impl ShmLink {
    /// A link to `peer`.
    ///
    /// # Safety
    /// - Both channels are reserved and were zeroed before either side made its link on them; no other link uses them, and
    ///   they stay reserved until both sides have dropped theirs (see [`Heap::retire`](super::Heap::retire)).
    /// - `peer_bell` is the offset of a doorbell of the peer.
    pub unsafe fn new(domain: &Arc<Domain>, peer: usize, parts: &Parts) -> crate::Result<ShmLink> {
        let Parts { outgoing, incoming, peer_bell, bulk } = *parts;
        let bad = |what: &str| Error::Protocol { peer: format!("rank {peer}"), what: format!("{what}: {parts:?}") };
        if !bulk.is_power_of_two() || bulk < 4096 {
            return Err(bad("bulk size of a channel"));
        }
        let place = |rank: Option<usize>, offset: u64, len: usize, align: usize| {
            let heap = domain.heap();
            let found = match rank {
                None => (offset.checked_add(len as u64)? <= heap.size()).then(|| heap.at(offset)),
                Some(rank) => domain.resolve(rank, offset, len as u64),
            };
            found.filter(|pointer| pointer.addr().is_multiple_of(align))
        };
        let size = Channel::size(bulk);
        let outgoing = place(None, outgoing, size, Channel::ALIGN).ok_or_else(|| bad("place of a channel"))?;
        let incoming = place(Some(peer), incoming, size, Channel::ALIGN).ok_or_else(|| bad("place of a channel"))?;
        let bell = place(Some(peer), peer_bell, size_of::<Bell>(), align_of::<Bell>());
        let bell = bell.ok_or_else(|| bad("place of a doorbell"))?;
        // SAFETY: both lie within mappings that the domain keeps; the caller vouches for the rest.
        let (producer, consumer) =
            unsafe { (Producer::new(Memory::at(outgoing, bulk)), Consumer::new(Memory::at(incoming, bulk))) };
        let empty = Pending { src: std::ptr::null(), len: 0, sent: 0, stamp: 0 };
        Ok(ShmLink {
            producer,
            consumer,
            peer_bell: bell.cast(),
            posted: 0,
            done: 0,
            pending: vec![empty; PENDING as usize].into(),
            largest_piece: (bulk / 4) as u64,
            bell_offset: peer_bell,
            peer,
            domain: domain.clone(),
        })
    }

    /// As [`Link::post_send`](crate::transport::Link::post_send).
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_send(&mut self, src: *const u8, len: usize, stamp: u32) -> Result<bool, LinkError> {
        if len <= LINE_PAYLOAD && self.posted == self.done && self.producer.has_room() {
            // SAFETY: there is room, and the caller vouches for the source.
            unsafe { self.producer.put_inline(src, len, stamp) };
            self.posted += 1;
            self.done += 1;
            self.ring();
            return Ok(true);
        }
        self.queue(src, len, stamp)
    }

    #[inline(never)]
    fn queue(&mut self, src: *const u8, len: usize, stamp: u32) -> Result<bool, LinkError> {
        if self.posted - self.done == PENDING {
            return Ok(false);
        }
        self.pending[(self.posted % PENDING) as usize] = Pending { src, len: len as u64, sent: 0, stamp };
        self.posted += 1;
        self.progress()?;
        Ok(true)
    }

    /// Messages queued since the link was made.
    #[inline]
    pub fn sends_posted(&self) -> u64 {
        self.posted
    }

    /// Messages, in order, whose source may be overwritten.
    #[inline]
    pub fn sends_done(&self) -> u64 {
        self.done
    }

    /// Moves small messages and at most one piece out; whether anything moved.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, LinkError> {
        Ok(self.posted != self.done && self.send_pending())
    }

    #[inline(never)]
    fn send_pending(&mut self) -> bool {
        let before = self.done;
        while self.done != self.posted && self.producer.has_room() {
            let message = &mut self.pending[(self.done % PENDING) as usize];
            let Pending { src, len, sent, stamp } = *message;
            if len <= LINE_PAYLOAD as u64 {
                // SAFETY: there is room; the source is valid until this message is done, by the contract of `post_send`.
                unsafe { self.producer.put_inline(src, len as usize, stamp) };
                self.done += 1;
                continue;
            }
            // SAFETY: the source is valid, as above, and `sent` is below `len` or the message would be done.
            let moved = unsafe { self.producer.put_piece(src, len, sent, self.largest_piece, stamp) };
            message.sent += moved;
            self.done += u64::from(message.sent == len);
            if moved > 0 {
                self.ring();
            }
            return moved > 0 || self.done != before;
        }
        self.ring();
        self.done != before
    }

    /// As [`Link::poll_recv`](crate::transport::Link::poll_recv); takes at most one piece.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn poll_recv(&mut self, recv: &mut Recv<'_>) -> Result<bool, LinkError> {
        let Some(word) = self.consumer.peek() else { return Ok(false) };
        if recv.len <= LINE_PAYLOAD && word == self.consumer.word_of(recv.len, recv.stamp) {
            // SAFETY: the word says that the next line is an inline message of `recv.len` bytes.
            let told = unsafe { self.consumer.take_inline(|payload| take(payload, recv, recv.len)) };
            recv.done = recv.len;
            if told {
                self.ring();
            }
            return Ok(true);
        }
        // SAFETY: the caller vouches for `recv`.
        unsafe { self.receive_piece(word, recv) }
    }

    /// # Safety
    /// `word` was just peeked; `recv` is as `poll_recv` needs it.
    #[inline(never)]
    unsafe fn receive_piece(&mut self, word: u64, recv: &mut Recv<'_>) -> Result<bool, LinkError> {
        let stamp = word as u32;
        if stamp != recv.stamp {
            return Err(LinkError::Stamp { got: stamp });
        }
        let piece = match self.consumer.next(word) {
            Next::Piece(piece) => piece,
            Next::Inline(len) => return Err(LinkError::Length { got: len as u64 }),
            Next::Damaged => return Err(LinkError::Protocol("a line of the ring makes no sense".into())),
        };
        let Piece { total, offset, len, .. } = piece;
        if total != recv.len as u64 {
            return Err(LinkError::Length { got: total });
        }
        if offset != recv.done as u64 || (offset + len < total && len % BLOCK as u64 != 0) {
            return Err(LinkError::Protocol(format!("piece of {len} bytes at {offset} came at {}", recv.done)));
        }
        // SAFETY: the piece is of the next line; its bytes lie within the message, whose destination the caller vouches for.
        unsafe { self.consumer.take_piece(piece, |bytes| take(bytes, recv, len as usize)) };
        recv.done += len as usize;
        self.ring();
        Ok(true)
    }

    /// Rings the peer's doorbell after something was published for it.
    #[inline]
    fn ring(&self) {
        light_fence();
        // SAFETY: the doorbell lies in a mapping that the domain keeps, and is an atomic.
        let bell = unsafe { &*self.peer_bell };
        if bell.is_asleep() {
            self.wake(bell);
        }
    }

    #[cold]
    fn wake(&self, bell: &Bell) {
        self.domain.ring(self.peer, self.bell_offset, bell);
    }
}

/// Consumes `len` received bytes, which go where `recv.done` says.
///
/// # Safety
/// `received` is valid for `len` bytes, and `recv` has room for them as `Link::poll_recv` demands.
#[inline]
unsafe fn take(received: *const u8, recv: &Recv<'_>, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let dst = recv.dst.add(recv.done);
        match recv.reducer {
            None if len <= LINE_PAYLOAD => copy_small(received, dst, len),
            None => std::ptr::copy_nonoverlapping(received, dst, len),
            Some(reducer) => {
                let count = len >> reducer.element_size().trailing_zeros();
                reducer.combine(dst, recv.operand.add(recv.done), received, count);
            }
        }
    }
}
