//! Registered memory, and the views of typed memory as bytes.

#![allow(unsafe_code)] // owns a part of the shared heap and views plain old data as bytes

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::error::Result;
use crate::reduce::Element;
use crate::transport::shm::{Heap, HeapRange};

/// Memory that every rank of this host can reach: collectives on it need no copies ("registered"). Zero when new.
/// Dereferences to a slice.
pub struct Buffer<T: Element> {
    range: HeapRange,
    count: usize,
    heap: Arc<Heap>,
    marker: PhantomData<T>,
}

// SAFETY: a buffer owns its part of the heap alone, like a `Vec<T>`; the heap's allocator is behind a lock.
unsafe impl<T: Element> Send for Buffer<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Element> Sync for Buffer<T> {}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(heap: &Arc<Heap>, count: usize) -> Result<Self> {
        let bytes = count.saturating_mul(size_of::<T>());
        // Two buffers never share a cache line, and a large one can use huge pages.
        let range = heap.alloc(bytes.max(1), if bytes >= HUGE { HUGE } else { 64 })?;
        Ok(Self { range, count, heap: Arc::clone(heap), marker: PhantomData })
    }
}

/// Size of a huge page on x86-64.
const HUGE: usize = 2 << 20;

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the range is reserved for `count` elements, aligned to 64 bytes, zero at first; every bit pattern is a
        // valid `T` (`Element` is sealed to plain numbers). Peers write to it only while a collective on this very
        // buffer runs, for which the caller has lent it mutably or given it away.
        unsafe { std::slice::from_raw_parts(self.heap.at(self.range.offset).cast::<T>(), self.count) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.heap.at(self.range.offset).cast::<T>(), self.count) }
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.heap.free(self.range);
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements)", T::TYPE, self.count)
    }
}

/// The bytes of `elements`.
pub(crate) fn bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: `Element` is sealed to numbers without padding, so each byte is initialised; the length in bytes is that
    // of the slice, whose lifetime the result keeps.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of `elements`, to be written.
pub(crate) fn bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as for `bytes`; any bytes written are a valid `T`, and the borrow stays exclusive.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}
