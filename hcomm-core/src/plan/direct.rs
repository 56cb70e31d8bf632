//! Direct: every rank talks to every other. One hop, and a fold that reads all sources at once in rank order, so that 16-bit
//! floats round once and the bits depend on nothing but the data. For one host, and for short messages between few.
//!
//! Each rank starts with the one after it, so that no rank is everyone's first. See [`super::remote`] for ranks that reach each
//! other's memory.

use super::Range;
use super::builder::Builder;
use super::group::{Group, pieces};

/// One-shot when a chunk holds all, else two-shot.
pub(super) fn all_reduce(b: &mut Builder, g: &Group, input: Range, output: Range) {
    match g.len() {
        1 => b.copy(input, output),
        _ if b.is_short(input.count) => one_shot(b, g, input, output),
        _ => two_shot(b, g, input, output),
    }
}

/// Everyone gets everyone's data and reduces it all.
fn one_shot(b: &mut Builder, g: &Group, input: Range, output: Range) {
    for distance in 1..g.len() {
        b.send(g.rank(g.after(distance)), input);
    }
    let mut gathering = Gathering::new(b, g, input.count);
    // In place, two ranks that received onto what they send would wait for each other.
    if input == output {
        gathering.fold_apart(b, input, output)
    } else {
        gathering.fold(b, input, output)
    };
}

/// Everyone reduces its block of all data and sends it to everyone, a chunk for each rank at a time.
fn two_shot(b: &mut Builder, g: &Group, input: Range, output: Range) {
    let n = g.len() as u64;
    let rounds = pieces(input.count, b.chunk.saturating_mul(n));
    let mut gathering = Gathering::new(b, g, input.piece(rounds, 0).piece(n, 0).count);
    for round in 0..rounds {
        let block = |range: Range, index: usize| range.piece(rounds, round).piece(n, index as u64);
        for distance in 1..g.len() {
            let to = g.after(distance);
            b.send(g.rank(to), block(input, to));
        }
        let sum = block(output, g.index);
        if let [other] = gathering.others[..] {
            b.recv_reduce_send(g.rank(other), block(input, g.index), sum, g.rank(other));
        } else {
            gathering.fold(b, block(input, g.index), sum);
            for distance in 1..g.len() {
                b.send(g.rank(g.after(distance)), sum);
            }
        }
        for distance in 1..g.len() {
            let from = g.before(distance);
            b.recv(g.rank(from), block(output, from));
        }
    }
}

/// Receives one message from each other member and folds them by rank.
struct Gathering<'a> {
    g: &'a Group,
    /// The other members, in the order in which they send to this one.
    others: Vec<usize>,
    slots: Option<Range>,
    longest: u64,
}

impl<'a> Gathering<'a> {
    fn new(b: &mut Builder, g: &'a Group, longest: u64) -> Self {
        let others = (1..g.len()).map(|distance| g.before(distance)).collect();
        let mut gathering = Gathering { g, others, slots: None, longest };
        if g.len() > 2 {
            gathering.reserve(b);
        }
        gathering
    }

    fn reserve(&mut self, b: &mut Builder) -> Range {
        *self.slots.get_or_insert_with(|| b.scratch(self.longest * self.others.len() as u64))
    }

    /// `output` = fold of `own` and what all others send. Of two, the order does not change the bits.
    fn fold(&mut self, b: &mut Builder, own: Range, output: Range) {
        match self.others[..] {
            [other] => b.recv_reduce(self.g.rank(other), own, output),
            _ => self.fold_apart(b, own, output),
        }
    }

    fn fold_apart(&mut self, b: &mut Builder, own: Range, output: Range) {
        let slots = self.reserve(b);
        let mut srcs = vec![own.here(); self.g.len()];
        for (slot, &other) in self.others.iter().enumerate() {
            let slot = slots.slice(slot as u64 * self.longest, own.count);
            b.recv(self.g.rank(other), slot);
            srcs[other] = slot.here();
        }
        b.reduce(srcs, vec![output.here()]);
    }
}

