//! Whole vectors through a tree, chunk by chunk: what chain, binomial tree and double binary tree have in common. They
//! differ in who is whose parent.
//!
//! In an all_reduce the way up of later chunks overlaps the way down of earlier ones by a fixed timetable: with one chunk
//! a tick, a member at depth d sees chunk c go up 2d ticks before it comes down again.

use super::Range;
use super::builder::Builder;
use super::group::pieces;

/// One rank's place in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// `None` at the root.
    pub parent: Option<usize>,
    /// The one with most below it first.
    pub children: Vec<usize>,
    /// Links to the root.
    pub depth: u64,
}

/// Root to all.
pub(super) fn broadcast(b: &mut Builder, place: &Place, input: Range, output: Range) {
    if place.parent.is_some() {
        for chunk in output.chunks(b.chunk) {
            down(b, place, chunk);
        }
        return;
    }
    for chunk in input.chunks(b.chunk) {
        down(b, place, chunk);
    }
    b.copy(input, output);
}

/// All to the root; `output` is used on the root only.
pub(super) fn reduce(b: &mut Builder, place: &Place, input: Range, output: Range) {
    let chunks = pieces(input.count, b.chunk);
    let longest = if chunks == 0 { 0 } else { input.piece(chunks, 0).count };
    // Two: while one partial sum is still on its way, the next is made.
    let slots = match (place.parent, place.children.is_empty()) {
        (Some(_), false) => [b.scratch(longest), b.scratch(longest)],
        _ => [Range::nothing(); 2],
    };
    for index in 0..chunks {
        let src = input.piece(chunks, index);
        let dst = match place.parent {
            None => output.piece(chunks, index),
            Some(_) if place.children.is_empty() => src,
            Some(_) => slots[index as usize % 2].slice(0, src.count),
        };
        up(b, place, src, dst);
    }
    if place.parent.is_none() && place.children.is_empty() {
        b.copy(input, output);
    }
}

/// All to the root and back.
pub(super) fn all_reduce(b: &mut Builder, place: &Place, input: Range, output: Range) {
    if place.parent.is_none() && place.children.is_empty() {
        return b.copy(input, output);
    }
    let chunks = pieces(input.count, b.chunk);
    let lag = 2 * place.depth;
    for tick in 0..chunks + lag {
        if tick < chunks {
            up(b, place, input.piece(chunks, tick), output.piece(chunks, tick));
        }
        if tick >= lag {
            let index = tick - lag;
            down(b, place, output.piece(chunks, index));
        }
    }
}

/// Receives the children's sums of one chunk, adds `src`, passes it on.
fn up(b: &mut Builder, place: &Place, src: Range, dst: Range) {
    let mut operand = src;
    for (left, &child) in place.children.iter().enumerate().rev() {
        match place.parent {
            Some(parent) if left == 0 => b.recv_reduce_send(child, operand, dst, parent),
            _ => b.recv_reduce(child, operand, dst),
        }
        operand = dst;
    }
    if let (Some(parent), true) = (place.parent, place.children.is_empty()) {
        b.send(parent, src);
    }
}

/// Receives one chunk from the parent, unless this is the root, and passes it to the children.
fn down(b: &mut Builder, place: &Place, chunk: Range) {
    let children = match (place.parent, place.children.split_first()) {
        (None, _) => &place.children[..],
        (Some(parent), None) => return b.recv(parent, chunk),
        (Some(parent), Some((&first, others))) => {
            b.recv_send(parent, chunk, first);
            others
        }
    };
    for &child in children {
        b.send(child, chunk);
    }
}
