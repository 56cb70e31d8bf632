//! The sending half of a link: messages in order, cut into frames, given to whichever socket has room.
//!
//! A small message is copied behind its header into a stage, several of them if they are there, and all go out with one
//! call. A large one goes out from where it lies, header and payload in one call. Either is done when the kernel has taken
//! its last byte, not before: who has been told that all is done does not look at the link again.
//!
//! A message that fits one frame always goes by socket 0, so that its receiver need ask only that one; the frames of
//! larger ones go by any socket that is free.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use super::socket;
use crate::session::frame::{HEADER_BYTES, Header};

/// Payloads up to this size are copied: below it a copy costs less than the second run of a scattered send.
const COPY_BYTES: usize = 4096;

/// Stage of one socket: a handful of small messages.
const STAGE_BYTES: usize = 2 * (HEADER_BYTES + COPY_BYTES);

/// Bytes that the sockets of a link give to the kernel in one turn, so that receiving gets its own while data is in cache.
pub(super) const TURN_BYTES: usize = 256 << 10;

/// Largest frame where a message need not be cut: the length field has 32 bits.
const FRAME_LIMIT: usize = 1 << 30;

/// A source that the caller keeps valid until it is sent.
struct Message {
    src: *const u8,
    len: usize,
    stamp: u32,
    /// Bytes that are in frames already.
    framed: usize,
    /// Whether the last frame was cut (tells a message of no bytes that is queued from one that is out).
    cut: bool,
    /// Frames that some socket still holds.
    open: u32,
}

/// Messages that are not out yet, oldest first.
pub(super) struct SendQueue {
    messages: VecDeque<Message>,
    /// First message of which frames are still to be cut.
    cursor: usize,
    limit: usize,
    /// Frame size of a link with several sockets; `None` with one.
    stripe: Option<usize>,
    posted: u64,
    done: u64,
}

// SAFETY: the pointers are only read from, by the one thread that uses the link; `post_send`'s contract keeps them
// valid whichever thread that is.
unsafe impl Send for SendQueue {}

struct Frame {
    header: Header,
    src: *const u8,
}

impl SendQueue {
    /// At most `limit` messages wait; frames are of `stripe` bytes where there are several sockets.
    pub fn new(limit: usize, stripe: Option<usize>) -> Self {
        SendQueue { messages: VecDeque::new(), cursor: 0, limit, stripe, posted: 0, done: 0 }
    }

    pub fn posted(&self) -> u64 {
        self.posted
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Queues a message; `false` when the queue is full.
    ///
    /// # Safety
    /// `src..src+len` stays valid and unchanged until `done` has passed the message or the queue is dropped.
    pub unsafe fn push(&mut self, src: *const u8, len: usize, stamp: u32) -> bool {
        if self.messages.len() >= self.limit {
            return false;
        }
        self.messages.push_back(Message { src, len, stamp, framed: 0, cut: false, open: 0 });
        self.posted += 1;
        true
    }

    /// Cuts the next frame for a socket, unless there is none or `accepts` (given its length) refuses.
    fn next(&mut self, wire: usize, accepts: impl FnOnce(usize) -> bool) -> Option<Frame> {
        let message = self.messages.get_mut(self.cursor)?;
        let stripe = self.stripe.unwrap_or(FRAME_LIMIT);
        if message.len <= stripe && wire != 0 {
            return None;
        }
        let length = (message.len - message.framed).min(stripe);
        if !accepts(length) {
            return None;
        }
        let header = Header {
            stamp: message.stamp,
            length: length as u32,
            sequence: self.done + self.cursor as u64,
            offset: message.framed as u64,
            total: message.len as u64,
            ..Header::default()
        };
        let frame = Frame { header, src: message.src.wrapping_add(message.framed) };
        message.framed += length;
        message.open += 1;
        if message.framed == message.len {
            message.cut = true;
            self.cursor += 1;
        }
        Some(frame)
    }

    /// A frame of message `sequence` no longer needs its source.
    fn release(&mut self, sequence: u64) {
        self.messages[(sequence - self.done) as usize].open -= 1;
        while self.messages.front().is_some_and(|message| message.cut && message.open == 0) {
            self.messages.pop_front();
            self.cursor -= 1;
            self.done += 1;
        }
    }
}

/// What one socket is sending.
pub(super) struct WireSend {
    stage: Box<[u8]>,
    /// Staged bytes that are not out are `stage[from..to]`.
    from: usize,
    to: usize,
    /// Payload that follows the stage, from where it lies.
    body: *const u8,
    body_len: usize,
    /// The message it is of.
    body_of: u64,
    /// Messages of which a frame lies wholly in the stage.
    copied: Vec<u64>,
}

// SAFETY: as for `SendQueue`, whose pointers these are.
unsafe impl Send for WireSend {}

impl WireSend {
    pub fn new() -> Self {
        let stage = vec![0; STAGE_BYTES].into_boxed_slice();
        WireSend { stage, from: 0, to: 0, body: std::ptr::null(), body_len: 0, body_of: 0, copied: Vec::new() }
    }

