//! The files, and which of them belong together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hcomm_telemetry::flight::FlightRecord;

use crate::source::Unread;
use crate::units;

/// No record is larger: its lists have ends.
const MOST_BYTES: u64 = 16 << 20;

/// A record, and where it lies.
#[derive(Debug, Clone)]
pub struct Found {
    pub path: PathBuf,
    pub record: FlightRecord,
}

/// The records of one run of one job, one a rank, by rank; and what was left out.
#[derive(Debug, Default)]
pub struct Evidence {
    pub records: Vec<Found>,
    pub skipped: Vec<Unread>,
}

impl Evidence {
    /// Reads the files. Where they are of several jobs, the one with most files counts; of a rank, its latest record.
    pub fn read(paths: &[PathBuf]) -> Self {
        let mut evidence = Self::default();
        for path in paths {
            match load(path) {
                Ok(record) => evidence.records.push(Found { path: path.clone(), record }),
                Err(reason) => evidence.skip(path, reason),
            }
        }
        evidence.keep_one_job();
        evidence.keep_one_run();
        evidence.keep_latest();
        evidence
    }

    fn skip(&mut self, path: &Path, reason: String) {
        self.skipped.push(Unread { path: path.to_owned(), reason });
    }

    /// Keeps the records of which `why_not` gives no reason.
    fn keep(&mut self, why_not: impl Fn(&Found) -> Option<String>) {
        for found in std::mem::take(&mut self.records) {
            match why_not(&found) {
                Some(reason) => self.skip(&found.path, reason),
                None => self.records.push(found),
            }
        }
    }

    fn keep_one_job(&mut self) {
        let mut jobs: BTreeMap<(String, u32), (usize, u64)> = BTreeMap::new();
        for Found { record, .. } in &self.records {
            let (count, latest) = jobs.entry((record.job.clone(), record.world_size)).or_default();
            *count += 1;
            *latest = (*latest).max(record.written_unix_ns);
        }
        let Some(((job, size), _)) = jobs.into_iter().max_by_key(|(_, weight)| *weight) else { return };
        self.keep(|found| {
            let other = (&found.record.job, found.record.world_size) != (&job, size);
            let of = |job: &str, size| format!("job {job} with {size} ranks");
            other.then(|| {
                format!("it is of {}, not of {}", of(&found.record.job, found.record.world_size), of(&job, size))
            })
        });
        self.keep(|found| {
            (found.record.rank >= size).then(|| format!("it says that it is of rank {} of {size}", found.record.rank))
        });
    }

    /// Jobs may have the same name one after the other.
    fn keep_one_run(&mut self) {
        let latest = self.records.iter().max_by_key(|found| found.record.written_unix_ns);
        let Some((rank, started)) = latest.map(|found| (found.record.rank, found.record.started_unix_ns)) else {
            return;
        };
        self.keep(|found| {
            let earlier = found.record.written_unix_ns < started;
            earlier.then(|| format!("it was written before rank {rank} of the latest run began"))
        });
    }

    fn keep_latest(&mut self) {
        self.records.sort_by_key(|found| (found.record.rank, std::cmp::Reverse(found.record.written_unix_ns)));
        let mut before: Option<u32> = None;
        for found in std::mem::take(&mut self.records) {
            if before.replace(found.record.rank) == Some(found.record.rank) {
                let reason = format!("there is a later record of rank {}", found.record.rank);
                self.skip(&found.path, reason);
            } else {
                self.records.push(found);
            }
        }
    }

    /// Ranks of the job of which there is no record.
    pub fn missing(&self) -> Vec<u32> {
        missing(&self.records)
    }
}

/// Ranks of the job of which there is no record.
pub fn missing(records: &[Found]) -> Vec<u32> {
    /// A number out of a file is no reason to fill the memory.
    const MOST: u32 = 1 << 20;
    let size = records.first().map_or(0, |found| found.record.world_size).min(MOST);
    (0..size).filter(|rank| records.binary_search_by_key(rank, |found| found.record.rank).is_err()).collect()
}

fn load(path: &Path) -> Result<FlightRecord, String> {
    let file = File::open(path).map_err(|cause| cause.to_string())?;
    if file.metadata().is_ok_and(|data| data.is_dir()) {
        return Err("it is a directory; name the files in it".into());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|cause| cause.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than any flight record: over {}", units::size(MOST_BYTES)));
    }
    FlightRecord::parse(&String::from_utf8_lossy(&bytes)).map_err(|reason| reason.to_string())
}
