//! Pairwise exchange: in step s each rank sends to the one s after it and receives from the one s before it, so every
//! block goes straight to its rank and no rank is sent to by two at once.

use super::Range;
use super::builder::Builder;
use super::group::Group;

/// `inputs[i]` goes to member i, `outputs[i]` comes from it; sizes as they like.
pub(super) fn all_to_all(b: &mut Builder, g: &Group, inputs: &[Range], outputs: &[Range]) {
    for distance in 1..g.len() {
        let (to, from) = (g.after(distance), g.before(distance));
        b.exchange(g.rank(to), &[inputs[to]], g.rank(from), &[outputs[from]]);
    }
    b.copy(inputs[g.index], outputs[g.index]);
}

/// `inputs[i]` is member i's block, `output` this member's, which adds up as blocks come.
pub(super) fn reduce_scatter(b: &mut Builder, g: &Group, inputs: &[Range], output: Range) {
    let mut operand = inputs[g.index];
    for distance in 1..g.len() {
        let (to, from) = (g.after(distance), g.before(distance));
        b.exchange_reduce(g.rank(to), &[inputs[to]], g.rank(from), &[(operand, output)]);
        operand = output;
    }
    if g.len() == 1 {
        b.copy(operand, output);
    }
}

/// To the next member, from the one before.
pub(super) fn send_to_next(b: &mut Builder, g: &Group, input: Range, output: Range) {
    match g.len() {
        1 => b.copy(input, output),
        _ => b.exchange(g.rank(g.after(1)), &[input], g.rank(g.before(1)), &[output]),
    }
}
