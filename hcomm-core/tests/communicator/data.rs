//! What goes into a collective and what must come out, worked out here from its definition: by integers, exactly, and with
//! nothing of the library's own arithmetic or layouts.

use half::{bf16, f16};
use hcomm_core::plan::Counts;
use hcomm_core::{Call, Collective, DataType, ReduceOp};

/// A hash of numbers (splitmix64, Steele et al., "Fast splittable pseudorandom number generators", 2014).
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Buffers of one rank in a call.
pub struct Expected {
    pub input: Vec<u8>,
    /// What the output must hold.
    pub output: Vec<u8>,
    /// Bytes at which (input, output) begin in the one buffer of the call in place.
    pub at: (usize, usize),
}

pub struct Case<'a> {
    pub call: &'a Call,
    pub ranks: usize,
}

impl Case<'_> {
    /// Of `rank`.
    pub fn expected(&self, rank: usize) -> Expected {
        use Collective as C;
        let (n, root, size) = (self.ranks, self.call.root, self.call.dtype.size());
        let (mine, total) = (self.block(rank), self.before(n));
        let on_root = |count| if rank == root { count } else { 0 };
        let own = |from: usize, count: u64| self.encode((0..count).map(|i| self.value(from, i)));
        let all_blocks =
            || self.encode((0..n).flat_map(|r| (0..self.block(r)).map(move |i| (r, i))).map(|(r, i)| self.value(r, i)));
        let reduced = |first: u64, count: u64| self.encode((first..first + count).map(|i| self.reduced(i)));
        let my_bytes = self.before(rank) as usize * size;
        let (input, output, at) = match self.call.collective {
            C::AllReduce => (own(rank, mine), reduced(0, mine), (0, 0)),
            C::Reduce => (own(rank, mine), reduced(0, on_root(mine)), (0, 0)),
            C::ReduceScatter => (own(rank, total), reduced(self.before(rank), mine), (0, my_bytes)),
            C::AllGather => (own(rank, mine), all_blocks(), (my_bytes, 0)),
            C::Gather if rank == root => (own(rank, mine), all_blocks(), (my_bytes, 0)),
            C::Gather => (own(rank, mine), Vec::new(), (0, 0)),
            C::Broadcast => (own(rank, on_root(mine)), own(root, mine), (0, 0)),
            C::Scatter => {
                let first = self.before(rank);
                let output = self.encode((first..first + mine).map(|i| self.value(root, i)));
                (own(rank, on_root(total)), output, (0, on_root(my_bytes as u64) as usize))
            }
            C::AllToAll => {
                let sent = (0..n).map(|to| self.pair(rank, to)).sum();
                let came = (0..n).flat_map(|from| {
                    let first: u64 = (0..rank).map(|to| self.pair(from, to)).sum();
                    (first..first + self.pair(from, rank)).map(move |i| (from, i))
                });
                (own(rank, sent), self.encode(came.map(|(from, i)| self.value(from, i))), (0, 0))
            }
            C::SendRecv => (own(rank, mine), own((rank + n - 1) % n, mine), (0, 0)),
            C::Barrier => (Vec::new(), Vec::new(), (0, 0)),
        };
        Expected { input, output, at }
    }

    fn block(&self, rank: usize) -> u64 {
        match &self.call.counts {
            Counts::Even(count) => *count,
            Counts::PerRank(counts) | Counts::Matrix(counts) => counts[rank],
        }
    }

    fn before(&self, rank: usize) -> u64 {
        (0..rank).map(|r| self.block(r)).sum()
    }

    fn pair(&self, from: usize, to: usize) -> u64 {
        match &self.call.counts {
            Counts::Even(count) => *count,
            Counts::PerRank(counts) | Counts::Matrix(counts) => counts[from * self.ranks + to],
        }
    }

    /// What `rank` puts in at `index`, such that every result is exact: whole numbers, in floats small ones.
    fn value(&self, rank: usize, index: u64) -> i128 {
        let Call { dtype, op, .. } = *self.call;
        let hash = mix(index << 8 | rank as u64);
        let small = i128::from(hash % 17) - 8;
        let value = match (is_float(dtype), op) {
            (true, ReduceOp::Prod) => 1 + i128::from(hash % 2),
            (true, ReduceOp::Avg) => small / 3 * self.ranks as i128,
            (true, _) => small,
            // A sum that does not wrap, as it is not defined which comes first, wrapping or dividing.
            (false, ReduceOp::Avg) if is_signed(dtype) => small,
            (false, ReduceOp::Avg) => small + 8,
            (false, _) => i128::from(hash),
        };
        wrapped(dtype, value)
    }

    fn reduced(&self, index: u64) -> i128 {
        let values = (0..self.ranks).map(|rank| self.value(rank, index));
        match self.call.op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Prod => values.fold(1, i128::wrapping_mul),
            ReduceOp::Min => values.min().expect("a rank"),
            ReduceOp::Max => values.max().expect("a rank"),
            ReduceOp::Avg => values.sum::<i128>() / self.ranks as i128,
        }
    }

    fn encode(&self, values: impl Iterator<Item = i128>) -> Vec<u8> {
        let mut bytes = Vec::new();
        values.for_each(|value| put(self.call.dtype, value, &mut bytes));
        bytes
    }
}

fn is_float(dtype: DataType) -> bool {
    matches!(dtype, DataType::F64 | DataType::F32 | DataType::F16 | DataType::Bf16)
}

fn is_signed(dtype: DataType) -> bool {
    matches!(dtype, DataType::I8 | DataType::I32 | DataType::I64)
}

/// `value` as the type holds it; floats hold all that are used here.
fn wrapped(dtype: DataType, value: i128) -> i128 {
    match dtype {
        DataType::I8 => (value as i8).into(),
        DataType::U8 => (value as u8).into(),
        DataType::I32 => (value as i32).into(),
        DataType::U32 => (value as u32).into(),
        DataType::I64 => (value as i64).into(),
        DataType::U64 => (value as u64).into(),
        DataType::F16 | DataType::F32 | DataType::F64 | DataType::Bf16 => value,
    }
}

fn put(dtype: DataType, value: i128, bytes: &mut Vec<u8>) {
    match dtype {
        DataType::I8 => bytes.extend((value as i8).to_ne_bytes()),
        DataType::U8 => bytes.extend((value as u8).to_ne_bytes()),
        DataType::I32 => bytes.extend((value as i32).to_ne_bytes()),
        DataType::U32 => bytes.extend((value as u32).to_ne_bytes()),
        DataType::I64 => bytes.extend((value as i64).to_ne_bytes()),
        DataType::U64 => bytes.extend((value as u64).to_ne_bytes()),
        DataType::F16 => bytes.extend(f16::from_f64(value as f64).to_ne_bytes()),
        DataType::Bf16 => bytes.extend(bf16::from_f64(value as f64).to_ne_bytes()),
        DataType::F32 => bytes.extend((value as f32).to_ne_bytes()),
        DataType::F64 => bytes.extend((value as f64).to_ne_bytes()),
    }
}