/// `inputs[i]` is member i's block, `output` this member's.
pub(super) fn reduce_scatter(b: &mut Builder, g: &Group, inputs: &[Range], output: Range) {
    if g.len() == 1 {
        return b.copy(inputs[0], output);
    }
    let rounds = b.rounds(inputs.iter().copied());
    let mut gathering = Gathering::new(b, g, if rounds == 0 { 0 } else { output.piece(rounds, 0).count });
    for round in 0..rounds {
        for distance in 1..g.len() {
            let to = g.after(distance);
            b.send(g.rank(to), inputs[to].piece(rounds, round));
        }
        gathering.fold(b, inputs[g.index].piece(rounds, round), output.piece(rounds, round));
    }
}

/// `output` is used on the root only.
pub(super) fn reduce(b: &mut Builder, g: &Group, root: usize, input: Range, output: Range) {
    if g.len() == 1 {
        return b.copy(input, output);
    }
    if g.index != root {
        return b.send_all(g.rank(root), input);
    }
    let chunks = pieces(input.count, b.chunk);
    let mut gathering = Gathering::new(b, g, input.count.div_ceil(chunks.max(1)));
    for index in 0..chunks {
        gathering.fold(b, input.piece(chunks, index), output.piece(chunks, index));
    }
}

/// `outputs[i]` is where member i's input goes.
pub(super) fn all_gather(b: &mut Builder, g: &Group, input: Range, outputs: &[Range]) {
    all_to_all(b, g, &vec![input; g.len()], outputs);
}

/// `inputs[i]` goes to member i, `outputs[i]` comes from it. In rounds of a chunk for each pair.
pub(super) fn all_to_all(b: &mut Builder, g: &Group, inputs: &[Range], outputs: &[Range]) {
    let others = (0..g.len()).filter(|&index| index != g.index);
    let rounds = b.rounds(others.flat_map(|index| [inputs[index], outputs[index]]));
    let chunk = b.chunk;
    // Every pair of ranks cuts its block by itself, as only the two know its size.
    let piece = |range: Range, round: u64| {
        let pieces = pieces(range.count, chunk);
        if round < pieces { range.piece(pieces, round) } else { Range::nothing() }
    };
    for round in 0..rounds {
        for distance in 1..g.len() {
            let to = g.after(distance);
            b.send(g.rank(to), piece(inputs[to], round));
        }
        for distance in 1..g.len() {
            let from = g.before(distance);
            b.recv(g.rank(from), piece(outputs[from], round));
        }
    }
    b.copy(inputs[g.index], outputs[g.index]);
}

/// Root to all.
pub(super) fn broadcast(b: &mut Builder, g: &Group, root: usize, input: Range, output: Range) {
    if g.index != root {
        return b.recv_all(g.rank(root), output);
    }
    for chunk in input.chunks(b.chunk) {
        for distance in 1..g.len() {
            b.send(g.rank(g.after(distance)), chunk);
        }
    }
    b.copy(input, output);
}

/// `inputs[i]` is member i's block on the root.
pub(super) fn scatter(b: &mut Builder, g: &Group, root: usize, inputs: &[Range], output: Range) {
    if g.index != root {
        return b.recv_all(g.rank(root), output);
    }
    for distance in 1..g.len() {
        let to = g.after(distance);
        b.send_all(g.rank(to), inputs[to]);
    }
    b.copy(inputs[root], output);
}

/// `outputs[i]` is where member i's input goes on the root.
pub(super) fn gather(b: &mut Builder, g: &Group, root: usize, input: Range, outputs: &[Range]) {
    if g.index != root {
        return b.send_all(g.rank(root), input);
    }
    b.copy(input, outputs[root]);
    for distance in 1..g.len() {
        let from = g.after(distance);
        b.recv_all(g.rank(from), outputs[from]);
    }
}
