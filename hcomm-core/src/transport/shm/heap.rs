//! A process's shared memory: one memfd, mapped once by each rank of the host, handed out in page-sized parts.
//!
//! The file is as large as the machine's memory but holds pages only where parts were reserved. Reserving (`fallocate`)
//! comes before use: it fails with a number where a touch of missing memory would kill the process with SIGBUS. One file
//! for all, and not one per buffer, because each file would have to be passed to and mapped by every peer.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};

use super::primitive;
use crate::error::{Error, Result};

/// Unit of reservation.
const PAGE: u64 = 4096;
/// A huge page of the processor.
pub(super) const HUGE: u64 = 2 << 20;
/// Largest heap: 256 ranks of one host then still fit the 47 bits of a process's addresses.
const LARGEST: u64 = 256 << 30;
/// Smallest heap worth trying.
const SMALLEST: u64 = 64 << 20;
/// Requests from here on are compared with the memory that is free; reading that takes longer than smaller ones do.
const COUNTED: u64 = 1 << 20;
const NAME: &CStr = c"hcomm";

/// A part of a heap, as offsets into it; whoever allocated it frees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapRange {
    /// First byte.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub len: u64,
}

/// The shared memory of this process.
#[derive(Debug)]
pub(crate) struct Heap {
    file: OwnedFd,
    mapping: Mapping,
    nonce: u64,
    free: Mutex<FreeList>,
    lines: Mutex<Vec<u64>>,
    /// Ranges to be freed once all these words are set.
    retired: Mutex<Vec<(HeapRange, Vec<u64>)>>,
    fences_registered: bool,
    fences_everywhere: AtomicBool,
}

/// What lies at offset 0 of each heap, so that a peer can tell that it mapped the right memory.
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 8],
    nonce: u64,
    /// 1 once an operation of this process has failed: its buffers are the user's again, and what peers read there is void.
    gave_up: AtomicU64,
}

const MAGIC: [u8; 8] = *b"hcommhp2";
/// Where the nonce lies in a heap.
pub(super) const NONCE_OFFSET: u64 = std::mem::offset_of!(Header, nonce) as u64;

impl Heap {
    /// Makes this process's heap: as large as the machine's memory, or as limits on files and address space allow.
    pub fn new() -> Result<Arc<Heap>> {
        let fences = primitive::register_for_fences();
        let limit = file_size_limit();
        if limit < HUGE {
            let cause = format!("the limit on the size of files is {limit} bytes; raise it (ulimit -f unlimited)");
            return Err(Error::Memory { what: "shared memory", needed_bytes: SMALLEST, cause });
        }
        let mut size = total_memory().next_multiple_of(1 << 30).min(LARGEST).min(limit);
        let mut heap = loop {
            match Heap::with_size(size & !(HUGE - 1)) {
                Ok(heap) => break heap,
                Err(error) if size / 2 < SMALLEST => return Err(error),
                Err(_) => size /= 2,
            }
        };
        heap.fences_registered = fences;
        heap.fences_everywhere = AtomicBool::new(fences);
        Ok(Arc::new(heap))
    }

    fn with_size(size: u64) -> Result<Heap> {
        let failed =
            |cause: nix::Error| Error::Memory { what: "shared memory", needed_bytes: size, cause: words(cause) };
        let file = memfd_create(NAME, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).map_err(failed)?;
        nix::unistd::ftruncate(&file, size as i64).map_err(failed)?;
        // A file that can shrink could kill those who map it.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(failed)?;
        let mapping = Mapping::new(file.as_fd(), size)?;
        let nonce = random()?;
        let heap = Heap {
            file,
            mapping,
            nonce,
            free: Mutex::new(FreeList(vec![(0, size)])),
            lines: Mutex::default(),
            retired: Mutex::default(),
            fences_registered: false,
            fences_everywhere: AtomicBool::new(false),
        };
        let header = heap.alloc(size_of::<Header>(), 1)?;
        debug_assert_eq!(header.offset, 0);
        // SAFETY: offset 0 was just reserved for a page, is page-aligned, and nobody else has this memory yet.
        unsafe { heap.mapping.base.cast::<Header>().write(Header { magic: MAGIC, nonce, gave_up: AtomicU64::new(0) }) };
        Ok(heap)
    }

