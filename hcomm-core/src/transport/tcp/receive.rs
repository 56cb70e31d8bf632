//! The receiving half of a link: bytes of the current message go straight to their place, or through a scratch that
//! stays in cache into the reduction, and what follows them (the next header, small messages) into a stage, all with
//! one call.

use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;

use super::socket;
use crate::session::frame::{HEADER_BYTES, Header};
use crate::transport::{LinkError, Recv};

/// Stage of one socket: what one call brings when the next bytes are a header, with a small message or several.
const STAGE_BYTES: usize = 8 << 10;

/// Bytes received before they are reduced: the scratch and as much of operand and destination fit the second-level cache.
const SCRATCH_BYTES: usize = 128 << 10;

/// Bytes that one call takes from the kernel at most, so that sending gets its turn while data is in cache.
const TURN_BYTES: usize = 256 << 10;

/// Largest element.
const ELEMENT_BYTES: usize = 8;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

thread_local! {
    /// One scratch a thread, not a link: it stays warm however many peers there are.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Why nothing more can be received.
pub(super) enum ReceiveError {
    /// The peer closed the connection.
    End,
    /// The system says so.
    System(io::Error),
    /// What came is not what must come.
    Link(LinkError),
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        ReceiveError::System(error)
    }
}

/// Which bytes of the current message are in place.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Number of the message.
    pub sequence: u64,
    /// All bytes before this one are there.
    prefix: usize,
    /// Runs beyond it, `(start, end)`, apart from each other; as many as sockets, about.
    beyond: Vec<(usize, usize)>,
    /// A message of no bytes came.
    empty: bool,
}

impl Placement {
    /// Bytes in place without a gap.
    pub fn prefix(&self) -> usize {
        self.prefix
    }

    /// Whether a message of `len` bytes is whole.
    pub fn complete(&self, len: usize) -> bool {
        self.prefix == len && (len > 0 || self.empty)
    }

    /// Goes to the next message.
    pub fn advance(&mut self) {
        self.sequence += 1;
        self.prefix = 0;
        self.empty = false;
        self.beyond.clear();
    }

    /// Whether some byte of `start..end` is there already.
    fn overlaps(&self, start: usize, end: usize) -> bool {
        start < self.prefix || self.beyond.iter().any(|&(from, to)| start < to && from < end)
    }

    /// Notes that `start..end`, which overlaps nothing, is in place.
    fn add(&mut self, start: usize, mut end: usize) {
        if start != self.prefix {
            let mut start = start;
            // Neighbours become one run.
            self.beyond.retain(|&(from, to)| {
                let touches = to == start || from == end;
                if touches {
                    (start, end) = (start.min(from), end.max(to));
                }
                !touches
            });
            self.beyond.push((start, end));
            return;
        }
        while let Some(next) = self.beyond.iter().position(|&(from, _)| from == end) {
            end = self.beyond.swap_remove(next).1;
        }
        self.prefix = end;
    }
}

/// What one socket is receiving.
pub(super) struct WireReceive {
    stage: Box<[u8]>,
    /// Bytes received and not used are `stage[from..to]`.
    from: usize,
    to: usize,
    /// The frame whose payload comes next, if its header is known.
    frame: Option<Header>,
    /// Bytes of that payload taken from the stream.
    taken: usize,
    /// The last `carried` of them: the beginning of an element that is not whole.
    carry: [u8; ELEMENT_BYTES],
    carried: usize,
}

impl WireReceive {
    pub fn new() -> Self {
        WireReceive {
            stage: vec![0; STAGE_BYTES].into_boxed_slice(),
            from: 0,
            to: 0,
            frame: None,
            taken: 0,
            carry: [0; ELEMENT_BYTES],
            carried: 0,
        }
    }

    /// Whether the next frame is of a later message than `sequence`, so that nothing may be read for now.
    pub fn ahead(&self, sequence: u64) -> bool {
        self.frame.is_some_and(|frame| frame.sequence > sequence)
    }

