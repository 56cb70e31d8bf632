//! The few things that LLVM cannot be trusted to find by itself: f16 conversion, and stores that bypass the caches.
//!
//! All other SIMD code comes from the compiler: the kernels of [`super::kernel`] are written on small arrays and compiled
//! once per instruction set. The rejected way, intrinsics for 10 types x 4 operations x 3 instruction sets, measured no
//! faster and would be ten times the code.

use half::f16;

/// What an instruction set can do. Its functions must only be called where the processor has it: they are inlined into
/// kernels compiled for it, and those kernels are chosen after asking the processor.
pub trait Isa {
    /// Exact.
    fn widen_f16<const N: usize>(block: [f16; N]) -> [f32; N];
    /// Rounds to nearest, ties to even; NaN must be the canonical one.
    fn narrow_f16<const N: usize>(block: [f32; N]) -> [f16; N];
}

/// Nothing but what the target has by itself.
pub struct Portable;

impl Isa for Portable {
    #[inline(always)]
    fn widen_f16<const N: usize>(block: [f16; N]) -> [f32; N] {
        block.map(f16::to_f32_const)
    }
    #[inline(always)]
    fn narrow_f16<const N: usize>(block: [f32; N]) -> [f16; N] {
        block.map(f16::from_f32_const)
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::F16c;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps};

    use half::f16;

    use super::{Isa, Portable};

    /// f16 conversion in hardware, eight at a time; part of the AVX2 and AVX-512 kernels.
    pub struct F16c;

    impl Isa for F16c {
        #[inline(always)]
        fn widen_f16<const N: usize>(block: [f16; N]) -> [f32; N] {
            if N % 8 != 0 {
                return Portable::widen_f16(block);
            }
            let mut wide = [0.0f32; N];
            for i in (0..N).step_by(8) {
                // SAFETY: i + 8 <= N, so eight elements are read and written inside the arrays; no alignment is needed.
                // The trait's contract gives F16C.
                unsafe {
                    let half = _mm_loadu_si128(block.as_ptr().add(i).cast());
                    _mm256_storeu_ps(wide.as_mut_ptr().add(i), _mm256_cvtph_ps(half));
                }
            }
            wide
        }

        #[inline(always)]
        fn narrow_f16<const N: usize>(block: [f32; N]) -> [f16; N] {
            if N % 8 != 0 {
                return Portable::narrow_f16(block);
            }
            let mut half = [f16::ZERO; N];
            for i in (0..N).step_by(8) {
                // SAFETY: as in `widen_f16`.
                unsafe {
                    let wide = _mm256_loadu_ps(block.as_ptr().add(i));
                    let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                    _mm_storeu_si128(half.as_mut_ptr().add(i).cast(), rounded);
                }
            }
            half
        }
    }
}

/// Stores `block` past the caches where the target can; `dst` must be aligned to [`STREAM_ALIGN`].
///
/// # Safety
/// `dst` valid for the block's bytes, aligned to 16 bytes. [`stream_fence`] must follow before another thread is told.
#[inline(always)]
pub unsafe fn stream_block<T: Copy, const N: usize>(dst: *mut T, block: [T; N]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        if size_of::<[T; N]>() % STREAM_ALIGN == 0 {
            for offset in (0..size_of::<[T; N]>()).step_by(STREAM_ALIGN) {
                // SAFETY: the 16 bytes at `offset` lie inside the block and the destination; the caller aligned `dst`.
                unsafe {
                    let part = _mm_loadu_si128(block.as_ptr().cast::<u8>().add(offset).cast());
                    _mm_stream_si128(dst.cast::<u8>().add(offset).cast(), part);
                }
            }
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { dst.cast::<[T; N]>().write_unaligned(block) }
}

/// Orders streamed stores before all later stores of this thread.
#[inline(always)]
pub fn stream_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Alignment in bytes that [`stream_block`] needs.
pub const STREAM_ALIGN: usize = 16;
