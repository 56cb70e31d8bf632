//! The telemetry files of this user's jobs on this host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use hcomm_cli::{Failure, Result};
use hcomm_telemetry::{Identity, Reader, Snapshot, Unreadable, candidates, find, monotonic_ns};

use super::{Source, Tick, Unread, is_over};

/// How often folders are looked through that do not seem to have changed: a file that was being made counts as there already.
const RESCAN: Duration = Duration::from_secs(1);
/// Parents of a process that are followed up: deeper nesting is a loop made of processes that ended meanwhile.
const MOST_PARENTS: usize = 64;

/// Looks at a process until all parts of one are of the same moment. One that is stopped in the middle of a change never shows
/// that.
const LOOKS: u32 = 3;

/// Which jobs are looked at; all when nothing is said.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The job of this process, or that it started.
    pub pid: Option<u32>,
    /// Those whose names begin so.
    pub job: Option<String>,
}

/// What tells a process from every other, earlier and later.
type Key = (PathBuf, u64);

fn key(identity: &Identity) -> Key {
    (identity.path.clone(), identity.process_start_ticks)
}

/// Reads the files.
#[derive(Debug)]
pub struct Live {
    selection: Selection,
    /// Names of the jobs that the chosen process was found to belong to.
    chosen: BTreeSet<String>,
    /// Folders beside the usual ones.
    more: Vec<PathBuf>,
    readers: BTreeMap<Key, Reader>,
    /// Of processes that are over and were told so, as long as their files are there.
    over: BTreeSet<Key>,
    unreadable: BTreeMap<PathBuf, String>,
    /// What the folders looked like at the last scan, and when that was.
    scanned: Option<(Vec<Option<SystemTime>>, Instant)>,
}

impl Live {
    /// A reader of this user's jobs, in the usual folders and the one that `HCOMM_TELEMETRY` names.
    ///
    /// # Errors
    /// The selection names a process that does not exist.
    pub fn new(selection: Selection) -> Result<Self> {
        if let Some(pid) = selection.pid.filter(|&pid| parent(pid).is_none()) {
            return Err(Failure::run(
                format!("there is no process {pid}"),
                "hcomm-monitor without --pid shows all jobs",
            ));
        }
        let named = std::env::var_os("HCOMM_TELEMETRY").map(PathBuf::from).filter(|path| path.is_absolute());
        Ok(Self {
            selection,
            chosen: BTreeSet::new(),
            more: named.into_iter().collect(),
            readers: BTreeMap::new(),
            over: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            scanned: None,
        })
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = candidates();
        folders.extend(self.more.iter().filter(|path| !folders.contains(path)).cloned().collect::<Vec<_>>());
        folders
    }

    /// Looks for new files, if there may be any.
    fn scan(&mut self) {
        let changed = |path: &PathBuf| std::fs::metadata(path).and_then(|data| data.modified()).ok();
        let state: Vec<_> = self.folders().iter().map(changed).collect();
        if self.scanned.as_ref().is_some_and(|(before, when)| *before == state && when.elapsed() < RESCAN) {
            return;
        }
        self.scanned = Some((state, Instant::now()));
        self.unreadable.clear();
        let mut seen = BTreeSet::new();
        let mut readers = Vec::new();
        for found in find(&self.more) {
            match found.reader {
                Ok(reader) => {
                    let key = key(reader.identity());
                    seen.insert(key.clone());
                    if !self.readers.contains_key(&key) && !self.over.contains(&key) {
                        readers.push((key, reader));
                    }
                }
                Err(reason) => _ = self.unreadable.insert(found.path, reason.to_string()),
            }
        }
        self.over.retain(|key| seen.contains(key));
        if let Some(pid) = self.selection.pid {
            let mine = readers.iter().map(|(_, reader)| reader.identity()).filter(|id| descends(id.pid, pid));
            let jobs: Vec<String> = mine.map(|identity| identity.job.clone()).collect();
            self.chosen.extend(jobs);
        }
        let wanted = |reader: &Reader| self.wants(reader.identity());
        readers.retain(|(_, reader)| wanted(reader));
        self.readers.extend(readers);
    }

