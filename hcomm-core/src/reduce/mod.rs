//! Element types, reduction operations, and the kernels that apply them.
//!
//! A kernel is picked once per (type, operation) from what the processor has ([`Reducer::new`]); every SIMD kernel has
//! a scalar twin that the tests use as oracle.

mod types;

pub use types::{DataType, Element, ReduceOp};

/// Kernels of one (type, operation), chosen for this processor. (Contract first: bodies follow.)
pub struct Reducer {}

#[allow(unused_variables)]
impl Reducer {
    /// The best kernels for this processor.
    pub fn new(dtype: DataType, op: ReduceOp) -> Self {
        unimplemented!()
    }
    /// Bytes of one element.
    pub fn element_size(&self) -> usize {
        unimplemented!()
    }
    /// `dst[i] = a[i] op b[i]` for `count` elements.
    ///
    /// # Safety
    /// All three valid for `count` elements, aligned to bytes only; `dst` may equal `a` or `b`, else no overlap.
    #[allow(unsafe_code)]
    pub unsafe fn combine(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        unimplemented!()
    }
    /// The left fold of `srcs` (two or more), in f32 for 16-bit floats with one rounding at the end, stored in every one of
    /// `dsts` in one pass over memory.
    ///
    /// # Safety
    /// As for `combine`; a destination may equal a source, destinations do not overlap each other.
    #[allow(unsafe_code)]
    pub unsafe fn combine_many(&self, dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        unimplemented!()
    }
    /// For `Avg`: divides `count` elements by `ranks`, integers towards zero; other operations do nothing.
    ///
    /// # Safety
    /// `dst` valid for `count` elements.
    #[allow(unsafe_code)]
    pub unsafe fn finish(&self, dst: *mut u8, count: usize, ranks: usize) {
        unimplemented!()
    }
}
