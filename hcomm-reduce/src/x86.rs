//! Blocks in AVX2 and AVX-512 registers.
//!
//! Their functions may only be called on a processor that has the instructions: they are inlined into kernels compiled for
//! them, which [`super::dispatch`] picks after asking the processor. That is the proof behind every `SAFETY` here that says
//! "the processor has it".

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::block::{Block, Lanes};
use super::lane::Number;

/// Eight f16, computed with as f32.
pub struct F16x8;

/// Sixteen f16, computed with as f32.
pub struct F16x16;

/// Sixteen bf16, computed with as f32.
pub struct Bf16x16;

/// Thirty-two bf16, computed with as f32.
pub struct Bf16x32;

/// A single f16, converted in hardware.
pub struct SingleF16;

macro_rules! number {
    ($name:ident($register:ty), $scalar:ty, $set:ident, $add:ident, $mul:ident, $min:ident, $max:ident, $div:ident,
     $or:ident, $and:ident, |$nan_of:ident, $then:ident, $else:ident| $select_nan:expr) => {
        /// A register of floats.
        #[derive(Clone, Copy)]
        pub struct $name($register);

        impl $name {
            /// `then` where `of` is NaN, else `otherwise`.
            #[inline(always)]
            fn where_nan($nan_of: Self, $then: Self, $else: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $select_nan })
            }

            /// With every NaN made the canonical one.
            #[inline(always)]
            fn canonical(self) -> Self {
                // SAFETY: the processor has it.
                Self::where_nan(self, Self(unsafe { $set(<$scalar>::NAN) }), self)
            }
        }

        impl Number for $name {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $add(self.0, other.0) })
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $mul(self.0, other.0) })
            }
            // The instruction gives its second operand when both are zeros or one is NaN. So both orders together have the
            // zeros' signs to join, and are equal else; NaN is put right after.
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                let joined = Self(unsafe { $or($min(self.0, other.0), $min(other.0, self.0)) });
                Self::where_nan(other, self, Self::where_nan(self, other, joined))
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                let joined = Self(unsafe { $and($max(self.0, other.0), $max(other.0, self.0)) });
                Self::where_nan(other, self, Self::where_nan(self, other, joined))
            }
            #[inline(always)]
            fn divide(self, ranks: u64) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $div(self.0, $set(ranks as $scalar)) })
            }
        }
    };
}
number!(
    F32x8(__m256),
    f32,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_mul_ps,
    _mm256_min_ps,
    _mm256_max_ps,
    _mm256_div_ps,
    _mm256_or_ps,
    _mm256_and_ps,
    |of, then, otherwise| _mm256_blendv_ps(otherwise.0, then.0, _mm256_cmp_ps::<_CMP_UNORD_Q>(of.0, of.0))
);
number!(
    F64x4(__m256d),
    f64,
    _mm256_set1_pd,
    _mm256_add_pd,
    _mm256_mul_pd,
    _mm256_min_pd,
    _mm256_max_pd,
    _mm256_div_pd,
    _mm256_or_pd,
    _mm256_and_pd,
    |of, then, otherwise| _mm256_blendv_pd(otherwise.0, then.0, _mm256_cmp_pd::<_CMP_UNORD_Q>(of.0, of.0))
);
number!(
    F32x16(__m512),
    f32,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_mul_ps,
    _mm512_min_ps,
    _mm512_max_ps,
    _mm512_div_ps,
    _mm512_or_ps,
    _mm512_and_ps,
    |of, then, otherwise| _mm512_mask_mov_ps(otherwise.0, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(of.0, of.0), then.0)
);
number!(
    F64x8(__m512d),
    f64,
    _mm512_set1_pd,
    _mm512_add_pd,
    _mm512_mul_pd,
    _mm512_min_pd,
    _mm512_max_pd,
    _mm512_div_pd,
    _mm512_or_pd,
    _mm512_and_pd,
    |of, then, otherwise| _mm512_mask_mov_pd(otherwise.0, _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(of.0, of.0), then.0)
);

