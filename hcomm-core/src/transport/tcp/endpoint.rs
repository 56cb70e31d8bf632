//! Where a process is reached: listening sockets, and the thread that greets whoever connects.
//!
//! Greeted sockets are parked until the link they are for asks for them. One thread polls all connections that are not
//! greeted yet; each has a deadline, and there is a bound on how many there are: when it is reached the oldest goes, as an
//! honest rank says its hello at once and a silent stranger is old. A thread a connection was rejected: a port scan must
//! not cost more than a few descriptors.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::{SockRef, Socket};

use super::connect::Connector;
use super::link::TcpLink;
use super::meter::Meters;
use super::socket::{self, Tuning};
use crate::error::{Error, Result};
use crate::session::handshake::{HELLO_BYTES, Hello, LinkId, PROTOCOL, Refusal, Reply, job_hash};
use crate::topology::interfaces::{Subnet, routes};

/// Takes lines for `HCOMM_DEBUG`.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Connections that have not said their hello yet, at most.
const GREETING_LIMIT: usize = 128;

/// Greeted connections that no link has taken yet, at most.
const PARKED_LIMIT: usize = 16384;

/// After accepting failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How an endpoint is set up. `frame_bytes` must be equal on all ranks.
#[derive(Clone)]
pub(crate) struct Options {
    /// Id of the job; strangers have another.
    pub job: String,
    /// This rank in the job.
    pub rank: usize,
    /// Addresses to listen on, most useful first, as chosen by [`crate::topology::interfaces`].
    pub local: Vec<Subnet>,
    /// Largest frame of a link with several sockets, in bytes; a multiple of 64.
    pub frame_bytes: u32,
    /// Messages that may wait on a link (`HCOMM_TX_QUEUE_SIZE`).
    pub queue: usize,
    /// Of each socket.
    pub tuning: Tuning,
    /// How long a link tries to connect (`HCOMM_TIMEOUT`).
    pub timeout: Duration,
    /// Pause between rounds of attempts (`HCOMM_RETRY_TIMEOUT`).
    pub retry: Duration,
    /// How long a connection may take to say its hello.
    pub greeting: Duration,
    /// Where debug lines go.
    pub log: Option<Log>,
}

/// Where another rank is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    /// Its rank in the job.
    pub rank: usize,
    /// What its [`Endpoint::addresses`] said.
    pub addresses: Vec<String>,
}

/// Key of a parked socket: from rank, link, socket of the link.
type Key = (u32, LinkId, u16);

#[derive(Default)]
struct Meeting {
    parked: HashMap<Key, Socket>,
    /// Links that sleep until a socket comes.
    waiting: HashMap<(u32, LinkId), Arc<EventFd>>,
}

/// What the endpoint, its thread and its links have in common.
pub(super) struct Shared {
    pub options: Options,
    pub job: u64,
    /// Sockets of each link; unknown until all ranks have said on how many interfaces they are reached.
    sockets: OnceLock<u16>,
    meeting: Mutex<Meeting>,
    /// Sockets parked so far: lets a waiting link look without the lock.
    arrivals: AtomicU64,
    refused: AtomicU64,
    /// What is known of the sockets of its links.
    pub meters: Arc<Meters>,
}

impl Shared {
    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets of each link, at least 1.
    pub fn sockets(&self) -> u16 {
        self.sockets.get().copied().unwrap_or(1).max(1)
    }

    /// Changes whenever a socket was parked.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Acquire)
    }

    /// Takes a parked socket.
    pub fn take(&self, from: u32, link: LinkId, socket: u16) -> Option<Socket> {
        self.meeting().parked.remove(&(from, link, socket))
    }

    /// Has `wake` signalled whenever a socket for the link is parked, until [`Shared::leave`].
    pub fn wait(&self, from: u32, link: LinkId, wake: Arc<EventFd>) {
        self.meeting().waiting.insert((from, link), wake);
    }

    /// Ends [`Shared::wait`].
    pub fn leave(&self, from: u32, link: LinkId) {
        self.meeting().waiting.remove(&(from, link));
    }

    /// Writes a debug line.
    pub fn log(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &self.options.log {
            log(&line());
        }
    }

    /// Parks a greeted socket, or says why not.
    fn admit(&self, hello: &Hello, socket: Socket) -> std::result::Result<(), (Refusal, Socket)> {
        let options = &self.options;
        let refusal = if hello.job != self.job {
            Some(Refusal::Job)
        } else if hello.to as usize != options.rank || hello.from as usize >= options.rank {
            // The lower rank connects, so whoever is not lower is not of this job.
            Some(Refusal::Rank)
        } else if self.sockets.get().is_some_and(|&sockets| hello.sockets != sockets)
            || hello.socket >= hello.sockets
            || hello.frame_bytes != options.frame_bytes
        {
            Some(Refusal::Settings)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err((refusal, socket));
        }
        let key = (hello.from, hello.link, hello.socket);
        let mut meeting = self.meeting();
        if meeting.parked.len() >= PARKED_LIMIT && !meeting.parked.contains_key(&key) {
            return Err((Refusal::Busy, socket));
        }
        // The answer goes out under the lock, so that no link sends frames before it.
        if !answer(&socket, None) {
            return Err((Refusal::Stranger, socket));
        }
        // A second connection for one key means that the first was given up by its maker.
        meeting.parked.insert(key, socket);
        self.arrivals.fetch_add(1, Ordering::Release);
        if let Some(wake) = meeting.waiting.get(&(hello.from, hello.link)) {
            let _ = wake.write(1);
        }
        Ok(())
    }
}

