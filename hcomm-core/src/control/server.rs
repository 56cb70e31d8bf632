//! The embedded store's server: one thread, all sockets non-blocking under one epoll.
//!
//! One thread rather than one for each connection: the state needs no lock, a change wakes only the calls that it
//! concerns, and a thousand ranks cost a thousand sockets and no more. Everything a client can make grow is bounded, and a
//! client that sends something else than the protocol is cut off, counted, and disturbs nobody.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::check_job_id;
use super::protocol::{
    MAX_REQUEST_BYTES, Refusal, Request, Response, Welcome, decode_hello, decode_request, encode_response, next_frame,
};
use super::table::{Answer, Session, Table};
use crate::error::{Error, Result};

/// Most connections of the job at a time.
const MAX_CONNECTIONS: usize = 16384;
/// Most connections that have not said hello yet: the oldest is cut for a new one.
const MAX_STRANGERS: usize = 64;
/// Most connections at a time that only read.
const MAX_OBSERVERS: usize = 16;
/// How long a connection may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes waiting for one client that does not read.
const MAX_UNSENT_BYTES: usize = 256 << 20;
/// How long nothing is accepted after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_SESSION: Session = 2;

/// Serves a store from a thread of this process until it is dropped.
pub struct StoreServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    wake: EventFd,
    clients: AtomicUsize,
    served: AtomicUsize,
    refused: AtomicU64,
}

