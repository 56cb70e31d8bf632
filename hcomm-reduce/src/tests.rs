//! Every kernel against a model written apart from them: element by element, conversions by the `half` crate.

use half::{bf16, f16};
use proptest::prelude::*;

use super::{DataType, ReduceOp, Reducer, copy_streaming, dispatch};

fn all_reducers(dtype: DataType, op: ReduceOp) -> Vec<Reducer> {
    let with =
        |(instruction_set, make): (_, dispatch::Set)| Reducer { dtype, op, kernels: make(dtype, op), instruction_set };
    dispatch::available().into_iter().map(with).collect()
}

/// The fold of integers of `size` bytes: in 128 bits, which wrap to the same low bits.
fn model_integer(op: ReduceOp, size: usize, signed: bool, values: &[&[u8]]) -> Vec<u8> {
    let decode = |bytes: &&[u8]| {
        let mut wide = [if signed && bytes[size - 1] >= 0x80 { 0xff } else { 0 }; 16];
        wide[..size].copy_from_slice(bytes);
        i128::from_le_bytes(wide)
    };
    let values = values.iter().map(decode);
    let folded = match op {
        ReduceOp::Sum | ReduceOp::Avg => values.reduce(i128::wrapping_add),
        ReduceOp::Prod => values.reduce(i128::wrapping_mul),
        ReduceOp::Min => values.min(),
        ReduceOp::Max => values.max(),
    };
    folded.unwrap().to_le_bytes()[..size].to_vec()
}

/// The fold of floats, by the order of IEEE 754 `totalOrder` among numbers for min and max.
fn model_float<T: Copy + PartialOrd>(
    op: ReduceOp,
    values: Vec<T>,
    sum: fn(T, T) -> T,
    product: fn(T, T) -> T,
    negative: fn(T) -> bool,
) -> T {
    let below = |a: T, b: T| a < b || a == b && negative(a) && !negative(b);
    let number = |a: T| a.partial_cmp(&a).is_some();
    let pick = |a: T, b: T, a_wins: bool| if number(b) && (!number(a) || !a_wins) { b } else { a };
    let folded = match op {
        ReduceOp::Sum | ReduceOp::Avg => values.into_iter().reduce(sum),
        ReduceOp::Prod => values.into_iter().reduce(product),
        ReduceOp::Min => values.into_iter().reduce(|a, b| pick(a, b, below(a, b))),
        ReduceOp::Max => values.into_iter().reduce(|a, b| pick(a, b, below(b, a))),
    };
    folded.unwrap()
}

