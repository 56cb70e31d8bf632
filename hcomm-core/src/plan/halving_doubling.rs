//! Recursive halving and doubling (Rabenseifner, "Optimization of collective reduction operations", 2004): partners
//! exchange halves of what is left, so a power of two of ranks moves no byte more than a ring, in log2(n) rounds. Other
//! counts are folded first, see [`Fold`].

use super::Range;
use super::builder::Builder;
use super::group::Group;
use super::recursive_doubling::{Fold, Role};

/// Reduce-scatter by halving, all-gather by doubling, all of it in the output.
pub(super) fn all_reduce(b: &mut Builder, g: &Group, input: Range, output: Range) {
    if g.len() == 1 {
        return b.copy(input, output);
    }
    let fold = Fold::new(g.len());
    let (number, serves) = match fold.role(g.index) {
        Role::Core { number, serves } => (number, serves.map(|index| g.rank(index))),
        Role::Outside(partner) => {
            b.send_all(g.rank(partner), input);
            b.recv_all(g.rank(partner), output);
            return;
        }
    };
    let mut current = input;
    if let Some(outside) = serves {
        for (operand, dst) in input.chunks(b.chunk).zip(output.chunks(b.chunk)) {
            b.recv_reduce(outside, operand, dst);
        }
        current = output;
    }
    // The blocks `start..end` of `core` blocks of a range.
    let span = |range: Range, start: usize, end: usize| {
        let (first, last) = (range.part(fold.core, start), range.part(fold.core, end - 1));
        Range::new(range.buffer, first.offset, last.end() - first.offset)
    };
    let (mut start, mut distance) = (0, fold.core / 2);
    while distance > 0 {
        let partner = g.rank(fold.index(number ^ distance));
        let (low, high) = ((start, start + distance), (start + distance, start + 2 * distance));
        let (keep, give) = if number & distance == 0 { (low, high) } else { (high, low) };
        let reduction = (span(current, keep.0, keep.1), span(output, keep.0, keep.1));
        b.exchange_reduce(partner, &[span(current, give.0, give.1)], partner, &[reduction]);
        (start, current, distance) = (keep.0, output, distance / 2);
    }
    distance = 1;
    while distance < fold.core {
        let other = number ^ distance;
        let partner = g.rank(fold.index(other));
        let half = |number: usize| {
            let start = number / distance * distance;
            span(output, start, start + distance)
        };
        b.exchange(partner, &[half(number)], partner, &[half(other)]);
        distance *= 2;
    }
    if let Some(outside) = serves {
        b.send_all(outside, output);
    }
}

/// `inputs[i]` is member i's block, `output` this member's. A member that serves another in the fold ends with both blocks.
pub(super) fn reduce_scatter(b: &mut Builder, g: &Group, inputs: &[Range], output: Range) {
    if g.len() == 1 {
        return b.copy(inputs[0], output);
    }
    let fold = Fold::new(g.len());
    let (number, serves) = match fold.role(g.index) {
        Role::Core { number, serves } => (number, serves),
        Role::Outside(partner) => {
            for &block in inputs {
                b.send_all(g.rank(partner), block);
            }
            return b.recv_all(g.rank(partner), output);
        }
    };
    // Blocks that the core members `start..end` answer for: consecutive, as the fold keeps the order.
    let blocks = |start: usize, end: usize| {
        let first = |number: usize| if number < fold.extra { 2 * number } else { number + fold.extra };
        first(start)..first(end)
    };
    // The own block adds up in the output, others in scratch: all of them for a server, else what the first halving leaves.
    let half = fold.core / 2;
    let needed = match serves {
        Some(_) => 0..g.len(),
        None if number < half => blocks(0, half),
        None => blocks(half, fold.core),
    };
    let mut sums: Vec<Range> = inputs.iter().map(|block| Range { count: 0, ..*block }).collect();
    for index in needed {
        sums[index] = if index == g.index { output } else { b.scratch(inputs[index].count) };
    }
    let mut current = inputs.to_vec();
    if let Some(outside) = serves {
        for (operand, dst) in current.iter().zip(&sums) {
            for (operand, dst) in operand.chunks(b.chunk).zip(dst.chunks(b.chunk)) {
                b.recv_reduce(g.rank(outside), operand, dst);
            }
        }
        current.clone_from(&sums);
    }
    let (mut start, mut distance) = (0, half);
    while distance > 0 {
        let partner = g.rank(fold.index(number ^ distance));
        let (low, high) = ((start, start + distance), (start + distance, start + 2 * distance));
        let (keep, give) = if number & distance == 0 { (low, high) } else { (high, low) };
        let kept = blocks(keep.0, keep.1);
        let reductions: Vec<(Range, Range)> = kept.clone().map(|index| (current[index], sums[index])).collect();
        b.exchange_reduce(partner, &current[blocks(give.0, give.1)], partner, &reductions);
        current[kept.clone()].copy_from_slice(&sums[kept]);
        (start, distance) = (keep.0, distance / 2);
    }
    if let Some(outside) = serves {
        b.send_all(g.rank(outside), current[outside]);
    }
}
