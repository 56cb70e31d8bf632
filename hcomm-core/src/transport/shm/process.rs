//! Ordinary memory of another process of this host, which the kernel copies for us (`process_vm_readv`): one copy where a
//! ring takes two.
//!
//! A process number may come to mean another process when its first one has died, so each read first reads the nonce of
//! the peer's heap, where the peer has mapped it. The kernel takes hold of a process's memory once a call, so what the
//! nonce vouches for is what the rest of the call reads. That holds of reading only: a write could not be taken back, so
//! nothing is written this way.

use std::io;

use super::heap::NONCE_OFFSET;
use crate::transport::LinkError;

/// Most bytes of one system call; the kernel stops at 2 GiB.
const LARGEST: usize = 1 << 30;
const NONCE_BYTES: usize = size_of::<u64>();

/// A peer's process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerProcess {
    pid: libc::pid_t,
    /// Where its heap lies in its memory, and what that begins with.
    heap: u64,
    nonce: u64,
}

impl PeerProcess {
    /// The process with number `pid` here, which has mapped its heap, of that nonce, at `heap` of its own memory.
    pub(super) fn new(pid: libc::pid_t, heap: u64, nonce: u64) -> Self {
        Self { pid, heap, nonce }
    }

    /// Whether its memory may be read; the error is the system's reason, and that of a stranger is `NotFound`.
    pub fn probe(&self) -> io::Result<()> {
        // SAFETY: no byte is asked for.
        match unsafe { self.read_some(0, std::ptr::null_mut(), 0)? } {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Copies `len` bytes from `address` of its memory to `dst`.
    ///
    /// # Safety
    /// `dst` is valid for writes of `len` bytes, and nothing else accesses them meanwhile.
    pub unsafe fn read(&self, address: u64, dst: *mut u8, len: usize) -> Result<(), LinkError> {
        let mut done = 0;
        while done < len {
            // SAFETY: these bytes lie within what the caller vouches for.
            let read =
                unsafe { self.read_some(address.wrapping_add(done as u64), dst.add(done), (len - done).min(LARGEST)) };
            done += match read {
                Ok(Some(0)) => {
                    let what = format!("{} of {len} bytes of its buffer cannot be read by another process", len - done);
                    return Err(LinkError::Memory(what));
                }
                Ok(Some(read)) => read,
                Ok(None) => return Err(LinkError::Closed("its process ended".into())),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    return Err(LinkError::Closed("its process ended".into()));
                }
                Err(error) => return Err(LinkError::Memory(format!("its buffer cannot be read: {error}"))),
            };
        }
        Ok(())
    }

    /// One system call: the bytes copied, 0 if none can be; `None` if the process is not the peer.
    ///
    /// # Safety
    /// As for [`PeerProcess::read`].
    unsafe fn read_some(&self, address: u64, dst: *mut u8, len: usize) -> io::Result<Option<usize>> {
        let mut nonce = 0_u64;
        let there = |address: u64, len| libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
        let local = [
            libc::iovec { iov_base: (&raw mut nonce).cast(), iov_len: NONCE_BYTES },
            libc::iovec { iov_base: dst.cast(), iov_len: len },
        ];
        let remote = [there(self.heap + NONCE_OFFSET, NONCE_BYTES), there(address, len)];
        // SAFETY: the kernel writes to the nonce and to `dst` only, which the caller vouches for.
        let read = unsafe { libc::process_vm_readv(self.pid, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        match usize::try_from(read) {
            Ok(read) if read >= NONCE_BYTES && nonce == self.nonce => Ok(Some(read - NONCE_BYTES)),
            Ok(_) => Ok(None),
            Err(_) => match io::Error::last_os_error() {
                // Nothing is where the heap was: the process has become another.
                error if error.raw_os_error() == Some(libc::EFAULT) => Ok(None),
                error => Err(error),
            },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Heap;
    use super::*;

    fn this_process(heap: &Heap) -> PeerProcess {
        PeerProcess::new(std::process::id() as i32, heap.at(0).addr() as u64, heap.nonce())
    }

    fn read(process: &PeerProcess, address: u64, len: usize) -> Result<Vec<u8>, LinkError> {
        let mut bytes = vec![0; len];
        // SAFETY: the vector has `len` bytes.
        unsafe { process.read(address, bytes.as_mut_ptr(), len).map(|()| bytes) }
    }

    #[test]
    fn what_lies_in_the_process_comes_whole() {
        let heap = Heap::new().unwrap();
        let process = this_process(&heap);
        process.probe().unwrap();
        let there: Vec<u8> = (0..100_003_u32).map(|i| (i % 251) as u8).collect();
        assert_eq!(read(&process, there.as_ptr().addr() as u64, there.len()).unwrap(), there);
        assert_eq!(read(&process, 0, 0).unwrap(), [0_u8; 0]);
    }

    #[test]
    fn another_process_is_not_taken_for_the_peer() {
        let heap = Heap::new().unwrap();
        let process = this_process(&heap);
        let there = [7_u8; 8];
        let address = there.as_ptr().addr() as u64;
        let ended = LinkError::Closed("its process ended".into());
        for stranger in [
            PeerProcess { nonce: process.nonce + 1, ..process },
            // Nothing is mapped there.
            PeerProcess { heap: 4096, ..process },
        ] {
            assert_eq!(stranger.probe().unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(read(&stranger, address, 8).unwrap_err(), ended);
        }
        // No process has this number: the kernel's largest is 2^22.
        let gone = PeerProcess { pid: i32::MAX, ..process };
        assert_eq!(gone.probe().unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(read(&gone, address, 8).unwrap_err(), ended);
    }

    #[test]
    fn memory_that_is_not_there_is_told_from_a_death() {
        let heap = Heap::new().unwrap();
        let Err(LinkError::Memory(what)) = read(&this_process(&heap), 4096, 10) else { panic!("nothing is there") };
        assert!(what.contains("10 of 10 bytes"), "{what}");
    }
}