macro_rules! block {
    ($block:ident, $element:ty, $number:ident, $packed:ty, $single:ty, |$in:ident| $unpack:expr, |$out:ident| $pack:expr) => {
        impl Block for $block {
            type Element = $element;
            type Packed = $packed;
            type Wide = $number;
            type Single = $single;
            const UNROLLED: bool = true;

            #[inline(always)]
            fn unpack($in: $packed) -> $number {
                $number($unpack)
            }
            #[inline(always)]
            fn pack(wide: $number) -> $packed {
                let $out = wide;
                $pack
            }
        }
    };
}
block!(F32x8, f32, F32x8, __m256, Lanes<f32, 1>, |packed| packed, |wide| wide.canonical().0);
block!(F64x4, f64, F64x4, __m256d, Lanes<f64, 1>, |packed| packed, |wide| wide.canonical().0);
block!(F32x16, f32, F32x16, __m512, Lanes<f32, 1>, |packed| packed, |wide| wide.canonical().0);
block!(F64x8, f64, F64x8, __m512d, Lanes<f64, 1>, |packed| packed, |wide| wide.canonical().0);
block!(
    F16x8,
    f16,
    F32x8,
    __m128i,
    SingleF16,
    // SAFETY: the processor has it.
    |packed| unsafe { _mm256_cvtph_ps(packed) },
    // SAFETY: the processor has it.
    |wide| unsafe { _mm256_cvtps_ph::<NEAREST>(wide.canonical().0) }
);
block!(
    F16x16,
    f16,
    F32x16,
    __m256i,
    SingleF16,
    // SAFETY: the processor has it.
    |packed| unsafe { _mm512_cvtph_ps(packed) },
    // SAFETY: the processor has it.
    |wide| unsafe { _mm512_cvtps_ph::<NEAREST>(wide.canonical().0) }
);
/// Two registers: the elements at even places, and those at odd places. A bf16 is the upper half of an f32, so both are a
/// shift or a mask away from memory, and nothing has to be moved between places.
#[derive(Clone, Copy)]
pub struct EvenOdd<V>(V, V);

impl<V: Number> Number for EvenOdd<V> {
    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        Self(self.0.sum(other.0), self.1.sum(other.1))
    }
    #[inline(always)]
    fn product(self, other: Self) -> Self {
        Self(self.0.product(other.0), self.1.product(other.1))
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        Self(self.0.lesser(other.0), self.1.lesser(other.1))
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        Self(self.0.greater(other.0), self.1.greater(other.1))
    }
    #[inline(always)]
    fn divide(self, ranks: u64) -> Self {
        Self(self.0.divide(ranks), self.1.divide(ranks))
    }
}

macro_rules! bf16_block {
    ($block:ident, $number:ident, $packed:ty, $set:ident, $and:ident, $or:ident, $add:ident, $left:ident, $right:ident,
     $to_float:ident, $to_bits:ident) => {
        impl $number {
            /// As `narrow_bf16`, left in the upper half; the canonical NaN of f32 rounds to that of bf16.
            #[inline(always)]
            fn rounded_to_bf16(self) -> $packed {
                // SAFETY: the processor has it.
                unsafe {
                    let bits = $to_bits(self.canonical().0);
                    let odd = $and($right::<16>(bits), $set(1));
                    $add(bits, $add(odd, $set(0x7fff)))
                }
            }
        }

        impl Block for $block {
            type Element = bf16;
            type Packed = $packed;
            type Wide = EvenOdd<$number>;
            type Single = Lanes<bf16, 1>;
            const UNROLLED: bool = true;

            #[inline(always)]
            fn unpack(packed: $packed) -> Self::Wide {
                // SAFETY: the processor has it.
                unsafe {
                    let odd = $and(packed, $set(UPPER_HALF));
                    EvenOdd($number($to_float($left::<16>(packed))), $number($to_float(odd)))
                }
            }
            #[inline(always)]
            fn pack(EvenOdd(even, odd): Self::Wide) -> $packed {
                // SAFETY: the processor has it.
                unsafe { $or($right::<16>(even.rounded_to_bf16()), $and(odd.rounded_to_bf16(), $set(UPPER_HALF))) }
            }
        }
    };
}
const UPPER_HALF: i32 = 0xffff_0000u32 as i32;
bf16_block!(
    Bf16x16,
    F32x8,
    __m256i,
    _mm256_set1_epi32,
    _mm256_and_si256,
    _mm256_or_si256,
    _mm256_add_epi32,
    _mm256_slli_epi32,
    _mm256_srli_epi32,
    _mm256_castsi256_ps,
    _mm256_castps_si256
);
bf16_block!(
    Bf16x32,
    F32x16,
    __m512i,
    _mm512_set1_epi32,
    _mm512_and_si512,
    _mm512_or_si512,
    _mm512_add_epi32,
    _mm512_slli_epi32,
    _mm512_srli_epi32,
    _mm512_castsi512_ps,
    _mm512_castps_si512
);