    /// Reserves `len` zeroed bytes at a multiple of `align` (a power of two). Not for the data path: takes a lock and
    /// system calls.
    pub fn alloc(&self, len: usize, align: usize) -> Result<HeapRange> {
        self.sweep();
        let len = (len as u64).max(1).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let align = (align as u64).max(if len >= HUGE { HUGE } else { PAGE });
        let refused = |cause: String| Error::Memory { what: "shared memory", needed_bytes: len, cause };
        if len >= COUNTED
            && let Some(available) = available_memory()
            && len > available
        {
            return Err(refused(format!("{available} bytes are free")));
        }
        let taken = self.list().take(len, align);
        let offset = taken.ok_or_else(|| refused(format!("no room in the heap of {} bytes", self.mapping.size)))?;
        let range = HeapRange { offset, len };
        if let Err(cause) = self.reserve(range) {
            self.free(range);
            let free = available_memory().map_or(String::new(), |bytes| format!(", {bytes} bytes are free"));
            return Err(refused(format!("{}{free}", words(cause))));
        }
        Ok(range)
    }

    /// Gives memory back to the system; nobody may use it any more.
    pub fn free(&self, range: HeapRange) {
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // Memory that could not be given back is not zero, so it must not be handed out again.
        if fallocate(&self.file, punch, range.offset as i64, range.len as i64).is_ok() {
            self.list().give(range.offset, range.len);
        }
    }

    /// Frees memory that peers may still touch, once the words at these offsets of this heap have all become non-zero: a rank
    /// that is done with a link cannot know whether its peer is. After a peer's death that never comes, and the memory
    /// stays until this process ends.
    pub fn retire(&self, range: HeapRange, words: Vec<u64>) {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push((range, words));
        self.sweep();
    }

    fn sweep(&self) {
        let is_set = |offset: &u64| {
            // SAFETY: the word lies in a range of this heap that is not yet freed, and is used as an atomic only.
            let word = unsafe { &*self.at(*offset).cast::<AtomicU64>() };
            word.load(Ordering::Acquire) != 0
        };
        let ready = |retired: &mut (HeapRange, Vec<u64>)| retired.1.iter().all(is_set);
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extract_if(.., ready).for_each(|(range, _)| self.free(range));
    }

    /// A zeroed cache line. Lines given back are handed out again as lines only and never returned to the system, so that
    /// a peer that still writes to an old one does no harm to other data.
    pub(super) fn take_line(&self) -> Result<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            let page = self.alloc(PAGE as usize, PAGE as usize)?;
            lines.extend((page.offset..page.offset + page.len).step_by(64));
        }
        lines.pop().ok_or_else(|| Error::system("reserve a doorbell", "no line in a page"))
    }

    /// Gives a line back; the caller left it zeroed.
    pub(super) fn give_line(&self, offset: u64) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(offset);
    }

    /// The offset of memory that lies in this heap, which is what "registered" means.
    pub fn offset_of(&self, pointer: *const u8, len: usize) -> Option<u64> {
        let offset = (pointer.addr() as u64).checked_sub(self.mapping.base.addr().get() as u64)?;
        (offset.checked_add(len as u64)? <= self.mapping.size).then_some(offset)
    }

    /// Where `offset` is mapped. Valid as long as the heap and the range that `offset` belongs to.
    pub fn at(&self, offset: u64) -> *mut u8 {
        self.mapping.at(offset, 0).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Bytes of address space, most of them never used.
    pub fn size(&self) -> u64 {
        self.mapping.size
    }

    /// What tells this heap from others.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Tells all who have mapped this heap that an operation of this process has failed.
    pub fn give_up(&self) {
        self.mapping.gave_up().store(1, Ordering::Release);
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether this process is reached by its peers' heavy fences.
    pub(super) fn fences_registered(&self) -> bool {
        self.fences_registered
    }

    /// Whether this process and all peers met so far are reached by a heavy fence.
    pub(super) fn fences_everywhere(&self) -> bool {
        self.fences_everywhere.load(Ordering::Relaxed)
    }

    /// A peer is not reached by heavy fences: from now on sleeps are short.
    pub(super) fn give_up_fences(&self) {
        self.fences_everywhere.store(false, Ordering::Relaxed);
    }

    fn reserve(&self, range: HeapRange) -> nix::Result<()> {
        if range.len >= HUGE {
            let start = self.at(range.offset).cast();
            // SAFETY: the range lies in our mapping; both calls change how it is backed and no contents. Huge pages are a
            // wish, and populating comes first because `fallocate` takes small pages only; what is refused is left to
            // `fallocate`.
            unsafe {
                if libc::madvise(start, range.len as usize, libc::MADV_HUGEPAGE) == 0 {
                    libc::madvise(start, range.len as usize, libc::MADV_POPULATE_WRITE);
                }
            }
        }
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), range.offset as i64, range.len as i64) {
                Err(nix::Error::EINTR) => {}
                other => return other,
            }
        }
    }

    fn list(&self) -> std::sync::MutexGuard<'_, FreeList> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Free ranges as (offset, length), sorted by offset, none touching the next.
