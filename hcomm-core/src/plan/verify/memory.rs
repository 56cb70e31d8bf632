//! Memory whose elements are symbols: which ranks' contributions an element holds, of which element of the collective,
//! and in which order they were folded. Kept as runs, as neighbours mostly share a history.

/// What an element holds. In a run, `element` counts up from the run's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    /// Ranks whose contribution is in it, a bit each.
    pub ranks: u64,
    /// Which element of the collective it is.
    pub element: u64,
    /// Hash of the expression that was evaluated; equal hashes give equal bits.
    pub expression: u64,
    /// The expression is one left fold by rank, with one rounding.
    pub ordered: bool,
}

/// A run of elements; `None` was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub count: u64,
    pub value: Option<Value>,
}

impl Value {
    /// Rank `rank`'s own element.
    pub fn own(rank: usize, element: u64) -> Value {
        Value { ranks: 1 << rank, element, expression: mix(rank as u64 + 1), ordered: true }
    }

    fn advanced(self, by: u64) -> Value {
        Value { element: self.element + by, ..self }
    }

    /// One fold over all operands; the error says what cannot be folded.
    pub fn fold(operands: &[Value]) -> Result<Value, String> {
        let mut sum = operands[0];
        let mut expressions = vec![sum.expression];
        for &next in &operands[1..] {
            if next.element != sum.element {
                return Err(format!("element {} is reduced with element {}", sum.element, next.element));
            }
            if next.ranks & sum.ranks != 0 {
                return Err(format!("element {} gets a contribution twice", sum.element));
            }
            sum.ranks |= next.ranks;
            expressions.push(next.expression);
        }
        let single = operands.iter().all(|value| value.ranks.is_power_of_two());
        let ascending = operands.windows(2).all(|pair| pair[0].ranks < pair[1].ranks);
        sum.ordered = single && (ascending || operands.len() == 2);
        if let [a, b] = expressions[..] {
            // a + b is b + a, bit for bit.
            expressions = vec![a.min(b), a.max(b)];
        }
        sum.expression = expressions.into_iter().fold(operands.len() as u64, |hash, next| mix(hash ^ next));
        Ok(sum)
    }
}

/// The finaliser of splitmix64.
fn mix(mut hash: u64) -> u64 {
    hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl Run {
    fn slice(self, offset: u64, count: u64) -> Run {
        Run { count, value: self.value.map(|value| value.advanced(offset)) }
    }
}

/// One buffer.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// First element of each run, ascending, and what it holds.
    runs: Vec<(u64, Option<Value>)>,
    pub count: u64,
}

impl Memory {
    pub fn new(count: u64) -> Memory {
        Memory { runs: if count > 0 { vec![(0, None)] } else { vec![] }, count }
    }

    /// The runs of `offset..offset + count`, which must lie within.
    pub fn read(&self, offset: u64, count: u64) -> Vec<Run> {
        let end = offset + count;
        let mut runs = Vec::new();
        let mut index = self.runs.partition_point(|run| run.0 <= offset).saturating_sub(1);
        let mut at = offset;
        while at < end {
            let (start, value) = self.runs[index];
            let next = self.runs.get(index + 1).map_or(self.count, |run| run.0).min(end);
            runs.push(Run { count: next - at, value: value.map(|value| value.advanced(at - start)) });
            (at, index) = (next, index + 1);
        }
        runs
    }

    /// Replaces what is at `offset` by `runs`.
    pub fn write(&mut self, offset: u64, runs: &[Run]) {
        let count: u64 = runs.iter().map(|run| run.count).sum();
        if count == 0 {
            return;
        }
        let end = offset + count;
        let first = self.runs.partition_point(|run| run.0 < offset);
        let last = self.runs.partition_point(|run| run.0 <= end);
        let mut new: Vec<(u64, Option<Value>)> = Vec::with_capacity(runs.len() + 1);
        let mut at = offset;
        for run in runs.iter().filter(|run| run.count > 0) {
            let before = new.last().or_else(|| first.checked_sub(1).map(|index| &self.runs[index]));
            let continues =
                before.is_some_and(|&(start, value)| value.map(|value| value.advanced(at - start)) == run.value);
            if !continues {
                new.push((at, run.value));
            }
            at += run.count;
        }
        // What follows keeps its value: cut off from a run that began before.
        if end < self.count && (last == 0 || self.runs[last - 1].0 < end) {
            new.push((end, self.read(end, 1)[0].value));
        }
        let last = if end < self.count && last > 0 && self.runs[last - 1].0 == end { last - 1 } else { last };
        self.runs.splice(first..last.max(first), new);
    }
}

/// Cuts lists of runs of equal total length at all boundaries of any, and hands over the columns.
pub(super) fn aligned(lists: &[Vec<Run>], mut each: impl FnMut(u64, &[Run])) {
    let mut at = vec![(0usize, 0u64); lists.len()];
    let mut column = Vec::with_capacity(lists.len());
    while at[0].0 < lists[0].len() {
        let count = at.iter().zip(lists).map(|(&(run, done), list)| list[run].count - done).min().unwrap_or(0);
        column.clear();
        for ((run, done), list) in at.iter_mut().zip(lists) {
            column.push(list[*run].slice(*done, count));
            *done += count;
            if *done == list[*run].count {
                (*run, *done) = (*run + 1, 0);
            }
        }
        each(count, &column);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_an_array_of_elements(
            writes in prop::collection::vec((0u64..40, 0u64..40, 0usize..3, 0u64..4, 1u64..9), 1..30)
        ) {
            let mut memory = Memory::new(64);
            let mut oracle: Vec<Option<Value>> = vec![None; 64];
            for (offset, count, rank, element, split) in writes {
                let count = count.min(64 - offset);
                let split = split.min(count);
                let runs = [
                    Run { count: split, value: Some(Value::own(rank, element)) },
                    Run { count: count - split, value: Some(Value::own(rank, element + split)) },
                ];
                memory.write(offset, &runs);
                for at in 0..count {
                    oracle[(offset + at) as usize] = Some(Value::own(rank, element + at));
                }
                let seen: Vec<Option<Value>> = memory
                    .read(0, 64)
                    .iter()
                    .flat_map(|run| (0..run.count).map(|at| run.slice(at, 1).value))
                    .collect();
                prop_assert_eq!(&seen, &oracle);
            }
        }
    }
}
