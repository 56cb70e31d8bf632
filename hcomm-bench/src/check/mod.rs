//! Is the result right? Exact: every element of every rank's output is compared, bit for bit, with a result computed here
//! from the rule that made the inputs ([`pattern`]), never with the library's own kernels.
//!
//! Before a checked run the output holds the expected bits inverted, so an output that was not written is wrong everywhere.
//! Bytes around the buffers are canaries, and an out-of-place run must leave its input as it was.

mod pattern;

use std::ops::Range;

use hcomm_core::Collective;

pub use pattern::Pattern;

use crate::workload::Shape;

/// Canary bytes on each side of a buffer; a page, so that the buffer itself stays page-aligned.
pub const GUARD: usize = 4096;

const CANARY: u8 = 0xc5;

/// Elements computed at a time.
const BLOCK: usize = 1024;

/// Where a piece of a result comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A rank's input, from this element on.
    Rank(usize, u64),
    /// All ranks' inputs combined, from this element on.
    Combined(u64),
}

/// What a checked run found on one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Wrong elements of the output, and elements of the input that were changed.
    pub wrong: u64,
    /// Canary bytes around the buffers that were overwritten.
    pub out_of_bounds: u64,
    /// The first fault in words.
    pub first: Option<String>,
}

/// Checks one shape on one rank.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    shape: &'a Shape,
    rank: usize,
    pattern: Pattern,
}