    /// Moves what has come of the current message by socket `fd` into `recv`; whether anything moved. One call reads at
    /// most one turn's worth of payload.
    ///
    /// # Safety
    /// As for `Link::poll_recv`.
    pub unsafe fn pull(&mut self, fd: RawFd, recv: &Recv<'_>, place: &mut Placement) -> Result<bool, ReceiveError> {
        let mut moved = false;
        loop {
            if self.frame.is_none() && !self.next_frame(fd, &mut moved)? {
                return Ok(moved);
            }
            let Some(frame) = self.frame else { return Ok(moved) };
            if frame.sequence > place.sequence {
                return Ok(moved);
            }
            if self.taken == 0 {
                check(&frame, recv, place).map_err(ReceiveError::Link)?;
            }
            let left = frame.length as usize - self.taken;
            let staged = left.min(self.to - self.from);
            if staged > 0 {
                let start = self.stage[self.from..].as_ptr();
                self.from += staged;
                // SAFETY: `staged` bytes of the stage begin at `start`, and `put` does not touch the stage; the rest is
                // the caller's promise.
                unsafe { self.put(start, staged, recv, place, &frame) };
            }
            moved |= staged > 0 || left == 0;
            if staged < left {
                // SAFETY: the caller's promise.
                return Ok(unsafe { self.read(fd, left - staged, recv, place, &frame)? } || moved);
            }
            if frame.length == 0 {
                place.empty = true;
            }
            (self.frame, self.taken) = (None, 0);
            if place.complete(recv.len) {
                return Ok(true);
            }
        }
    }

    /// Reads a header, from the stage or the socket; whether there is a whole one.
    fn next_frame(&mut self, fd: RawFd, moved: &mut bool) -> Result<bool, ReceiveError> {
        if self.to - self.from < HEADER_BYTES {
            self.stage.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            let room = &mut self.stage[self.to..];
            // SAFETY: `room` is valid for writes of its length.
            match unsafe { socket::receive(fd, room.as_mut_ptr(), room.len())? } {
                None => return Ok(false),
                Some(0) => return Err(ReceiveError::End),
                Some(got) => self.to += got,
            }
            *moved = true;
            if self.to - self.from < HEADER_BYTES {
                return Ok(false);
            }
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&self.stage[self.from..self.from + HEADER_BYTES]);
        let header =
            Header::decode(&bytes).map_err(|error| ReceiveError::Link(LinkError::Protocol(error.to_string())))?;
        self.from += HEADER_BYTES;
        (self.frame, self.taken, self.carried) = (Some(header), 0, 0);
        Ok(true)
    }

