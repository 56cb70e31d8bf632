//! Links: ordered messages between two ranks, with no tags. The engine knows nothing else of a transport.
//!
//! A link belongs to one *lane* of a communicator: a lane is used by one thread at a time, and what is sent on one lane
//! never waits for another. Links never block: they move what can be moved now and return.

#![allow(unsafe_code)] // forwards the contract of raw pointers to the transports

pub(crate) mod shm;
pub(crate) mod tcp;

use crate::reduce::Reducer;

/// A message being received. `done` is the only field that a link changes.
pub(crate) struct Recv<'a> {
    /// Where the bytes (or the reduced elements) go.
    pub dst: *mut u8,
    /// With a reducer: the local operand, which may be `dst`.
    pub operand: *const u8,
    /// `None` copies; otherwise `dst = operand op received`, in pieces of whole elements.
    pub reducer: Option<&'a Reducer>,
    /// Bytes expected.
    pub len: usize,
    /// Bytes consumed so far, always whole elements.
    pub done: usize,
    /// What the sender must have posted the message with.
    pub stamp: u32,
}

/// Why a link cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkError {
    /// The peer is gone; the text says how that was seen.
    Closed(String),
    /// The next message belongs to another call: the stamps differ.
    Stamp {
        /// The stamp that came.
        got: u32,
    },
    /// The message has another length than expected, which equal stamps exclude: a fault of ours or of the wire.
    Length {
        /// Bytes that came.
        got: u64,
    },
    /// The peer sent something that is not hcomm's protocol.
    Protocol(String),
    /// The peer lives, but memory that it named cannot be read; the text says why.
    Memory(String),
}

/// One connection to one peer on one lane.
pub(crate) enum Link {
    /// Same host.
    Shm(shm::ShmLink),
    /// Another host (or shm switched off).
    Tcp(tcp::TcpLink),
}

impl Link {
    /// Queues a message; `false` when the queue is full and nothing was taken. A small message may be copied and done
    /// at once. Moves what can be moved.
    ///
    /// # Safety
    /// `src..src+len` stays valid and unchanged until [`Link::sends_done`] has passed this message or the link is dropped.
    pub unsafe fn post_send(&mut self, src: *const u8, len: usize, stamp: u32) -> Result<bool, LinkError> {
        match self {
            // SAFETY: the caller's promise is the one that the transports ask for.
            Link::Shm(link) => unsafe { link.post_send(src, len, stamp) },
            // SAFETY: as above.
            Link::Tcp(link) => unsafe { link.post_send(src, len, stamp) },
        }
    }

    /// Messages queued since the link was made.
    pub fn sends_posted(&self) -> u64 {
        match self {
            Link::Shm(link) => link.sends_posted(),
            Link::Tcp(link) => link.sends_posted(),
        }
    }

    /// Messages, in order, whose source may be overwritten and that reach the peer without another call of this link.
    pub fn sends_done(&self) -> u64 {
        match self {
            Link::Shm(link) => link.sends_done(),
            Link::Tcp(link) => link.sends_done(),
        }
    }

    /// Moves queued bytes out; whether anything moved.
    pub fn progress(&mut self) -> Result<bool, LinkError> {
        match self {
            Link::Shm(link) => link.progress(),
            Link::Tcp(link) => link.progress(),
        }
    }

    /// Moves what has come of the next message into `recv`; whether anything moved. The message is complete, and the
    /// link at the next one, when this returned `true` and `recv.done == recv.len`. A message of no bytes is complete when
    /// `true` is returned.
    ///
    /// # Safety
    /// `dst` is valid for writes and `operand` for reads of `len` bytes, and nothing else accesses `dst` meanwhile.
    pub unsafe fn poll_recv(&mut self, recv: &mut Recv<'_>) -> Result<bool, LinkError> {
        match self {
            // SAFETY: the caller's promise is the one that the transports ask for.
            Link::Shm(link) => unsafe { link.poll_recv(recv) },
            // SAFETY: as above.
            Link::Tcp(link) => unsafe { link.poll_recv(recv) },
        }
    }
}
