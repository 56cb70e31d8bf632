//! One TCP socket: how it is set up, and the three calls that the data path makes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// What can be tuned of each socket; `Default` leaves everything to the system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tuning {
    /// Receive buffer in bytes (`HCOMM_RX_BUFFER_SIZE`). Left alone the kernel sizes it by itself, mostly better.
    pub receive_buffer: Option<usize>,
    /// Send buffer in bytes.
    pub send_buffer: Option<usize>,
    /// Congestion control by the kernel's name (`bbr`); one that this kernel does not have is left at its default.
    pub congestion: Option<String>,
}

/// A non-blocking socket for `address`, set up but neither connected nor listening. Buffer sizes must be set this early:
/// the window scale is agreed when the connection is made.
pub(super) fn open(address: &SocketAddr, tuning: &Tuning, silence: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = tuning.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = tuning.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(name) = &tuning.congestion {
        // A missing module is no reason to fail: every kernel has a default that works.
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
    // A host that vanished without a word shows by silence. The bound must not be shorter than an operation may last: the
    // kernel also counts the time in which a living peer does not read, as a late rank does.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5)).with_retries(6);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(silence.max(Duration::from_secs(10))))?;
    Ok(socket)
}

/// Starts to connect, from `local` if given. `Ok` means that writability will tell.
pub(super) fn connect(
    remote: SocketAddr,
    local: Option<IpAddr>,
    tuning: &Tuning,
    silence: Duration,
) -> io::Result<Socket> {
    let socket = open(&remote, tuning, silence)?;
    if let Some(local) = local {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    match socket.connect(&remote.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// Lets the kernel keep about `bytes` that it has not sent yet. Else its buffer, of megabytes, would take whole messages for a
/// slow path while the others have nothing to do (`TCP_NOTSENT_LOWAT`, tcp(7)).
pub(super) fn limit_unsent(socket: &Socket, bytes: u32) {
    // Without it the link only balances worse.
    let _ = socket.set_tcp_notsent_lowat(bytes);
}

/// A run of memory, as the kernel takes it.
pub(super) fn run(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

/// Sends one run of bytes. Never raises SIGPIPE; `None` when the kernel takes nothing now.
///
/// # Safety
/// `start` is valid for reads of `len` bytes.
pub(super) unsafe fn send(fd: RawFd, start: *const u8, len: usize) -> io::Result<Option<usize>> {
    // SAFETY: the caller vouches for the memory; the descriptor is only named.
    outcome(unsafe { libc::send(fd, start.cast(), len, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) })
}

/// Sends two runs of bytes in one call, otherwise as [`send`].
///
/// # Safety
/// Both runs are valid for reads.
pub(super) unsafe fn send_both(fd: RawFd, mut runs: [libc::iovec; 2]) -> io::Result<Option<usize>> {
    // SAFETY: all zero bytes are a message without name and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = runs.as_mut_ptr();
    message.msg_iovlen = runs.len() as _;
    // SAFETY: `message` points to `runs`, which live through the call; the caller vouches for what they point to.
    outcome(unsafe { libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) })
}

/// Receives into one run of memory; `None` when nothing is there, 0 when the peer closed.
///
/// # Safety
/// `start` is valid for writes of `len` bytes.
pub(super) unsafe fn receive(fd: RawFd, start: *mut u8, len: usize) -> io::Result<Option<usize>> {
    // SAFETY: the caller vouches for the memory; the descriptor is only named.
    outcome(unsafe { libc::recv(fd, start.cast(), len, libc::MSG_DONTWAIT) })
}

/// Receives into several runs of memory in one call, otherwise as [`receive`].
///
/// # Safety
/// All runs are valid for writes, and the socket is non-blocking.
pub(super) unsafe fn receive_all<const N: usize>(fd: RawFd, runs: [libc::iovec; N]) -> io::Result<Option<usize>> {
    // SAFETY: `runs` live through the call; the caller vouches for what they point to.
    outcome(unsafe { libc::readv(fd, runs.as_ptr(), N as libc::c_int) })
}

fn outcome(result: isize) -> io::Result<Option<usize>> {
    if result >= 0 {
        return Ok(Some(result as usize));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => Ok(None),
        _ => Err(error),
    }
}

/// The address at this end (`local`) or the other, as text for errors and logs.
pub(super) fn address_text(socket: &Socket, local: bool) -> String {
    let address = if local { socket.local_addr() } else { socket.peer_addr() };
    match address.ok().and_then(|address| address.as_socket()) {
        Some(address) => address.to_string(),
        None => format!("socket {}", socket.as_raw_fd()),
    }
}