    /// Reads payload from the socket (the stage is empty), and what follows it into the stage.
    ///
    /// # Safety
    /// As for `pull`.
    unsafe fn read(
        &mut self,
        fd: RawFd,
        left: usize,
        recv: &Recv<'_>,
        place: &mut Placement,
        frame: &Header,
    ) -> Result<bool, ReceiveError> {
        if recv.reducer.is_none() {
            let at = frame.offset as usize + self.taken;
            // SAFETY: `check` made sure that the frame lies within `recv.len`, which the caller vouches for.
            let got = unsafe { self.read_into(fd, recv.dst.add(at), left)? };
            self.taken += got;
            if got > 0 {
                place.add(at, at + got);
            }
            return Ok(self.settle(got, left));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.is_empty() {
                scratch.resize(SCRATCH_BYTES / 64, Line([0; 64]));
            }
            let start = scratch.as_mut_ptr().cast::<u8>();
            let carried = self.carried;
            // SAFETY: the scratch is larger than the carry, and nothing else refers to it here.
            unsafe { std::ptr::copy_nonoverlapping(self.carry.as_ptr(), start, carried) };
            // SAFETY: the rest of the scratch is valid for writes.
            let got = unsafe { self.read_into(fd, start.add(carried), left.min(SCRATCH_BYTES - carried))? };
            self.carried = 0;
            self.taken -= carried;
            // SAFETY: `carried + got` bytes of the scratch are initialised and not touched by `put`; the rest is the
            // caller's promise.
            unsafe { self.put(start, carried + got, recv, place, frame) };
            Ok(self.settle(got, left))
        })
    }

    /// Ends the frame if its last byte came.
    fn settle(&mut self, got: usize, left: usize) -> bool {
        if got == left {
            (self.frame, self.taken) = (None, 0);
        }
        got > 0
    }

    /// Receives at most `left` bytes of payload to `start`, what follows into the stage; returns the payload bytes.
    ///
    /// # Safety
    /// `start` is valid for writes of `left` bytes, or of one turn if that is less.
    unsafe fn read_into(&mut self, fd: RawFd, start: *mut u8, left: usize) -> Result<usize, ReceiveError> {
        let want = left.min(TURN_BYTES);
        // Beyond a piece of the payload lies more payload, which does not belong in the stage.
        let stage = if want == left { self.stage.len() } else { 0 };
        let runs = [socket::run(start, want), socket::run(self.stage.as_mut_ptr(), stage)];
        // SAFETY: the caller vouches for `start`; the stage is ours and holds nothing.
        match unsafe { socket::receive_all(fd, runs)? } {
            None => Ok(0),
            Some(0) => Err(ReceiveError::End),
            Some(got) => {
                (self.from, self.to) = (0, got.saturating_sub(want));
                Ok(got.min(want))
            }
        }
    }

    /// Puts `len` payload bytes that lie at `src` to their place, or reduces them there. No bytes are carried when this is
    /// called: the stage is used up before the socket is read, and `read` puts the carry before what it reads.
    ///
    /// # Safety
    /// `src` is valid for `len` bytes and lies outside of what `recv` names; the rest as for `pull`.
    unsafe fn put(&mut self, src: *const u8, len: usize, recv: &Recv<'_>, place: &mut Placement, frame: &Header) {
        let at = frame.offset as usize + self.taken;
        self.taken += len;
        let Some(reducer) = recv.reducer else {
            // SAFETY: `check` made sure that the frame lies within `recv.len`.
            unsafe { std::ptr::copy_nonoverlapping(src, recv.dst.add(at), len) };
            place.add(at, at + len);
            return;
        };
        let size = reducer.element_size();
        let whole = len / size;
        // SAFETY: `whole` elements at `at`, which the frame holds; `src` is elsewhere.
        unsafe { reducer.combine(recv.dst.add(at), recv.operand.add(at), src, whole) };
        self.carried = len - whole * size;
        // SAFETY: less than one element remains.
        unsafe { std::ptr::copy_nonoverlapping(src.add(whole * size), self.carry.as_mut_ptr(), self.carried) };
        if whole > 0 {
            place.add(at, at + whole * size);
        }
    }
}

/// Whether a frame may be what `recv` waits for.
fn check(frame: &Header, recv: &Recv<'_>, place: &Placement) -> Result<(), LinkError> {
    if frame.sequence < place.sequence {
        return Err(LinkError::Protocol(format!("message {} came again after {}", frame.sequence, place.sequence)));
    }
    if frame.stamp != recv.stamp {
        return Err(LinkError::Stamp { got: frame.stamp });
    }
    if frame.total != recv.len as u64 {
        return Err(LinkError::Length { got: frame.total });
    }
    // The header holds offset + length <= total, and total is a length in memory here.
    let (start, end) = (frame.offset as usize, frame.offset as usize + frame.length as usize);
    let size = recv.reducer.map_or(1, |reducer| reducer.element_size());
    if start % size != 0 || end % size != 0 || place.overlaps(start, end) {
        return Err(LinkError::Protocol(format!("frame of bytes {start}..{end} cuts or repeats an element")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Frames in any order against a plain set of bytes.
        #[test]
        fn placement_knows_what_is_there(
            (len, order) in (1..40_usize).prop_flat_map(|n| (Just(n), Just((0..n).collect::<Vec<_>>()).prop_shuffle())),
            width in 1..5_usize,
        ) {
            let mut place = Placement::default();
            let mut there = vec![false; len * width];
            for index in order {
                let (start, end) = (index * width, (index + 1) * width);
                prop_assert!(!place.overlaps(start, end));
                place.add(start, end);
                there[start..end].fill(true);
                prop_assert!(place.overlaps(start, end));
                prop_assert_eq!(place.prefix(), there.iter().take_while(|&&there| there).count());
                prop_assert_eq!(place.complete(there.len()), there.iter().all(|&there| there));
            }
            place.advance();
            prop_assert_eq!((place.sequence, place.prefix(), place.complete(0)), (1, 0, false));
        }
    }
}