impl StoreServer {
    /// Listens on `bind` (port 0: a free one) for clients of `job_id`.
    ///
    /// # Errors
    /// [`Error::Store`] when the address cannot be had, [`Error::Setting`] for an unfit job id.
    pub fn start(bind: SocketAddr, job_id: &str) -> Result<StoreServer> {
        check_job_id(job_id)?;
        let failed = |what: &str, cause: std::io::Error| Error::Store {
            url: format!("tcp://{bind}"),
            what: format!("{what}: {cause}"),
        };
        // The standard library sets SO_REUSEADDR: a job that follows another on the same port need not wait.
        let listener = TcpListener::bind(bind).map_err(|e| failed("cannot listen", e))?;
        listener.set_nonblocking(true).map_err(|e| failed("cannot listen", e))?;
        let address = listener.local_addr().map_err(|e| failed("cannot listen", e))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| Error::system("the store: epoll", e))?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let wake = wake.map_err(|e| Error::system("the store: eventfd", e))?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).map_err(|e| failed("epoll", e.into()))?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, STOP)).map_err(|e| failed("epoll", e.into()))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            wake,
            clients: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        });
        let mut events = Loop {
            epoll,
            listener,
            shared: shared.clone(),
            job_id: job_id.to_owned(),
            table: Table::default(),
            connections: HashMap::new(),
            next_session: FIRST_SESSION,
            strangers: 0,
            accept_again: None,
        };
        let thread = std::thread::Builder::new().name("hcomm-store".into()).spawn(move || events.run());
        let thread = thread.map_err(|e| Error::system("cannot start the store's thread", e))?;
        Ok(StoreServer { address, shared, thread: Some(thread) })
    }

    /// The address that is listened on, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Clients connected now.
    pub fn clients(&self) -> usize {
        self.shared.clients.load(Ordering::Relaxed)
    }

    /// Clients that ever were.
    pub fn served(&self) -> usize {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Connections that were cut off because they did not speak the protocol, or not of this job.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Waits until at most `most` clients are connected, so that who serves the store leaves last; whether that came
    /// before `timeout`.
    pub fn wait_for_clients_to_leave(&self, most: usize, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        while self.clients() > most {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = self.shared.wake.write(1); // full means that it is set
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One client, or one who may become one.
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    /// Until hello: when it is cut off.
    hello_by: Option<Instant>,
    /// It is not of the job: it may read, and nobody waits for it to leave.
    observes: bool,
    wants_write: bool,
}

/// Why a connection ends.
enum End {
    /// It closed, or failed.
    Closed,
    /// It sent what it must not.
    Refused,
}

/// What the server's thread owns.
struct Loop {
    epoll: Epoll,
    listener: TcpListener,
    shared: Arc<Shared>,
    job_id: String,
    table: Table,
    connections: HashMap<Session, Connection>,
    next_session: Session,
    strangers: usize,
    accept_again: Option<Instant>,
}

impl Loop {
    fn run(&mut self) {
        let mut events = vec![EpollEvent::empty(); 256];
        while !self.shared.stop.load(Ordering::Acquire) {
            let ready = self.epoll.wait(&mut events, self.timeout()).unwrap_or(0);
            let now = Instant::now();
            for event in &events[..ready] {
                match event.data() {
                    LISTENER => self.accept(now),
                    STOP => {}
                    session => self.serve(session, event.events(), now),
                }
            }
            let answers = self.table.expire(now);
            self.deliver(answers, now);
            self.cut_the_silent(now);
            if self.accept_again.is_some_and(|at| at <= now) {
                self.accept_again = None;
                self.accept(now);
            }
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let hello = match self.strangers {
            0 => None,
            _ => self.connections.values().filter_map(|c| c.hello_by).min(),
        };
        let next = self.table.next_deadline().into_iter().chain(hello).chain(self.accept_again).min();
        let Some(next) = next else { return EpollTimeout::NONE };
        // Rounded up, or the last millisecond would be spun away.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        EpollTimeout::try_from(wait.min(Duration::from_secs(60))).unwrap_or(EpollTimeout::ZERO)
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors: the listener stays ready, which must not become a spin.
                    self.pause_accepting(now);
                    return;
                }
            };
            if self.strangers >= MAX_STRANGERS {
                self.cut_oldest_stranger(now);
            }
            self.admit(stream, now);
        }
    }

    fn pause_accepting(&mut self, now: Instant) {
        self.accept_again = Some(now + ACCEPT_PAUSE);
    }

    fn admit(&mut self, stream: TcpStream, now: Instant) {
        let session = self.next_session;
        let ready = stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok();
        if !ready || self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, session)).is_err() {
            return;
        }
        self.next_session += 1;
        self.strangers += 1;
        let hello_by = Some(now + HELLO_TIMEOUT);
        let (input, output) = (Vec::new(), Vec::new());
        let connection = Connection { stream, input, output, sent: 0, hello_by, observes: false, wants_write: false };
        self.connections.insert(session, connection);
    }

    fn cut_oldest_stranger(&mut self, now: Instant) {
        let strangers = self.connections.iter().filter(|(_, c)| c.hello_by.is_some());
        if let Some(oldest) = strangers.map(|(session, _)| *session).min() {
            self.close(oldest, End::Refused, now);
        }
    }

    fn cut_the_silent(&mut self, now: Instant) {
        if self.strangers == 0 {
            return;
        }
        let silent = self.connections.iter().filter(|(_, c)| c.hello_by.is_some_and(|by| by <= now));
        let silent: Vec<Session> = silent.map(|(session, _)| *session).collect();
        for session in silent {
            self.close(session, End::Refused, now);
        }
    }

    fn serve(&mut self, session: Session, events: EpollFlags, now: Instant) {
        let Some(connection) = self.connections.get_mut(&session) else { return };
        if events.intersects(EpollFlags::EPOLLOUT) && connection.flush().is_err() {
            return self.close(session, End::Closed, now);
        }
        if events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            let more = connection.fill();
            // What came before the end is served first: a goodbye and the end often come together.
            if let Err(end) = self.serve_input(session, now) {
                return self.close(session, end, now);
            }
            if more.is_err() {
                return self.close(session, End::Closed, now);
            }
        }
        self.finish_writing(session, now);
    }

    /// Serves every whole frame that lies in the input.
    fn serve_input(&mut self, session: Session, now: Instant) -> std::result::Result<(), End> {
        let mut at = 0;
        let observers = self.connections.values().filter(|connection| connection.observes).count();
        loop {
            let Some(connection) = self.connections.get_mut(&session) else { return Ok(()) };
            if connection.hello_by.is_some() {
                match decode_hello(&connection.input, &self.job_id) {
                    None => return Ok(()),
                    Some(Err(Refusal::Stranger)) => return Err(End::Refused),
                    Some(Err(Refusal::Answer(welcome))) => return Err(connection.turn_away(welcome)),
                    Some(Ok(greeting)) if greeting.observes && observers >= MAX_OBSERVERS => {
                        return Err(connection.turn_away(Welcome::Full));
                    }
                    Some(Ok(_)) if self.shared.clients.load(Ordering::Relaxed) >= MAX_CONNECTIONS => {
                        return Err(connection.turn_away(Welcome::Full));
                    }
                    Some(Ok(greeting)) => {
                        at = greeting.len;
                        connection.observes = greeting.observes;
                    }
                }
                connection.hello_by = None;
                connection.output.push(Welcome::Accepted as u8);
                self.strangers -= 1;
                if !connection.observes {
                    self.shared.clients.fetch_add(1, Ordering::Relaxed);
                    self.shared.served.fetch_add(1, Ordering::Relaxed);
                }
            }
            let body = next_frame(&connection.input, at, MAX_REQUEST_BYTES).map_err(|_| End::Refused)?;
            let Some(body) = body else {
                connection.input.drain(..at);
                return Ok(());
            };
            at = body.end;
            let (id, request) = decode_request(&connection.input[body]).map_err(|_| End::Refused)?;
            let reads = matches!(request, Request::Get { .. } | Request::List { .. } | Request::Watch { .. });
            let answers = if connection.observes && !reads {
                vec![(session, id, Response::Failed("who names no job may only read".into()))]
            } else {
                self.table.handle(session, id, request, now)
            };
            self.deliver(answers, now);
        }
    }

    /// Hands answers to their connections.
    fn deliver(&mut self, answers: Vec<Answer>, now: Instant) {
        let mut waiting = answers;
        while !waiting.is_empty() {
            let mut touched: Vec<Session> = Vec::with_capacity(waiting.len());
            for (session, id, response) in waiting.drain(..) {
                if let Some(connection) = self.connections.get_mut(&session) {
                    encode_response(id, &response, &mut connection.output);
                    touched.push(session);
                }
            }
            touched.sort_unstable();
            touched.dedup();
            for session in touched {
                waiting.extend(self.write(session, now));
            }
        }
    }

    fn finish_writing(&mut self, session: Session, now: Instant) {
        let answers = self.write(session, now);
        self.deliver(answers, now);
    }

    /// Writes what the socket takes and asks to be told when it takes more. A connection that fails here is closed,
    /// which may make answers due.
    fn write(&mut self, session: Session, now: Instant) -> Vec<Answer> {
        let Some(connection) = self.connections.get_mut(&session) else { return Vec::new() };
        let unsent = match connection.flush() {
            Ok(unsent) if unsent <= MAX_UNSENT_BYTES => unsent,
            _ => return self.remove(session, End::Closed, now),
        };
        if (unsent > 0) != connection.wants_write {
            connection.wants_write = unsent > 0;
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, connection.wants_write);
            if self.epoll.modify(&connection.stream, &mut EpollEvent::new(flags, session)).is_err() {
                return self.remove(session, End::Closed, now);
            }
        }
        Vec::new()
    }

    fn close(&mut self, session: Session, end: End, now: Instant) {
        let answers = self.remove(session, end, now);
        self.deliver(answers, now);
    }

    fn remove(&mut self, session: Session, end: End, now: Instant) -> Vec<Answer> {
        let Some(connection) = self.connections.remove(&session) else { return Vec::new() };
        let _ = self.epoll.delete(&connection.stream); // closing it would do too
        match connection.hello_by {
            Some(_) => self.strangers -= 1,
            None if connection.observes => {}
            None => _ = self.shared.clients.fetch_sub(1, Ordering::Relaxed),
        }
        if matches!(end, End::Refused) {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.table.close(session, now)
    }
}

impl Connection {
    /// Reads what is there, but not without end: others want to be served too. An error is the end of the connection.
    fn fill(&mut self) -> std::io::Result<()> {
        let mut piece = [0; 16 << 10];
        for _ in 0..16 {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&piece[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes what the socket takes; the bytes left.
    fn flush(&mut self) -> std::io::Result<usize> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        Ok(self.output.len() - self.sent)
    }

    fn turn_away(&mut self, welcome: Welcome) -> End {
        self.output.push(welcome as u8);
        let _ = self.flush(); // it is told if it can be
        End::Refused
    }
}