    fn wants(&self, identity: &Identity) -> bool {
        let by_name = self.selection.job.as_ref().is_none_or(|name| identity.job.starts_with(name.as_str()));
        by_name && (self.selection.pid.is_none() || self.chosen.contains(&identity.job))
    }
}

impl Source for Live {
    fn poll(&mut self) -> Result<Option<Tick>> {
        if self.selection.pid.is_some_and(|pid| self.readers.is_empty() && parent(pid).is_none()) {
            return Ok(None);
        }
        self.scan();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut tick = Tick {
            at_ns: monotonic_ns(),
            wall_ns: wall.as_nanos() as u64,
            processes: Vec::with_capacity(self.readers.len()),
            unreadable: Vec::new(),
        };
        let (unreadable, over) = (&mut self.unreadable, &mut self.over);
        self.readers.retain(|key, reader| match whole(|| reader.snapshot()) {
            Ok(snapshot) => {
                let ends = is_over(&snapshot);
                if ends {
                    over.insert(key.clone());
                }
                tick.processes.push(snapshot);
                !ends
            }
            Err(reason) => {
                unreadable.insert(key.0.clone(), reason.to_string());
                false
            }
        });
        let unread = |(path, reason): (&PathBuf, &String)| Unread { path: path.clone(), reason: reason.clone() };
        tick.unreadable = self.unreadable.iter().map(unread).collect();
        Ok(Some(tick))
    }

    fn places(&self) -> Vec<String> {
        self.folders().iter().map(|path| path.display().to_string()).collect()
    }
}

/// A process's state with all parts of one moment, if that can be had within [`LOOKS`]; what is new is that of all looks.
fn whole(
    mut look: impl FnMut() -> std::result::Result<Snapshot, Unreadable>,
) -> std::result::Result<Snapshot, Unreadable> {
    let mut snapshot = look()?;
    for _ in 1..LOOKS {
        if snapshot.whole {
            break;
        }
        let again = look()?;
        let (mut records, missed) = (snapshot.records, snapshot.missed.saturating_add(again.missed));
        records.extend_from_slice(&again.records);
        snapshot = Snapshot { records, missed, ..again };
    }
    Ok(snapshot)
}

/// Whether process `pid` is `ancestor` or was started by it, directly or through others.
fn descends(pid: u32, ancestor: u32) -> bool {
    let line = std::iter::successors(Some(pid), |&pid| parent(pid));
    line.take(MOST_PARENTS).any(|pid| pid == ancestor)
}

/// The parent of a process (proc_pid_stat(5), field 4); `None` when there is no such process.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, brackets too: the last one ends it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{ALL_REDUCE, rank, record};

    #[test]
    fn a_process_descends_from_itself_and_its_parents() {
        let me = std::process::id();
        assert!(descends(me, me));
        assert!(descends(me, parent(me).unwrap()));
        assert!(!descends(parent(me).unwrap(), me));
        assert_eq!(parent(u32::MAX), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        let failure = Live::new(Selection { pid: Some(u32::MAX), job: None }).unwrap_err();
        assert_eq!(failure.code, 1);
    }

    #[test]
    fn a_torn_look_is_repeated_and_loses_no_record() {
        let look = |whole, number| Snapshot {
            whole,
            missed: 1,
            records: vec![record(number, ALL_REDUCE, 8, 0, 1)],
            ..rank("job", 0, 1, number)
        };
        let mut looks = [look(false, 1), look(true, 2), look(true, 3)].into_iter();
        let seen = whole(|| Ok(looks.next().unwrap())).unwrap();
        assert!(seen.whole);
        assert_eq!((seen.missed, seen.taken_ns), (2, look(true, 2).taken_ns));
        assert_eq!(seen.records.iter().map(|record| record.number).collect::<Vec<_>>(), [1, 2]);
        let mut looked = 0;
        let stopped = whole(|| {
            looked += 1;
            Ok(look(false, looked))
        });
        assert!(!stopped.unwrap().whole && looked == u64::from(LOOKS));
        assert!(whole(|| Err(Unreadable::Foreign)).is_err());
    }
}
