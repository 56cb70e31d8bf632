//! Collects the steps of one rank. Algorithms call the methods here and never write `Step`s themselves, so that what
//! holds for all of them is said once: empty messages are left out on both sides, no message is longer than a chunk.

use super::group::{Group, pieces};
use super::{Buffer, Operand, Range, RankPlan, Step};

/// A plan under construction.
pub(super) struct Builder {
    /// Largest message in elements.
    pub chunk: u64,
    /// Number of tracks that the data was cut into: each sees 1/parts of it.
    pub parts: usize,
    /// In place with the output inside the input: where.
    pub output_in_input: Option<u64>,
    tracks: Vec<Vec<Step>>,
    scratch: u64,
}

impl Builder {
    pub fn new(chunk: u64, parts: usize) -> Builder {
        Builder { chunk, parts, output_in_input: None, tracks: vec![Vec::new()], scratch: 0 }
    }

    /// Steps from here on belong to a new track.
    pub fn next_track(&mut self) {
        self.tracks.push(Vec::new());
    }

    /// The plan; tracks without steps are left out at the end, where they change no other track's number.
    pub fn finish(mut self, remote: bool) -> RankPlan {
        while self.tracks.last().is_some_and(|track| track.is_empty()) {
            self.tracks.pop();
        }
        RankPlan { tracks: self.tracks, scratch: self.scratch, remote }
    }

    /// Fresh scratch memory.
    pub fn scratch(&mut self, count: u64) -> Range {
        let range = Range::new(Buffer::Scratch, self.scratch, count);
        self.scratch += count;
        range
    }

    /// Whether a message of `count` elements, the share of one track, is short enough for algorithms that favour
    /// latency.
    pub fn is_short(&self, count: u64) -> bool {
        count.saturating_mul(self.parts as u64) <= self.chunk
    }

    /// Number of rounds in which blocks, none longer than `longest`, are moved a chunk at a time.
    pub fn rounds(&self, longest: impl IntoIterator<Item = Range>) -> u64 {
        longest.into_iter().map(|range| pieces(range.count, self.chunk)).max().unwrap_or(0)
    }

    fn push(&mut self, step: Step) {
        self.tracks.last_mut().expect("a builder has a track").push(step);
    }

    pub fn send(&mut self, peer: usize, src: Range) {
        debug_assert!(src.count <= self.chunk);
        if src.count > 0 {
            self.push(Step::Send { peer, src });
        }
    }

    pub fn recv(&mut self, peer: usize, dst: Range) {
        if dst.count > 0 {
            self.push(Step::Recv { peer, dst });
        }
    }

    pub fn recv_reduce(&mut self, peer: usize, operand: Range, dst: Range) {
        if dst.count > 0 {
            self.push(Step::RecvReduce { peer, operand, dst });
        }
    }

    pub fn recv_reduce_send(&mut self, from: usize, operand: Range, dst: Range, to: usize) {
        if dst.count > 0 {
            self.push(Step::RecvReduceSend { from, operand, dst, to });
        }
    }

    pub fn recv_send(&mut self, from: usize, dst: Range, to: usize) {
        if dst.count > 0 {
            self.push(Step::RecvSend { from, dst, to });
        }
    }

    /// Reduces ranges of any ranks; a single source is copied.
    pub fn reduce(&mut self, srcs: Vec<Operand>, dsts: Vec<Operand>) {
        if dsts.first().is_some_and(|dst| dst.range.count > 0) {
            self.push(Step::Reduce { srcs, dsts });
        }
    }

    /// Copies, unless the two are the same memory.
    pub fn copy(&mut self, src: Range, dst: Range) {
        let aliased = self.output_in_input.is_some_and(|offset| {
            src.buffer == Buffer::Input && dst.buffer == Buffer::Output && src.offset == offset + dst.offset
        });
        if src != dst && !aliased {
            self.copy_remote(src.here(), dst.here());
        }
    }

    /// Copies between ranks.
    pub fn copy_remote(&mut self, src: Operand, dst: Operand) {
        if dst.range.count > 0 {
            self.push(Step::Copy { src, dst });
        }
    }

    /// Tells `peer` that this rank has come so far.
    pub fn note_to(&mut self, peer: usize) {
        self.push(Step::Send { peer, src: Range::nothing() });
    }

    /// Waits for a note.
    pub fn note_from(&mut self, peer: usize) {
        self.push(Step::Recv { peer, dst: Range::nothing() });
    }

    /// Sends a range of any length.
    pub fn send_all(&mut self, peer: usize, src: Range) {
        for piece in src.chunks(self.chunk) {
            self.send(peer, piece);
        }
    }

    /// Receives a range of any length.
    pub fn recv_all(&mut self, peer: usize, dst: Range) {
        for piece in dst.chunks(self.chunk) {
            self.recv(peer, piece);
        }
    }

    /// Sends the concatenation of `srcs` to one rank while receiving `dsts` from another, chunk by chunk in turn; each
    /// side's cut must be known to its partner.
    pub fn exchange(&mut self, to: usize, srcs: &[Range], from: usize, dsts: &[Range]) {
        let chunk = self.chunk;
        let mut dsts = dsts.iter().flat_map(|range| range.chunks(chunk));
        for src in srcs.iter().flat_map(|range| range.chunks(chunk)) {
            self.send(to, src);
            if let Some(dst) = dsts.next() {
                self.recv(from, dst);
            }
        }
        for dst in dsts {
            self.recv(from, dst);
        }
    }

    /// As [`Builder::exchange`], but what comes is reduced: `dst = operand op received` for each (operand, dst).
    pub fn exchange_reduce(&mut self, to: usize, srcs: &[Range], from: usize, reductions: &[(Range, Range)]) {
        let chunk = self.chunk;
        let mut reductions = reductions.iter().flat_map(|(operand, dst)| operand.chunks(chunk).zip(dst.chunks(chunk)));
        for src in srcs.iter().flat_map(|range| range.chunks(chunk)) {
            self.send(to, src);
            if let Some((operand, dst)) = reductions.next() {
                self.recv_reduce(from, operand, dst);
            }
        }
        for (operand, dst) in reductions {
            self.recv_reduce(from, operand, dst);
        }
    }

    /// Sends notes to all other members, then waits for theirs: nobody goes on before all have come.
    pub fn notes_all_pairs(&mut self, group: &Group) {
        for distance in 1..group.len() {
            self.note_to(group.rank(group.after(distance)));
        }
        for distance in 1..group.len() {
            self.note_from(group.rank(group.before(distance)));
        }
    }

    /// The same in rounds of doubling distance (dissemination barrier: Hensgen, Finkel and Manber 1988): n log n notes
    /// instead of n squared, later by some hops.
    pub fn notes_dissemination(&mut self, group: &Group) {
        let mut distance = 1;
        while distance < group.len() {
            self.note_to(group.rank(group.after(distance)));
            self.note_from(group.rank(group.before(distance)));
            distance *= 2;
        }
    }
}
