//! One direction of a link: a single-producer single-consumer ring of cache lines, and a bulk area beside it.
//!
//! Every message goes through the ring of lines, in order. A small message *is* a line: payload and sequence number
//! share it, so one cache miss carries both. A larger message is cut into pieces; each piece is copied to the bulk
//! area, a byte ring, and then announced by a line. The line's word, stored last, publishes all that was written before.
//!
//! Neither side reads the other's counters to see whether something came: the word of the next line says it. The consumer
//! publishes what it freed (rarely for lines, at once for bulk), and the producer looks at that only when its own copy
//! says "full", as in well-made queues of this kind (Rigtorp's, folly's `ProducerConsumerQueue`).
//!
//! Rejected: a line for every 56 bytes of larger messages, each with its own word. It saves one miss up to some hundred
//! bytes, but copying and reducing in steps of 56 bytes costs more than that from about 512 bytes on.

use super::primitive::{AtomicU64, Ordering, UnsafeCell};

/// Bytes of a message that fit in a line beside its word.
pub(super) const LINE_PAYLOAD: usize = 56;
/// Lines of a ring. Few, so that both directions of some links stay in a first-level cache.
pub(super) const LINES: u64 = if cfg!(loom) { 2 } else { 64 };
/// Pieces start and end at multiples of this many bytes, so that no element is cut.
pub(super) const BLOCK: usize = 64;
/// Freed lines are published once so many have gathered.
const LINES_AT_ONCE: u64 = LINES / 4 + (LINES < 4) as u64;

/// 56 bytes of payload and the word that publishes them.
///
/// Word: bits 63..48 the position of the line in the sequence of all lines plus one, bits 47..32 the length of an inline
/// message or [`PIECE`], bits 31..0 the stamp. Memory of zeros is an empty ring, since position 0 has number 1; later a
/// stale line is `LINES` behind, which 16 bits tell apart.
#[repr(C, align(64))]
pub(super) struct Line {
    payload: UnsafeCell<[u64; LINE_PAYLOAD / 8]>,
    word: AtomicU64,
}

/// Length field of a line that announces a piece in the bulk area.
const PIECE: u16 = u16::MAX;

/// What the consumer has freed since the start: lines and bytes of bulk; and, as 1, that it will not come back. Written by
/// the consumer alone.
#[repr(C, align(128))]
pub(super) struct Freed {
    lines: AtomicU64,
    bulk: AtomicU64,
    left: AtomicU64,
}

/// Where in a ring's memory the word lies that becomes 1 when the consumer is dropped.
pub(super) const LEFT: usize = std::mem::offset_of!(Freed, left);

/// A cache line of the bulk area.
#[repr(C, align(64))]
pub(super) struct Block(UnsafeCell<[u8; BLOCK]>);

/// A part of a longer message, lying in the bulk area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Bytes of the whole message.
    pub total: u64,
    /// Where in the message this piece belongs.
    pub offset: u64,
    /// Bytes of this piece.
    pub len: u64,
    /// Its place in the sequence of all bytes that went through the bulk area.
    at: u64,
}

/// What the next line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole message of so many bytes.
    Inline(usize),
    /// A piece of a message.
    Piece(Piece),
    /// Not what a ring can hold: the memory was damaged.
    Damaged,
}

/// Where the parts of a ring lie.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    freed: *const Freed,
    lines: *const Line,
    bulk: *const Block,
    bulk_len: u64,
}

impl Memory {
    /// Bytes that a ring with so much bulk takes.
    pub const fn size(bulk_len: usize) -> usize {
        size_of::<Freed>() + LINES as usize * size_of::<Line>() + bulk_len
    }

    /// A ring at `base`.
    ///
    /// # Safety
    /// - `base..base + Memory::size(bulk_len)` is shared memory that stays mapped as long as the ring's ends are used;
    /// - it is 128-byte aligned, was zero when the first end was made, and only one `Producer` and one `Consumer` are
    ///   ever made on it, in whatever process;
    /// - `bulk_len` is a power of two of at least [`BLOCK`].
    pub unsafe fn at(base: *mut u8, bulk_len: usize) -> Memory {
        debug_assert!(base.addr().is_multiple_of(128) && bulk_len.is_power_of_two() && bulk_len >= BLOCK);
        // SAFETY: all within the bytes that the caller vouches for.
        unsafe {
            let lines = base.add(size_of::<Freed>());
            let bulk = lines.add(LINES as usize * size_of::<Line>());
            Memory { freed: base.cast(), lines: lines.cast(), bulk: bulk.cast(), bulk_len: bulk_len as u64 }
        }
    }

    #[inline]
    fn freed(&self) -> &Freed {
        // SAFETY: `Memory` is only made over memory that outlives the ring's ends; all fields are atomics.
        unsafe { &*self.freed }
    }