impl<'a> Check<'a> {
    /// A check with inputs of its own for each seed; `None` when the type holds no inputs that could tell.
    pub fn new(shape: &'a Shape, rank: usize, seed: u64) -> Option<Check<'a>> {
        let pattern = if shape.call.collective.reduces() {
            Pattern::combined(shape.call.dtype, shape.call.op, shape.ranks, seed)?
        } else {
            Pattern::moved(shape.ranks, seed)
        };
        Some(Check { shape, rank, pattern })
    }

    /// Gives a run that is not checked the inputs of a checked one. `memory` is the input, or the buffer of a run in place.
    pub fn fill(&self, memory: &mut [u8], in_place: bool) {
        let input = if in_place { self.in_place_ranges().0 } else { 0..memory.len() };
        self.fill_input(&mut memory[input]);
    }

    /// Prepares an out-of-place run. Both are exactly as long as the shape says.
    pub fn prepare(&self, input: &mut [u8], output: &mut [u8]) {
        self.fill_input(input);
        self.poison(output);
    }

    /// Prepares an in-place run.
    pub fn prepare_in_place(&self, buffer: &mut [u8]) {
        let (input, output) = self.in_place_ranges();
        // The poison goes first: where input and output are the same memory, the input must win.
        self.poison(&mut buffer[output]);
        self.fill_input(&mut buffer[input]);
    }

    /// Looks at the buffers after an out-of-place run.
    pub fn verify(&self, input: &[u8], output: &[u8]) -> Verdict {
        let mut verdict = Verdict::default();
        self.compare(&mut verdict, output, "output", self.result());
        self.compare(&mut verdict, input, "input (changed by the call)", self.own_input());
        verdict
    }

    /// Looks at the buffer after an in-place run.
    pub fn verify_in_place(&self, buffer: &[u8]) -> Verdict {
        let (input, output) = self.in_place_ranges();
        let mut verdict = Verdict::default();
        if output.is_empty() {
            // A rank that only gives (not the root) keeps its data.
            self.compare(&mut verdict, &buffer[input], "input (changed by the call)", self.own_input());
        }
        self.compare(&mut verdict, &buffer[output], "output", self.result());
        verdict
    }

    /// The ranges of the in-place buffer, in bytes.
    fn in_place_ranges(&self) -> (Range<usize>, Range<usize>) {
        let place = self.shape.in_place(self.rank);
        let range = |at: u64, count: u64| self.bytes(at)..self.bytes(at + count);
        (
            range(place.input_at, self.shape.input_count(self.rank)),
            range(place.output_at, self.shape.output_count(self.rank)),
        )
    }

    fn bytes(&self, elements: u64) -> usize {
        elements as usize * self.shape.call.dtype.size()
    }

    /// The pieces of this rank's result, in order.
    fn result(&self) -> Vec<(u64, Origin)> {
        let (shape, rank) = (self.shape, self.rank);
        let count = shape.output_count(rank);
        let own = shape.offset(rank);
        let root = shape.call.root;
        match shape.call.collective {
            Collective::AllReduce => vec![(count, Origin::Combined(0))],
            Collective::Reduce if rank == root => vec![(count, Origin::Combined(0))],
            Collective::ReduceScatter => vec![(count, Origin::Combined(own))],
            Collective::Broadcast => vec![(count, Origin::Rank(root, 0))],
            Collective::Scatter => vec![(count, Origin::Rank(root, own))],
            Collective::AllGather => self.blocks(),
            Collective::Gather if rank == root => self.blocks(),
            Collective::AllToAll => {
                let start = |from: usize| (0..rank).map(|to| shape.pair(from, to)).sum();
                (0..shape.ranks).map(|from| (shape.pair(from, rank), Origin::Rank(from, start(from)))).collect()
            }
            Collective::SendRecv => vec![(count, Origin::Rank((rank + shape.ranks - 1) % shape.ranks, 0))],
            Collective::Reduce | Collective::Gather | Collective::Barrier => Vec::new(),
        }
    }

    fn own_input(&self) -> [(u64, Origin); 1] {
        [(self.shape.input_count(self.rank), Origin::Rank(self.rank, 0))]
    }

    fn blocks(&self) -> Vec<(u64, Origin)> {
        (0..self.shape.ranks).map(|from| (self.shape.block(from), Origin::Rank(from, 0))).collect()
    }

    fn fill_input(&self, input: &mut [u8]) {
        self.each_block(self.own_input(), |at, expected| input[at..at + expected.len()].copy_from_slice(expected));
    }

    fn poison(&self, output: &mut [u8]) {
        self.each_block(self.result(), |at, expected| {
            for (out, byte) in output[at..at + expected.len()].iter_mut().zip(expected) {
                *out = !byte;
            }
        });
    }

    fn compare(
        &self,
        verdict: &mut Verdict,
        actual: &[u8],
        what: &str,
        pieces: impl IntoIterator<Item = (u64, Origin)>,
    ) {
        let size = self.shape.call.dtype.size();
        self.each_block(pieces, |at, expected| {
            let actual = &actual[at..at + expected.len()];
            if actual == expected {
                return;
            }
            for (i, (got, wanted)) in actual.chunks(size).zip(expected.chunks(size)).enumerate() {
                if got != wanted {
                    verdict.wrong += 1;
                    verdict.first.get_or_insert_with(|| {
                        let element = at / size + i;
                        format!("first at element {element} of the {what}: got {}, expected {}", hex(got), hex(wanted))
                    });
                }
            }
        });
    }

    /// Calls `visit` with the expected bytes of each block of `pieces`, which follow each other from byte 0 on.
    fn each_block(&self, pieces: impl IntoIterator<Item = (u64, Origin)>, mut visit: impl FnMut(usize, &[u8])) {
        let mut values = [0; BLOCK];
        let mut bytes = [0; BLOCK * 8];
        let mut at = 0;
        for (count, origin) in pieces {
            for from in (0..count).step_by(BLOCK) {
                let values = &mut values[..BLOCK.min((count - from) as usize)];
                match origin {
                    Origin::Rank(rank, start) => self.pattern.values(rank as u64, start + from, values),
                    Origin::Combined(start) => self.pattern.combinations(start + from, values),
                }
                let bytes = &mut bytes[..self.bytes(values.len() as u64)];
                self.pattern.encode(self.shape.call.dtype, values, bytes);
                visit(at, bytes);
                at += bytes.len();
            }
        }
    }
}

/// Sets the canaries of a guarded buffer: `GUARD` bytes before and after `inside`.
pub fn set_canaries(memory: &mut [u8], inside: &Range<usize>) {
    memory[inside.start - GUARD..inside.start].fill(CANARY);
    memory[inside.end..inside.end + GUARD].fill(CANARY);
}

/// Counts the canaries that were overwritten.
pub fn lost_canaries(memory: &[u8], inside: &Range<usize>) -> u64 {
    let around = memory[inside.start - GUARD..inside.start].iter().chain(&memory[inside.end..inside.end + GUARD]);
    around.filter(|byte| **byte != CANARY).count() as u64
}

/// The bytes of an element, most significant first.
fn hex(element: &[u8]) -> String {
    let digits = |bytes: &mut dyn Iterator<Item = &u8>| bytes.map(|b| format!("{b:02x}")).collect::<String>();
    let bytes =
        if cfg!(target_endian = "big") { digits(&mut element.iter()) } else { digits(&mut element.iter().rev()) };
    format!("0x{bytes}")
}

#[cfg(test)]
mod tests;
