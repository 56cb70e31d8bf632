//! The ranks of this host that share memory with this one.
//!
//! Whether two ranks share a host is decided by facts: the same boot of the same kernel, the same network namespace (where
//! abstract sockets live), and a heap that could be mapped on both sides and holds the nonce that was announced. Each
//! pair has one Unix socket: it carries the heaps' descriptors at start-up and stays open, because the kernel closes it
//! when a process dies, however it dies.

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    connect, getsockopt, listen, recv, recvmsg, send, sendmsg, socket, sockopt::PeerCredentials,
};

use super::doorbell::{Bell, Wake, ring_datagram};
use super::heap::{Heap, Mapping, random};
use super::process::PeerProcess;
use crate::error::{Error, Result};

/// Bytes of the first message on a connection.
const HELLO_LEN: usize = 56;
const MAGIC: u64 = u64::from_le_bytes(*b"hcommsh2");
/// Pause before a connection that found a full queue is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// The ranks of this host whose heaps are mapped here, once [`Domain::connect`] has run.
pub(crate) struct Domain {
    heap: Arc<Heap>,
    rank: usize,
    job: u64,
    namespace: String,
    name: String,
    listener: Option<OwnedFd>,
    /// Sorted by rank.
    peers: Vec<Peer>,
    ringer: UnixDatagram,
}

struct Peer {
    rank: usize,
    socket: OwnedFd,
    mapping: Mapping,
    nonce: u64,
    process: PeerProcess,
}

impl Domain {
    /// Starts to listen for the other ranks of `job_id` on this host. Publish [`Domain::address`] after this.
    pub fn start(job_id: &str, rank: usize, heap: Arc<Heap>) -> Result<Domain> {
        let failed = |cause: nix::Error| Error::system("listen for ranks of this host", cause.desc());
        let job = fnv(job_id.as_bytes());
        let name = format!("hcomm-{job:016x}-{rank}-{}-{:016x}", std::process::id(), random()?);
        let listener = new_socket().map_err(failed)?;
        let address = UnixAddr::new_abstract(name.as_bytes()).map_err(failed)?;
        bind(listener.as_raw_fd(), &address).map_err(failed)?;
        listen(&listener, Backlog::MAXCONN).map_err(failed)?;
        let ringer = UnixDatagram::unbound()
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(|error| Error::system("open a socket", error))?;
        Ok(Domain {
            heap,
            rank,
            job,
            namespace: namespace(),
            name,
            listener: Some(listener),
            peers: Vec::new(),
            ringer,
        })
    }

