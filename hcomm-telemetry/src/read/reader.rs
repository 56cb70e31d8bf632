//! Reads one file, while its process writes it.
//!
//! By system call and not through a mapping: a mapped file that is cut short kills whoever touches it, and a copy holds
//! still. What the copy means is then decided on bytes of one's own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::decode::{self, Layout, RawLane, Words};
use super::snapshot::{Identity, Lane, Operation, Record, Snapshot, State};
use crate::clock::monotonic_ns;
use crate::layout::{ENDED, FAILED, HEADER_BYTES, LanePart};
use crate::path::LinkPath;
use crate::place::Folder;
use crate::primitive::{Ordering, fence};
use crate::process::{Liveness, ProcessState, liveness};
use crate::seqlock;
use crate::write::Recorder;

/// Attempts at a copy of one moment.
const TRIES: usize = 64;

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Its process is just making it.
    #[error("it is not complete yet")]
    NotReady,
    /// It does not begin as one.
    #[error("it is not a telemetry file of hcomm")]
    Foreign,
    /// It was written by another version of hcomm.
    #[error(
        "it has layout version {found}, this program reads version {known}; use the tools of the version that the job runs"
    )]
    Version {
        /// Its version.
        found: u64,
        /// The version that is known here.
        known: u64,
    },
    /// It ends too early.
    #[error("it is cut short: {0} bytes where more should be")]
    Truncated(u64),
    /// It contradicts itself.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The system does not let it be read.
    #[error("{0}")]
    System(String),
}

impl From<io::Error> for Unreadable {
    fn from(cause: io::Error) -> Self {
        Unreadable::System(cause.to_string())
    }
}

