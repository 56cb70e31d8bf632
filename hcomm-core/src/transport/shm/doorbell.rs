//! How a thread that waits for peers sleeps, and how they wake it.
//!
//! A waiting thread owns a doorbell, 64 bytes of its heap with one state word. Who publishes something for that thread
//! looks at the word: one load of a line that nobody writes while all are busy, and no fence. The sleeper pays instead: it
//! marks itself asleep, makes every running thread pass a fence (`membarrier`), and looks at its links once more. So
//! either the peer sees the mark and rings, or the sleeper sees what the peer published. Where `membarrier` is missing,
//! sleeps last a millisecond at most.
//!
//! Two ways to sleep: on the futex of the word, when all that is awaited comes through shared memory; in `poll`, when
//! sockets are awaited too, with a datagram socket to ring at.

use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use super::heap::Heap;
use super::primitive::{AtomicU32, Ordering, heavy_fence};
use crate::error::{Error, Result};

/// The longest sleep where a wake-up could be lost.
const UNFENCED_SLEEP: Duration = Duration::from_millis(1);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ASLEEP_IN_POLL: u32 = 2;

/// The part of a doorbell that peers see.
#[repr(C, align(64))]
pub(super) struct Bell {
    state: AtomicU32,
}

/// How a sleeper is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    Futex,
    Datagram,
}

