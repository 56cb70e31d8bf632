//! What one element is and what an operation does to two of them. Everything bitwise is decided here, once:
//!
//! - integers wrap; a division for `Avg` rounds towards zero;
//! - 16-bit floats are widened to f32, and rounded (to nearest, ties to even) once, when they are stored;
//! - a result that is NaN is stored as *the* NaN ([`f32::NAN`] and its equals): processors hand on the bits of the first
//!   operand, so `a + b` and `b + a` would differ on two ranks, and compilers may swap operands as they like;
//! - `Min` and `Max` are IEEE 754-2019 `minimumNumber` and `maximumNumber`: NaN loses against a number, -0 is less than +0.
//!
//! So every operation is commutative down to the bits.

use half::{bf16, f16};

use super::isa::Isa;

/// Arithmetic on the type that folds are computed in.
pub trait Number: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn lesser(self, other: Self) -> Self;
    fn greater(self, other: Self) -> Self;
}

macro_rules! integer_number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
        }
    )*};
}
integer_number!(i8, u8, i32, u32, i64, u64);

macro_rules! float_number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                let ordered = if self < other { self } else { other };
                let number = if other.is_nan() { self } else { ordered };
                // Equal numbers have equal bits, but for the zeros, of which -0 has the one more bit.
                if self == other { <$t>::from_bits(self.to_bits() | other.to_bits()) } else { number }
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                let ordered = if self > other { self } else { other };
                let number = if other.is_nan() { self } else { ordered };
                if self == other { <$t>::from_bits(self.to_bits() & other.to_bits()) } else { number }
            }
        }
    )*};
}
float_number!(f32, f64);

/// An operation as a type, so that each kernel is compiled for one.
pub trait Operation {
    fn apply<W: Number>(a: W, b: W) -> W;
}

macro_rules! operation {
    ($($name:ident => $method:ident),*) => {$(
        pub struct $name;
        impl Operation for $name {
            #[inline(always)]
            fn apply<W: Number>(a: W, b: W) -> W {
                a.$method(b)
            }
        }
    )*};
}
operation!(Sum => sum, Product => product, Lesser => lesser, Greater => greater);

/// An element as it lies in memory, and the way to the type that folds are computed in and back.
///
/// Any bit pattern is a valid value.
pub trait Lane: Copy {
    type Wide: Number;
    fn widen<I: Isa, const N: usize>(block: [Self; N]) -> [Self::Wide; N];
    fn narrow<I: Isa, const N: usize>(block: [Self::Wide; N]) -> [Self; N];
    /// `self / ranks`, correctly rounded; integers towards zero.
    fn divide<I: Isa, const N: usize>(block: [Self; N], ranks: u64) -> [Self; N];
}

/// `Quotient` is a float type in which every quotient of the integer type truncates right: with at least twice the
/// integer's bits (+ 1) of significand, a quotient that is not whole lies too far below the next whole number to be
/// rounded up to it. Processors divide vectors of floats, not of integers.
macro_rules! integer_lane {
    ($($t:ty, by $divide:expr);* $(;)?) => {$(
        impl Lane for $t {
            type Wide = $t;
            #[inline(always)]
            fn widen<I: Isa, const N: usize>(block: [Self; N]) -> [Self; N] {
                block
            }
            #[inline(always)]
            fn narrow<I: Isa, const N: usize>(block: [Self; N]) -> [Self; N] {
                block
            }
            #[inline(always)]
            fn divide<I: Isa, const N: usize>(block: [Self; N], ranks: u64) -> [Self; N] {
                block.map(|x| $divide(x, ranks))
            }
        }
    )*};
}
integer_lane!(
    i8, by |x, ranks| (f32::from(x) / ranks as f32) as i8;
    u8, by |x, ranks| (f32::from(x) / ranks as f32) as u8;
    i32, by |x, ranks| (f64::from(x) / ranks as f64) as i32;
    u32, by |x, ranks| (f64::from(x) / ranks as f64) as u32;
    i64, by |x, ranks| x / i64::try_from(ranks).unwrap_or(i64::MAX);
    u64, by |x, ranks| x / ranks;
);

macro_rules! float_lane {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            type Wide = $t;
            #[inline(always)]
            fn widen<I: Isa, const N: usize>(block: [Self; N]) -> [Self; N] {
                block
            }
            #[inline(always)]
            fn narrow<I: Isa, const N: usize>(block: [Self; N]) -> [Self; N] {
                block.map(|x| if x.is_nan() { <$t>::NAN } else { x })
            }
            #[inline(always)]
            fn divide<I: Isa, const N: usize>(block: [Self; N], ranks: u64) -> [Self; N] {
                Self::narrow::<I, N>(block.map(|x| x / ranks as $t))
            }
        }
    )*};
}
float_lane!(f32, f64);

impl Lane for f16 {
    type Wide = f32;
    #[inline(always)]
    fn widen<I: Isa, const N: usize>(block: [Self; N]) -> [f32; N] {
        I::widen_f16(block)
    }
    #[inline(always)]
    fn narrow<I: Isa, const N: usize>(block: [f32; N]) -> [Self; N] {
        I::narrow_f16(f32::narrow::<I, N>(block))
    }
    #[inline(always)]
    fn divide<I: Isa, const N: usize>(block: [Self; N], ranks: u64) -> [Self; N] {
        Self::narrow::<I, N>(Self::widen::<I, N>(block).map(|x| x / ranks as f32))
    }
}

impl Lane for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn widen<I: Isa, const N: usize>(block: [Self; N]) -> [f32; N] {
        block.map(|x| f32::from_bits(u32::from(x.to_bits()) << 16))
    }
    #[inline(always)]
    fn narrow<I: Isa, const N: usize>(block: [f32; N]) -> [Self; N] {
        block.map(|x| {
            let bits = x.to_bits();
            // Just under half of the last place kept, one more where that place is odd: ties go to even.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            bf16::from_bits(if x.is_nan() { bf16::NAN.to_bits() } else { rounded as u16 })
        })
    }
    #[inline(always)]
    fn divide<I: Isa, const N: usize>(block: [Self; N], ranks: u64) -> [Self; N] {
        Self::narrow::<I, N>(Self::widen::<I, N>(block).map(|x| x / ranks as f32))
    }
}
