//! The kernels: one loop over blocks of a few vectors, in registers, whatever the sources and destinations.
//!
//! Everything is on arrays of constant length, read and written whole: LLVM turns those into vector registers, and since
//! all loads of a block come before its stores, a destination may equal a source. (Rejected: loops over slices, which need a
//! proof that destination and sources are apart, and run scalar exactly when the collective is in place.)

use std::marker::PhantomData;

use super::isa::{Isa, STREAM_ALIGN, stream_block, stream_fence};
use super::lane::{Lane, Operation};

/// Kernels of one (type, operation, instruction set).
#[derive(Clone, Copy)]
pub struct Kernels {
    pub pair: unsafe fn(*mut u8, *const u8, *const u8, usize),
    pub many: unsafe fn(&[*mut u8], &[*const u8], usize),
    pub many_streaming: unsafe fn(&[*mut u8], &[*const u8], usize),
    pub divide: unsafe fn(*mut u8, usize, u64),
}

/// Kernels over `N` elements of `E` a block.
pub struct Kernel<I, E, O, const N: usize>(PhantomData<(I, E, O)>);

/// Elements that the general kernel folds at a time: 4 KiB at most of wide elements, well inside the first cache.
const TILE: usize = 512;

impl<I: Isa, E: Lane, O: Operation, const N: usize> Kernel<I, E, O, N> {
    /// # Safety
    /// As for [`super::Reducer::combine`], on a processor that has `I`.
    #[inline(always)]
    pub unsafe fn pair(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { Self::fold([dst.cast()], [a.cast(), b.cast()], 0, count) }
    }

    /// # Safety
    /// As for [`super::Reducer::combine_many`], on a processor that has `I`.
    #[inline(always)]
    pub unsafe fn many(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: the caller's promise, handed on unchanged.
        unsafe {
            match (dsts, srcs) {
                (&[d], &[a, b]) => Self::fold([d.cast()], [a.cast(), b.cast()], 0, count),
                (&[d, e], &[a, b]) => Self::fold([d.cast(), e.cast()], [a.cast(), b.cast()], 0, count),
                (&[d], &[a, b, c]) => Self::fold([d.cast()], [a.cast(), b.cast(), c.cast()], 0, count),
                (&[d], &[a, b, c, f]) => Self::fold([d.cast()], [a.cast(), b.cast(), c.cast(), f.cast()], 0, count),
                _ => Self::fold_tiles(dsts, srcs, count),
            }
        }
    }

    /// # Safety
    /// As for [`super::Reducer::combine_many`], on a processor that has `I`.
    #[inline(always)]
    pub unsafe fn many_streaming(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: the caller's promise, handed on unchanged.
        unsafe {
            match (dsts, srcs) {
                (&[d], &[a, b]) => Self::stream([d.cast()], [a.cast(), b.cast()], count),
                (&[d, e], &[a, b]) => Self::stream([d.cast(), e.cast()], [a.cast(), b.cast()], count),
                _ => Self::many(dsts, srcs, count),
            }
        }
    }

