//! `--prometheus`: the latest figures, for whoever asks over HTTP.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hcomm_cli::{Failure, Result};
use hcomm_telemetry::Snapshot;
use hcomm_telemetry::export::prometheus;

use super::http::{self, Page};
use crate::output::say;
use crate::source::{Tap, Tick, is_over, is_same_process};

/// How long the last figures of a process that is over are told on: some scrapes at the usual intervals of up to a minute.
const KEEP: Duration = Duration::from_secs(300);
/// Processes that are over of which they are kept at most.
const MOST_OVER: usize = 4096;
/// Media type of the text format (prometheus.io, "Exposition formats").
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The figures, shared with the server's thread.
type Shared = Arc<Mutex<Vec<Snapshot>>>;

/// Gives what it is told to the server's thread.
pub struct Metrics {
    shared: Shared,
    over: Vec<(Instant, Snapshot)>,
}

impl Metrics {
    /// Listens at `address`, and says where.
    ///
    /// # Errors
    /// The address is none, or is taken.
    pub fn listen(address: &str) -> Result<Self> {
        let hint =
            "--prometheus takes an address and port of this host, such as 127.0.0.1:9400; port 0 takes a free one";
        let failed = |cause: std::io::Error| Failure::run(format!("cannot listen at {address}: {cause}"), hint);
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let chosen = listener.local_addr().map_err(failed)?;
        let shared = Shared::default();
        let figures = Arc::clone(&shared);
        let page = move |path: &str| (path == "/metrics").then(|| Page { kind: TEXT_FORMAT, body: text(&figures) });
        http::serve(listener, page).map_err(failed)?;
        say(&format!("metrics are at http://{chosen}/metrics"));
        Ok(Self { shared, over: Vec::new() })
    }
}

fn text(figures: &Shared) -> String {
    prometheus(&figures.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Tap for Metrics {
    fn take(&mut self, tick: &Tick) -> Result<()> {
        let now = Instant::now();
        self.over.retain(|(since, over)| {
            now - *since < KEEP && !tick.processes.iter().any(|snapshot| is_same_process(snapshot, over))
        });
        let mut snapshots: Vec<Snapshot> = tick.processes.iter().map(without_records).collect();
        snapshots.extend(self.over.iter().map(|(_, over)| over.clone()));
        self.over.extend(tick.processes.iter().filter(|it| is_over(it)).map(|it| (now, without_records(it))));
        let surplus = self.over.len().saturating_sub(MOST_OVER);
        self.over.drain(..surplus);
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = snapshots;
        Ok(())
    }
}

/// All but the operations of the interval.
pub(super) fn without_records(snapshot: &Snapshot) -> Snapshot {
    Snapshot {
        identity: snapshot.identity.clone(),
        state: snapshot.state.clone(),
        operations: snapshot.operations.clone(),
        lanes: snapshot.lanes.clone(),
        links: snapshot.links.clone(),
        paths: snapshot.paths.clone(),
        records: Vec::new(),
        ..*snapshot
    }
}
