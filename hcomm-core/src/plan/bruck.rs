//! Bruck's algorithm (Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
//! systems", 1997): log2(n) rounds, rounded up, for any number of ranks. For short messages: in all_to_all blocks travel through
//! other ranks, up to log2(n)/2 times as many bytes as pairwise.

use super::Range;
use super::builder::Builder;
use super::group::{Group, joined};

/// In round k a member sends all it has to the one 2^k before it. Blocks go straight to their place, as the layout is known
/// to all; the classic form gathers in rotated order and rotates back at the end.
pub(super) fn all_gather(b: &mut Builder, g: &Group, input: Range, outputs: &[Range]) {
    let n = g.len();
    let mut known = 1;
    while known < n {
        let count = known.min(n - known);
        let (to, from) = (g.before(known), g.after(known));
        let blocks = |first: usize| joined((first..first + count).map(|index| outputs[index % n]));
        let mine = if known == 1 { vec![input] } else { blocks(g.index) };
        b.exchange(g.rank(to), &mine, g.rank(from), &blocks(from));
        if known == 1 {
            b.copy(input, outputs[g.index]);
        }
        known += count;
    }
    if n == 1 {
        b.copy(input, outputs[0]);
    }
}

/// Equal blocks. The block that is to travel distance d goes 2^k places on in each round k whose bit is set in d, packed
/// with all others that do so.
pub(super) fn all_to_all(b: &mut Builder, g: &Group, inputs: &[Range], outputs: &[Range]) {
    let n = g.len();
    let count = inputs[0].count;
    // Where the block is that has the distance d to travel, or has travelled it.
    let mut blocks: Vec<Range> = (0..n).map(|distance| inputs[g.after(distance)]).collect();
    let most = (1..n.next_power_of_two()).step_by(2).count() as u64;
    // Two: while one round's blocks are still on their way, the next are packed.
    let packs = [b.scratch(count * most), b.scratch(count * most)];
    let mut step = 1;
    let mut round = 0;
    while step < n {
        let moving: Vec<usize> = (0..n).filter(|distance| distance & step != 0).collect();
        let pack = packs[round % 2].slice(0, count * moving.len() as u64);
        let came = b.scratch(pack.count);
        for (slot, &distance) in moving.iter().enumerate() {
            b.copy(blocks[distance], pack.slice(slot as u64 * count, count));
            blocks[distance] = came.slice(slot as u64 * count, count);
        }
        b.exchange(g.rank(g.after(step)), &[pack], g.rank(g.before(step)), &[came]);
        (step, round) = (step * 2, round + 1);
    }
    for (distance, &block) in blocks.iter().enumerate() {
        b.copy(block, outputs[g.before(distance)]);
    }
}