    /// Where peers find this rank: one word, of use on this host only.
    pub fn address(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Exchanges heaps with the `peers` (rank and address, from the store; this rank itself is skipped) and gives the ranks
    /// that share memory with this one now. Peers that live elsewhere or cannot be mapped are left out without waiting,
    /// those that do not answer after `timeout`. The ranks should compare their answers: one that died or gave up in the
    /// middle may be in the list of one side only.
    pub fn connect(&mut self, peers: &[(usize, String)], timeout: Duration) -> Result<Vec<usize>> {
        let deadline = Instant::now() + timeout;
        let Some(listener) = self.listener.take() else {
            return Err(Error::Startup("this rank has connected to its host's ranks before".into()));
        };
        let mut round = Round::default();
        for (rank, address) in peers {
            let Some(name) = address.strip_prefix(&self.namespace).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            if *rank != self.rank && round.awaited.insert(*rank) && *rank > self.rank {
                round.unconnected.push((*rank, name));
            }
        }
        while !round.awaited.is_empty() {
            self.dial(&mut round)?;
            let Some(remaining) = deadline.checked_duration_since(Instant::now()) else { break };
            let wait = if round.unconnected.is_empty() { remaining } else { remaining.min(RETRY) };
            self.serve(&mut round, &listener, wait)?;
        }
        self.peers.sort_by_key(|peer| peer.rank);
        Ok(self.peers.iter().map(|peer| peer.rank).collect())
    }

    /// Connects to the higher ranks that were not reached yet. A lower rank than this one connects by itself.
    fn dial(&self, round: &mut Round<'_>) -> Result<()> {
        let mut later = Vec::new();
        for (rank, name) in std::mem::take(&mut round.unconnected) {
            let reached = new_socket().and_then(|socket| {
                connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
                Ok(socket)
            });
            match reached {
                Ok(socket) => match self.greet(socket, Some(rank)) {
                    Some(handshake) => round.handshakes.push(handshake),
                    None => drop(round.awaited.remove(&rank)),
                },
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => later.push((rank, name)),
                Err(nix::Error::EMFILE | nix::Error::ENFILE) => return Err(too_many_files()),
                Err(_) => drop(round.awaited.remove(&rank)),
            }
        }
        round.unconnected = later;
        Ok(())
    }

    /// Waits for something to happen, and lets it happen.
    fn serve(&mut self, round: &mut Round<'_>, listener: &OwnedFd, wait: Duration) -> Result<()> {
        let mut polled = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        polled
            .extend(round.handshakes.iter().map(|handshake| PollFd::new(handshake.socket.as_fd(), PollFlags::POLLIN)));
        let millis = wait.as_millis().min(60_000) as u16 + 1;
        match poll(&mut polled, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(Error::system("poll", error.desc())),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut ready = ready.into_iter();
        let accept_now = ready.next().unwrap_or(false);
        for handshake in std::mem::take(&mut round.handshakes) {
            if !ready.next().unwrap_or(false) {
                round.handshakes.push(handshake);
                continue;
            }
            match self.advance(handshake, &round.awaited) {
                Step::Wait(handshake) => round.handshakes.push(handshake),
                Step::Done(peer) => {
                    round.awaited.remove(&peer.rank);
                    self.peers.push(peer);
                }
                // A stranger has no rank, and its failure is nobody's.
                Step::Failed(rank) => drop(rank.map(|rank| round.awaited.remove(&rank))),
            }
        }
        if !accept_now {
            return Ok(());
        }
        loop {
            match accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
                // SAFETY: the descriptor was just made by `accept4` and is ours alone.
                Ok(fd) => round.handshakes.extend(self.greet(unsafe { OwnedFd::from_raw_fd(fd) }, None)),
                Err(nix::Error::EMFILE | nix::Error::ENFILE) => return Err(too_many_files()),
                Err(_) => return Ok(()),
            }
        }
    }

    /// First words on a new connection: who this is, with the heap's descriptor. Other users are refused.
    fn greet(&self, socket: OwnedFd, rank: Option<usize>) -> Option<Handshake> {
        let other = getsockopt(&socket, PeerCredentials).ok()?;
        if other.uid() != nix::unistd::geteuid().as_raw() {
            return None;
        }
        let words = [
            MAGIC,
            self.job,
            self.rank as u64,
            self.heap.size(),
            self.heap.nonce(),
            u64::from(self.heap.fences_registered()),
            self.heap.at(0).addr() as u64,
        ];
        let hello: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let heap = [self.heap.file().as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&heap)];
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&hello)], &rights, MsgFlags::MSG_NOSIGNAL, None).ok()?;
        Some(Handshake { socket, rank, pid: other.pid(), mapped: None })
    }

    /// Takes the next message of a handshake: first the peer's hello, which is answered by whether its heap could be mapped,
    /// then the peer's answer.
    fn advance(&self, mut handshake: Handshake, awaited: &BTreeSet<usize>) -> Step {
        if let Some((mapping, nonce, process)) = handshake.mapped.take() {
            let mut answer = [0];
            let Some(rank) = handshake.rank else { return Step::Failed(None) };
            return match recv(handshake.socket.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Ok(1) if answer == [1] => Step::Done(Peer { rank, socket: handshake.socket, mapping, nonce, process }),
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {
                    handshake.mapped = Some((mapping, nonce, process));
                    Step::Wait(handshake)
                }
                _ => Step::Failed(Some(rank)),
            };
        }
        let (words, file) = match receive_hello(&handshake.socket) {
            Ok(Some(hello)) => hello,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Step::Wait(handshake),
            _ => return Step::Failed(handshake.rank),
        };
        let [magic, job, rank, size, nonce, fences, heap] = words;
        let rank = rank as usize;
        let expected = handshake.rank.map_or(rank < self.rank && awaited.contains(&rank), |known| known == rank);
        if magic != MAGIC || job != self.job || !expected {
            return Step::Failed(handshake.rank);
        }
        let mapping = map_peer(&file, size, nonce);
        let answer = [u8::from(mapping.is_some())];
        let sent = send(handshake.socket.as_raw_fd(), &answer, MsgFlags::MSG_NOSIGNAL);
        handshake.rank = Some(rank);
        match (mapping, sent) {
            (Some(mapping), Ok(1)) => {
                if fences != 1 {
                    self.heap.give_up_fences();
                }
                handshake.mapped = Some((mapping, nonce, PeerProcess::new(handshake.pid, heap, nonce)));
                Step::Wait(handshake)
            }
            // Who dialled us is known now: without it we would wait for that rank.
            _ => Step::Failed(Some(rank)),
        }
    }

    /// This process's heap.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Where `len` bytes at `offset` of a rank's heap are mapped here; `None` for ranks not connected and for offsets
    /// outside of the heap. That the bytes are reserved is the owner's word.
    pub fn resolve(&self, rank: usize, offset: u64, len: u64) -> Option<*mut u8> {
        if rank == self.rank {
            return (offset.checked_add(len)? <= self.heap.size()).then(|| self.heap.at(offset));
        }
        Some(self.peer(rank)?.mapping.at(offset, len)?.as_ptr())
    }

    /// The process of a connected peer.
    pub fn process(&self, rank: usize) -> Option<PeerProcess> {
        Some(self.peer(rank)?.process)
    }

    /// Whether an operation of a connected rank has failed.
    pub fn gave_up(&self, rank: usize) -> bool {
        self.peer(rank).is_some_and(|peer| peer.mapping.gave_up().load(Ordering::Acquire) != 0)
    }

    /// The sockets to all peers, for polling: they become readable when the peer is gone.
    #[cfg(test)]
    pub fn sockets(&self) -> impl Iterator<Item = (usize, RawFd)> {
        self.peers.iter().map(|peer| (peer.rank, peer.socket.as_raw_fd()))
    }

    /// The connected ranks whose process is gone, by itself or killed. One system call; allocates only when there are any.
    pub fn closed_peers(&self) -> Vec<usize> {
        let mut closed = Vec::new();
        for peers in self.peers.chunks(64) {
            let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; 64];
            for (entry, peer) in polled.iter_mut().zip(peers) {
                *entry = libc::pollfd { fd: peer.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            }
            // SAFETY: the array has at least as many entries as peers are looked at.
            let ready = unsafe { libc::poll(polled.as_mut_ptr(), peers.len() as libc::nfds_t, 0) };
            if ready > 0 {
                // Nothing is sent after the handshake: readable means the end.
                closed.extend(
                    peers.iter().zip(&polled).filter(|(_, entry)| entry.revents != 0).map(|(peer, _)| peer.rank),
                );
            }
        }
        closed
    }

    /// Wakes the owner of the doorbell at `offset` of a rank's heap, if it sleeps.
    pub(super) fn ring(&self, rank: usize, offset: u64, bell: &Bell) {
        match bell.claim() {
            None => {}
            Some(Wake::Futex) => bell.wake_futex(),
            Some(Wake::Datagram) => {
                let nonce = self.peer(rank).map_or(self.heap.nonce(), |peer| peer.nonce);
                ring_datagram(&self.ringer, nonce, offset);
            }
        }
    }

    fn peer(&self, rank: usize) -> Option<&Peer> {
        self.peers.binary_search_by_key(&rank, |peer| peer.rank).ok().map(|index| &self.peers[index])
    }
}