impl Bell {
    /// Whether the owner may be asleep; to be asked after a light fence.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AWAKE
    }

    /// Marks the owner awake; says how it must be woken, unless somebody else does it already.
    pub fn claim(&self) -> Option<Wake> {
        match self.state.swap(AWAKE, Ordering::AcqRel) {
            AWAKE => None,
            ASLEEP => Some(Wake::Futex),
            _ => Some(Wake::Datagram),
        }
    }

    /// Wakes an owner that sleeps on the futex.
    pub fn wake_futex(&self) {
        futex(&self.state, libc::FUTEX_WAKE, 1, None);
    }

    /// First step of the owner's sleep; whether the fence was passed.
    fn lie_down(&self) -> bool {
        // A swap, here and in `get_up`: with stores, loom would let a peer's earlier `claim` come after them.
        self.state.swap(ASLEEP, Ordering::AcqRel);
        heavy_fence()
    }

    /// The owner sleeps in `poll` rather than on the futex; `false` when it was woken already.
    fn turn_to_poll(&self) -> bool {
        self.state.compare_exchange(ASLEEP, ASLEEP_IN_POLL, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn get_up(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }
}

/// The owner's end of a doorbell: one thread's. Sleeping goes [`Doorbell::prepare`], a last look at all links, then one of
/// the sleeps or [`Doorbell::cancel`].
pub(crate) struct Doorbell {
    heap: Arc<Heap>,
    offset: u64,
    socket: Option<UnixDatagram>,
    polled: Vec<libc::pollfd>,
    fenced: bool,
}

impl Doorbell {
    /// A doorbell in this process's heap.
    pub fn new(heap: &Arc<Heap>) -> Result<Doorbell> {
        Ok(Doorbell { heap: heap.clone(), offset: heap.take_line()?, socket: None, polled: Vec::new(), fenced: false })
    }

    /// Where it lies in this process's heap: what peers need to ring it.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// From now on peers ring. The caller must look at its links again before it sleeps.
    pub fn prepare(&mut self) {
        self.fenced = self.bell().lie_down() && self.heap.fences_everywhere();
    }

    /// No sleep after all: the last look found something.
    pub fn cancel(&mut self) {
        self.bell().get_up();
    }

    /// Sleeps until rung, or for `timeout`; may wake for nothing.
    pub fn sleep_futex(&mut self, timeout: Duration) {
        futex(&self.bell().state, libc::FUTEX_WAIT, ASLEEP, Some(self.bounded(timeout)));
        self.bell().get_up();
    }

    /// Sleeps until rung, until one of `fds` is ready, or for `timeout`; may wake for nothing. The first such sleep opens
    /// a socket.
    pub fn sleep_poll(&mut self, fds: &mut [libc::pollfd], timeout: Duration) -> Result<()> {
        let slept = self.poll(fds, self.bounded(timeout));
        self.bell().get_up();
        slept
    }

    fn poll(&mut self, fds: &mut [libc::pollfd], timeout: Duration) -> Result<()> {
        if self.socket.is_none() {
            self.socket = Some(listen(self.heap.nonce(), self.offset)?);
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        self.polled.clear();
        self.polled.push(libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        self.polled.extend_from_slice(fds);
        if !self.bell().turn_to_poll() {
            return Ok(());
        }
        let timeout = timespec(timeout);
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: the array has `count` entries, and no signal mask is given.
        let ready = unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, &timeout, std::ptr::null()) };
        if ready < 0 {
            let error = std::io::Error::last_os_error();
            let interrupted = error.kind() == std::io::ErrorKind::Interrupted;
            return if interrupted { Ok(()) } else { Err(Error::system("poll", error)) };
        }
        if self.polled[0].revents != 0 {
            while socket.recv(&mut [0]).is_ok() {}
        }
        fds.copy_from_slice(&self.polled[1..]);
        Ok(())
    }

    fn bounded(&self, timeout: Duration) -> Duration {
        if self.fenced { timeout } else { timeout.min(UNFENCED_SLEEP) }
    }

    fn bell(&self) -> &Bell {
        // SAFETY: the offset is a cache line of our heap, ours as long as `self` lives and touched by atomics only.
        unsafe { &*self.heap.at(self.offset).cast() }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.heap.give_line(self.offset);
    }
}

/// The socket at which the owner of a doorbell is rung while it polls.
fn listen(nonce: u64, offset: u64) -> Result<UnixDatagram> {
    let opened = address(nonce, offset).and_then(|address| {
        let socket = UnixDatagram::bind_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    opened.map_err(|error| Error::system("open the socket of a doorbell", error))
}

/// Sends the byte that ends a peer's poll. What fails is harmless: a full queue wakes too, and a closed one has nobody to
/// wake.
pub(super) fn ring_datagram(socket: &UnixDatagram, nonce: u64, offset: u64) {
    let _ = address(nonce, offset).and_then(|address| socket.send_to_addr(&[0], &address));
}

fn address(nonce: u64, offset: u64) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("hcomm-bell-{nonce:016x}-{offset:x}"))
}

fn timespec(duration: Duration) -> libc::timespec {
    let seconds = duration.as_secs().min(i32::MAX as u64);
    libc::timespec { tv_sec: seconds as _, tv_nsec: duration.subsec_nanos() as _ }
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout as *const libc::timespec);
    // SAFETY: the word outlives the call. Not FUTEX_PRIVATE: the word is shared between processes. Errors mean "woken",
    // which callers expect for no reason too.
    unsafe { libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), operation, value, timeout) };
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as LoomU32;
    use loom::thread;

    use super::*;
    use crate::transport::shm::primitive::{light_fence, model};

    /// Sleeps as the system would: until the state is another, or for ever.
    fn sleep_while(bell: &Bell, state: u32) {
        while bell.state.load(Ordering::Acquire) == state {
            thread::yield_now();
        }
    }

    /// A peer publishes twice and rings; the owner sleeps until it has seen both. A lost wake-up would never end, which loom
    /// reports. The kernel compares the word under its own lock, so "sleeps while the word says asleep" is what a futex
    /// does; the socket of the other sleep holds the byte until it is read, so claiming is what wakes.
    fn no_wakeup_is_lost(in_poll: bool) {
        model(move || {
            let shared = Arc::new((Bell { state: LoomU32::new(AWAKE) }, LoomU32::new(0)));
            let peers = shared.clone();
            let peer = thread::spawn(move || {
                let (bell, published) = &*peers;
                for value in 1..=2 {
                    published.store(value, Ordering::Release);
                    light_fence();
                    if bell.is_asleep() {
                        bell.claim();
                    }
                }
            });
            let (bell, published) = &*shared;
            for value in 1..=2 {
                while published.load(Ordering::Acquire) < value {
                    assert!(bell.lie_down());
                    if published.load(Ordering::Acquire) < value {
                        if !in_poll {
                            sleep_while(bell, ASLEEP);
                        } else if bell.turn_to_poll() {
                            sleep_while(bell, ASLEEP_IN_POLL);
                        }
                    }
                    bell.get_up();
                }
            }
            peer.join().unwrap();
        });
    }

    #[test]
    fn loom_no_wakeup_of_the_futex_is_lost() {
        no_wakeup_is_lost(false);
    }

    #[test]
    fn loom_no_wakeup_of_the_poll_is_lost() {
        no_wakeup_is_lost(true);
    }
}