    #[inline]
    fn line(&self, position: u64) -> &Line {
        // SAFETY: as above, and the index is below `LINES`. The payload is behind an `UnsafeCell`.
        unsafe { &*self.lines.add((position % LINES) as usize) }
    }

    /// Contiguous bytes from a place of the bulk sequence to the end of the area.
    #[inline]
    fn contiguous(&self, at: u64) -> u64 {
        self.bulk_len - (at & (self.bulk_len - 1))
    }

    #[inline]
    fn blocks(&self, at: u64) -> *const Block {
        // SAFETY: the index is within the area.
        unsafe { self.bulk.add((at & (self.bulk_len - 1)) as usize / BLOCK) }
    }
}

#[inline]
fn word(position: u64, length: u16, stamp: u32) -> u64 {
    (position.wrapping_add(1) << 48) | (u64::from(length) << 32) | u64::from(stamp)
}

/// The sending end.
pub(super) struct Producer {
    memory: Memory,
    /// Lines written.
    next: u64,
    /// Lines that may be written before `freed` must be looked at again.
    limit: u64,
    /// Bytes of bulk written, each piece rounded up to blocks.
    bulk_next: u64,
    /// As `limit`, for bulk.
    bulk_limit: u64,
}

impl Producer {
    pub fn new(memory: Memory) -> Producer {
        Producer { memory, next: 0, limit: LINES, bulk_next: 0, bulk_limit: memory.bulk_len }
    }

    /// Whether a line is free.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.next != self.limit || self.look_for_lines()
    }

    #[cold]
    fn look_for_lines(&mut self) -> bool {
        self.limit = self.memory.freed().lines.load(Ordering::Acquire) + LINES;
        self.next != self.limit
    }

    /// Puts a message of at most [`LINE_PAYLOAD`] bytes into a line.
    ///
    /// # Safety
    /// [`Producer::has_room`] was true since the last line, and `src` is valid for reads of `len` bytes.
    #[inline]
    pub unsafe fn put_inline(&mut self, src: *const u8, len: usize, stamp: u32) {
        debug_assert!(len <= LINE_PAYLOAD);
        // SAFETY: the line is free, so the consumer does not look at its payload until the word is stored.
        let fill = |payload: *mut [u64; LINE_PAYLOAD / 8]| unsafe { copy_small(src, payload.cast(), len) };
        self.memory.line(self.next).payload.with_mut(fill);
        self.publish(len as u16, stamp);
    }

    /// Puts the next piece of a message, at most `largest` bytes of it (a multiple of [`BLOCK`] and no more than half the
    /// bulk area); gives the bytes taken, 0 when there is no room.
    ///
    /// # Safety
    /// `src` is valid for reads of `total` bytes, and `offset < total`.
    pub unsafe fn put_piece(&mut self, src: *const u8, total: u64, offset: u64, largest: u64, stamp: u32) -> u64 {
        let len = largest.min(total - offset).min(self.memory.contiguous(self.bulk_next));
        let room = len.next_multiple_of(BLOCK as u64);
        if !self.has_room() || (self.bulk_limit - self.bulk_next < room && !self.look_for_bulk(room)) {
            return 0;
        }
        let piece = [total, offset, len, self.bulk_next];
        // SAFETY: the bytes lie within the source and within the area's free part, which the consumer does not look at.
        unsafe { write_blocks(self.memory.blocks(self.bulk_next), src.add(offset as usize), len as usize) };
        // SAFETY: the line is free, as above.
        self.memory.line(self.next).payload.with_mut(|payload| unsafe { payload.cast::<[u64; 4]>().write(piece) });
        self.bulk_next += room;
        self.publish(PIECE, stamp);
        len
    }

    #[cold]
    fn look_for_bulk(&mut self, room: u64) -> bool {
        self.bulk_limit = self.memory.freed().bulk.load(Ordering::Acquire) + self.memory.bulk_len;
        self.bulk_limit - self.bulk_next >= room
    }

    #[inline]
    fn publish(&mut self, length: u16, stamp: u32) {
        self.memory.line(self.next).word.store(word(self.next, length, stamp), Ordering::Release);
        self.next += 1;
    }
}

/// The receiving end.
pub(super) struct Consumer {
    memory: Memory,
    /// Lines consumed.
    next: u64,
    /// Of these, lines whose freeing the producer was told.
    told: u64,
}

impl Consumer {
    pub fn new(memory: Memory) -> Consumer {
        Consumer { memory, next: 0, told: 0 }
    }

