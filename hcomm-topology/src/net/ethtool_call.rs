//! The system call behind [`super::ethtool`], made so that no answer can harm: the kernel writes as much as it has, whatever room it was
//! told of, so the buffer ends at a page that nobody may write to.

#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// `linux/sockios.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946 as libc::Ioctl;
/// Room for an answer; pages that are not written take no memory.
const BYTES: usize = 4 << 20;
/// A multiple of every page size of Linux.
const GUARD_BYTES: usize = 64 << 10;

/// Where a question is put and its answer is written, [`BYTES`] long, zeros at first.
#[derive(Debug)]
pub struct Buffer(NonNull<u8>);

impl Buffer {
    /// A buffer with its command in the first word. `None` if there is no memory.
    pub fn new(command: u32) -> Option<Buffer> {
        let length = NonZeroUsize::new(BYTES + GUARD_BYTES)?;
        // SAFETY: a fresh private mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
        }
        .ok()?
        .cast::<u8>();
        let mut buffer = Buffer(start);
        // SAFETY: the last GUARD_BYTES of the mapping made above, which nothing refers to; BYTES is a multiple of the page size.
        unsafe { mprotect(start.add(BYTES).cast(), GUARD_BYTES, ProtFlags::PROT_NONE) }.ok()?;
        buffer.begin(command);
        Some(buffer)
    }

    /// Puts the command into the first word; all else stays.
    pub fn begin(&mut self, command: u32) {
        self.set_u32(0, command);
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: BYTES bytes from the start are mapped, initialised (zeros or written since), and live as long as self; they are
        // written only through &mut self.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), BYTES) }
    }

    /// N bytes; zeros beyond the end.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes().get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
    }

    fn set<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        if let Some(place) = self.bytes_mut().get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
            *place = value;
        }
    }

    /// A byte.
    pub fn byte(&self, at: usize) -> u8 {
        u8::from_ne_bytes(self.array(at))
    }

    /// A word of 32 bits.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    /// A word of 64 bits.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    /// A text that ends at a NUL byte, or after `length` bytes.
    pub fn text(&self, at: usize, length: usize) -> String {
        let field = self.bytes().get(at..at.saturating_add(length)).unwrap_or_default();
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).trim().to_owned()
    }

    /// Sets a byte.
    pub fn set_byte(&mut self, at: usize, value: u8) {
        self.set(at, [value]);
    }

    /// Sets a word of 32 bits.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.set(at, value.to_ne_bytes());
    }

    /// Sets a word of 64 bits.
    pub fn set_u64(&mut self, at: usize, value: u64) {
        self.set(at, value.to_ne_bytes());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of Buffer::new, to which no reference is left.
        let _ = unsafe { munmap(self.0.cast(), BYTES + GUARD_BYTES) };
    }
}

/// A socket that interfaces are asked through.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// `None` if the system does not allow one.
    pub fn open() -> Option<Socket> {
        socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok().map(Socket)
    }

    /// Asks the interface what is in `buffer`, and leaves the answer there. `None` if there is no such interface, or it does not answer.
    pub fn ask(&self, interface: &str, buffer: &mut Buffer) -> Option<()> {
        // SAFETY: all fields of ifreq are integers, arrays of them, or pointers, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays 0: the name is a C string.
        if interface.len() >= request.ifr_name.len() {
            return None;
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *place = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = buffer.0.as_ptr().cast();
        // SAFETY: the descriptor is open, request lives through the call, and ifru_data points at BYTES writable bytes that
        // `buffer` owns and that nobody else refers to (&mut). The kernel writes one answer from there on without a gap; one that is
        // longer than BYTES meets the guard and ends in EFAULT.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        (result == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_back_and_nothing_lies_beyond_the_end() {
        let mut buffer = Buffer::new(7).unwrap();
        buffer.set_u64(8, u64::MAX - 1);
        buffer.set_byte(16, b'a');
        assert_eq!((buffer.u32(0), buffer.u64(8), buffer.byte(16)), (7, u64::MAX - 1, b'a'));
        assert_eq!((buffer.text(16, 32).as_str(), buffer.text(16, usize::MAX).as_str()), ("a", ""));
        buffer.set_u32(BYTES - 2, 5);
        assert_eq!((buffer.u32(BYTES - 2), buffer.u64(usize::MAX)), (0, 0));
        buffer.begin(8);
        assert_eq!((buffer.u32(0), buffer.byte(16)), (8, b'a'));
    }
}
