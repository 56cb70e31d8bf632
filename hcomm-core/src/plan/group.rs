//! Who takes part, and how data is cut: the vocabulary in which the algorithms are written.

use super::{Buffer, Operand, Range};

/// Cuts fall on multiples of this many elements where there is enough to cut, so that two ranks or tracks do not share
/// a cache line (64 bytes of f32).
const ALIGNMENT: u64 = 16;

/// The ranks that take part in (a part of) a collective, in the order that the algorithm numbers them.
#[derive(Debug, Clone)]
pub(super) struct Group {
    members: Vec<usize>,
    /// Position of the rank whose plan is built.
    pub index: usize,
}

impl Group {
    /// The group of `members`, seen by `rank`; `None` when it does not take part.
    pub fn new(members: Vec<usize>, rank: usize) -> Option<Group> {
        let index = members.iter().position(|&member| member == rank)?;
        Some(Group { members, index })
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// The rank of the member at `index`.
    pub fn rank(&self, index: usize) -> usize {
        self.members[index]
    }

    /// Index of the member `distance` places after this one, around the end.
    pub fn after(&self, distance: usize) -> usize {
        (self.index + distance) % self.len()
    }

    /// Index of the member `distance` places before this one, around the end.
    pub fn before(&self, distance: usize) -> usize {
        (self.index + self.len() - distance % self.len()) % self.len()
    }
}

impl Range {
    /// `count` elements of `buffer` from `offset`.
    pub(super) fn new(buffer: Buffer, offset: u64, count: u64) -> Range {
        Range { buffer, offset, count }
    }

    /// No elements: what a note carries.
    pub(super) fn nothing() -> Range {
        Range::new(Buffer::Output, 0, 0)
    }

    /// A part of this range, `offset` counted from its start.
    pub(super) fn slice(self, offset: u64, count: u64) -> Range {
        debug_assert!(offset + count <= self.count);
        Range::new(self.buffer, self.offset + offset, count)
    }

    /// One past the last element.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.count)
    }

    /// Part `index` of `parts` near-equal consecutive parts, see [`cut`].
    pub(super) fn part(self, parts: usize, index: usize) -> Range {
        let start = cut(self.count, parts, index);
        self.slice(start, cut(self.count, parts, index + 1) - start)
    }

    /// All parts of [`Range::part`].
    pub(super) fn parts(self, parts: usize) -> Vec<Range> {
        (0..parts).map(|index| self.part(parts, index)).collect()
    }

    /// The fewest near-equal consecutive pieces of at most `chunk` elements; none of an empty range.
    pub(super) fn chunks(self, chunk: u64) -> impl Iterator<Item = Range> {
        let pieces = pieces(self.count, chunk);
        (0..pieces).map(move |index| self.piece(pieces, index))
    }

    /// Piece `index` of `pieces` equal ones, none longer than `count / pieces` rounded up: not aligned, as [`cut`] may
    /// make one part longer.
    pub(super) fn piece(self, pieces: u64, index: u64) -> Range {
        let (share, extra) = (self.count / pieces, self.count % pieces);
        let start = share * index + extra.min(index);
        self.slice(start, share + u64::from(index < extra))
    }

    /// As an operand in this rank's own buffers.
    pub(super) fn here(self) -> Operand {
        Operand { rank: None, range: self }
    }
}

/// Where part `index` of `parts` near-equal parts of `count` elements begins; aligned when no part would be empty by it.
pub(super) fn cut(count: u64, parts: usize, index: usize) -> u64 {
    let (parts, index) = (parts as u64, index as u64);
    let unit = if count / ALIGNMENT >= parts { ALIGNMENT } else { 1 };
    let units = count / unit;
    if index == parts { count } else { (units / parts * index + (units % parts).min(index)) * unit }
}

/// The fewest pieces of at most `chunk` elements.
pub(super) fn pieces(count: u64, chunk: u64) -> u64 {
    count.div_ceil(chunk.max(1))
}

/// Joins neighbours: the fewest ranges that are the concatenation of `ranges`.
pub(super) fn joined(ranges: impl IntoIterator<Item = Range>) -> Vec<Range> {
    let mut runs: Vec<Range> = Vec::new();
    for range in ranges.into_iter().filter(|range| range.count > 0) {
        match runs.last_mut() {
            Some(last) if last.buffer == range.buffer && last.end() == range.offset => last.count += range.count,
            _ => runs.push(range),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_and_chunks_cover_a_range_in_order(count in 0u64..5000, parts in 1usize..80, chunk in 1u64..600) {
            let range = Range::new(Buffer::Input, 7, count);
            let chunks: Vec<Range> = range.chunks(chunk).collect();
            prop_assert!(chunks.iter().all(|piece| (1..=chunk).contains(&piece.count)));
            let whole = if count == 0 { vec![] } else { vec![range] };
            prop_assert_eq!(joined(chunks), whole.clone());
            let parts = range.parts(parts);
            let (least, most) = (parts.iter().map(|part| part.count).min(), parts.iter().map(|part| part.count).max());
            prop_assert!(most.unwrap() - least.unwrap() < 2 * ALIGNMENT);
            prop_assert_eq!(joined(parts), whole);
        }
    }
}
