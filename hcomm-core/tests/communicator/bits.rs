//! Same bits: on all ranks, from run to run, and with `HCOMM_DETERMINISTIC=1` whatever the size, chunks, channels and
//! transport.

use half::{bf16, f16};
use hcomm_core::communicator::Force;
use hcomm_core::plan::Counts;
use hcomm_core::{Algorithm, Buffer, Call, Collective, Communicator, DataType, Error, ReduceOp};

use super::data::mix;
use super::job::Job;

pub const ACTS: &[(&str, fn())] = &[("ordered", ordered), ("alike", alike)];
pub const TESTS: &[(&str, fn())] = &[
    ("deterministic_is_a_fold_by_rank", || {
        for (size, hosts, transport) in
            [(1, "", "shm"), (2, "", "shm"), (3, "", "shm"), (5, "", "shm"), (3, "", "tcp"), (5, "aabbb", "auto")]
        {
            Job::new("ordered", size)
                .hosts(hosts)
                .env("HCOMM_TRANSPORT", transport)
                .env("HCOMM_DETERMINISTIC", 1)
                .run();
        }
    }),
    ("all_ranks_have_the_same_bits", || {
        for (size, hosts, transport) in [(3, "", "shm"), (4, "", "shm"), (4, "", "tcp"), (5, "aabbb", "auto")] {
            Job::new("alike", size).hosts(hosts).env("HCOMM_TRANSPORT", transport).run();
        }
    }),
];

const TYPES: [DataType; 4] = [DataType::F64, DataType::F32, DataType::F16, DataType::Bf16];

/// A number of the sizes at which the order of additions matters, and both signs.
fn random(rank: usize, index: usize) -> f64 {
    let hash = mix((index as u64) << 8 | rank as u64);
    let fraction = 1.0 + (hash % (1 << 20)) as f64 / f64::from(1 << 20);
    let sign = if hash >> 63 == 1 { -1.0 } else { 1.0 };
    sign * fraction * f64::from((hash >> 40) as i32 % 6).exp2()
}

/// `values` in the type's bytes, each rounded once.
fn encode(dtype: DataType, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            DataType::F64 => bytes.extend(value.to_ne_bytes()),
            DataType::F32 => bytes.extend((value as f32).to_ne_bytes()),
            DataType::F16 => bytes.extend(f16::from_f32(value as f32).to_ne_bytes()),
            _ => bytes.extend(bf16::from_f32(value as f32).to_ne_bytes()),
        }
    }
    bytes
}

/// What the type makes of `value`.
fn held(dtype: DataType, value: f64) -> f64 {
    match dtype {
        DataType::F64 => value,
        DataType::F32 => (value as f32).into(),
        DataType::F16 => f16::from_f64(value).into(),
        _ => bf16::from_f64(value).into(),
    }
}

fn input(dtype: DataType, rank: usize, count: usize) -> Vec<u8> {
    encode(dtype, (0..count).map(|index| held(dtype, random(rank, index))))
}

/// The fold from left to right by rank: f64 in f64, all others in f32, rounded to the type once.
fn folded(dtype: DataType, op: ReduceOp, ranks: usize, indices: std::ops::Range<usize>) -> Vec<u8> {
    let combine = |a: f64, b: f64| match (op, dtype) {
        (ReduceOp::Sum, DataType::F64) => a + b,
        (ReduceOp::Sum, _) => f64::from(a as f32 + b as f32),
        (_, DataType::F64) => a * b,
        (_, _) => f64::from(a as f32 * b as f32),
    };
    let fold = |index| (0..ranks).map(|rank| held(dtype, random(rank, index))).reduce(combine).expect("a rank");
    encode(dtype, indices.map(fold))
}