#[derive(Debug)]
struct FreeList(Vec<(u64, u64)>);

impl FreeList {
    /// First fit.
    fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        for index in 0..self.0.len() {
            let (start, size) = self.0[index];
            let Some(offset) = start.checked_next_multiple_of(align) else { continue };
            let before = offset - start;
            let Some(after) = size.checked_sub(before).and_then(|rest| rest.checked_sub(len)) else { continue };
            let pieces = [(start, before), (offset + len, after)];
            self.0.splice(index..=index, pieces.into_iter().filter(|piece| piece.1 > 0));
            return Some(offset);
        }
        None
    }

    fn give(&mut self, offset: u64, len: u64) {
        let index = self.0.partition_point(|free| free.0 < offset);
        self.0.insert(index, (offset, len));
        if self.0.get(index + 1).is_some_and(|next| offset + len == next.0) {
            self.0[index].1 += self.0.remove(index + 1).1;
        }
        if index > 0 && self.0[index - 1].0 + self.0[index - 1].1 == offset {
            self.0[index - 1].1 += self.0.remove(index).1;
        }
    }
}

/// A heap mapped into this process, its own or a peer's.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    size: u64,
    whole: (NonNull<libc::c_void>, usize),
}

// SAFETY: a mapping is plain memory at a fixed place until it is dropped; those who read and write through its pointers
// say themselves why that is sound.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `size` bytes of `file` at a multiple of a huge page.
    pub fn new(file: BorrowedFd<'_>, size: u64) -> Result<Mapping> {
        let failed = || Error::system(format!("map {size} bytes of shared memory"), std::io::Error::last_os_error());
        let reserved = usize::try_from(size + HUGE).map_err(|error| Error::system("map shared memory", error))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let whole = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            return Err(failed());
        }
        let base = whole.wrapping_byte_add(whole.addr().next_multiple_of(HUGE as usize) - whole.addr());
        let mapping = Mapping {
            base: NonNull::new(base.cast()).ok_or_else(failed)?,
            size,
            whole: (NonNull::new(whole).ok_or_else(failed)?, reserved),
        };
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED);
        // SAFETY: `base..base + size` lies within the `size + HUGE` bytes just reserved, which only we know of.
        if unsafe { libc::mmap(base, size as usize, access, flags, file.as_raw_fd(), 0) } == libc::MAP_FAILED {
            return Err(failed());
        }
        Ok(mapping)
    }

    /// Where `len` bytes at `offset` are mapped; `None` when they are not all within.
    pub fn at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        // SAFETY: the result stays within the mapping, or one past its end for no bytes.
        (offset.checked_add(len)? <= self.size).then(|| unsafe { self.base.add(offset as usize) })
    }

    /// Whether the memory is the heap with this nonce.
    pub fn is_heap(&self, nonce: u64) -> bool {
        // SAFETY: any heap is far larger than a header, page-aligned, and its bytes are valid for the header's types.
        let header = unsafe { self.base.cast::<Header>().read_volatile() };
        header.magic == MAGIC && header.nonce == nonce
    }

    /// The word that becomes 1 when an operation of the heap's owner fails.
    pub fn gave_up(&self) -> &AtomicU64 {
        // SAFETY: as above; the word is used as an atomic only.
        unsafe { &self.base.cast::<Header>().as_ref().gave_up }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `whole` was mapped by `new`, and whoever holds pointers into it also holds the mapping.
        unsafe { libc::munmap(self.whole.0.as_ptr(), self.whole.1) };
    }
}

