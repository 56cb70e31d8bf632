//! Stores that bypass the caches, for destinations that would only push better things out of them.

/// Alignment in bytes that [`stream_store`] needs.
pub const STREAM_ALIGN: usize = 16;

/// Stores `block`, a multiple of [`STREAM_ALIGN`] bytes long, past the caches where the target can.
///
/// # Safety
/// `dst` valid for the block's bytes and aligned to [`STREAM_ALIGN`]. [`stream_fence`] must follow before another thread is told.
#[inline(always)]
pub unsafe fn stream_store<T: Copy>(dst: *mut u8, block: T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        const { assert!(size_of::<T>().is_multiple_of(STREAM_ALIGN)) };
        for offset in (0..size_of::<T>()).step_by(STREAM_ALIGN) {
            // SAFETY: the 16 bytes at `offset` lie inside the block and the destination; the caller aligned `dst`.
            unsafe {
                let part = _mm_loadu_si128((&raw const block).cast::<u8>().add(offset).cast());
                _mm_stream_si128(dst.add(offset).cast(), part);
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        dst.cast::<T>().write_unaligned(block);
    }
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

/// Copies `bytes` bytes with stores past the caches, ordered before any later store of this thread: for destinations much
/// larger than the cache that nobody reads soon.
///
/// # Safety
/// Both valid for `bytes` bytes, no overlap.
#[allow(unsafe_code)]
pub unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    const BLOCK: usize = 64;
    let head = dst.align_offset(STREAM_ALIGN).min(bytes);
    // SAFETY: head, blocks and tail cover 0..bytes once; after the head `dst` is aligned.
    unsafe {
        dst.copy_from_nonoverlapping(src, head);
        let mut i = head;
        while bytes - i >= BLOCK {
            stream_store(dst.add(i), src.add(i).cast::<[u8; BLOCK]>().read());
            i += BLOCK;
        }
        dst.add(i).copy_from_nonoverlapping(src.add(i), bytes - i);
    }
    stream_fence();
}
