//! What an operation does to two elements. Everything bitwise is decided here, once; the SIMD blocks repeat it:
//!
//! - integers wrap; a division for `Avg` rounds towards zero;
//! - 16-bit floats are widened to f32, and rounded (to nearest, ties to even) once, when they are stored;
//! - a result that is NaN is stored as *the* NaN ([`f32::NAN`] and its equals): processors hand on the bits of the first
//!   operand, so `a + b` and `b + a` would differ on two ranks, and compilers may swap operands as they like;
//! - `Min` and `Max` are IEEE 754-2019 `minimumNumber` and `maximumNumber`: NaN loses against a number, -0 is less than +0.
//!
//! So every operation is commutative down to the bits.

/// Arithmetic on what folds are computed in: a number, or a vector of them.
pub trait Number: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn lesser(self, other: Self) -> Self;
    fn greater(self, other: Self) -> Self;
    /// `self / ranks`; integers towards zero.
    fn divide(self, ranks: u64) -> Self;
}

/// Small integers are divided as floats, because processors divide vectors of floats only. It is exact: with `a` and `b` below
/// 2^k, a quotient that is not whole lies at least 2^-k below the next whole number, which more than 2k bits of
/// significand resolve; and a divisor too large for that gives 0 both ways.
macro_rules! integer_number {
    ($($t:ty, |$x:ident, $ranks:ident| $quotient:expr);* $(;)?) => {$(
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
            #[inline(always)]
            fn divide(self, $ranks: u64) -> Self {
                let $x = self;
                $quotient
            }
        }
    )*};
}
integer_number!(
    i8, |x, ranks| (f32::from(x) / ranks as f32) as i8;
    u8, |x, ranks| (f32::from(x) / ranks as f32) as u8;
    i32, |x, ranks| (f64::from(x) / ranks as f64) as i32;
    u32, |x, ranks| (f64::from(x) / ranks as f64) as u32;
    i64, |x, ranks| x / i64::try_from(ranks).unwrap_or(i64::MAX);
    u64, |x, ranks| x / ranks;
);

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
            #[inline(always)]
            fn divide(self, ranks: u64) -> Self {
                self / ranks as $t
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