    /// The word of the next line, if it has come.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        let found = self.memory.line(self.next).word.load(Ordering::Acquire);
        ((found >> 48) as u16 == self.next.wrapping_add(1) as u16).then_some(found)
    }

    /// The word of an inline message, were it the next.
    #[inline]
    pub fn word_of(&self, len: usize, stamp: u32) -> u64 {
        word(self.next, len as u16, stamp)
    }

    /// What the line with this word, just peeked, holds.
    pub fn next(&self, word: u64) -> Next {
        match (word >> 32) as u16 {
            PIECE => {}
            len if usize::from(len) <= LINE_PAYLOAD => return Next::Inline(len.into()),
            _ => return Next::Damaged,
        }
        // SAFETY: the word was seen with acquire, so the producer's writes are visible and it does not write again
        // until the line is freed.
        let read = |payload: *const [u64; LINE_PAYLOAD / 8]| unsafe { payload.cast::<[u64; 4]>().read() };
        let [total, offset, len, at] = self.memory.line(self.next).payload.with(read);
        let piece = Piece { total, offset, len, at };
        let within = offset.checked_add(len).is_some_and(|end| end <= total);
        if len == 0 || !within || at % BLOCK as u64 != 0 || len > self.memory.contiguous(at) {
            return Next::Damaged;
        }
        Next::Piece(piece)
    }

    /// Lets `read` see the payload of the next line, then frees it; whether the producer was told.
    ///
    /// # Safety
    /// [`Consumer::peek`] found the line, and it is inline.
    #[inline]
    pub unsafe fn take_inline(&mut self, read: impl FnOnce(*const u8)) -> bool {
        self.memory.line(self.next).payload.with(|payload| read(payload.cast()));
        self.next += 1;
        self.next - self.told >= LINES_AT_ONCE && self.tell()
    }

    /// Lets `read` see a piece where it lies, then frees it and tells the producer.
    ///
    /// # Safety
    /// `piece` is what [`Consumer::next`] gave for the next line.
    pub unsafe fn take_piece(&mut self, piece: Piece, read: impl FnOnce(*const u8)) {
        // SAFETY: `next` checked that the piece lies within the area, and it is not yet freed.
        unsafe { read_blocks(self.memory.blocks(piece.at), piece.len as usize, read) };
        let end = piece.at + piece.len.next_multiple_of(BLOCK as u64);
        self.memory.freed().bulk.store(end, Ordering::Release);
        self.next += 1;
        self.tell();
    }

    fn tell(&mut self) -> bool {
        self.memory.freed().lines.store(self.next, Ordering::Release);
        self.told = self.next;
        true
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.memory.freed().left.store(1, Ordering::Release);
    }
}

/// Copies up to 56 bytes; a call of `memcpy` would take longer than the rest of a small message.
///
/// # Safety
/// `src` and `dst` are valid for `len` bytes and do not overlap.
#[inline]
pub(super) unsafe fn copy_small(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: each pair covers `len` bytes from the start and from the end, which overlap in the middle.
    unsafe {
        match len {
            32.. => {
                copy::<32>(src, dst, 0);
                copy::<32>(src, dst, len - 32);
            }
            16.. => {
                copy::<16>(src, dst, 0);
                copy::<16>(src, dst, len - 16);
            }
            9.. => {
                copy::<8>(src, dst, 0);
                copy::<8>(src, dst, len - 8);
            }
            8 => copy::<8>(src, dst, 0),
            4.. => {
                copy::<4>(src, dst, 0);
                copy::<4>(src, dst, len - 4);
            }
            _ => (0..len).for_each(|i| copy::<1>(src, dst, i)),
        }
    }
}

/// # Safety
/// Both are valid for `N` bytes at `at`.
#[inline]
unsafe fn copy<const N: usize>(src: *const u8, dst: *mut u8, at: usize) {
    // SAFETY: the caller's promise; arrays of bytes need no alignment.
    unsafe { dst.add(at).cast::<[u8; N]>().write(src.add(at).cast::<[u8; N]>().read()) };
}

/// # Safety
/// `src` is valid for `len` bytes, and nobody reads or writes the blocks that `len` bytes take.
#[inline]
unsafe fn write_blocks(blocks: *const Block, src: *const u8, len: usize) {
    #[cfg(not(loom))]
    // SAFETY: the caller's promise; shared memory and the source are different memory.
    unsafe {
        std::ptr::copy_nonoverlapping(src, (*blocks).0.with_mut(|bytes| bytes.cast()), len);
    }
    #[cfg(loom)]
    for start in (0..len).step_by(BLOCK) {
        let part = BLOCK.min(len - start);
        // SAFETY: as above, block by block so that loom sees each access.
        unsafe {
            let block = &*blocks.add(start / BLOCK);
            block.0.with_mut(|bytes| std::ptr::copy_nonoverlapping(src.add(start), bytes.cast(), part));
        }
    }
}