/// A block of integers, which is its own number: element, its register, how many, and its four operations.
macro_rules! integers {
    ($name:ident($register:ty), [$element:ty; $lanes:literal], $sum:expr, $product:expr, $lesser:expr, $greater:expr) => {
        /// A register of integers.
        #[derive(Clone, Copy)]
        pub struct $name($register);

        impl Number for $name {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $sum(self.0, other.0) })
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $product(self.0, other.0) })
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $lesser(self.0, other.0) })
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                // SAFETY: the processor has it.
                Self(unsafe { $greater(self.0, other.0) })
            }
            #[inline(always)]
            fn divide(self, ranks: u64) -> Self {
                // SAFETY: the register and the array have the same bytes, and any bits are valid in both.
                let mut elements: [$element; $lanes] = unsafe { std::mem::transmute(self.0) };
                for element in &mut elements {
                    *element = element.divide(ranks);
                }
                // SAFETY: as above.
                Self(unsafe { std::mem::transmute::<[$element; $lanes], $register>(elements) })
            }
        }

        block!($name, $element, $name, $register, Lanes<$element, 1>, |packed| packed, |wide| wide.0);
    };
}
integers!(I8x32(__m256i), [i8; 32], _mm256_add_epi8, product_8x32, _mm256_min_epi8, _mm256_max_epi8);
integers!(U8x32(__m256i), [u8; 32], _mm256_add_epi8, product_8x32, _mm256_min_epu8, _mm256_max_epu8);
integers!(I32x8(__m256i), [i32; 8], _mm256_add_epi32, _mm256_mullo_epi32, _mm256_min_epi32, _mm256_max_epi32);
integers!(U32x8(__m256i), [u32; 8], _mm256_add_epi32, _mm256_mullo_epi32, _mm256_min_epu32, _mm256_max_epu32);
integers!(I64x4(__m256i), [i64; 4], _mm256_add_epi64, product_64x4, lesser_i64x4, greater_i64x4);
integers!(U64x4(__m256i), [u64; 4], _mm256_add_epi64, product_64x4, lesser_u64x4, greater_u64x4);
integers!(I8x64(__m512i), [i8; 64], _mm512_add_epi8, product_8x64, _mm512_min_epi8, _mm512_max_epi8);
integers!(U8x64(__m512i), [u8; 64], _mm512_add_epi8, product_8x64, _mm512_min_epu8, _mm512_max_epu8);
integers!(I32x16(__m512i), [i32; 16], _mm512_add_epi32, _mm512_mullo_epi32, _mm512_min_epi32, _mm512_max_epi32);
integers!(U32x16(__m512i), [u32; 16], _mm512_add_epi32, _mm512_mullo_epi32, _mm512_min_epu32, _mm512_max_epu32);
integers!(I64x8(__m512i), [i64; 8], _mm512_add_epi64, _mm512_mullo_epi64, _mm512_min_epi64, _mm512_max_epi64);
integers!(U64x8(__m512i), [u64; 8], _mm512_add_epi64, _mm512_mullo_epi64, _mm512_min_epu64, _mm512_max_epu64);

// What the instruction sets lack.

/// Products of bytes: those at even places, then those at odd places, as 16-bit products whose upper half is dropped.
#[inline]
#[target_feature(enable = "avx2")]
fn product_8x32(a: __m256i, b: __m256i) -> __m256i {
    let even = _mm256_and_si256(_mm256_mullo_epi16(a, b), _mm256_set1_epi16(0xff));
    let odd = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
    _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))
}

#[inline]
#[target_feature(enable = "avx512bw")]
fn product_8x64(a: __m512i, b: __m512i) -> __m512i {
    let even = _mm512_and_si512(_mm512_mullo_epi16(a, b), _mm512_set1_epi16(0xff));
    let odd = _mm512_mullo_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b));
    _mm512_or_si512(even, _mm512_slli_epi16::<8>(odd))
}

/// `low a x low b + 2^32 (high a x low b + low a x high b)`.
#[inline]
#[target_feature(enable = "avx2")]
fn product_64x4(a: __m256i, b: __m256i) -> __m256i {
    let (high_a, high_b) = (_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
    let cross = _mm256_add_epi64(_mm256_mul_epu32(high_a, b), _mm256_mul_epu32(a, high_b));
    _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64::<32>(cross))
}

#[inline]
#[target_feature(enable = "avx2")]
fn lesser_i64x4(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn greater_i64x4(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn lesser_u64x4(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(a, b, above_u64x4(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn greater_u64x4(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(b, a, above_u64x4(a, b))
}

/// `a > b` without sign: both shifted by half the range.
#[inline]
#[target_feature(enable = "avx2")]
fn above_u64x4(a: __m256i, b: __m256i) -> __m256i {
    let half = _mm256_set1_epi64x(i64::MIN);
    _mm256_cmpgt_epi64(_mm256_xor_si256(a, half), _mm256_xor_si256(b, half))
}

/// Ties to even.
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

impl Block for SingleF16 {
    type Element = f16;
    type Packed = f16;
    type Wide = f32;
    type Single = Self;
    const UNROLLED: bool = false;

    #[inline(always)]
    fn unpack(packed: f16) -> f32 {
        // SAFETY: the processor has it.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(packed.to_bits())))) }
    }
    #[inline(always)]
    fn pack(wide: f32) -> f16 {
        let canonical = if wide.is_nan() { f32::NAN } else { wide };
        // SAFETY: the processor has it.
        let half = unsafe { _mm_cvtsi128_si32(_mm_cvtps_ph::<NEAREST>(_mm_set_ss(canonical))) };
        f16::from_bits(half as u16)
    }
}
