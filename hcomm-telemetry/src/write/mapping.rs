//! The mapped file and its parts.

#![allow(unsafe_code)] // maps the file and hands out references into it

use std::any::Any;
use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::{
    FILE_BYTES, HEADER_BYTES, Header, LANES, LANES_OFFSET, LINKS, LanePart, LinkPart, PATHS, PATHS_OFFSET, PathPart,
    SLOTS, SLOTS_OFFSET, SlotPart,
};

/// A telemetry file, mapped whole; memory is behind those parts that were reserved.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    file: File,
}

// SAFETY: the memory is only accessed through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a new, empty file and reserves the header.
    pub fn new(file: File) -> Result<Self, Errno> {
        nix::unistd::ftruncate(&file, FILE_BYTES as i64)?;
        posix_fallocate(&file, 0, HEADER_BYTES as i64)?;
        let length = NonZeroUsize::new(FILE_BYTES).unwrap_or(NonZeroUsize::MIN);
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0)? };
        Ok(Self { base: base.cast(), file })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn header(&self) -> &Header {
        // SAFETY: offset 0 is page-aligned and was reserved by `new`; the header is atomics alone, for which zeros and
        // whatever others write are valid; it lives as long as the mapping.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// Reserves a part's memory, so that touching it cannot fail, and hands it out.
    ///
    /// `at` is the byte offset of a `T` in the file; private, so that only the functions below choose `T` and `at`.
    fn part<T>(self: &Arc<Self>, at: usize) -> Result<Part<T>, Errno> {
        posix_fallocate(&self.file, at as i64, size_of::<T>() as i64)?;
        // SAFETY: the callers' offsets lie within the file.
        let target = unsafe { self.base.add(at) }.cast::<T>();
        Ok(Part { target, _keep: Arc::clone(self) as Arc<dyn Any + Send + Sync> })
    }

    /// Lane part `index`; `None` beyond the last.
    pub fn lane(self: &Arc<Self>, index: usize) -> Option<Result<Part<LanePart>, Errno>> {
        (index < LANES).then(|| self.part(LANES_OFFSET + index * size_of::<LanePart>()))
    }

    /// Slot part `index`; `None` beyond the last.
    pub fn slot(self: &Arc<Self>, index: usize) -> Option<Result<Part<SlotPart>, Errno>> {
        (index < SLOTS).then(|| self.part(SLOTS_OFFSET + index * size_of::<SlotPart>()))
    }

    /// Link part `index`; `None` beyond the last.
    pub fn link(self: &Arc<Self>, index: usize) -> Option<Result<Part<LinkPart>, Errno>> {
        (index < LINKS).then(|| self.part(HEADER_BYTES + index * size_of::<LinkPart>()))
    }

    /// Path part `index`; `None` beyond the last.
    pub fn path(self: &Arc<Self>, index: usize) -> Option<Result<Part<PathPart>, Errno>> {
        (index < PATHS).then(|| self.part(PATHS_OFFSET + index * size_of::<PathPart>()))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and every part keeps it alive.
        let _ = unsafe { munmap(self.base.cast(), FILE_BYTES) };
    }
}

/// A reference to a part of a mapped file, or to one of its own, that keeps what it lies in.
pub struct Part<T> {
    target: NonNull<T>,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl<T> std::fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Part").field(&self.target).finish()
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self { target: self.target, _keep: Arc::clone(&self._keep) }
    }
}

// SAFETY: a part is a shared reference together with what keeps its target.
unsafe impl<T: Sync> Send for Part<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Part<T> {}

impl<T: Send + Sync + 'static> Part<T> {
    pub(super) fn apart(value: T) -> Self {
        let keep = Arc::new(value);
        Self { target: NonNull::from(&*keep), _keep: keep }
    }

    /// A part of this part.
    pub(super) fn map<U>(&self, field: impl FnOnce(&T) -> &U) -> Part<U> {
        Part { target: NonNull::from(field(self)), _keep: Arc::clone(&self._keep) }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the target is a `T` made of atomics in reserved memory of the mapping (or a value of its own) that
        // `_keep` keeps; only shared references to it exist.
        unsafe { self.target.as_ref() }
    }
}