    /// # Safety
    /// As for [`super::Reducer::finish`], on a processor that has `I`; `ranks` is not 0.
    #[inline(always)]
    pub unsafe fn divide(dst: *mut u8, count: usize, ranks: u64) {
        let dst: *mut E = dst.cast();
        let mut i = 0;
        while i < count {
            // SAFETY: whole blocks while they fit, then single elements: always inside the `count` elements.
            unsafe {
                if count - i >= N {
                    Self::write(dst.add(i), E::divide::<I, N>(Self::read(dst.add(i)), ranks), false);
                    i += N;
                } else {
                    dst.add(i).write_unaligned(E::divide::<I, 1>([dst.add(i).read_unaligned()], ranks)[0]);
                    i += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn read(src: *const E) -> [E; N] {
        // SAFETY: the callers have `N` elements at `src`, of a type for which any bits are valid.
        unsafe { src.cast::<[E; N]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn write(dst: *mut E, block: [E; N], streaming: bool) {
        // SAFETY: the callers have room for `N` elements at `dst`, aligned where `streaming`.
        unsafe {
            if streaming { stream_block(dst, block) } else { dst.cast::<[E; N]>().write_unaligned(block) }
        }
    }

    #[inline(always)]
    fn apply(a: [E::Wide; N], b: [E::Wide; N]) -> [E::Wide; N] {
        std::array::from_fn(|i| O::apply(a[i], b[i]))
    }

    /// Folds the elements from `start` to `end`.
    #[inline(always)]
    unsafe fn fold<const D: usize, const S: usize>(dsts: [*mut E; D], srcs: [*const E; S], start: usize, end: usize) {
        let mut i = start;
        // SAFETY: blocks and then elements below `end`, for which the caller vouches; loads come before stores.
        unsafe {
            while end - i >= N {
                Self::fold_block(dsts, srcs, i, false);
                i += N;
            }
            while i < end {
                Kernel::<I, E, O, 1>::fold_block(dsts, srcs, i, false);
                i += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn fold_block<const D: usize, const S: usize>(
        dsts: [*mut E; D],
        srcs: [*const E; S],
        i: usize,
        streaming: bool,
    ) {
        // SAFETY: the caller has `N` elements from `i` on.
        unsafe {
            let mut wide = E::widen::<I, N>(Self::read(srcs[0].add(i)));
            for src in &srcs[1..] {
                wide = Self::apply(wide, E::widen::<I, N>(Self::read(src.add(i))));
            }
            let block = E::narrow::<I, N>(wide);
            for dst in dsts {
                Self::write(dst.add(i), block, streaming);
            }
        }
    }

    /// As `fold`, with stores past the caches where the destinations can be aligned together.
    #[inline(always)]
    unsafe fn stream<const D: usize, const S: usize>(dsts: [*mut E; D], srcs: [*const E; S], count: usize) {
        let head = dsts[0].cast::<u8>().align_offset(STREAM_ALIGN).div_ceil(size_of::<E>()).min(count);
        // SAFETY: head, blocks and tail cover 0..count once; the blocks are aligned as was just asked.
        unsafe {
            if dsts.iter().any(|dst| !dst.wrapping_add(head).cast::<u8>().addr().is_multiple_of(STREAM_ALIGN)) {
                return Self::fold(dsts, srcs, 0, count);
            }
            Self::fold(dsts, srcs, 0, head);
            let mut i = head;
            while count - i >= N {
                Self::fold_block(dsts, srcs, i, true);
                i += N;
            }
            Self::fold(dsts, srcs, i, count);
        }
        stream_fence();
    }

    /// Any number of sources and destinations: folds tile after tile in wide elements on the stack.
    #[inline(always)]
    unsafe fn fold_tiles(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: elements start..start + length lie below `count`, for which the caller vouches, and all loads of a tile
        // come before its stores.
        unsafe {
            let mut start = 0;
            while start < count {
                let length = TILE.min(count - start);
                let (blocks, rest) = (length / N, length % N);
                let at = |src: *const u8, i: usize| src.cast::<E>().add(start + i);
                let mut wide = [E::widen::<I, 1>([at(srcs[0], 0).read_unaligned()])[0]; TILE];
                for (number, &src) in srcs.iter().enumerate() {
                    for (k, block) in wide.as_chunks_mut::<N>().0[..blocks].iter_mut().enumerate() {
                        let next = E::widen::<I, N>(Self::read(at(src, k * N)));
                        *block = if number == 0 { next } else { Self::apply(*block, next) };
                    }
                    for (k, element) in wide[length - rest..length].iter_mut().enumerate() {
                        let [next] = E::widen::<I, 1>([at(src, length - rest + k).read_unaligned()]);
                        *element = if number == 0 { next } else { O::apply(*element, next) };
                    }
                }
                for &dst in dsts {
                    let dst = dst.cast::<E>().add(start);
                    for (k, block) in wide.as_chunks::<N>().0[..blocks].iter().enumerate() {
                        Self::write(dst.add(k * N), E::narrow::<I, N>(*block), false);
                    }
                    for k in length - rest..length {
                        dst.add(k).write_unaligned(E::narrow::<I, 1>([wide[k]])[0]);
                    }
                }
                start += length;
            }
        }
    }
}
