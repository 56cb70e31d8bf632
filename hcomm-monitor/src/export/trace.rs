//! `--trace`: the calls as Chrome's trace viewer and Perfetto show them. A JSON array that grows; its closing bracket may be missing
//! by the format ("Trace Event Format", JSON Array Format), so that the trace of a monitor that was killed opens too.

use std::path::Path;

use hcomm_cli::Result;
use hcomm_telemetry::Snapshot;
use hcomm_telemetry::export::Trace;
use serde_json::Value;

use super::file::NewFile;
use crate::source::{Tap, Tick};

/// A trace in the making.
pub struct TraceFile {
    file: NewFile,
    trace: Trace,
    begun: bool,
    /// The latest processes: what they are in at the end.
    latest: Vec<Snapshot>,
}

impl TraceFile {
    /// A new file of at most so many bytes.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path, most: u64) -> Result<Self> {
        Ok(Self { file: NewFile::create(path, most)?, trace: Trace::default(), begun: false, latest: Vec::new() })
    }

    fn add(&mut self, events: &[Value]) -> Result<()> {
        for event in events {
            let before = if self.begun { ",\n" } else { "[\n" };
            self.begun = true;
            self.file.add(&format!("{before}{event}"))?;
        }
        Ok(())
    }
}

impl Tap for TraceFile {
    fn take(&mut self, tick: &Tick) -> Result<()> {
        let events = self.trace.events(&tick.processes);
        self.latest = tick.processes.iter().map(super::metrics::without_records).collect();
        self.add(&events)
    }

    fn end(&mut self) -> Result<()> {
        self.latest.retain(|snapshot| !crate::source::is_over(snapshot));
        let events = self.trace.under_way(&self.latest);
        self.add(&events)?;
        self.file.force(if self.begun { "\n]\n" } else { "[]\n" })
    }

    fn notes(&self) -> Vec<String> {
        self.file.notes()
    }
}
