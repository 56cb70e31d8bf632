//! The client of [`super::server`]: one connection, shared by all threads of the process, and one thread that reads it.
//!
//! The connection *is* the session: what it leased is lost when it closes without a goodbye, at once, which is how the
//! death of a process is seen. It is therefore never made anew. A broken one means that the server's process or host is
//! gone, and the state with it; every later call says so.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::protocol::{
    MAX_RESPONSE_BYTES, Request, Response, Welcome, decode_response, encode_hello, encode_request, next_frame,
};
use super::{Changes, HEARTBEAT_INTERVAL, Item, MAX_VALUE_BYTES, NOTICE, Store, check_key};
use crate::error::{Error, Result};

/// How long a call that does not wait may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one may take once its caller hastens: the job is failing, and whoever serves the store may be what failed.
const HASTY_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often a call looks whether it is to hasten.
const LOOK: Duration = Duration::from_millis(100);
/// How long a goodbye may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest single attempt to connect.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to the store that a process of the job serves.
pub(super) struct EmbeddedStore {
    url: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stream: TcpStream,
    writer: Mutex<Writer>,
    calls: Mutex<Calls>,
    next_id: AtomicU32,
    /// Leases taken, which make the thread send pings.
    leases: AtomicUsize,
    /// Whether calls give up soon.
    hasty: AtomicBool,
}

struct Writer {
    frame: Vec<u8>,
    last_sent: Instant,
}

#[derive(Default)]
struct Calls {
    waiting: HashMap<u32, SyncSender<Response>>,
    /// Why no more call can be made.
    broken: Option<String>,
    /// Whether a hasty call had no answer, and nothing came since.
    silent: bool,
}

impl EmbeddedStore {
    /// Connects, trying until `timeout`; after a while `tell` hears what is waited for.
    pub(super) fn connect(
        host: &str,
        port: u16,
        job_id: &str,
        timeout: Duration,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let url = if host.contains(':') { format!("tcp://[{host}]:{port}") } else { format!("tcp://{host}:{port}") };
        match reach(host, port, job_id, timeout, tell) {
            Ok(stream) => Self::over(url, stream),
            Err(what) => Err(Error::Store { url, what }),
        }
    }

    fn over(url: String, stream: TcpStream) -> Result<Self> {
        let failed = |e: std::io::Error| Error::Store { url: url.clone(), what: e.to_string() };
        stream.set_read_timeout(Some(HEARTBEAT_INTERVAL / 2)).map_err(failed)?;
        stream.set_write_timeout(Some(CALL_TIMEOUT)).map_err(failed)?;
        let shared = Arc::new(Shared {
            stream,
            writer: Mutex::new(Writer { frame: Vec::new(), last_sent: Instant::now() }),
            calls: Mutex::default(),
            next_id: AtomicU32::new(0),
            leases: AtomicUsize::new(0),
            hasty: AtomicBool::new(false),
        });
        let reader = shared.clone();
        let thread = std::thread::Builder::new().name("hcomm-store-client".into()).spawn(move || reader.read());
        let thread = Some(thread.map_err(|e| Error::system("cannot start the thread of the store's client", e))?);
        Ok(EmbeddedStore { url, shared, thread })
    }

    /// Asks and waits for the answer, which the server may take `waits` for.
    fn ask(&self, request: Request, waits: Duration) -> Result<Response> {
        let bound = if matches!(request, Request::Goodbye) { GOODBYE_TIMEOUT } else { CALL_TIMEOUT };
        match self.shared.ask(&request, bound, waits) {
            Ok(Response::Failed(what)) | Err(what) => Err(Error::Store { url: self.url.clone(), what }),
            Ok(response) => Ok(response),
        }
    }

    fn unexpected(&self, response: &Response) -> Error {
        let what = format!("an answer that does not fit the question ({response:?})");
        Error::Protocol { peer: self.url.clone(), what }
    }