/// Sends the reply; a fresh socket takes it whole or is of no use.
fn answer(socket: &Socket, refusal: Option<Refusal>) -> bool {
    let bytes = Reply { protocol: PROTOCOL, refusal }.encode();
    socket.send_with_flags(&bytes, libc::MSG_NOSIGNAL).is_ok_and(|sent| sent == bytes.len())
}

/// A process's presence on the network.
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens on every address of `options.local`, on ports of the system's choice, and starts the greeting thread.
    pub fn start(options: Options) -> Result<Self> {
        let mut listeners = Vec::with_capacity(options.local.len());
        let mut addresses = Vec::with_capacity(options.local.len());
        for subnet in &options.local {
            let listener = listen(subnet, &options)?;
            addresses.push(
                listener
                    .local_addr()
                    .ok()
                    .and_then(|address| address.as_socket())
                    .ok_or_else(|| Error::system(format!("address of listener on {}", subnet.address), "not an IP"))?,
            );
            listeners.push(listener);
        }
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(|error| Error::system("eventfd", error))?);
        let shared = Arc::new(Shared {
            job: job_hash(&options.job),
            options,
            sockets: OnceLock::new(),
            meeting: Mutex::default(),
            arrivals: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            meters: Arc::default(),
        });
        let greeter = Greeter {
            shared: Arc::clone(&shared),
            stop: Arc::clone(&stop),
            listeners,
            greeting: VecDeque::new(),
            paused_until: None,
            told: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("hcomm-greet".into())
            .spawn(move || greeter.run())
            .map_err(|error| Error::system("start of the greeting thread", error))?;
        Ok(Endpoint { shared, addresses, stop, thread: Some(thread) })
    }

    /// Where other ranks reach this process (`10.0.0.1:4711`, `[fd00::1]:4711`), most useful first.
    pub fn addresses(&self) -> Vec<String> {
        self.addresses.iter().map(SocketAddr::to_string).collect()
    }

    /// Has each link use `sockets` of them, spread over the paths to its peer. To be called before links are made, with the same
    /// number on all ranks; else it is one.
    pub fn use_sockets(&self, sockets: u16) {
        let _ = self.shared.sockets.set(sockets);
    }

    /// Connections refused so far.
    #[cfg(test)]
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// What reads the sockets of its links.
    pub fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.shared.meters)
    }

    /// A link to another rank. It connects when it is first used, so making one costs nothing.
    pub fn link(&self, peer: &PeerAddress, id: LinkId) -> Result<TcpLink> {
        let mut addresses = Vec::with_capacity(peer.addresses.len());
        for text in &peer.addresses {
            addresses.push(text.parse::<SocketAddr>().map_err(|error| Error::Protocol {
                peer: format!("rank {}", peer.rank),
                what: format!("address {text:?}: {error}"),
            })?);
        }
        let routes = routes(&self.shared.options.local, &addresses);
        if peer.rank > self.shared.options.rank && routes.is_empty() {
            return Err(Error::Interface(format!("rank {} offers no address", peer.rank)));
        }
        Ok(TcpLink::new(Connector::new(Arc::clone(&self.shared), peer.rank, id, routes)))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Writing 1 to an eventfd fails only at its limit, where it is readable anyhow.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(subnet: &Subnet, options: &Options) -> Result<Socket> {
    let address = SocketAddr::new(subnet.address, 0);
    let attempt = || {
        let listener = socket::open(&address, &options.tuning, options.timeout)?;
        listener.bind(&address.into())?;
        listener.listen(4096)?;
        Ok::<Socket, std::io::Error>(listener)
    };
    attempt().map_err(|error| Error::system(format!("listen on {}", subnet.address), error))
}

/// A connection whose hello is not complete.
struct Greeting {
    socket: Socket,
    remote: String,
    hello: [u8; HELLO_BYTES],
    got: usize,
    deadline: Instant,
}

/// What became of a greeting when it was looked at.
enum Progress {
    /// More bytes are to come.
    Waits,
    /// The hello is complete, or never will be.
    Ends(std::result::Result<Hello, Refusal>),
}

struct Greeter {
    shared: Arc<Shared>,
    stop: Arc<EventFd>,
    listeners: Vec<Socket>,
    /// Oldest first.
    greeting: VecDeque<Greeting>,
    /// Accepting failed and rests until then.
    paused_until: Option<Instant>,
    /// Reasons of refusals that were logged.
    told: Vec<Refusal>,
}

impl Greeter {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.paused_until = self.paused_until.filter(|until| *until > now);
            let wake_at =
                self.greeting.front().map(|greeting| greeting.deadline).into_iter().chain(self.paused_until).min();
            // A millisecond more, as the timeout is rounded down.
            let timeout = wake_at.map_or(PollTimeout::NONE, |at| {
                let rest = at.saturating_duration_since(now) + Duration::from_millis(1);
                PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX)
            });
            let listeners = if self.paused_until.is_some() { &[] } else { self.listeners.as_slice() };
            let mut fds = vec![PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
            let sockets = listeners.iter().chain(self.greeting.iter().map(|greeting| &greeting.socket));
            fds.extend(sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
            if poll(&mut fds, timeout).is_err() {
                continue; // interrupted
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            if ready[0] {
                return;
            }
            let (listening, greeting) = ready[1..].split_at(listeners.len());
            self.greet(greeting);
            for (index, _) in listening.iter().enumerate().filter(|(_, ready)| **ready) {
                self.accept(index);
            }
        }
    }

    /// Looks at every connection that became readable or too old.
    fn greet(&mut self, ready: &[bool]) {
        let now = Instant::now();
        for &ready in ready {
            let Some(mut greeting) = self.greeting.pop_front() else { return };
            let progress = if ready { greeting.read() } else { Progress::Waits };
            match progress {
                Progress::Waits if now < greeting.deadline => self.greeting.push_back(greeting),
                Progress::Waits => self.refuse(&greeting.remote, Refusal::Stranger),
                Progress::Ends(hello) => self.finish(greeting, hello),
            }
        }
    }

    fn finish(&mut self, greeting: Greeting, hello: std::result::Result<Hello, Refusal>) {
        let refused = match hello {
            Ok(hello) => self.shared.admit(&hello, greeting.socket),
            Err(refusal) => Err((refusal, greeting.socket)),
        };
        if let Err((refusal, socket)) = refused {
            self.refuse(&greeting.remote, refusal);
            if refusal != Refusal::Stranger {
                answer(&socket, Some(refusal));
            }
        }
    }

    fn refuse(&mut self, remote: &str, refusal: Refusal) {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        if !self.told.contains(&refusal) {
            self.told.push(refusal);
            self.shared.log(|| format!("tcp: refused {remote}: {refusal} (further ones are only counted)"));
        }
    }

    fn accept(&mut self, listener: usize) {
        // As many as may be greeted at a time: a flood of connections must not keep the others from being looked at.
        for _ in 0..GREETING_LIMIT {
            let (socket, remote) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)) {
                        self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    }
                    return;
                }
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            // Not all systems hand this down from the listener.
            let _ = SockRef::from(&socket).set_tcp_nodelay(true);
            if self.greeting.len() >= GREETING_LIMIT
                && let Some(oldest) = self.greeting.pop_front()
            {
                self.refuse(&oldest.remote, Refusal::Stranger);
            }
            let remote = remote.as_socket().map_or_else(|| "unknown".into(), |address| address.to_string());
            let deadline = Instant::now() + self.shared.options.greeting;
            let mut greeting = Greeting { socket, remote, hello: [0; HELLO_BYTES], got: 0, deadline };
            // The hello of an honest rank is often there already.
            match greeting.read() {
                Progress::Waits => self.greeting.push_back(greeting),
                Progress::Ends(hello) => self.finish(greeting, hello),
            }
        }
    }
}

impl Greeting {
    fn read(&mut self) -> Progress {
        use std::io::Read;
        match (&self.socket).read(&mut self.hello[self.got..]) {
            Ok(0) => Progress::Ends(Err(Refusal::Stranger)),
            Ok(got) => {
                self.got += got;
                if self.got < HELLO_BYTES { Progress::Waits } else { Progress::Ends(Hello::decode(&self.hello)) }
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Progress::Waits,
            Err(_) => Progress::Ends(Err(Refusal::Stranger)),
        }
    }
}
