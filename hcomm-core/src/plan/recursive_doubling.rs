//! Recursive doubling: in round k partners at distance 2^k exchange all they have, so log2(n) messages do (Thakur,
//! Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005). For short messages:
//! each carries the whole vector.

use super::Range;
use super::builder::Builder;
use super::group::{Group, joined};

/// The fold to a power of two: of the first 2 x `extra` members each even one gives its data to the odd one after it, and
/// gets the result from there.
pub(super) struct Fold {
    /// Largest power of two that is not above the number of members.
    pub core: usize,
    /// Members beyond it.
    pub extra: usize,
}

/// What a member does in the fold.
pub(super) enum Role {
    /// Gives its data to the member at this index and waits for the result.
    Outside(usize),
    /// Takes part as this number; serves the member outside, if there is one.
    Core { number: usize, serves: Option<usize> },
}

impl Fold {
    pub fn new(members: usize) -> Fold {
        let core = 1 << members.ilog2();
        Fold { core, extra: members - core }
    }

    pub fn role(&self, index: usize) -> Role {
        match index {
            _ if index >= 2 * self.extra => Role::Core { number: index - self.extra, serves: None },
            _ if index % 2 == 0 => Role::Outside(index + 1),
            _ => Role::Core { number: index / 2, serves: Some(index - 1) },
        }
    }

    /// Index of the member that takes part as `number`.
    pub fn index(&self, number: usize) -> usize {
        if number < self.extra { 2 * number + 1 } else { number + self.extra }
    }
}

/// Chunk by chunk, so that scratch is one chunk.
///
/// A round receives into other memory than it sends from, as partners who both overwrite what they send would wait for
/// each other: output and scratch take turns such that the last round ends in the output.
pub(super) fn all_reduce(b: &mut Builder, g: &Group, input: Range, output: Range) {
    if g.len() == 1 {
        return b.copy(input, output);
    }
    let fold = Fold::new(g.len());
    let (number, serves) = match fold.role(g.index) {
        Role::Core { number, serves } => (number, serves.map(|index| g.rank(index))),
        Role::Outside(partner) => {
            for (src, dst) in input.chunks(b.chunk).zip(output.chunks(b.chunk)) {
                b.send(g.rank(partner), src);
                b.recv(g.rank(partner), dst);
            }
            return;
        }
    };
    let rounds = fold.core.ilog2();
    let in_place = input == output && serves.is_none() && rounds % 2 == 1;
    let scratch = if rounds > 1 || in_place || serves.is_some() { b.scratch(input.count.min(b.chunk)) } else { output };
    for (src, dst) in input.chunks(b.chunk).zip(output.chunks(b.chunk)) {
        let spare = scratch.slice(0, dst.count);
        let mut current = src;
        if let Some(outside) = serves {
            current = if rounds % 2 == 0 { dst } else { spare };
            b.recv_reduce(outside, src, current);
        }
        for round in 0..rounds {
            let partner = g.rank(fold.index(number ^ (1 << round)));
            let next = if (rounds - round) % 2 == 1 { dst } else { spare };
            b.send(partner, current);
            if in_place && round == 0 {
                b.recv(partner, spare);
                b.reduce(vec![current.here(), spare.here()], vec![next.here()]);
            } else {
                b.recv_reduce(partner, current, next);
            }
            current = next;
        }
        if let Some(outside) = serves {
            b.send(outside, dst);
        }
    }
}

/// A power of two of members. In round k they exchange the 2^k blocks of their half.
pub(super) fn all_gather(b: &mut Builder, g: &Group, input: Range, outputs: &[Range]) {
    let mut distance = 1;
    while distance < g.len() {
        let partner = g.index ^ distance;
        let half = |index: usize| {
            let start = index / distance * distance;
            joined(outputs[start..start + distance].iter().copied())
        };
        let mine = if distance == 1 { vec![input] } else { half(g.index) };
        b.exchange(g.rank(partner), &mine, g.rank(partner), &half(partner));
        if distance == 1 {
            b.copy(input, outputs[g.index]);
        }
        distance *= 2;
    }
}
