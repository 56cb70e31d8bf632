//! `--record`: each tick as a line of JSON, to be shown again with `--replay`.
//!
//! The first line is `{"schema":"hcomm-recording/1", ...}`, each other one a [`Tick`]. Of a process that was in the line before,
//! `operations` and `links` are left out that have not changed since.

use std::path::Path;

use hcomm_cli::Result;
use hcomm_telemetry::{Link, Operation, Snapshot};
use serde_json::json;

use super::file::NewFile;
use crate::source::{Tap, Tick, is_same_process};

/// Name and version of the form.
pub const SCHEMA: &str = "hcomm-recording/1";

/// A recording in the making.
pub struct Recording {
    file: NewFile,
    before: Vec<Snapshot>,
}

impl Recording {
    /// A new file of at most so many bytes. `places` are where the source looks.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path, most: u64, places: &[String]) -> Result<Self> {
        let mut file = NewFile::create(path, most)?;
        let header = json!({ "schema": SCHEMA, "version": env!("CARGO_PKG_VERSION"), "places": places });
        file.force(&format!("{header}\n"))?;
        Ok(Self { file, before: Vec::new() })
    }
}

impl Tap for Recording {
    fn take(&mut self, tick: &Tick) -> Result<()> {
        if !self.file.is_whole() {
            return Ok(());
        }
        let processes = tick.processes.iter().map(|now| changed(now, &self.before)).collect();
        let line = Tick { processes, unreadable: tick.unreadable.clone(), ..*tick };
        let text = serde_json::to_string(&line).unwrap_or_default();
        self.before = tick.processes.iter().map(super::metrics::without_records).collect();
        self.file.add(&(text + "\n"))
    }

    fn notes(&self) -> Vec<String> {
        self.file.notes()
    }
}

/// What of `now` is not as it was before.
fn changed(now: &Snapshot, before: &[Snapshot]) -> Snapshot {
    let mut now = now.clone();
    if let Some(before) = before.iter().find(|before| is_same_process(before, &now)) {
        // Both lists are sorted, so that the search is in the same place for most.
        now.operations.retain(|operation| !before.operations.contains(operation));
        now.links.retain(|link| !before.links.contains(link));
    }
    now
}

/// The opposite: puts back into `now` what has not changed.
pub fn merge(now: &mut Snapshot, before: &[Snapshot]) {
    let Some(before) = before.iter().find(|before| is_same_process(before, now)) else { return };
    now.operations = merged(std::mem::take(&mut now.operations), &before.operations, Operation::key);
    now.links = merged(std::mem::take(&mut now.links), &before.links, |link: &Link| link.peer);
}

/// `changes` over `before`, by key, in the order in which readers have them.
fn merged<T: Clone, K: Ord>(mut changes: Vec<T>, before: &[T], key: impl Fn(&T) -> K) -> Vec<T> {
    let kept = before.iter().filter(|old| !changes.iter().any(|new| key(new) == key(old))).cloned();
    let kept: Vec<T> = kept.collect();
    changes.extend(kept);
    changes.sort_by_key(key);
    changes
}
