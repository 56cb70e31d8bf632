//! A recording, read again. It may have been cut short, and may be anybody's.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use hcomm_cli::{Failure, Result};
use hcomm_telemetry::Snapshot;
use serde::Deserialize;

use super::{Source, Tick};
use crate::export::{SCHEMA, merge};

/// Bytes of a line at most.
const MOST: u64 = 1 << 28;

/// A recording.
pub struct Replay {
    path: PathBuf,
    lines: BufReader<File>,
    number: u64,
    places: Vec<String>,
    before: Vec<Snapshot>,
    /// Whether it ends in the middle of a line.
    cut: bool,
}

#[derive(Deserialize)]
struct Header {
    schema: String,
    #[serde(default)]
    places: Vec<String>,
}

impl Replay {
    /// Opens it.
    ///
    /// # Errors
    /// It is not there, or no recording of a version that is known.
    pub fn open(path: &Path) -> Result<Self> {
        let file =
            File::open(path).map_err(|cause| Failure::run(format!("cannot open {}: {cause}", path.display()), ""))?;
        let mut replay = Self {
            path: path.to_owned(),
            lines: BufReader::new(file),
            number: 0,
            places: Vec::new(),
            before: Vec::new(),
            cut: false,
        };
        let hint = "--replay shows what --record FILE has written";
        let Some(line) = replay.line()? else {
            return Err(Failure::run(format!("{} is empty or cut short: it is no recording", path.display()), hint));
        };
        let header: Header = serde_json::from_slice(&line)
            .map_err(|_| Failure::run(format!("{} is no recording of hcomm-monitor", path.display()), hint))?;
        match header.schema.strip_prefix("hcomm-recording/") {
            _ if header.schema == SCHEMA => {}
            Some(version) => {
                return Err(Failure::run(
                    format!("{} has version {version} of recordings, this program reads version 1", path.display()),
                    "replay it with the version of hcomm-monitor that recorded it",
                ));
            }
            None => return Err(Failure::run(format!("{} is no recording of hcomm-monitor", path.display()), hint)),
        }
        replay.places = header.places;
        Ok(replay)
    }

    /// The next line, without its end; `None` at the end of the file, also in the middle of a line.
    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(MOST).read_until(b'\n', &mut line);
        read.map_err(|cause| Failure::run(format!("cannot read {}: {cause}", self.path.display()), ""))?;
        self.number += 1;
        match line.pop() {
            Some(b'\n') => Ok(Some(line)),
            Some(_) if line.len() as u64 + 1 == MOST => Err(self.bad("it is longer than any that is recorded")),
            Some(_) => {
                self.cut = true;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn bad(&self, why: &str) -> Failure {
        let text = format!("{}, line {}, is damaged: {why}", self.path.display(), self.number);
        Failure::run(text, "what comes before it was shown")
    }
}

impl Source for Replay {
    fn poll(&mut self) -> Result<Option<Tick>> {
        let Some(line) = self.line()? else { return Ok(None) };
        let mut tick: Tick = serde_json::from_slice(&line).map_err(|cause| self.bad(&cause.to_string()))?;
        for snapshot in &mut tick.processes {
            merge(snapshot, &self.before);
        }
        let whole = |snapshot: &Snapshot| Snapshot { records: Vec::new(), ..snapshot.clone() };
        self.before = tick.processes.iter().map(whole).collect();
        Ok(Some(tick))
    }

    fn places(&self) -> Vec<String> {
        self.places.clone()
    }

    fn is_live(&self) -> bool {
        false
    }

    fn notes(&self) -> Vec<String> {
        let cut =
            format!("{} ends in the middle of line {}; what is whole was shown", self.path.display(), self.number);
        self.cut.then_some(cut).into_iter().collect()
    }
}
