//! Element types, reduction operations, and the kernels that apply them.
//!
//! A [`Reducer`] picks its kernels once, from what the processor has: AVX-512, AVX2 with F16C, or what the target has by
//! itself. All of them give the same bits, and `a op b` gives the bits of `b op a`. The rules for NaN, zeros,
//! wrapping and rounding are in the `lane` module's table and hold for every kernel:
//!
//! | | sum, prod, avg | min, max |
//! |---|---|---|
//! | integers | wrap; the division of avg rounds towards zero | |
//! | f16, bf16 | in f32, rounded once a fold | exact |
//! | NaN | the canonical quiet NaN | loses against a number; of two NaN, the canonical one |
//! | -0, +0 | IEEE 754 | -0 is less than +0 |
#![allow(unsafe_code)]

mod block;
mod dispatch;
mod kernel;
mod lane;
mod stream;
#[cfg(test)]
mod tests;
mod types;
#[cfg(target_arch = "x86_64")]
mod x86;

use kernel::Kernels;

pub use stream::copy_streaming;
pub use types::{DataType, Element, ReduceOp};

/// Kernels of one (type, operation), chosen for this processor.
#[derive(Clone, Copy)]
pub struct Reducer {
    dtype: DataType,
    op: ReduceOp,
    kernels: Kernels,
    instruction_set: &'static str,
}

impl Reducer {
    /// The best kernels for this processor.
    pub fn new(dtype: DataType, op: ReduceOp) -> Self {
        let (kernels, instruction_set) = dispatch::best(dtype, op);
        Self { dtype, op, kernels, instruction_set }
    }

    /// The kernels that run on any processor: same bits, slower.
    pub fn portable(dtype: DataType, op: ReduceOp) -> Self {
        Self { dtype, op, kernels: dispatch::portable(dtype, op), instruction_set: "portable" }
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The operation.
    pub fn op(&self) -> ReduceOp {
        self.op
    }

    /// Bytes of one element.
    #[inline]
    pub fn element_size(&self) -> usize {
        self.dtype.size()
    }

    /// What the kernels are compiled for: `avx512`, `avx2` or `portable`.
    pub fn instruction_set(&self) -> &'static str {
        self.instruction_set
    }

    /// `dst[i] = a[i] op b[i]` for `count` elements.
    ///
    /// # Safety
    /// All three valid for `count` elements, aligned to bytes only; `dst` may equal `a` or `b`, else no overlap.
    #[inline]
    pub unsafe fn combine(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's promise; the processor was asked when the kernel was picked.
        unsafe { (self.kernels.pair)(dst, a, b, count) }
    }

    /// The left fold of `srcs` (two or more), in f32 for 16-bit floats with one rounding at the end, stored in every one of
    /// `dsts` in one pass over memory.
    ///
    /// # Safety
    /// As for `combine`; a destination may equal a source, destinations do not overlap each other.
    #[inline]
    pub unsafe fn combine_many(&self, dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        debug_assert!(srcs.len() >= 2, "a fold of {} sources", srcs.len());
        // SAFETY: as in `combine`.
        unsafe { (self.kernels.many)(dsts, srcs, count) }
    }

    /// As `combine_many`, storing past the caches: for destinations much larger than the cache that nobody reads soon. With
    /// two sources, one or two destinations; otherwise, and where two destinations cannot be aligned together, with plain stores.
    /// The stores are ordered before any later store of this thread.
    ///
    /// # Safety
    /// As for `combine_many`.
    #[inline]
    pub unsafe fn combine_many_streaming(&self, dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        debug_assert!(srcs.len() >= 2, "a fold of {} sources", srcs.len());
        // SAFETY: as in `combine`.
        unsafe { (self.kernels.many_streaming)(dsts, srcs, count) }
    }

    /// For `Avg`: divides `count` elements by `ranks`, integers towards zero; other operations do nothing.
    ///
    /// # Safety
    /// `dst` valid for `count` elements.
    #[inline]
    pub unsafe fn finish(&self, dst: *mut u8, count: usize, ranks: usize) {
        if self.op == ReduceOp::Avg && ranks > 1 {
            // SAFETY: as in `combine`; `ranks` is not 0.
            unsafe { (self.kernels.divide)(dst, count, ranks as u64) }
        }
    }
}