/// The bytes that the fold of one element must have.
fn model(dtype: DataType, op: ReduceOp, values: &[&[u8]]) -> Vec<u8> {
    let u16s = || values.iter().map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let in_f32 = |values| model_float::<f32>(op, values, |a, b| a + b, |a, b| a * b, f32::is_sign_negative);
    let signed = matches!(dtype, DataType::I8 | DataType::I32 | DataType::I64);
    match dtype {
        DataType::F64 => {
            let values = values.iter().map(|&bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect();
            let x = model_float::<f64>(op, values, |a, b| a + b, |a, b| a * b, f64::is_sign_negative);
            (if x.is_nan() { 0x7ff8_0000_0000_0000 } else { x.to_bits() }).to_le_bytes().to_vec()
        }
        DataType::F32 => {
            let x = in_f32(values.iter().map(|&bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect());
            (if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }).to_le_bytes().to_vec()
        }
        DataType::F16 => {
            let x = in_f32(u16s().map(|bits| f16::from_bits(bits).to_f32()).collect());
            (if x.is_nan() { 0x7e00 } else { f16::from_f32(x).to_bits() }).to_le_bytes().to_vec()
        }
        DataType::Bf16 => {
            let x = in_f32(u16s().map(|bits| bf16::from_bits(bits).to_f32()).collect());
            (if x.is_nan() { 0x7fc0 } else { bf16::from_f32(x).to_bits() }).to_le_bytes().to_vec()
        }
        _ => model_integer(op, dtype.size(), signed, values),
    }
}

/// Any bits, but often those where floats are special: zeros, infinities, NaN, the least, neighbours of 1.
fn interesting(dtype: DataType, seed: u64) -> Vec<u8> {
    let (top, unit): (u64, u64) = match dtype {
        DataType::F64 => (0x7ff0_0000_0000_0000, 0x3ff0_0000_0000_0000),
        DataType::F32 => (0x7f80_0000, 0x3f80_0000),
        DataType::F16 => (0x7c00, 0x3c00),
        DataType::Bf16 => (0x7f80, 0x3f80),
        _ => (u64::MAX >> 1, 1),
    };
    let sign = if seed & 8 == 0 { 0 } else { 1 << (dtype.size() * 8 - 1) };
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = match seed & 7 {
        0 => sign,
        1 => sign | top,
        2 => sign | top | 1 | mixed >> 45 & 0x3f,
        3 => sign | 1,
        4 | 5 => sign | (unit + (mixed >> 54)),
        _ => mixed.rotate_left(20),
    };
    bits.to_le_bytes()[..dtype.size()].to_vec()
}

const GUARD: u8 = 0xa5;

/// A buffer at `offset` bytes behind a multiple of 64, with guard bytes around it.
struct Guarded {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Guarded {
    fn new(offset: usize, content: &[u8]) -> Self {
        let mut bytes = vec![GUARD; content.len() + 320];
        let start = bytes.as_ptr().align_offset(64) + 64 + offset;
        bytes[start..start + content.len()].copy_from_slice(content);
        Self { bytes, start, length: content.len() }
    }

    fn content(&self) -> &[u8] {
        let (before, rest) = self.bytes.split_at(self.start);
        let (content, after) = rest.split_at(self.length);
        assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "written outside the buffer");
        content
    }

    fn pointer(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    Combine,
    Many,
    Streaming,
}

#[derive(Debug, Clone)]
struct Case {
    dtype: DataType,
    op: ReduceOp,
    entry: Entry,
    count: usize,
    /// Misalignment of each source.
    sources: Vec<usize>,
    /// Misalignment of each destination, or the source that it is.
    destinations: Vec<Result<usize, usize>>,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let place = prop_oneof![Just(0usize), Just(16), 0..64usize];
    let types = (prop::sample::select(&DataType::ALL[..]), prop::sample::select(&ReduceOp::ALL[..]));
    let entry = prop::sample::select(&[Entry::Combine, Entry::Many, Entry::Streaming][..]);
    let sources = prop::collection::vec(place.clone(), 2..7);
    let destinations = prop::collection::vec((place, any::<bool>()), 1..4);
    (types, entry, 0..=200usize, sources, destinations, any::<u64>()).prop_map(
        |((dtype, op), entry, count, mut sources, destinations, seed)| {
            if entry == Entry::Combine {
                sources.truncate(2);
            }
            let destinations = destinations.into_iter().enumerate().take(if entry == Entry::Combine { 1 } else { 3 });
            // Sources are used from the last on, so that `dst == a` and `dst == b` both happen.
            let last = sources.len() - 1 - usize::from(seed & 1 == 1);
            let alias = |(k, (offset, same))| if same && k <= last { Err(last - k) } else { Ok(offset) };
            Case { dtype, op, entry, count, destinations: destinations.map(alias).collect(), sources, seed }
        },
    )
}

fn run(reducer: &Reducer, case: &Case, contents: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut sources: Vec<_> =
        case.sources.iter().zip(contents).map(|(&at, content)| Guarded::new(at, content)).collect();
    let fresh = vec![0x11; contents[0].len()];
    let mut fresh: Vec<_> = case.destinations.iter().map(|place| Guarded::new(place.unwrap_or(0), &fresh)).collect();
    let srcs: Vec<*const u8> = sources.iter_mut().map(|source| source.pointer().cast_const()).collect();
    let place = |(place, fresh): (&Result<usize, usize>, &mut Guarded)| match *place {
        Ok(_) => fresh.pointer(),
        Err(source) => srcs[source].cast_mut(),
    };
    let dsts: Vec<*mut u8> = case.destinations.iter().zip(&mut fresh).map(place).collect();
    // SAFETY: every pointer is good for `count` elements; destinations are distinct buffers, or sources.
    unsafe {
        match case.entry {
            Entry::Combine => reducer.combine(dsts[0], srcs[0], srcs[1], case.count),
            Entry::Many => reducer.combine_many(&dsts, &srcs, case.count),
            Entry::Streaming => reducer.combine_many_streaming(&dsts, &srcs, case.count),
        }
    }
    let read = |(place, fresh): (&Result<usize, usize>, &Guarded)| match *place {
        Ok(_) => fresh.content().to_vec(),
        Err(source) => sources[source].content().to_vec(),
    };
    case.destinations.iter().zip(&fresh).map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn kernels_agree_with_the_model(case in case()) {
        let size = case.dtype.size();
        let mut seed = case.seed;
        let mut next = || { seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); seed >> 20 };
        let contents: Vec<Vec<u8>> = case.sources.iter()
            .map(|_| (0..case.count).flat_map(|_| interesting(case.dtype, next())).collect()).collect();
        let expected: Vec<u8> = (0..case.count).flat_map(|i| {
            let values: Vec<&[u8]> = contents.iter().map(|content| &content[i * size..][..size]).collect();
            model(case.dtype, case.op, &values)
        }).collect();
        for reducer in all_reducers(case.dtype, case.op) {
            for (k, got) in run(&reducer, &case, &contents).iter().enumerate() {
                prop_assert_eq!(got, &expected, "{} destination {}", reducer.instruction_set(), k);
            }
        }
    }

    #[test]
    fn operands_commute_to_the_bit(
        dtype in prop::sample::select(&DataType::ALL[..]),
        op in prop::sample::select(&ReduceOp::ALL[..]),
        seeds in prop::collection::vec(any::<(u64, u64)>(), 1..80),
    ) {
        let a: Vec<u8> = seeds.iter().flat_map(|seed| interesting(dtype, seed.0)).collect();
        let b: Vec<u8> = seeds.iter().flat_map(|seed| interesting(dtype, seed.1)).collect();
        for reducer in all_reducers(dtype, op) {
            prop_assert_eq!(combined(&reducer, &a, &b), combined(&reducer, &b, &a));
        }
    }

    #[test]
    fn streaming_copy_copies(content in prop::collection::vec(any::<u8>(), 0..600), from in 0..64usize, to in 0..64usize) {
        let mut source = Guarded::new(from, &content);
        let mut target = Guarded::new(to, &vec![0; content.len()]);
        // SAFETY: two buffers of that length.
        unsafe { copy_streaming(target.pointer(), source.pointer(), content.len()) };
        prop_assert_eq!(target.content(), &content[..]);
    }

    #[test]
    fn average_divides_like_the_scalar(
        dtype in prop::sample::select(&DataType::ALL[..]),
        seeds in prop::collection::vec(any::<u64>(), 0..80),
        ranks in prop_oneof![1..9usize, 1..100_000usize, Just(1 << 40)],
    ) {
        let content: Vec<u8> = seeds.iter().flat_map(|&seed| interesting(dtype, seed)).collect();
        let expected: Vec<u8> = content.chunks(dtype.size()).flat_map(|bytes| model_quotient(dtype, bytes, ranks)).collect();
        for reducer in all_reducers(dtype, ReduceOp::Avg) {
            let mut buffer = Guarded::new(1, &content);
            // SAFETY: the buffer holds that many elements.
            unsafe { reducer.finish(buffer.pointer(), seeds.len(), ranks) };
            prop_assert_eq!(buffer.content(), &expected[..], "{}", reducer.instruction_set());
        }
    }
}

fn model_quotient(dtype: DataType, bytes: &[u8], ranks: usize) -> Vec<u8> {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    if ranks == 1 {
        return bytes.to_vec();
    }
    let quotient = match dtype {
        DataType::F64 => {
            let x = f64::from_bits(bits) / ranks as f64;
            if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
        }
        DataType::F32 => {
            let x = f32::from_bits(bits as u32) / ranks as f32;
            u64::from(if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
        }
        DataType::F16 => {
            let x = f16::from_bits(bits as u16).to_f32() / ranks as f32;
            u64::from(if x.is_nan() { f16::NAN.to_bits() } else { f16::from_f32(x).to_bits() })
        }
        DataType::Bf16 => {
            let x = bf16::from_bits(bits as u16).to_f32() / ranks as f32;
            u64::from(if x.is_nan() { bf16::NAN.to_bits() } else { bf16::from_f32(x).to_bits() })
        }
        DataType::I8 => (i64::from(bits as i8) / ranks as i64) as u64,
        DataType::I32 => (i64::from(bits as i32) / ranks as i64) as u64,
        DataType::I64 => (bits as i64 / ranks as i64) as u64,
        DataType::U8 | DataType::U32 | DataType::U64 => bits / ranks as u64,
    };
    quotient.to_le_bytes()[..bytes.len()].to_vec()
}

fn combined(reducer: &Reducer, a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut dst = vec![0; a.len()];
    // SAFETY: three buffers of the same length, a whole number of elements.
    unsafe { reducer.combine(dst.as_mut_ptr(), a.as_ptr(), b.as_ptr(), a.len() / reducer.element_size()) };
    dst
}

/// The same small block of bytes again and again, so that both vectors and single elements meet it.
fn check_pair<const N: usize>(dtype: DataType, op: ReduceOp, a: [u8; N], b: [u8; N], expected: [u8; N]) {
    for reducer in all_reducers(dtype, op) {
        for times in [1, 70] {
            let got = combined(&reducer, &a.repeat(times), &b.repeat(times));
            assert_eq!(got, expected.repeat(times), "{dtype} {op} {} x {times}", reducer.instruction_set());
        }
    }
}

#[test]
fn hand_made_values() {
    use DataType::*;
    use ReduceOp::*;
    check_pair(U8, Sum, [250], [10], [4]);
    check_pair(I8, Prod, [100], [3], [44]);
    check_pair(I8, Min, [0x80], [0x7f], [0x80]);
    check_pair(U8, Min, [0x80], [0x7f], [0x7f]);
    check_pair(I64, Max, (-1i64).to_le_bytes(), 5i64.to_le_bytes(), 5i64.to_le_bytes());
    check_pair(U64, Max, u64::MAX.to_le_bytes(), 5u64.to_le_bytes(), u64::MAX.to_le_bytes());
    check_pair(F32, Sum, 1.5f32.to_le_bytes(), 2.25f32.to_le_bytes(), 3.75f32.to_le_bytes());
    check_pair(F64, Prod, 1.5f64.to_le_bytes(), (-4f64).to_le_bytes(), (-6f64).to_le_bytes());
    check_pair(F32, Max, f32::NAN.to_le_bytes(), (-7f32).to_le_bytes(), (-7f32).to_le_bytes());
    check_pair(F32, Min, 0f32.to_le_bytes(), (-0f32).to_le_bytes(), (-0f32).to_le_bytes());
    check_pair(F32, Max, (-0f32).to_le_bytes(), 0f32.to_le_bytes(), 0f32.to_le_bytes());
    // 2048 + 1 lies between two f16: ties go to even.
    check_pair(F16, Sum, 0x6800u16.to_le_bytes(), 0x3c00u16.to_le_bytes(), 0x6800u16.to_le_bytes());
    check_pair(F16, Sum, 0x6801u16.to_le_bytes(), 0x3c00u16.to_le_bytes(), 0x6802u16.to_le_bytes());
    check_pair(F16, Sum, 0x7bffu16.to_le_bytes(), 0x7bffu16.to_le_bytes(), 0x7c00u16.to_le_bytes());
    // 256 + 1 and 258 + 1 in bf16.
    check_pair(Bf16, Sum, 0x4380u16.to_le_bytes(), 0x3f80u16.to_le_bytes(), 0x4380u16.to_le_bytes());
    check_pair(Bf16, Sum, 0x4381u16.to_le_bytes(), 0x3f80u16.to_le_bytes(), 0x4382u16.to_le_bytes());
}

/// 256 + 1 + 1 is 258 in bf16 only when the sum is not rounded between.
#[test]
fn sixteen_bit_folds_round_once() {
    let bytes = |x: f32| bf16::from_f32(x).to_le_bytes();
    for reducer in all_reducers(DataType::Bf16, ReduceOp::Sum) {
        let mut dst = [0; 2];
        let (a, b) = (bytes(256.0), bytes(1.0));
        // SAFETY: one element each.
        unsafe { reducer.combine_many(&[dst.as_mut_ptr()], &[a.as_ptr(), b.as_ptr(), b.as_ptr()], 1) };
        assert_eq!(bf16::from_le_bytes(dst).to_f32(), 258.0, "{}", reducer.instruction_set());
    }
}

/// Ends of the integer types, where a division by way of floats would show a wrong last place.
#[test]
fn averages_of_extreme_integers() {
    for reducer in all_reducers(DataType::I32, ReduceOp::Avg) {
        let mut values: Vec<i32> = [i32::MIN, i32::MAX, -7, 7, 2_147_483_646].repeat(9);
        // SAFETY: that many elements.
        unsafe { reducer.finish(values.as_mut_ptr().cast(), values.len(), 3) };
        assert_eq!(values[40..], [-715_827_882, 715_827_882, -2, 2, 715_827_882], "{}", reducer.instruction_set());
    }
    let mut untouched = [9i32; 3];
    // SAFETY: that many elements.
    unsafe { Reducer::new(DataType::I32, ReduceOp::Sum).finish(untouched.as_mut_ptr().cast(), 3, 3) };
    assert_eq!(untouched, [9; 3], "only averages are divided");
}
