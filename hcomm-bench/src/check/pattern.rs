//! Input values whose results are exact, and the expected results, computed here on their own.
//!
//! A value is a small integer that depends on seed, rank and position. Each operation has its own rule, such that every
//! partial result in every order is an integer that the type holds, so an algorithm that is right gives exactly the
//! expected bits, and neither tolerance nor a reference implementation is needed:
//! - sum: values in -m..=m (0..=m unsigned) with ranks x m within the type's integers (256 for bf16, 2048 for f16);
//! - prod: at each position as many ranks as the type has room for hold a factor 2, the others 1, with signs;
//! - min, max: any integer the type holds;
//! - avg: rank pairs hold q + h and q - h, so the sum is ranks x q, and the average q, with nothing to round;
//! - data that is only moved: random bits.
//!
//! The rejected way, tolerances, lets small faults (a lost contribution of small values) pass.

use half::{bf16, f16};
use hcomm_core::{DataType, ReduceOp};

/// The rule by which inputs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Bits,
    Sum { largest: i64 },
    Prod { factors: u64 },
    Extreme { largest: i64, op: ReduceOp },
    Avg { most: i64, spread: i64 },
}

/// All inputs and results of one checked run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    rule: Rule,
    signed: bool,
    ranks: u64,
    seed: u64,
}

impl Pattern {
    /// Values for data that is moved, not combined.
    pub fn moved(ranks: usize, seed: u64) -> Pattern {
        Pattern { rule: Rule::Bits, signed: false, ranks: ranks as u64, seed }
    }

    /// Values to be combined by `op`; `None` when no inputs can tell (too many ranks for the type).
    pub fn combined(dtype: DataType, op: ReduceOp, ranks: usize, seed: u64) -> Option<Pattern> {
        let limit = integer_limit(dtype);
        let largest = limit / ranks as i64;
        let rule = match op {
            // Integers wrap, so their sums are exact whatever their size.
            ReduceOp::Sum if largest == 0 && is_integer(dtype) => Rule::Sum { largest: 1 },
            ReduceOp::Sum | ReduceOp::Avg if largest == 0 => return None,
            ReduceOp::Sum => Rule::Sum { largest },
            ReduceOp::Prod => Rule::Prod { factors: u64::from(limit.ilog2()).min(ranks as u64) },
            ReduceOp::Min | ReduceOp::Max => Rule::Extreme { largest: limit, op },
            ReduceOp::Avg => {
                let spread = largest / 3;
                Rule::Avg { most: largest - spread, spread }
            }
        };
        let signed = !matches!(dtype, DataType::U8 | DataType::U32 | DataType::U64);
        Some(Pattern { rule, signed, ranks: ranks as u64, seed })
    }

    /// Elements `start..` of `rank`'s input.
    pub fn values(&self, rank: u64, start: u64, out: &mut [i64]) {
        let shared_key = mix(self.seed, 0);
        let own_key = mix(self.seed, rank + 1);
        for (position, out) in (start..).zip(out) {
            let own = mix(own_key, position);
            *out = match self.rule {
                Rule::Bits => own as i64,
                Rule::Sum { largest } | Rule::Extreme { largest, .. } => self.spread_over(own, largest),
                Rule::Prod { factors } => {
                    let size = if self.turned(rank, mix(shared_key, position)) < factors { 2 } else { 1 };
                    self.with_sign(own, size)
                }
                Rule::Avg { most, spread } => {
                    let shared = mix(shared_key, position);
                    let turned = self.turned(rank, shared);
                    let alone = turned.is_multiple_of(2) && turned + 1 == self.ranks;
                    let apart = if alone { 0 } else { scale(mix(shared, turned / 2), spread as u64 + 1) as i64 };
                    let average = spread + scale(shared, (most - spread + 1) as u64) as i64; // no value is negative
                    self.with_sign(shared, if turned.is_multiple_of(2) { average + apart } else { average - apart })
                }
            };
        }
    }

