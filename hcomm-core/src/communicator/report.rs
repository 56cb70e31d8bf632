//! What a process finds out about itself beside its calls, for telemetry: a thread that wakes now and then.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hcomm_telemetry::{PathWriter, Recorder};

use super::publish::Publisher;
use super::record::transport_number;
use super::world::World;
use crate::config::Debug;
use crate::control::Store;
use crate::topology::interfaces;
use crate::transport::tcp::Meters;

/// How often sockets are read. More often would tell no more of a smoothed round trip.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long whoever leaves the job waits for this thread, which may be waiting for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread, which ends when this is dropped.
pub(super) struct Reporter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread has done its work. In a mutex for the sake of `Sync` alone.
    done: Mutex<Receiver<()>>,
}

/// What the thread works with.
struct Work {
    sockets: Option<Sockets>,
    publisher: Option<Publisher>,
}

/// What reads sockets, and what they are written to.
struct Sockets {
    recorder: Arc<Recorder>,
    meters: Arc<Meters>,
    paths: PathWriter,
    interfaces: Names,
    next: Instant,
}

impl World {
    /// Starts the thread, if there is anything to find out and to write it to. `store` is where summaries go.
    pub(super) fn start_reporter(&self, store: Option<Arc<dyn Store>>) -> Option<Reporter> {
        let recorder = self.telemetry.as_ref()?;
        let sockets = self.endpoint.as_ref().map(|endpoint| Sockets {
            recorder: Arc::clone(recorder),
            meters: endpoint.meters(),
            paths: recorder.paths(),
            interfaces: Names::default(),
            next: Instant::now(),
        });
        let publisher = self.publisher(recorder, store);
        if sockets.is_none() && publisher.is_none() {
            return None;
        }
        let mut work = Work { sockets, publisher };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (working, done) = channel::<()>();
        let run = move || {
            work.run(&stopped);
            drop(work);
            drop(working);
        };
        match std::thread::Builder::new().name("hcomm-report".into()).spawn(run) {
            Ok(thread) => Some(Reporter { stop, thread: Some(thread), done: Mutex::new(done) }),
            Err(cause) => {
                self.config.debug.say(Debug::Warn, || format!("nothing will be known of sockets: no thread: {cause}"));
                None
            }
        }
    }
}

impl Work {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let sockets = self.sockets.as_ref().map(|sockets| sockets.next.saturating_duration_since(Instant::now()));
            let publisher = self.publisher.as_ref().map(Publisher::left);
            std::thread::park_timeout(sockets.into_iter().chain(publisher).min().unwrap_or(INTERVAL));
            if let Some(sockets) = self.sockets.as_mut().filter(|sockets| sockets.next <= Instant::now()) {
                sockets.read();
            }
            if let Some(publisher) = &mut self.publisher {
                publisher.step();
            }
        }
        if let Some(sockets) = &mut self.sockets {
            sockets.read();
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.end();
        }
    }
}

impl Sockets {
    fn read(&mut self) {
        self.next = Instant::now() + INTERVAL;
        let tcp = transport_number("tcp");
        let readings = self.meters.read(tcp);
        for reading in &readings {
            self.recorder.sample_link(reading.peer as u32, tcp, &reading.link);
        }
        let mut paths: Vec<_> = readings.into_iter().flat_map(|reading| reading.paths).collect();
        for path in &mut paths {
            path.interface = path.addresses.map(|(local, _)| self.interfaces.of(local)).unwrap_or_default();
        }
        self.paths.write(&paths);
    }
}

/// Names of interfaces by their addresses. The system is asked when an address is new; one that no interface has stays without.
#[derive(Default)]
struct Names(HashMap<IpAddr, String>);

impl Names {
    fn of(&mut self, address: SocketAddr) -> String {
        let address = address.ip().to_canonical();
        if !self.0.contains_key(&address) {
            self.0.extend(interfaces::names());
            self.0.entry(address).or_default();
        }
        self.0[&address].clone()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // A store that does not answer must not hold up a job that has ended: the thread then ends by itself, or with the process.
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
            let _ = thread.join();
        }
    }
}
