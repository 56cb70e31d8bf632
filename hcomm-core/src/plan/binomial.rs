//! Binomial tree: in each round everyone who has the data passes it on, so log2(n) rounds reach all. Scatter and gather
//! move only the blocks that belong below a link.

use std::ops;

use super::Range;
use super::builder::Builder;
use super::group::{Group, joined};
use super::pipeline::Place;

/// The member's place in the tree at member `root`. Numbered from the root, a member's parent has its lowest set bit
/// cleared.
pub(super) fn place(g: &Group, root: usize) -> Place {
    let number = (g.index + g.len() - root) % g.len();
    let rank = |number: usize| g.rank((number + root) % g.len());
    Place {
        parent: (number > 0).then(|| rank(number & (number - 1))),
        children: children(g, number).map(|(child, _)| rank(child)).collect(),
        depth: u64::from(number.count_ones()),
    }
}

/// Children of the member with this number, with the number of members at and below each.
fn children(g: &Group, number: usize) -> impl Iterator<Item = (usize, usize)> {
    let n = g.len();
    let bits = if number == 0 { n.next_power_of_two().ilog2() } else { number.trailing_zeros() };
    (0..bits)
        .rev()
        .map(move |bit| (number + (1 << bit), 1 << bit))
        .filter_map(move |(child, size)| (child < n).then(|| (child, size.min(n - child))))
}

/// A tree of blocks: who holds what where.
struct Blocks<'a> {
    g: &'a Group,
    root: usize,
    number: usize,
    /// Blocks as they lie on the root, by member.
    whole: &'a [Range],
    /// Memory for the blocks of this member and those below it, in the order of their numbers: on the way only.
    held: Range,
    parent: usize,
}

impl<'a> Blocks<'a> {
    fn new(b: &mut Builder, g: &'a Group, root: usize, whole: &'a [Range], own: Range) -> Self {
        let number = (g.index + g.len() - root) % g.len();
        let mut blocks = Blocks { g, root, number, whole, held: own, parent: place(g, root).parent.unwrap_or(0) };
        let below: usize = children(g, number).map(|(_, size)| size).sum();
        if number > 0 && below > 0 {
            blocks.held = b.scratch(blocks.on_root(number..number + below + 1).iter().map(|run| run.count).sum());
        }
        blocks
    }

    /// Runs of memory on the root of the members with these numbers. Both ends of a link cut their messages by them.
    fn on_root(&self, numbers: ops::Range<usize>) -> Vec<Range> {
        joined(numbers.map(|number| self.whole[(number + self.root) % self.g.len()]))
    }

    /// The same blocks where this member has them.
    fn here(&self, numbers: ops::Range<usize>) -> Vec<Range> {
        let runs = self.on_root(numbers.clone());
        if self.number == 0 {
            return runs;
        }
        let mut offset: u64 = self.on_root(self.number..numbers.start).iter().map(|run| run.count).sum();
        let place = |run: Range| {
            offset += run.count;
            self.held.slice(offset - run.count, run.count)
        };
        runs.into_iter().map(place).collect()
    }

    /// This member's block in what it holds.
    fn own(&self) -> Range {
        self.held.slice(0, self.whole[self.g.index].count)
    }

    fn children(&self) -> impl DoubleEndedIterator<Item = (usize, ops::Range<usize>)> {
        let all: Vec<_> = children(self.g, self.number).collect();
        let rank = |number: usize| self.g.rank((number + self.root) % self.g.len());
        all.into_iter().map(|(child, size)| (rank(child), child..child + size)).collect::<Vec<_>>().into_iter()
    }

    /// Numbers of this member and all below it.
    fn subtree(&self) -> ops::Range<usize> {
        self.number..self.number + 1 + children(self.g, self.number).map(|(_, size)| size).sum::<usize>()
    }
}

/// `inputs[i]` is member i's block as it lies on the root.
pub(super) fn scatter(b: &mut Builder, g: &Group, root: usize, inputs: &[Range], output: Range) {
    let blocks = Blocks::new(b, g, root, inputs, output);
    if blocks.number > 0 {
        for run in blocks.here(blocks.subtree()) {
            b.recv_all(blocks.parent, run);
        }
    }
    for (child, below) in blocks.children() {
        for run in blocks.here(below) {
            b.send_all(child, run);
        }
    }
    b.copy(if blocks.number == 0 { inputs[root] } else { blocks.own() }, output);
}

/// `outputs[i]` is where member i's input goes on the root.
pub(super) fn gather(b: &mut Builder, g: &Group, root: usize, input: Range, outputs: &[Range]) {
    let blocks = Blocks::new(b, g, root, outputs, input);
    b.copy(input, if blocks.number == 0 { outputs[root] } else { blocks.own() });
    for (child, below) in blocks.children().rev() {
        for run in blocks.here(below) {
            b.recv_all(child, run);
        }
    }
    if blocks.number > 0 {
        for run in blocks.here(blocks.subtree()) {
            b.send_all(blocks.parent, run);
        }
    }
}