    /// Elements `start..` of the result of combining all ranks' inputs.
    pub fn combinations(&self, start: u64, out: &mut [i64]) {
        self.values(0, start, out);
        let mut next = vec![0; out.len()];
        for rank in 1..self.ranks {
            self.values(rank, start, &mut next);
            for (total, value) in out.iter_mut().zip(&next) {
                *total = match self.rule {
                    Rule::Sum { .. } | Rule::Avg { .. } => *total + value,
                    Rule::Prod { .. } => *total * value,
                    Rule::Extreme { op: ReduceOp::Min, .. } => (*total).min(*value),
                    Rule::Extreme { .. } => (*total).max(*value),
                    Rule::Bits => *total, // moved, never combined
                };
            }
        }
        if let Rule::Avg { .. } = self.rule {
            out.iter_mut().for_each(|total| *total /= self.ranks as i64);
        }
    }

    /// Stores values as elements of `dtype`; `out` is as long as they are.
    pub fn encode(&self, dtype: DataType, values: &[i64], out: &mut [u8]) {
        match dtype {
            DataType::F16 if self.rule != Rule::Bits => store(values, out, |v| f16::from_f32(v as f32).to_ne_bytes()),
            DataType::Bf16 if self.rule != Rule::Bits => store(values, out, |v| bf16::from_f32(v as f32).to_ne_bytes()),
            DataType::F32 if self.rule != Rule::Bits => store(values, out, |v| (v as f32).to_ne_bytes()),
            DataType::F64 if self.rule != Rule::Bits => store(values, out, |v| (v as f64).to_ne_bytes()),
            // Casts to a narrower integer wrap, as the sums of integers do.
            _ => match dtype.size() {
                1 => store(values, out, |v| (v as u8).to_ne_bytes()),
                2 => store(values, out, |v| (v as u16).to_ne_bytes()),
                4 => store(values, out, |v| (v as u32).to_ne_bytes()),
                _ => store(values, out, |v| (v as u64).to_ne_bytes()),
            },
        }
    }

    /// The place of `rank` after all ranks are turned by a random number.
    fn turned(&self, rank: u64, random: u64) -> u64 {
        (rank + scale(random, self.ranks)) % self.ranks
    }

    /// An integer in -largest..=largest, or 0..=largest when unsigned.
    fn spread_over(&self, random: u64, largest: i64) -> i64 {
        let largest = largest as u64;
        if self.signed {
            scale(random, 2 * largest + 1) as i64 - largest as i64
        } else {
            scale(random, largest + 1) as i64
        }
    }

    fn with_sign(&self, random: u64, size: i64) -> i64 {
        if self.signed && random & 1 == 1 { -size } else { size }
    }
}

fn store<const N: usize>(values: &[i64], out: &mut [u8], encode: impl Fn(i64) -> [u8; N]) {
    for (value, out) in values.iter().zip(out.chunks_exact_mut(N)) {
        out.copy_from_slice(&encode(*value));
    }
}

/// The largest integer up to which the type holds every integer; smaller for wide types, to leave i64 room for sums.
fn integer_limit(dtype: DataType) -> i64 {
    match dtype {
        DataType::Bf16 => 1 << 8,
        DataType::F16 => 1 << 11,
        DataType::I8 => i64::from(i8::MAX),
        DataType::U8 => i64::from(u8::MAX),
        DataType::F32 => 1 << 24,
        DataType::I32 => i64::from(i32::MAX),
        DataType::U32 => i64::from(u32::MAX),
        DataType::F64 | DataType::I64 | DataType::U64 => 1 << 53,
    }
}

fn is_integer(dtype: DataType) -> bool {
    !matches!(dtype, DataType::F64 | DataType::F32 | DataType::F16 | DataType::Bf16)
}

/// A random number of a key and a position: two rounds of multiply and fold, which is cheap (a check computes one for each
/// rank and element) and leaves no pattern that a misplaced block could match.
fn mix(key: u64, position: u64) -> u64 {
    let z = (position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ key;
    let z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 32)
}

