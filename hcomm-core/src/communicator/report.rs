//! What a process finds out about itself beside its calls, for telemetry: a thread that wakes now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hcomm_telemetry::Recorder;

use super::record::transport_number;
use super::world::World;
use crate::config::Debug;
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
}

impl World {
    /// Starts the thread, if there is anything to find out and to write it to.
    pub(super) fn start_reporter(&self) -> Option<Reporter> {
        let (recorder, endpoint) = (self.telemetry.as_ref()?, self.endpoint.as_ref()?);
        let work = Work { recorder: Arc::clone(recorder), meters: endpoint.meters() };
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
    fn run(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            std::thread::park_timeout(INTERVAL);
            for (peer, sample) in self.meters.read() {
                self.recorder.sample_link(peer as u32, transport_number("tcp"), &sample);
            }
        }
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