    /// Whether bytes wait for the kernel.
    pub fn pending(&self) -> bool {
        self.from < self.to || self.body_len > 0
    }

    /// Moves about `turn` bytes of frames out by socket `fd`, the link's socket number `wire`; whether anything moved.
    pub fn flush(&mut self, fd: RawFd, wire: usize, mut turn: usize, queue: &mut SendQueue) -> io::Result<bool> {
        let mut moved = false;
        loop {
            self.fill(wire, queue);
            if !self.pending() {
                return Ok(moved);
            }
            let staged = self.to - self.from;
            let body = self.body_len.min(turn);
            let start = self.stage[self.from..].as_ptr();
            let sent = if body == 0 {
                // SAFETY: `start` begins `staged` bytes of the stage.
                unsafe { socket::send(fd, start, staged)? }
            } else if staged == 0 {
                // SAFETY: the source is valid until the message is released, which happens after its last byte.
                unsafe { socket::send(fd, self.body, body)? }
            } else {
                let runs = [socket::run(start.cast_mut(), staged), socket::run(self.body.cast_mut(), body)];
                // SAFETY: as in the two cases above; sending only reads.
                unsafe { socket::send_both(fd, runs)? }
            };
            let Some(sent) = sent else { return Ok(moved) };
            moved = true;
            self.consume(sent, queue);
            turn = turn.saturating_sub(sent);
            if sent < staged + body || turn == 0 {
                return Ok(true);
            }
        }
    }

    /// Stages as many frames as there is room for, the last of which may leave its payload where it lies.
    fn fill(&mut self, wire: usize, queue: &mut SendQueue) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        while self.body_len == 0 {
            let room = STAGE_BYTES - self.to;
            let fits = |length: usize| room >= HEADER_BYTES + if length <= COPY_BYTES { length } else { 0 };
            let Some(Frame { header, src }) = queue.next(wire, fits) else { return };
            let length = header.length as usize;
            self.stage[self.to..self.to + HEADER_BYTES].copy_from_slice(&header.encode());
            self.to += HEADER_BYTES;
            if length > COPY_BYTES {
                (self.body, self.body_len, self.body_of) = (src, length, header.sequence);
                return;
            }
            if length > 0 {
                // SAFETY: `src` is valid for the frame's bytes by `push`'s contract, and the stage has room for them.
                unsafe { std::ptr::copy_nonoverlapping(src, self.stage[self.to..].as_mut_ptr(), length) };
            }
            self.to += length;
            self.copied.push(header.sequence);
        }
    }

    fn consume(&mut self, sent: usize, queue: &mut SendQueue) {
        let staged = (self.to - self.from).min(sent);
        self.from += staged;
        if self.from == self.to {
            self.copied.drain(..).for_each(|sequence| queue.release(sequence));
        }
        let body = sent - staged;
        if body > 0 {
            self.body = self.body.wrapping_add(body);
            self.body_len -= body;
            if self.body_len == 0 {
                queue.release(self.body_of);
            }
        }
    }
}