/// A telemetry file, open. It can be read as long as it is kept, also after the process has ended and the file is gone.
#[derive(Debug)]
pub struct Reader {
    file: File,
    layout: Layout,
    identity: Identity,
    /// By lane part: the next record to read.
    cursors: Vec<u64>,
    /// By slot: its sequence number when it was whole, and what it said. Most operations are not made just now, and a slot is long.
    slots: RefCell<BTreeMap<u64, (u64, Operation)>>,
    /// A copy of a ring, kept so that its memory need not be asked for each time.
    scratch: Vec<u8>,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It is no telemetry file of a version known here, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, Unreadable> {
        let (folder, name) = match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => (if folder.as_os_str().is_empty() { Path::new(".") } else { folder }, name),
            _ => return Err(Unreadable::System(format!("{} names no file", path.display()))),
        };
        let folder = Folder::existing(folder).map_err(Unreadable::System)?;
        let file = folder.open(name).map_err(|cause| Unreadable::System(cause.desc().into()))?;
        Self::over(file, path)
    }

    /// Reads this process's own file.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of(recorder: &Recorder) -> Result<Self, Unreadable> {
        Self::over(recorder.file().try_clone()?, &recorder.path())
    }

    /// Reads a file that is open already; `path` is only told on.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn over(file: File, path: &Path) -> Result<Self, Unreadable> {
        let mut bytes = vec![0; HEADER_BYTES];
        let length = read_at_most(&file, &mut bytes, 0)?;
        let (layout, identity) = decode::header(&bytes[..length], path)?;
        fence(Ordering::Acquire);
        Ok(Self { file, layout, identity, cursors: Vec::new(), slots: RefCell::default(), scratch: Vec::new() })
    }

    /// Whose file it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether its process lives.
    pub fn liveness(&self) -> Liveness {
        let Identity { pid, process_start_ticks, pid_namespace, .. } = self.identity;
        liveness(pid, process_start_ticks, pid_namespace)
    }

    /// What the process does now, and has done since the last snapshot.
    ///
    /// # Errors
    /// The file was cut short or damaged since it was opened.
    pub fn snapshot(&mut self) -> Result<Snapshot, Unreadable> {
        // Looked up first: what a process that is gone by then wrote last is in the file.
        let liveness = self.liveness();
        let process = (liveness == Liveness::Alive).then(|| ProcessState::of(self.identity.pid)).flatten();
        let taken_ns = monotonic_ns();
        let mut bytes = vec![0; HEADER_BYTES];
        self.read(&mut bytes, 0)?;
        fence(Ordering::Acquire);
        let counters = decode::counters(&bytes, &self.layout);
        let mut gathered = Gathered { whole: true, ..Gathered::default() };
        let mut current = Vec::new();
        for index in 0..counters.lanes {
            current.push(self.lane(index, &mut gathered)?);
        }
        for index in 0..counters.slots {
            if !current.contains(&Some(index)) {
                let slot = self.slot(index, &mut gathered.whole)?;
                gathered.add(slot);
            }
        }
        let mut links = Vec::new();
        for index in 0..counters.links {
            let Some(at) = self.layout.links.at(index) else { break };
            let mut bytes = [0; size_of::<crate::layout::LinkPart>()];
            self.read(&mut bytes, at)?;
            links.push(decode::link(&bytes));
        }
        links.sort_by_key(|link| link.peer);
        let mut paths = Vec::new();
        for index in 0..counters.paths {
            paths.extend(self.path(index, &mut gathered.whole)?);
        }
        paths.sort_by_key(|path| (path.peer, path.communicator, path.lane, path.number));
        gathered.records.sort_by_key(|record| (record.start_ns, record.number));
        Ok(Snapshot {
            identity: self.identity.clone(),
            state: match counters.state {
                ENDED => State::Ended,
                FAILED => State::Failed(counters.failure),
                _ if liveness == Liveness::Dead => State::Killed,
                _ => State::Running,
            },
            liveness,
            stopped: process.map(|process| process.is_stopped()),
            taken_ns,
            operations: gathered.operations.into_values().collect(),
            lanes: gathered.lanes,
            links,
            paths,
            paths_missed: counters.paths_missed,
            records: gathered.records,
            missed: gathered.missed,
            unsorted_calls: gathered.unsorted_calls,
            unsorted_bytes: gathered.unsorted_bytes,
            lanes_missed: counters.lanes_missed,
            whole: gathered.whole,
            stride: counters.stride,
            always_timed_ns: counters.always_timed_ns,
        })
    }

    /// Reads a lane with the slot that it writes to, so that their sum is of one moment; returns that slot's index.
    fn lane(&mut self, index: u64, gathered: &mut Gathered) -> Result<Option<u64>, Unreadable> {
        let Some(at) = self.layout.lanes.at(index) else { return Ok(None) };
        let mut bytes = vec![0; std::mem::offset_of!(LanePart, ring)];
        let copied = seqlock::read(
            TRIES,
            || self.word(at),
            || {
                self.read(&mut bytes, at)?;
                let lane = decode::lane(&bytes);
                let mut whole = true;
                let slot = lane.slot.filter(|&slot| self.layout.slots.at(slot).is_some());
                let operation = slot.map(|slot| self.slot(slot, &mut whole)).transpose()?;
                Ok::<_, Unreadable>((lane, operation, slot, whole))
            },
        )?;
        let (lane, operation, slot, whole) = copied.value;
        gathered.whole &= copied.whole && whole;
        if let Some(mut operation) = operation {
            operation.count = operation.count.saturating_add(lane.pending_calls);
            operation.bytes = operation.bytes.saturating_add(lane.pending_bytes);
            gathered.add(operation);
        } else {
            gathered.unsorted_calls = gathered.unsorted_calls.saturating_add(lane.pending_calls);
            gathered.unsorted_bytes = gathered.unsorted_bytes.saturating_add(lane.pending_bytes);
        }
        gathered.unsorted_calls = gathered.unsorted_calls.saturating_add(lane.unsorted_calls);
        gathered.unsorted_bytes = gathered.unsorted_bytes.saturating_add(lane.unsorted_bytes);
        self.records(index, at, lane.lane, gathered)?;
        if lane.in_use {
            let RawLane { communicator, lane, ranks, begun, ended, now, recent, .. } = lane;
            gathered.lanes.push(Lane { communicator, lane, ranks, begun, ended, now, recent });
        }
        Ok(slot)
    }

    /// Reads what is new in a ring.
    fn records(&mut self, index: u64, lane_at: u64, lane: u32, gathered: &mut Gathered) -> Result<(), Unreadable> {
        let ring = self.layout.ring;
        let begun_at = lane_at + std::mem::offset_of!(LanePart, ring_begun) as u64;
        let done_at = lane_at + std::mem::offset_of!(LanePart, ring_done) as u64;
        let done = self.word(done_at)?;
        fence(Ordering::Acquire);
        let oldest = done.saturating_sub(ring.capacity);
        let index = index as usize;
        if self.cursors.len() <= index {
            // What was overwritten before this reader came is not missed.
            self.cursors.resize(index + 1, 0);
            self.cursors[index] = oldest;
        }
        // A damaged counter may lie behind the cursor.
        let cursor = self.cursors[index].min(done);
        let first = cursor.max(oldest);
        let (stride, count) = (ring.stride as usize, (done - first) as usize);
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.resize(count * stride, 0);
        let start = first % ring.capacity;
        let before_wrap = count.min((ring.capacity - start) as usize);
        let (head, tail) = bytes.split_at_mut(before_wrap * stride);
        let ring_at = lane_at + ring.offset;
        self.read(head, ring_at + start * ring.stride)?;
        self.read(tail, ring_at)?;
        fence(Ordering::Acquire);
        let begun = self.word(begun_at)?;
        let mut got = 0;
        gathered.records.reserve(count);
        for (index, bytes) in (first..done).zip(bytes.chunks_exact(stride)) {
            // Those that the writer had begun to write over by then may be torn.
            let kept = index >= begun.saturating_sub(ring.capacity);
            if let Some(record) = decode::record(bytes, index, lane).filter(|_| kept) {
                gathered.records.push(record);
                got += 1;
            }
        }
        self.scratch = bytes;
        gathered.missed = gathered.missed.saturating_add(done - cursor - got);
        self.cursors[index] = done;
        Ok(())
    }

    fn slot(&self, index: u64, whole: &mut bool) -> Result<Operation, Unreadable> {
        let Some(at) = self.layout.slots.at(index) else {
            return Err(Unreadable::Damaged(format!("there is no slot {index}")));
        };
        let before = self.word(at)?;
        let known = self.slots.borrow().get(&index).filter(|(sequence, _)| *sequence == before).cloned();
        if let Some((_, operation)) = known {
            return Ok(operation);
        }
        let mut bytes = vec![0; size_of::<crate::layout::SlotPart>()];
        let copied = seqlock::read(TRIES, || self.word(at), || self.read(&mut bytes, at))?;
        *whole &= copied.whole;
        let operation = decode::slot(&bytes).1;
        if copied.whole {
            self.slots.borrow_mut().insert(index, (Words(&bytes).at(0), operation.clone()));
        }
        Ok(operation)
    }

    /// A socket, if it is open.
    fn path(&self, index: u64, whole: &mut bool) -> Result<Option<LinkPath>, Unreadable> {
        let Some(at) = self.layout.paths.at(index) else { return Ok(None) };
        let mut bytes = [0; size_of::<crate::layout::PathPart>()];
        let copied = seqlock::read(TRIES, || self.word(at), || self.read(&mut bytes, at))?;
        *whole &= copied.whole;
        Ok(decode::path(&bytes))
    }

    fn word(&self, at: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.read(&mut bytes, at)?;
        Ok(Words(&bytes).at(0))
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Unreadable> {
        match read_at_most(&self.file, bytes, at)? {
            length if length == bytes.len() => Ok(()),
            length => Err(Unreadable::Truncated(at + length as u64)),
        }
    }
}

/// Reads until `bytes` is full or the file ends; returns how much.
fn read_at_most(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], at + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(length)
}

/// A snapshot in the making.
#[derive(Default)]
struct Gathered {
    operations: BTreeMap<(crate::Kind, u8, u32), Operation>,
    lanes: Vec<Lane>,
    records: Vec<Record>,
    missed: u64,
    unsorted_calls: u64,
    unsorted_bytes: u64,
    whole: bool,
}

impl Gathered {
    fn add(&mut self, operation: Operation) {
        match self.operations.entry(operation.key()) {
            std::collections::btree_map::Entry::Vacant(place) => _ = place.insert(operation),
            std::collections::btree_map::Entry::Occupied(mut place) => place.get_mut().add(&operation),
        }
    }
}