/// # Safety
/// The blocks that `len` bytes take were published, and nobody writes them during `read`.
#[inline]
unsafe fn read_blocks(blocks: *const Block, len: usize, read: impl FnOnce(*const u8)) {
    #[cfg(not(loom))]
    {
        let _ = len;
        // SAFETY: the caller's promise.
        read(unsafe { (*blocks).0.with(|bytes| bytes.cast()) });
    }
    #[cfg(loom)]
    {
        let mut seen = Vec::new();
        for start in (0..len).step_by(BLOCK) {
            // SAFETY: as above, block by block so that loom sees each access.
            let bytes = unsafe { (*blocks.add(start / BLOCK)).0.with(|bytes| *bytes) };
            seen.extend_from_slice(&bytes[..BLOCK.min(len - start)]);
        }
        read(seen.as_ptr());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::transport::shm::primitive::model;

    /// A ring in loom's memory, with the smallest counts that still wrap.
    struct Parts {
        freed: Freed,
        lines: Vec<Line>,
        bulk: Vec<Block>,
    }

    // SAFETY: what is behind `UnsafeCell`s is shared by the ring's protocol, which is what these tests have loom check.
    unsafe impl Send for Parts {}
    // SAFETY: as above.
    unsafe impl Sync for Parts {}

    impl Parts {
        fn new(blocks: usize) -> Arc<Parts> {
            let line = || Line { payload: UnsafeCell::new([0; LINE_PAYLOAD / 8]), word: AtomicU64::new(0) };
            Arc::new(Parts {
                freed: Freed { lines: AtomicU64::new(0), bulk: AtomicU64::new(0), left: AtomicU64::new(0) },
                lines: (0..LINES).map(|_| line()).collect(),
                bulk: (0..blocks).map(|_| Block(UnsafeCell::new([0; BLOCK]))).collect(),
            })
        }

        fn memory(&self) -> Memory {
            let (freed, lines, bulk) = (&raw const self.freed, self.lines.as_ptr(), self.bulk.as_ptr());
            Memory { freed, lines, bulk, bulk_len: (self.bulk.len() * BLOCK) as u64 }
        }
    }

    /// More small messages than lines: each comes once, in order, whole, and no line is written before it was read.
    #[test]
    fn loom_lines_are_reused_only_when_read() {
        model(|| {
            const MESSAGES: u64 = LINES + 2;
            let parts = Parts::new(1);
            let theirs = parts.clone();
            let sender = thread::spawn(move || {
                let mut producer = Producer::new(theirs.memory());
                for message in 0..MESSAGES {
                    while !producer.has_room() {
                        thread::yield_now();
                    }
                    // SAFETY: there is room, and the source has eight bytes.
                    unsafe { producer.put_inline((&raw const message).cast(), 8, message as u32) };
                }
            });
            let mut consumer = Consumer::new(parts.memory());
            for message in 0..MESSAGES {
                while consumer.peek().is_none() {
                    thread::yield_now();
                }
                assert_eq!(consumer.peek(), Some(consumer.word_of(8, message as u32)));
                let mut got = 0;
                // SAFETY: the line was found and is inline; it has eight bytes.
                unsafe { consumer.take_inline(|payload| got = payload.cast::<u64>().read()) };
                assert_eq!(got, message);
            }
            sender.join().unwrap();
        });
    }

    /// A message of three pieces through a bulk area of two: pieces come whole, and none is overwritten before it was read.
    #[test]
    fn loom_bulk_is_reused_only_when_read() {
        model(|| {
            const LEN: usize = 2 * BLOCK + 10;
            let parts = Parts::new(2);
            let theirs = parts.clone();
            let source: Vec<u8> = (0..LEN as u8).collect();
            let expected = source.clone();
            let sender = thread::spawn(move || {
                let mut producer = Producer::new(theirs.memory());
                let mut sent = 0;
                while sent < LEN as u64 {
                    // SAFETY: the source has `LEN` bytes.
                    let moved = unsafe { producer.put_piece(source.as_ptr(), LEN as u64, sent, BLOCK as u64, 7) };
                    if moved == 0 {
                        thread::yield_now();
                    }
                    sent += moved;
                }
            });
            let mut consumer = Consumer::new(parts.memory());
            let mut got = Vec::new();
            while got.len() < LEN {
                let Some(word) = consumer.peek() else {
                    thread::yield_now();
                    continue;
                };
                let Next::Piece(piece) = consumer.next(word) else { panic!("not a piece") };
                assert_eq!((piece.total, piece.offset), (LEN as u64, got.len() as u64));
                let read = |bytes: *const u8| {
                    // SAFETY: the piece has so many bytes.
                    got.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, piece.len as usize) });
                };
                // SAFETY: the piece is the next line's.
                unsafe { consumer.take_piece(piece, read) };
            }
            assert_eq!(got, expected);
            sender.join().unwrap();
        });
    }
}
