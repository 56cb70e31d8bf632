//! How a link comes by its sockets, without ever blocking: the lower rank connects and says hello, trying each address
//! in turn until one answers; the higher one takes what its endpoint has greeted.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::Socket;

use super::endpoint::{Options, Shared};
use super::meter::Measured;
use super::socket;
use crate::session::handshake::{Hello, LinkId, PROTOCOL, REPLY_BYTES, Refusal, Reply};
use crate::topology::interfaces::Route;
use crate::transport::LinkError;

/// How long one address may take to answer: an address that swallows packets must not keep us from the next one.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Makes the sockets of one link.
pub(super) struct Connector {
    shared: Arc<Shared>,
    peer: usize,
    link: LinkId,
    side: Side,
    /// Sockets that are there, by their number.
    sockets: Vec<Option<Socket>>,
    /// Set when the link is first used.
    deadline: Option<Instant>,
}

enum Side {
    /// This rank is the lower one.
    Connects { routes: Vec<Route>, attempts: Vec<Attempt>, reasons: Vec<Option<String>> },
    /// The endpoint is asked again when its count of arrivals has changed.
    Accepts { seen: Option<u64>, wake: Option<Arc<EventFd>> },
}

/// The making of one socket.
struct Attempt {
    /// Which route is tried.
    route: usize,
    /// How many failed since the last pause.
    failed: usize,
    state: State,
}

enum State {
    /// Nothing is under way before this time.
    Pause(Instant),
    /// Waits for writability.
    Connecting(Socket, Instant),
    /// The hello is out.
    Asking {
        socket: Socket,
        until: Instant,
        reply: [u8; REPLY_BYTES],
        got: usize,
    },
    Done,
}

impl Connector {
    pub fn new(shared: Arc<Shared>, peer: usize, link: LinkId, routes: Vec<Route>) -> Self {
        let count = usize::from(shared.sockets());
        let side = if shared.options.rank < peer {
            // Sockets are spread over the paths that are known to be direct.
            let rails = routes.iter().filter(|route| route.local.is_some()).count().max(1);
            let attempts = (0..count)
                .map(|index| Attempt { route: index % rails, failed: 0, state: State::Pause(Instant::now()) })
                .collect();
            let reasons = vec![None; routes.len()];
            Side::Connects { routes, attempts, reasons }
        } else {
            Side::Accepts { seen: None, wake: None }
        };
        let sockets = (0..count).map(|_| None).collect();
        Connector { shared, peer, link, side, sockets, deadline: None }
    }

    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Has the sockets of the link measured.
    pub fn measure(&self, sockets: &[Socket]) -> Measured {
        self.shared.meters.watch(self.peer, self.link, sockets.iter().map(Socket::as_raw_fd).collect())
    }

    /// Sockets that the link will have.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    pub fn peer(&self) -> usize {
        self.peer
    }

    /// Moves on; all sockets, once, when the last of them is there.
    pub fn step(&mut self) -> Result<Option<Vec<Socket>>, LinkError> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.shared.options.timeout);
        match &mut self.side {
            Side::Accepts { seen, .. } => {
                let arrivals = self.shared.arrivals();
                if seen.replace(arrivals) != Some(arrivals) {
                    self.collect()?;
                }
            }
            Side::Connects { routes, attempts, reasons } => {
                for (index, attempt) in attempts.iter_mut().enumerate() {
                    let hello = Hello {
                        protocol: PROTOCOL,
                        job: self.shared.job,
                        from: self.shared.options.rank as u32,
                        to: self.peer as u32,
                        link: self.link,
                        socket: index as u16,
                        sockets: self.shared.sockets(),
                        frame_bytes: self.shared.options.frame_bytes,
                    };
                    if let Some(socket) = attempt.step(now, routes, reasons, &hello, &self.shared.options)? {
                        self.sockets[index] = Some(socket);
                    }
                }
            }
        }
        if self.sockets.iter().all(Option::is_some) {
            let sockets: Vec<Socket> = self.sockets.iter_mut().filter_map(Option::take).collect();
            for (index, socket) in sockets.iter().enumerate() {
                self.shared.log(|| {
                    let (local, remote) = (socket::address_text(socket, true), socket::address_text(socket, false));
                    format!("tcp: socket {index} to rank {} goes from {local} to {remote}", self.peer)
                });
            }
            return Ok(Some(sockets));
        }
        if now >= deadline {
            return Err(LinkError::Closed(self.failure()));
        }
        Ok(None)
    }

    /// Takes what the endpoint has for this link, and asks to be woken for the rest.
    fn collect(&mut self) -> Result<(), LinkError> {
        let Side::Accepts { wake, .. } = &mut self.side else { return Ok(()) };
        match wake {
            Some(wake) => drop(wake.read()),
            None => {
                let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
                    .map_err(|error| LinkError::Closed(format!("eventfd: {error}")))?;
                let event = wake.insert(Arc::new(event));
                self.shared.wait(self.peer as u32, self.link, Arc::clone(event));
            }
        }
        for (index, place) in self.sockets.iter_mut().enumerate() {
            // A newer socket of the same number replaces one whose maker has given up.
            if let Some(socket) = self.shared.take(self.peer as u32, self.link, index as u16) {
                *place = Some(socket);
            }
        }
        Ok(())
    }

    fn failure(&self) -> String {
        let waited = self.shared.options.timeout;
        match &self.side {
            Side::Accepts { .. } => format!("rank {} has not connected within {waited:?}", self.peer),
            Side::Connects { reasons, .. } => {
                let reasons: Vec<&str> = reasons.iter().flatten().map(String::as_str).collect();
                format!("rank {} was not reached within {waited:?}: {}", self.peer, reasons.join("; "))
            }
        }
    }

    /// What to sleep on, and when to look again at the latest.
    pub fn sleep(&self, fds: &mut Vec<libc::pollfd>) -> Option<Duration> {
        let now = Instant::now();
        let mut look_at = self.deadline;
        let mut watch = |fd, events| fds.push(libc::pollfd { fd, events, revents: 0 });
        match &self.side {
            Side::Accepts { wake: Some(wake), .. } => watch(std::os::fd::AsFd::as_fd(wake).as_raw_fd(), libc::POLLIN),
            // Not used yet: the first step asks to be woken.
            Side::Accepts { wake: None, .. } => look_at = Some(now),
            Side::Connects { attempts, .. } => {
                for attempt in attempts {
                    let until = match &attempt.state {
                        State::Pause(until) => *until,
                        State::Connecting(socket, until) => {
                            watch(socket.as_raw_fd(), libc::POLLOUT);
                            *until
                        }
                        State::Asking { socket, until, .. } => {
                            watch(socket.as_raw_fd(), libc::POLLIN);
                            *until
                        }
                        State::Done => continue,
                    };
                    look_at = Some(look_at.map_or(until, |at| at.min(until)));
                }
            }
        }
        look_at.map(|at| at.saturating_duration_since(now))
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if let Side::Accepts { wake: Some(_), .. } = self.side {
            self.shared.leave(self.peer as u32, self.link);
        }
    }
}