/// Eight bytes that nobody can guess.
pub(super) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is as long as said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(Error::system("getrandom", std::io::Error::last_os_error()));
    }
    Ok(u64::from_ne_bytes(bytes))
}

fn words(cause: nix::Error) -> String {
    cause.desc().to_string()
}

/// Bytes of the machine; where unknown, a modest guess.
fn total_memory() -> u64 {
    meminfo("MemTotal:").unwrap_or(4 << 30)
}

/// Bytes that can be had without swapping.
fn available_memory() -> Option<u64> {
    meminfo("MemAvailable:")
}

fn meminfo(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Growing a file beyond this limit would kill the process with SIGXFSZ.
fn file_size_limit() -> u64 {
    getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against one flag per page: what is taken was free, is aligned, and all comes back as one range.
        #[test]
        fn free_list_hands_out_each_page_once(steps in prop::collection::vec((1u64..9, 0u32..4, any::<bool>()), 1..200)) {
            let mut list = FreeList(vec![(0, 256)]);
            let mut used = [false; 256];
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (len, align, release) in steps {
                if release && !held.is_empty() {
                    let (offset, len) = held.swap_remove(len as usize % held.len());
                    used[offset as usize..(offset + len) as usize].fill(false);
                    list.give(offset, len);
                } else if let Some(offset) = list.take(len, 1 << align) {
                    prop_assert_eq!(offset % (1 << align), 0);
                    let range = &mut used[offset as usize..(offset + len) as usize];
                    prop_assert!(range.iter().all(|used| !used));
                    range.fill(true);
                    held.push((offset, len));
                }
                let free: u64 = list.0.iter().map(|free| free.1).sum();
                prop_assert_eq!(free as usize, used.iter().filter(|used| !**used).count());
                prop_assert!(list.0.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
            }
            for (offset, len) in held {
                list.give(offset, len);
            }
            prop_assert_eq!(list.0, vec![(0, 256)]);
        }
    }

    #[test]
    fn freed_memory_comes_back_zeroed() {
        let heap = Heap::new().unwrap();
        for len in [10, 5000, 3 << 20] {
            let range = heap.alloc(len, 64).unwrap();
            // SAFETY: the range was just allocated for `len` bytes.
            unsafe {
                assert!((0..len).all(|i| *heap.at(range.offset).add(i) == 0));
                heap.at(range.offset).write_bytes(0xff, len);
            }
            heap.free(range);
        }
        let range = heap.alloc(5000, 64).unwrap();
        heap.retire(range, vec![range.offset + 8, range.offset + 4096]);
        for word in [8, 4096] {
            assert!(!heap.list().0.contains(&(PAGE, heap.size() - PAGE)), "freed while a peer may use it");
            // SAFETY: the range is not freed before both words are set.
            unsafe { *heap.at(range.offset + word) = 1 };
            heap.sweep();
        }
        let whole = heap.size() - PAGE;
        assert_eq!(heap.list().0, vec![(PAGE, whole)]);
    }

    #[test]
    fn only_memory_of_the_heap_is_registered() {
        let heap = Heap::new().unwrap();
        let range = heap.alloc(100, 64).unwrap();
        assert_eq!(heap.offset_of(heap.at(range.offset + 7), 93), Some(range.offset + 7));
        assert_eq!(heap.offset_of(heap.at(heap.size()), 0), Some(heap.size()));
        assert_eq!(heap.offset_of(heap.at(heap.size()), 1), None);
        assert_eq!(heap.offset_of(heap.at(8), usize::MAX), None);
        assert_eq!(heap.offset_of([0u8; 4].as_ptr(), 4), None);
    }

    /// Field report F24: too little memory is an error with the figures, never a signal.
    #[test]
    fn f24_too_little_memory_is_an_error_that_names_what_is_free() {
        let heap = Heap::new().unwrap();
        let error = heap.alloc(usize::MAX, 64).unwrap_err().to_string();
        assert!(error.contains("bytes are free"), "{error}");
        assert!(heap.alloc(4096, 64).is_ok());
    }
}
