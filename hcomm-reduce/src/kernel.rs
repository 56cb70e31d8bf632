//! The kernels: one loop over blocks in registers, whatever the sources and destinations.
//!
//! All loads of a block come before its stores, so a destination may equal a source. (Rejected: loops over slices, which
//! need a proof that destination and sources are apart, and run scalar exactly when the collective is in place.)
//! What is left after the last whole block is not done one by one: the block that *ends* the range is computed before
//! anything is stored and stored last, overlapping its neighbour with the same bits.

#![allow(clippy::needless_range_loop)] // plain counted loops are what stays unrolled in registers

use std::marker::PhantomData;

use super::block::Block;
use super::lane::{Number, Operation};
use super::stream::{STREAM_ALIGN, stream_fence, stream_store};

/// Kernels of one (type, operation, instruction set).
#[derive(Clone, Copy)]
pub struct Kernels {
    pub pair: PairKernel,
    pub many: ManyKernel,
    pub many_streaming: ManyKernel,
    pub divide: unsafe fn(*mut u8, usize, u64),
}

/// Destination, two sources, count.
pub type PairKernel = unsafe fn(*mut u8, *const u8, *const u8, usize);

/// Destinations, sources, count.
pub type ManyKernel = unsafe fn(&[*mut u8], &[*const u8], usize);

/// Kernels over blocks `B`.
pub struct Kernel<B, O>(PhantomData<(B, O)>);

/// Blocks at a time where they are registers: enough loads under way to hide the cache's latency.
const UNROLL: usize = 4;

/// Bytes of a cache line, or a multiple of them.
const CACHE_LINE: usize = 64;

impl<B: Block, O: Operation> Kernel<B, O> {
    /// # Safety
    /// As for [`super::Reducer::combine`], on a processor that has `B`.
    #[inline(always)]
    pub unsafe fn pair(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { Self::fold(&[dst], &[a, b], count) }
    }

    /// `pair` is this kernel's compiled `pair`. Of the other shapes, the one of a two-rank exchange is worth code of its own.
    ///
    /// # Safety
    /// As for [`super::Reducer::combine_many`], on a processor that has `B`.
    #[inline(always)]
    pub unsafe fn many(pair: PairKernel, dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: the caller's promise, handed on unchanged.
        unsafe {
            match (dsts, srcs) {
                (&[d], &[a, b]) => pair(d, a, b, count),
                (&[d, e], &[a, b]) => Self::fold(&[d, e], &[a, b], count),
                _ => Self::fold(dsts, srcs, count),
            }
        }
    }

    /// As `many`, with stores past the caches where the destinations can be aligned together; `many` is this kernel's.
    ///
    /// # Safety
    /// As for [`super::Reducer::combine_many`], on a processor that has `B`.
    #[inline(always)]
    pub unsafe fn many_streaming(many: ManyKernel, dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        let size = size_of::<B::Element>();
        let head = dsts.first().map_or(0, |dst| dst.align_offset(CACHE_LINE).div_ceil(size).min(count));
        let aligned = |dst: &*mut u8| dst.wrapping_add(head * size).addr().is_multiple_of(STREAM_ALIGN);
        // SAFETY: head, blocks and tail cover 0..count once; the blocks are aligned as was just asked.
        unsafe {
            if !dsts.iter().all(aligned) {
                return many(dsts, srcs, count);
            }
            Self::fold_singles(dsts, srcs, 0, head);
            let mut i = head;
            // Whole cache lines of one destination before the next: the processor combines streamed stores by line, and
            // a line left half written goes out in parts.
            while count - i >= UNROLL * B::LANES {
                let wide: [B::Wide; UNROLL] = Self::load_folded(srcs, i);
                for &dst in dsts {
                    for k in 0..UNROLL {
                        stream_store(dst.add((i + k * B::LANES) * size), B::pack(wide[k]));
                    }
                }
                i += UNROLL * B::LANES;
            }
            Self::fold_singles(dsts, srcs, i, count);
        }
        stream_fence();
    }

    /// # Safety
    /// As for [`super::Reducer::finish`], on a processor that has `B`; `ranks` is not 0.
    #[inline(always)]
    pub unsafe fn divide(dst: *mut u8, count: usize, ranks: u64) {
        let mut i = 0;
        // SAFETY: whole blocks while they fit, then single elements: each of the `count` elements once.
        unsafe {
            while count - i >= B::LANES {
                Self::store(dst, i, Self::load(dst, i).divide(ranks));
                i += B::LANES;
            }
            while i < count {
                Kernel::<B::Single, O>::store(dst, i, Kernel::<B::Single, O>::load(dst, i).divide(ranks));
                i += 1;
            }
        }
    }

    /// The block that begins with element `i` of `src`.
    #[inline(always)]
    unsafe fn load(src: *const u8, i: usize) -> B::Wide {
        // SAFETY: the caller has a block there, of a type for which any bits are valid; alignment is not needed.
        B::unpack(unsafe { src.cast::<B::Element>().add(i).cast::<B::Packed>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(dst: *mut u8, i: usize, wide: B::Wide) {
        // SAFETY: the caller has room for a block there; alignment is not needed.
        unsafe { dst.cast::<B::Element>().add(i).cast::<B::Packed>().write_unaligned(B::pack(wide)) }
    }

    /// The folds of the `U` blocks from element `i` on.
    #[inline(always)]
    unsafe fn load_folded<const U: usize>(srcs: &[*const u8], i: usize) -> [B::Wide; U] {
        // SAFETY: the caller has `U` blocks from `i` on in every source.
        unsafe {
            // No closures: one that is compiled apart lacks the instruction set, and stays a call.
            let mut wide = [Self::load(srcs[0], i); U];
            for (k, block) in wide.iter_mut().enumerate() {
                *block = Self::load(srcs[0], i + k * B::LANES);
            }
            for &src in &srcs[1..] {
                for (k, block) in wide.iter_mut().enumerate() {
                    *block = O::apply(*block, Self::load(src, i + k * B::LANES));
                }
            }
            wide
        }
    }

    #[inline(always)]
    unsafe fn store_all<const U: usize>(dsts: &[*mut u8], i: usize, wide: [B::Wide; U]) {
        for &dst in dsts {
            for (k, &block) in wide.iter().enumerate() {
                // SAFETY: the caller has room for `U` blocks from `i` on in every destination.
                unsafe { Self::store(dst, i + k * B::LANES, block) }
            }
        }
    }

    #[inline(always)]
    unsafe fn fold(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: every block lies in 0..count, for which the caller vouches; its loads come before stores to it.
        unsafe {
            if count < B::LANES {
                return Self::fold_singles(dsts, srcs, 0, count);
            }
            let last = Self::load_folded::<1>(srcs, count - B::LANES);
            let mut i = 0;
            if B::UNROLLED {
                while count - i >= UNROLL * B::LANES {
                    Self::store_all::<UNROLL>(dsts, i, Self::load_folded(srcs, i));
                    i += UNROLL * B::LANES;
                }
            }
            while count - i >= B::LANES {
                Self::store_all::<1>(dsts, i, Self::load_folded(srcs, i));
                i += B::LANES;
            }
            Self::store_all(dsts, count - B::LANES, last);
        }
    }

    #[inline(always)]
    unsafe fn fold_singles(dsts: &[*mut u8], srcs: &[*const u8], start: usize, end: usize) {
        for i in start..end {
            // SAFETY: the caller has elements `start` to `end`.
            unsafe {
                let one = Kernel::<B::Single, O>::load_folded::<1>(srcs, i);
                Kernel::<B::Single, O>::store_all(dsts, i, one);
            }
        }
    }
}