    fn done(&self, request: Request) -> Result<()> {
        match self.ask(request, Duration::ZERO)? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Too long a value would make the server cut the connection rather than answer.
    fn check(&self, key: &str, values: &[&[u8]]) -> Result<()> {
        let fits = values.iter().all(|value| value.len() <= MAX_VALUE_BYTES);
        let what = match check_key(key) {
            Ok(()) if fits => return Ok(()),
            Ok(()) => format!("key {key}: a value longer than {MAX_VALUE_BYTES} bytes"),
            Err(what) => what,
        };
        Err(Error::Store { url: self.url.clone(), what })
    }
}

impl Store for EmbeddedStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.check(key, &[value])?;
        self.done(Request::Set { key: key.into(), value: value.into() })
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.ask(Request::Get { key: key.into() }, Duration::ZERO)? {
            Response::Value(value) => Ok(value),
            other => Err(self.unexpected(&other)),
        }
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        match self.ask(Request::Wait { key: key.into(), timeout }, timeout)? {
            Response::Value(Some(value)) => Ok(value),
            Response::TimedOut => {
                let what = format!("key {key} has not been set within {timeout:.1?}");
                Err(Error::Store { url: self.url.clone(), what })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn add(&self, key: &str, delta: i64) -> Result<i64> {
        match self.ask(Request::Add { key: key.into(), delta }, Duration::ZERO)? {
            Response::Number(number) => Ok(number),
            other => Err(self.unexpected(&other)),
        }
    }

    fn compare_and_swap(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        self.check(key, &[expected.unwrap_or_default(), value])?;
        let expected = expected.map(<[u8]>::to_vec);
        match self.ask(Request::Swap { key: key.into(), expected, value: value.into() }, Duration::ZERO)? {
            Response::Flag(swapped) => Ok(swapped),
            other => Err(self.unexpected(&other)),
        }
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.done(Request::Delete { key: key.into() })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Item>> {
        match self.ask(Request::List { prefix: prefix.into() }, Duration::ZERO)? {
            Response::Items(items) => Ok(items),
            other => Err(self.unexpected(&other)),
        }
    }

    fn watch(&self, prefix: &str, revision: u64, timeout: Duration) -> Result<Changes> {
        match self.ask(Request::Watch { prefix: prefix.into(), revision, timeout }, timeout)? {
            Response::Changes { revision, pairs } => Ok((revision, pairs)),
            other => Err(self.unexpected(&other)),
        }
    }

    fn lease(&self, key: &str, value: &[u8], lost: &[u8], ttl: Duration) -> Result<()> {
        self.check(key, &[value, lost])?;
        self.done(Request::Lease { key: key.into(), value: value.into(), lost: lost.into(), ttl })?;
        self.shared.leases.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, key: &str) -> Result<()> {
        self.done(Request::Release { key: key.into() })
    }

    fn broken(&self) -> Option<String> {
        lock(&self.shared.calls).broken.clone()
    }

    fn hasten(&self) {
        self.shared.hasty.store(true, Ordering::Relaxed);
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // A thread that unwinds did not end well: no goodbye, and the others see the leases lost.
        if !std::thread::panicking() {
            let _ = self.ask(Request::Goodbye, Duration::ZERO); // a server that is gone needs none
        }
        let _ = self.shared.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits at most `bound` for an answer that the server may take `waits` for.
    fn ask(&self, request: &Request, bound: Duration, waits: Duration) -> std::result::Result<Response, String> {
        let start = Instant::now();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = sync_channel(1);
        {
            let mut calls = lock(&self.calls);
            if let Some(why) = &calls.broken {
                return Err(why.clone());
            }
            calls.waiting.insert(id, sender);
        }
        if let Err(cause) = self.send(id, request) {
            // Half a frame may have gone out: nothing after it would be understood.
            self.break_off(format!("the connection broke: {cause}"));
        }
        loop {
            let hasty = self.hasty.load(Ordering::Relaxed);
            let bound = waits + if hasty { bound.min(HASTY_TIMEOUT) } else { bound };
            let left = match hasty && lock(&self.calls).silent {
                true => Duration::ZERO,
                false => bound.saturating_sub(start.elapsed()),
            };
            match receiver.recv_timeout(left.min(LOOK)) {
                Ok(response) => return Ok(response),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(lock(&self.calls).broken.clone().unwrap_or_else(|| "the connection broke".into()));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    let mut calls = lock(&self.calls);
                    calls.waiting.remove(&id);
                    calls.silent |= hasty;
                    return Err(format!("no answer within {bound:.1?}"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn send(&self, id: u32, request: &Request) -> std::io::Result<()> {
        let mut writer = lock(&self.writer);
        let Writer { frame, last_sent } = &mut *writer;
        frame.clear();
        encode_request(id, request, frame);
        (&self.stream).write_all(frame)?;
        *last_sent = Instant::now();
        Ok(())
    }

    /// The thread: hands answers to the calls that wait for them, and sends pings where nothing else was sent.
    fn read(&self) {
        let mut input = Vec::new();
        let mut piece = vec![0; 16 << 10];
        loop {
            match (&self.stream).read(&mut piece) {
                Ok(0) => return self.break_off("the server closed the connection".into()),
                Ok(len) => {
                    input.extend_from_slice(&piece[..len]);
                    lock(&self.calls).silent = false;
                }
                Err(e) if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted].contains(&e.kind()) => {}
                Err(e) => return self.break_off(format!("the connection broke: {e}")),
            }
            if let Err(what) = self.hand_out(&mut input) {
                return self.break_off(format!("the server sent {what}"));
            }
            if let Err(e) = self.ping_if_quiet() {
                return self.break_off(format!("the connection broke: {e}"));
            }
        }
    }

    fn hand_out(&self, input: &mut Vec<u8>) -> std::result::Result<(), String> {
        let mut at = 0;
        while let Some(body) = next_frame(input, at, MAX_RESPONSE_BYTES)? {
            at = body.end;
            let (id, response) = decode_response(&input[body])?;
            // No one waits for a ping's answer, nor for one that came too late.
            if let Some(sender) = lock(&self.calls).waiting.remove(&id) {
                let _ = sender.try_send(response);
            }
        }
        input.drain(..at);
        Ok(())
    }

    fn ping_if_quiet(&self) -> std::io::Result<()> {
        if self.leases.load(Ordering::Relaxed) == 0 || lock(&self.writer).last_sent.elapsed() < HEARTBEAT_INTERVAL {
            return Ok(());
        }
        self.send(self.next_id.fetch_add(1, Ordering::Relaxed), &Request::Ping)
    }

    fn break_off(&self, why: String) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let mut calls = lock(&self.calls);
        calls.broken.get_or_insert(why);
        calls.waiting.clear();
    }
}

/// A panic of another thread leaves these simple states as they were: go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection to the store at this address from one who takes no part in its job, and may only read.
pub(super) fn observe(host: &str, port: u16, timeout: Duration) -> std::result::Result<TcpStream, String> {
    reach(host, port, "", timeout, &mut |_| ())
}

/// Connects, trying until `timeout`; after a while `tell` hears what is waited for.
fn reach(
    host: &str,
    port: u16,
    job_id: &str,
    timeout: Duration,
    tell: &mut dyn FnMut(&str),
) -> std::result::Result<TcpStream, String> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(5);
    let mut told = false;
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let cause = match attempt(host, port, job_id, left.clamp(Duration::from_millis(50), ATTEMPT_TIMEOUT)) {
            Ok(stream) => return Ok(stream),
            Err(cause) => cause,
        };
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(format!("no connection after {:.1?}: {cause}", start.elapsed()));
        }
        if !told && start.elapsed() >= NOTICE {
            told = true;
            tell(&format!("waiting for the store tcp://{host}:{port}, {} s at most: {cause}", timeout.as_secs()));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// One attempt over all addresses of the host; the last cause.
fn attempt(host: &str, port: u16, job_id: &str, bound: Duration) -> std::result::Result<TcpStream, String> {
    let addresses = (host, port).to_socket_addrs().map_err(|e| format!("cannot resolve {host}: {e}"))?;
    let mut cause = format!("{host} has no address");
    for address in addresses {
        match greet(address, job_id, bound) {
            Ok(stream) => return Ok(stream),
            Err(e) => cause = format!("{address}: {e}"),
        }
    }
    Err(cause)
}

fn greet(address: SocketAddr, job_id: &str, bound: Duration) -> std::result::Result<TcpStream, String> {
    let mut stream = TcpStream::connect_timeout(&address, bound).map_err(|e| e.to_string())?;
    // Connecting to a free local port can meet itself: the socket is then its own peer, and holds the server's port.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err("connection refused".into());
    }
    stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(bound))).map_err(|e| e.to_string())?;
    stream.write_all(&encode_hello(job_id)).map_err(|e| e.to_string())?;
    let mut answer = [0];
    stream.read_exact(&mut answer).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => "it closed the connection: it may not be a store of hcomm".to_owned(),
        ErrorKind::WouldBlock => format!("it did not answer within {bound:.1?}"),
        _ => e.to_string(),
    })?;
    match Welcome::from_byte(answer[0]) {
        Some(Welcome::Accepted) => Ok(stream),
        Some(Welcome::OtherVersion) => Err("it is a store of another version of hcomm".into()),
        Some(Welcome::OtherJob) => Err(format!("it is the store of another job than {job_id}")),
        Some(Welcome::Full) => Err("the store takes no more connections".into()),
        None => Err("it is not a store of hcomm".into()),
    }
}