/// A random number below `bound`, by multiplication instead of division.
fn scale(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(pattern: &Pattern, ranks: u64, count: usize) -> Vec<Vec<i64>> {
        let column = |rank| {
            let mut out = vec![0; count];
            pattern.values(rank, 0, &mut out);
            out
        };
        (0..ranks).map(column).collect()
    }

    /// Every partial result over any subset of ranks is bounded by the sum (or product) of sizes: if that fits, all do.
    #[test]
    fn partial_results_are_integers_that_the_type_holds() {
        for dtype in DataType::ALL {
            for op in ReduceOp::ALL {
                for ranks in [1, 2, 3, 4, 7, 8, 16, 64, 100] {
                    let Some(pattern) = Pattern::combined(dtype, op, ranks, 7) else { continue };
                    let inputs = inputs(&pattern, ranks as u64, 300);
                    for position in 0..300 {
                        let sizes = inputs.iter().map(|input| input[position].unsigned_abs());
                        let bound: u64 = match op {
                            ReduceOp::Sum | ReduceOp::Avg => sizes.sum(),
                            ReduceOp::Prod => sizes.product(),
                            ReduceOp::Min | ReduceOp::Max => sizes.max().unwrap(),
                        };
                        assert!(bound <= integer_limit(dtype) as u64, "{dtype} {op} {ranks}: {bound}");
                        if dtype.name().starts_with('u') {
                            assert!(inputs.iter().all(|input| input[position] >= 0), "{dtype} {op} {ranks}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn averages_have_nothing_to_round() {
        for dtype in DataType::ALL {
            for ranks in 1..=16 {
                let pattern = Pattern::combined(dtype, ReduceOp::Avg, ranks, 3).unwrap();
                let inputs = inputs(&pattern, ranks as u64, 200);
                for position in 0..200 {
                    let sum: i64 = inputs.iter().map(|input| input[position]).sum();
                    assert_eq!(sum % ranks as i64, 0, "{dtype} over {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn every_rank_matters_to_every_operation() {
        for dtype in DataType::ALL {
            for op in ReduceOp::ALL {
                for ranks in [2, 3, 8] {
                    let pattern = Pattern::combined(dtype, op, ranks, 1).unwrap();
                    let inputs = inputs(&pattern, ranks as u64, 400);
                    let mut expected = vec![0; 400];
                    pattern.combinations(0, &mut expected);
                    for missing in 0..ranks {
                        let without = |position: usize| {
                            let values = (0..ranks).filter(|r| *r != missing).map(|r| inputs[r][position]);
                            match op {
                                ReduceOp::Sum => values.sum(),
                                ReduceOp::Avg => values.sum::<i64>() / ranks as i64,
                                ReduceOp::Prod => values.product(),
                                ReduceOp::Min => values.min().unwrap(),
                                ReduceOp::Max => values.max().unwrap(),
                            }
                        };
                        let seen = (0..400).filter(|&position| without(position) != expected[position]).count();
                        assert!(seen > 20, "{dtype} {op} {ranks}: losing rank {missing} changes {seen} of 400");
                    }
                }
            }
        }
    }

    #[test]
    fn too_many_ranks_for_a_type_is_said() {
        assert!(Pattern::combined(DataType::Bf16, ReduceOp::Sum, 257, 0).is_none());
        assert!(Pattern::combined(DataType::I8, ReduceOp::Avg, 128, 0).is_none());
        assert!(Pattern::combined(DataType::I8, ReduceOp::Sum, 300, 0).is_some());
        assert!(Pattern::combined(DataType::Bf16, ReduceOp::Max, 5000, 0).is_some());
    }

    #[test]
    fn elements_are_stored_in_their_type() {
        let pattern = Pattern::combined(DataType::F32, ReduceOp::Sum, 2, 0).unwrap();
        let mut out = [0; 8];
        pattern.encode(DataType::F32, &[-3, 7], &mut out);
        assert_eq!(out, [(-3f32).to_ne_bytes(), 7f32.to_ne_bytes()].concat()[..]);
        pattern.encode(DataType::I8, &[-3, 7], &mut out[..2]);
        assert_eq!(out[..2], [0xfd, 7]);
        pattern.encode(DataType::Bf16, &[256], &mut out[..2]);
        assert_eq!(out[..2], bf16::from_f32(256.0).to_ne_bytes());
    }
}
