//! Blocks: the elements that a kernel handles at once, loaded from memory in the form they are computed in.
//!
//! [`Lanes`] serves every type on every processor, and leaves it to LLVM to make vectors of its arrays. It does so only
//! sometimes (the comparisons around NaN defeat it) and takes its time, so AVX2 and AVX-512 have blocks of their own in
//! `x86`.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::lane::Number;

/// A few elements of one type, side by side.
pub trait Block {
    /// One of them, as it lies in memory.
    type Element: Copy;
    /// All of them, as they lie in memory; any bit pattern is valid.
    type Packed: Copy;
    /// All of them, as they are computed with.
    type Wide: Number;
    /// The same for a single element.
    type Single: Block<Element = Self::Element>;
    /// How many they are.
    const LANES: usize = size_of::<Self::Packed>() / size_of::<Self::Element>();

    /// Whether several are worth handling at a time.
    const UNROLLED: bool;

    fn unpack(packed: Self::Packed) -> Self::Wide;
    /// Rounds, and makes every NaN the canonical one.
    fn pack(wide: Self::Wide) -> Self::Packed;
}

/// An element, and the number it is computed as.
pub trait Element: Copy {
    type Wide: Number;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! element {
    ($($t:ty => $wide:ty, $widen:expr, $narrow:expr);* $(;)?) => {$(
        impl Element for $t {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                $narrow(wide)
            }
        }
    )*};
}
element!(
    i8 => i8, |x| x, |x| x;
    u8 => u8, |x| x, |x| x;
    i32 => i32, |x| x, |x| x;
    u32 => u32, |x| x, |x| x;
    i64 => i64, |x| x, |x| x;
    u64 => u64, |x| x, |x| x;
    f32 => f32, |x| x, |x: f32| if x.is_nan() { f32::NAN } else { x };
    f64 => f64, |x| x, |x: f64| if x.is_nan() { f64::NAN } else { x };
    f16 => f32, f16::to_f32_const, |x: f32| if x.is_nan() { f16::NAN } else { f16::from_f32_const(x) };
    bf16 => f32, |x: bf16| f32::from_bits(u32::from(x.to_bits()) << 16), narrow_bf16;
);

#[inline(always)]
fn narrow_bf16(wide: f32) -> bf16 {
    let bits = wide.to_bits();
    // Just under half of the last place kept, one more where that place is odd: ties go to even.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if wide.is_nan() { bf16::NAN } else { bf16::from_bits(rounded as u16) }
}

/// `N` elements as an array.
pub struct Lanes<E, const N: usize>(PhantomData<E>);

/// `N` numbers, computed with one by one.
#[derive(Clone, Copy)]
pub struct Array<W, const N: usize>([W; N]);

impl<W: Number, const N: usize> Array<W, N> {
    #[inline(always)]
    fn zip(mut self, other: Self, apply: impl Fn(W, W) -> W) -> Self {
        for i in 0..N {
            self.0[i] = apply(self.0[i], other.0[i]);
        }
        self
    }
}

impl<W: Number, const N: usize> Number for Array<W, N> {
    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        self.zip(other, W::sum)
    }
    #[inline(always)]
    fn product(self, other: Self) -> Self {
        self.zip(other, W::product)
    }
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        self.zip(other, W::lesser)
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        self.zip(other, W::greater)
    }
    #[inline(always)]
    fn divide(self, ranks: u64) -> Self {
        Self(self.0.map(|x| x.divide(ranks)))
    }
}

impl<E: Element, const N: usize> Block for Lanes<E, N> {
    type Element = E;
    type Packed = [E; N];
    type Wide = Array<E::Wide, N>;
    type Single = Lanes<E, 1>;
    const UNROLLED: bool = false;

    #[inline(always)]
    fn unpack(packed: [E; N]) -> Self::Wide {
        Array(packed.map(E::widen))
    }
    #[inline(always)]
    fn pack(wide: Self::Wide) -> [E; N] {
        wide.0.map(E::narrow)
    }
}
