//! Ring: each rank talks to its two neighbours only, every link carries the same, and no byte more than needed
//! (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
//!
//! The data is cut into rounds in which each message is at most a chunk; in a round each rank always has one message
//! coming and one going. A rank receives, reduces and passes on in one fused step, and rounds follow each other without a
//! gap: the ring is never drained.

use super::Range;
use super::builder::Builder;
use super::group::{Group, pieces};

/// Reduce-scatter and all-gather in one go round the ring, twice: 2 (n-1) messages a rank and round.
pub(super) fn all_reduce(b: &mut Builder, g: &Group, input: Range, output: Range) {
    let n = g.len();
    if n == 1 {
        return b.copy(input, output);
    }
    let (previous, next) = (g.rank(g.before(1)), g.rank(g.after(1)));
    let rounds = pieces(input.count, b.chunk.saturating_mul(n as u64));
    for round in 0..rounds {
        let (src, dst) = (input.piece(rounds, round), output.piece(rounds, round));
        let block = |range: Range, index: usize| range.piece(n as u64, index as u64);
        b.send(next, block(src, g.index));
        for distance in 1..n {
            let index = g.before(distance);
            b.recv_reduce_send(previous, block(src, index), block(dst, index), next);
        }
        for distance in 0..n - 2 {
            b.recv_send(previous, block(dst, g.before(distance)), next);
        }
        b.recv(previous, block(dst, g.after(2)));
    }
}

/// `inputs[i]` is member i's block, `output` this member's.
pub(super) fn reduce_scatter(b: &mut Builder, g: &Group, inputs: &[Range], output: Range) {
    let n = g.len();
    if n == 1 {
        return b.copy(inputs[0], output);
    }
    let (previous, next) = (g.rank(g.before(1)), g.rank(g.after(1)));
    let rounds = b.rounds(inputs.iter().copied());
    let longest = inputs.iter().map(|block| block.count.div_ceil(rounds.max(1))).max().unwrap_or(0);
    // Two: while one partial sum is still on its way, the next is made.
    let slots = if n > 2 { [b.scratch(longest), b.scratch(longest)] } else { [Range::nothing(); 2] };
    let mut used = 0;
    for round in 0..rounds {
        let block = |index: usize| inputs[index].piece(rounds, round);
        b.send(next, block(g.before(1)));
        for distance in 2..n {
            let operand = block(g.before(distance));
            if operand.count > 0 {
                b.recv_reduce_send(previous, operand, slots[used % 2].slice(0, operand.count), next);
                used += 1;
            }
        }
        b.recv_reduce(previous, block(g.index), output.piece(rounds, round));
    }
}

/// `outputs[i]` is where member i's input goes.
pub(super) fn all_gather(b: &mut Builder, g: &Group, input: Range, outputs: &[Range]) {
    let n = g.len();
    let rounds = if n == 1 { 0 } else { b.rounds(outputs.iter().copied()) };
    let (previous, next) = (g.rank(g.before(1)), g.rank(g.after(1)));
    for round in 0..rounds {
        let block = |index: usize| outputs[index].piece(rounds, round);
        b.send(next, input.piece(rounds, round));
        for distance in 1..n - 1 {
            b.recv_send(previous, block(g.before(distance)), next);
        }
        b.recv(previous, block(g.after(1)));
    }
    b.copy(input, outputs[g.index]);
}
