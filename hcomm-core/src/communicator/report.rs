//! What a process finds out about itself beside its calls, for telemetry: a thread that wakes now and then.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hcomm_telemetry::{PathWriter, Recorder};

use super::record::transport_number;
use super::world::World;
use crate::config::Debug;
use crate::topology::interfaces;
use crate::transport::tcp::Meters;

/// How often sockets are read. More often would tell no more of a smoothed round trip.
const INTERVAL: Duration = Duration::from_millis(500);

/// The thread, which ends when this is dropped.
pub(super) struct Reporter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with.
struct Work {
    recorder: Arc<Recorder>,
    meters: Arc<Meters>,
    paths: PathWriter,
    interfaces: Names,
}

impl World {
    /// Starts the thread, if there is anything to find out and to write it to.
    pub(super) fn start_reporter(&self) -> Option<Reporter> {
        let (recorder, endpoint) = (self.telemetry.as_ref()?, self.endpoint.as_ref()?);
        let mut work = Work {
            recorder: Arc::clone(recorder),
            meters: endpoint.meters(),
            paths: recorder.paths(),
            interfaces: Names::default(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        match std::thread::Builder::new().name("hcomm-report".into()).spawn(move || work.run(&stopped)) {
            Ok(thread) => Some(Reporter { stop, thread: Some(thread) }),
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
            std::thread::park_timeout(INTERVAL);
            self.read_sockets();
        }
    }

    fn read_sockets(&mut self) {
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
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