impl Attempt {
    /// Moves on as far as possible; the socket, once, when it was accepted.
    fn step(
        &mut self,
        now: Instant,
        routes: &[Route],
        reasons: &mut [Option<String>],
        hello: &Hello,
        options: &Options,
    ) -> Result<Option<Socket>, LinkError> {
        loop {
            let route = routes[self.route];
            let failure = match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Ok(None),
                State::Pause(until) if now < until => {
                    self.state = State::Pause(until);
                    return Ok(None);
                }
                State::Pause(_) => match socket::connect(route.remote, route.local, &options.tuning, options.timeout) {
                    Ok(socket) => {
                        self.state = State::Connecting(socket, now + ATTEMPT);
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                State::Connecting(socket, until) => match connected(&socket) {
                    Ok(true) => match socket.send_with_flags(&hello.encode(), libc::MSG_NOSIGNAL) {
                        Ok(sent) if sent == hello.encode().len() => {
                            self.state = State::Asking { socket, until, reply: [0; REPLY_BYTES], got: 0 };
                            continue;
                        }
                        Ok(_) => "hello was cut short".into(),
                        Err(error) => error.to_string(),
                    },
                    Ok(false) if now < until => {
                        self.state = State::Connecting(socket, until);
                        return Ok(None);
                    }
                    Ok(false) => format!("no connection within {ATTEMPT:?}"),
                    Err(error) => error.to_string(),
                },
                State::Asking { socket, until, mut reply, mut got } => match read(&socket, &mut reply, &mut got) {
                    Ok(true) => match judge(&reply, route)? {
                        None => return Ok(Some(socket)),
                        Some(refusal) => format!("refused: {refusal}"),
                    },
                    Ok(false) if now < until => {
                        self.state = State::Asking { socket, until, reply, got };
                        return Ok(None);
                    }
                    Ok(false) => format!("no answer within {ATTEMPT:?}"),
                    Err(error) => error.to_string(),
                },
            };
            reasons[self.route] = Some(format!("{}: {failure}", route.remote));
            self.route = (self.route + 1) % routes.len();
            self.failed += 1;
            let pause = if self.failed.is_multiple_of(routes.len()) { options.retry } else { Duration::ZERO };
            self.state = State::Pause(now + pause);
        }
    }
}

/// Whether a connection is made, or why it will not be.
fn connected(socket: &Socket) -> std::io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads on at a reply, never past it; whether it is whole.
fn read(mut socket: &Socket, reply: &mut [u8; REPLY_BYTES], got: &mut usize) -> std::io::Result<bool> {
    use std::io::Read;
    match socket.read(&mut reply[*got..]) {
        Ok(0) => Err(std::io::Error::other("closed without an answer")),
        Ok(more) => {
            *got += more;
            Ok(*got == REPLY_BYTES)
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a reply means: nothing, a reason to try the next address, or an error that no other address can mend.
fn judge(reply: &[u8; REPLY_BYTES], route: Route) -> Result<Option<Refusal>, LinkError> {
    let Some(reply) = Reply::decode(reply) else { return Ok(Some(Refusal::Stranger)) };
    match reply.refusal {
        Some(Refusal::Protocol) => {
            let theirs = reply.protocol;
            Err(LinkError::Protocol(format!("{} speaks protocol {theirs}, this is {PROTOCOL}", route.remote)))
        }
        Some(Refusal::Settings) => Err(LinkError::Protocol(format!("{} has {}", route.remote, Refusal::Settings))),
        refusal => Ok(refusal),
    }
}