fn ordered() {
    let mut c = Communicator::init().unwrap();
    let (rank, ranks) = (c.rank(), c.size());
    let mut memory: [Buffer<u8>; 2] = [c.alloc(1 << 20).unwrap(), c.alloc(1 << 20).unwrap()];
    for (dtype, op) in TYPES.into_iter().flat_map(|t| [(t, ReduceOp::Sum), (t, ReduceOp::Prod)]) {
        for count in [1, 3, 100, 5001] {
            for (collective, blocks) in
                [(Collective::AllReduce, 1), (Collective::Reduce, 1), (Collective::ReduceScatter, ranks)]
            {
                let call = Call { collective, counts: Counts::Even(count as u64), dtype, op, root: ranks / 2 };
                let input = input(dtype, rank, count * blocks);
                let expected = match collective {
                    Collective::AllReduce => folded(dtype, op, ranks, 0..count),
                    Collective::ReduceScatter => folded(dtype, op, ranks, rank * count..(rank + 1) * count),
                    _ if rank == call.root => folded(dtype, op, ranks, 0..count),
                    _ => Vec::new(),
                };
                for (chunk_bytes, channels) in
                    [(None, None), (Some(200), Some(3)), (Some(1000), Some(1)), (Some(8192), Some(4))]
                {
                    c.force(Force { algorithm: None, chunk_bytes, channels }).unwrap();
                    let mut output = vec![0; expected.len()];
                    c.run(&call, &input, &mut output).unwrap();
                    assert!(output == expected, "{call} plain {chunk_bytes:?} {channels:?}");
                    let [from, to] = memory.each_mut().map(|buffer| &mut buffer[..]);
                    from[..input.len()].copy_from_slice(&input);
                    c.run(&call, from, to).unwrap();
                    assert!(to[..expected.len()] == expected, "{call} registered {chunk_bytes:?} {channels:?}");
                    if collective == Collective::AllReduce {
                        c.run_in_place(&call, from).unwrap();
                        assert!(from[..expected.len()] == expected, "{call} in place {chunk_bytes:?} {channels:?}");
                    }
                }
            }
        }
    }
    if ranks > 1 {
        c.force(Force { algorithm: Some(Algorithm::Ring), ..Force::default() }).unwrap();
        let error = c.all_reduce_in_place(&mut [1.0_f32; 8], ReduceOp::Sum).unwrap_err();
        assert!(
            matches!(error, Error::Unsuited { .. }) && error.to_string().contains("HCOMM_DETERMINISTIC"),
            "{error}"
        );
        // That was no failure, and what does not reduce has no order.
        c.all_gather(&[rank as u8], &mut vec![0; ranks]).unwrap();
    }
}

fn alike() {
    let mut c = Communicator::init().unwrap();
    let rank = c.rank();
    let mut registered: Buffer<u8> = c.alloc(1 << 20).unwrap();
    for algorithm in Algorithm::ALL.into_iter().map(Some).chain([None]) {
        for (dtype, count) in TYPES.into_iter().flat_map(|dtype| [(dtype, 11), (dtype, 6007)]) {
            let counts = Counts::Even(count as u64);
            let call = Call { collective: Collective::AllReduce, counts, dtype, op: ReduceOp::Sum, root: 0 };
            if algorithm.is_some_and(|algorithm| c.supports(&call, algorithm).is_err()) {
                continue;
            }
            let input = input(dtype, rank, count);
            for plain in [true, false] {
                c.force(Force { algorithm, chunk_bytes: Some(4096), channels: Some(2) }).unwrap();
                let mut run = || {
                    let mut own = input.clone();
                    let buffer = if plain { &mut own[..] } else { &mut registered[..input.len()] };
                    buffer.copy_from_slice(&input);
                    c.run_in_place(&call, buffer).unwrap();
                    buffer.to_vec()
                };
                let (first, again) = (run(), run());
                assert!(first == again, "{algorithm:?} {call}: two runs differ");
                for (other, theirs) in c.all_gather_bytes(&first).unwrap().into_iter().enumerate() {
                    assert!(theirs == first, "{algorithm:?} {call}: ranks {rank} and {other} differ");
                }
            }
        }
    }
}