/// The state of [`Domain::connect`].
#[derive(Default)]
struct Round<'a> {
    /// Ranks neither connected nor given up.
    awaited: BTreeSet<usize>,
    /// Of these, those to connect to, with their socket's name.
    unconnected: Vec<(usize, &'a str)>,
    handshakes: Vec<Handshake>,
}

/// A connection on which this rank has sent its hello.
struct Handshake {
    socket: OwnedFd,
    /// Known from the start when we connected; else from the peer's hello.
    rank: Option<usize>,
    /// The peer's process, by its number here.
    pid: libc::pid_t,
    /// The peer's heap, its nonce, and the process that has it, once its hello has come.
    mapped: Option<(Mapping, u64, PeerProcess)>,
}

enum Step {
    Wait(Handshake),
    Done(Peer),
    /// With the rank, once it is known.
    Failed(Option<usize>),
}

/// A hello's words and descriptor; `None` for anything else.
fn receive_hello(socket: &OwnedFd) -> nix::Result<Option<([u64; HELLO_LEN / 8], OwnedFd)>> {
    let mut bytes = [0; HELLO_LEN + 1];
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut buffer = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut buffer, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made these descriptors for us.
            files.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let len = message.bytes;
    let Some(file) = files.pop().filter(|_| len == HELLO_LEN && files.is_empty()) else { return Ok(None) };
    let mut words = [0; HELLO_LEN / 8];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    Ok(Some((words, file)))
}

/// Maps a peer's heap, if the file is what the peer says, and cannot shrink under us.
fn map_peer(file: &OwnedFd, size: u64, nonce: u64) -> Option<Mapping> {
    let real_size = nix::sys::stat::fstat(file).ok()?.st_size;
    let seals = SealFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GET_SEALS).ok()?);
    if real_size as u64 != size || size < super::heap::HUGE || !seals.contains(SealFlag::F_SEAL_SHRINK) {
        return None;
    }
    Mapping::new(file.as_fd(), size).ok().filter(|mapping| mapping.is_heap(nonce))
}

/// Message boundaries are kept, so a hello is one read.
fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

fn too_many_files() -> Error {
    Error::system("connect to the ranks of this host", "too many open files; raise `ulimit -n`")
}

/// What two processes must have in common to see each other's abstract sockets.
fn namespace() -> String {
    use std::os::unix::fs::MetadataExt;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let net = std::fs::metadata("/proc/self/ns/net").map_or(0, |net| net.ino());
    format!("{}-{net}", boot.trim())
}

/// FNV-1a, <http://www.isthe.com/chongo/tech/comp/fnv/>: tells jobs apart, is no protection.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
