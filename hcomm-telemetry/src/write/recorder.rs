//! The file of a process: made, filled, ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::lane::LaneWriter;
use super::mapping::{Mapping, Part};
use super::paths::PathWriter;
use crate::layout::{
    ENDED, FAILED, FILE_BYTES, HEADER_BYTES, Header, LANES, LANES_OFFSET, LINKS, LanePart, LinkPart, MAGIC, NONE,
    PATHS, PATHS_OFFSET, PathPart, RING, RUNNING, RecordPart, SLOTS, SLOTS_OFFSET, SlotPart, Text, VERSION,
};
use crate::place::{self, FLIGHT_EXTENSION, Folder, file_name, file_stem};
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::process::{self, ProcessState};
use crate::read::remove_dead;
use crate::{clock, histogram};

/// One of so many short calls is timed. A prime, so that it does not fall in step with the calls of a training step.
const STRIDE: u64 = 251;
/// Calls are all timed that last so many times as long as reading the clock.
const CLOCKS: u64 = 250;

/// What a file says of its process.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Where to put it, instead of [`crate::candidates`].
    pub folder: Option<&'a Path>,
    /// Name of the job.
    pub job: &'a str,
    /// Rank in the job.
    pub rank: u32,
    /// Ranks of the job.
    pub world_size: u32,
    /// Host name, as the job calls it.
    pub host: &'a str,
}

/// What is known of the sockets to a peer, all together; `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkSample {
    /// Round trip in nanoseconds.
    pub round_trip_ns: Option<u64>,
    /// Segments sent again so far.
    pub retransmits: Option<u64>,
    /// Bytes that the other end has not acknowledged.
    pub queued_bytes: Option<u64>,
}

/// Why there is no telemetry: each folder that was tried, and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no folder takes the telemetry file: {0}")]
pub struct Refused(String);

/// The telemetry file of this process. It is removed when the recorder and all its lanes are gone; until then whoever has it open
/// sees how it ended.
#[derive(Debug)]
pub struct Recorder {
    mapping: Arc<Mapping>,
    folder: Folder,
    stem: String,
    parts: Mutex<Parts>,
}

/// What has been handed out.
#[derive(Debug, Default)]
struct Parts {
    lanes: Vec<LaneState>,
    slots: usize,
    links: HashMap<u32, Option<Part<LinkPart>>>,
    paths: usize,
}

#[derive(Debug)]
struct LaneState {
    part: Part<LanePart>,
    ranks: u32,
    in_use: bool,
    slots: HashMap<(u8, u8), (usize, Part<SlotPart>)>,
}

impl Recorder {
    /// Makes the file, in the first folder that takes it. Removes files of dead processes there.
    ///
    /// # Errors
    /// No folder takes it.
    pub fn create(options: &Options<'_>) -> Result<Arc<Self>, Refused> {
        let folders = match options.folder {
            Some(folder) => vec![Folder::chosen(folder)],
            None => place::candidates().iter().map(|path| Folder::make_own(path)).collect(),
        };
        let mut reasons = Vec::new();
        for folder in folders {
            match folder.and_then(|folder| Self::create_in(folder, options)) {
                Ok(recorder) => return Ok(Arc::new(recorder)),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(Refused(reasons.join("; ")))
    }

    fn create_in(folder: Folder, options: &Options<'_>) -> Result<Self, String> {
        remove_dead(&folder);
        let pid = std::process::id();
        let mut number = 0;
        let (stem, file) = loop {
            let stem = file_stem(options.job, options.rank, pid, number);
            match folder.create(&file_name(&stem)) {
                Ok(file) => break (stem, file),
                // Of another job of this process, or left by one that had its id.
                Err(Errno::EEXIST) if number < 1000 => number += 1,
                Err(cause) => return Err(format!("{}: {}", folder.path().display(), cause.desc())),
            }
        };
        let made = Mapping::new(file).and_then(|mapping| {
            let mapping = Arc::new(mapping);
            // Without room for one lane there is nothing to see.
            mapping.lane(0).unwrap_or(Err(Errno::ENOSPC))?;
            Ok(mapping)
        });
        match made {
            Ok(mapping) => {
                fill(mapping.header(), options, pid);
                Ok(Self { mapping, folder, stem, parts: Mutex::default() })
            }
            Err(cause) => {
                folder.remove(&file_name(&stem));
                Err(format!("{}: {}", folder.path().display(), cause.desc()))
            }
        }
    }

    /// Where the file lies.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(file_name(&self.stem))
    }

    /// The file, to read one's own figures.
    pub(crate) fn file(&self) -> &File {
        self.mapping.file()
    }

    /// A writer for the thread that runs lane `lane` of a communicator of `ranks` ranks; `None` when there is no room.
    pub fn lane(self: &Arc<Self>, communicator: u64, lane: u32, ranks: u32) -> Option<LaneWriter> {
        let mut parts = self.parts();
        let free = parts.lanes.iter().position(|state| !state.in_use && state.ranks == ranks);
        let index = free.or_else(|| self.new_lane(&mut parts, ranks));
        let Some(index) = index else {
            self.mapping.header().lanes_missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let state = &mut parts.lanes[index];
        state.in_use = true;
        let part = state.part.clone();
        drop(parts);
        self.header().lanes_used.fetch_max(index as u64 + 1, Ordering::Release);
        Some(LaneWriter::new(Arc::clone(self), index, part, communicator, u64::from(ranks) << 32 | u64::from(lane)))
    }

    fn new_lane(&self, parts: &mut Parts, ranks: u32) -> Option<usize> {
        let index = parts.lanes.len();
        let part = self.mapping.lane(index)?.ok()?;
        parts.lanes.push(LaneState { part, ranks, in_use: false, slots: HashMap::new() });
        Some(index)
    }

    /// The next user of the part continues its counters.
    pub(super) fn give_back(&self, index: usize) {
        if let Some(state) = self.parts().lanes.get_mut(index) {
            state.in_use = false;
        }
    }

    /// Where calls of a kind and size class on a lane are counted; `None` when there is no room.
    pub(super) fn slot(&self, lane: usize, kind: u8, class: u8) -> Option<(usize, Part<SlotPart>)> {
        let mut parts = self.parts();
        let state = parts.lanes.get(lane)?;
        if let Some(slot) = state.slots.get(&(kind, class)) {
            return Some(slot.clone());
        }
        let (ranks, index) = (state.ranks, parts.slots);
        let part = self.mapping.slot(index)?.ok()?;
        part.key.store(u64::from(kind) | u64::from(class) << 8 | (lane as u64) << 32, Ordering::Relaxed);
        part.ranks.store(ranks.into(), Ordering::Relaxed);
        part.min_ns.store(NONE, Ordering::Relaxed);
        parts.slots += 1;
        parts.lanes.get_mut(lane)?.slots.insert((kind, class), (index, part.clone()));
        self.header().slots_used.store(index as u64 + 1, Ordering::Release);
        Some((index, part))
    }

    /// Where the traffic with a peer (its rank in the job) is counted; `None` when there is no room.
    pub(super) fn link(&self, peer: u32, transport: u8) -> Option<Part<LinkPart>> {
        let mut parts = self.parts();
        if let Some(link) = parts.links.get(&peer) {
            return link.clone();
        }
        let index = parts.links.values().flatten().count();
        let part = self.mapping.link(index).and_then(Result::ok);
        if let Some(part) = &part {
            part.peer.store(peer.into(), Ordering::Relaxed);
            part.transport.store(transport.into(), Ordering::Relaxed);
            for unknown in [&part.round_trip_ns, &part.retransmits, &part.queued_bytes] {
                unknown.store(NONE, Ordering::Relaxed);
            }
            self.header().links_used.store(index as u64 + 1, Ordering::Release);
        }
        parts.links.insert(peer, part.clone());
        part
    }

    /// Writes down what was read of the sockets to a peer (its rank in the job). One thread at a time for a peer.
    pub fn sample_link(&self, peer: u32, transport: u8, sample: &LinkSample) {
        let Some(link) = self.link(peer, transport) else { return };
        let set = |word: &AtomicU64, value: Option<u64>| word.store(value.unwrap_or(NONE), Ordering::Relaxed);
        set(&link.round_trip_ns, sample.round_trip_ns);
        set(&link.retransmits, sample.retransmits);
        set(&link.queued_bytes, sample.queued_bytes);
        set(&link.sampled_ns, Some(clock::monotonic_ns()));
    }

    /// What writes down the sockets of this process; there may be one at a time.
    pub fn paths(self: &Arc<Self>) -> PathWriter {
        PathWriter::new(Arc::clone(self))
    }

    /// A place for a socket that no other has; `None` when there is no room.
    pub(super) fn new_path(&self) -> Option<Part<PathPart>> {
        let mut parts = self.parts();
        let part = self.mapping.path(parts.paths)?.ok()?;
        parts.paths += 1;
        self.header().paths_used.store(parts.paths as u64, Ordering::Release);
        Some(part)
    }

    /// Notes what the job failed of, the first time.
    pub fn failed(&self, why: &str) {
        let _parts = self.parts();
        let header = self.header();
        if header.state.load(Ordering::Relaxed) != FAILED {
            put(&header.failure, why);
            header.state.store(FAILED, Ordering::Release);
        }
    }

    /// Writes `lines` beside the telemetry file, where they stay after the end of the process; returns where.
    ///
    /// # Errors
    /// The system's words.
    pub fn write_flight_record(&self, lines: &[u8]) -> std::io::Result<PathBuf> {
        let name = OsString::from(format!("{}{FLIGHT_EXTENSION}", self.stem));
        self.folder.remove_old_flight_records();
        // Another failure of the same process supersedes the first.
        self.folder.remove(&name);
        self.folder.create(&name)?.write_all(lines)?;
        Ok(self.folder.path().join(name))
    }

    pub(super) fn header(&self) -> &Header {
        self.mapping.header()
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.header().state.compare_exchange(RUNNING, ENDED, Ordering::Release, Ordering::Relaxed);
        self.folder.remove(&file_name(&self.stem));
    }
}

fn fill(header: &Header, options: &Options<'_>, pid: u32) {
    let set = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
    set(&header.version, VERSION);
    set(&header.header_bytes, HEADER_BYTES as u64);
    set(&header.links_offset, HEADER_BYTES as u64);
    set(&header.link_bytes, size_of::<LinkPart>() as u64);
    set(&header.link_capacity, LINKS as u64);
    set(&header.lanes_offset, LANES_OFFSET as u64);
    set(&header.lane_bytes, size_of::<LanePart>() as u64);
    set(&header.lane_capacity, LANES as u64);
    set(&header.ring_offset, std::mem::offset_of!(LanePart, ring) as u64);
    set(&header.record_bytes, size_of::<RecordPart>() as u64);
    set(&header.ring_capacity, RING as u64);
    set(&header.slots_offset, SLOTS_OFFSET as u64);
    set(&header.slot_bytes, size_of::<SlotPart>() as u64);
    set(&header.slot_capacity, SLOTS as u64);
    set(&header.bucket_count, histogram::BUCKETS as u64);
    set(&header.paths_offset, PATHS_OFFSET as u64);
    set(&header.path_bytes, size_of::<PathPart>() as u64);
    set(&header.path_capacity, PATHS as u64);
    debug_assert!(PATHS_OFFSET + PATHS * size_of::<PathPart>() == FILE_BYTES);
    set(&header.state, RUNNING);
    set(&header.rank, options.rank.into());
    set(&header.world_size, options.world_size.into());
    set(&header.pid, pid.into());
    set(&header.pid_namespace, process::pid_namespace().unwrap_or(NONE));
    set(&header.process_start_ticks, ProcessState::of(pid).map_or(NONE, |state| state.start_ticks));
    let now = clock::monotonic_ns();
    set(&header.started_ns, now);
    set(&header.wall_offset_ns, clock::wall_ns().wrapping_sub(now));
    set(&header.stride, STRIDE);
    set(&header.always_timed_ns, CLOCKS * clock::cost_ns());
    put(&header.boot_id, &process::boot_id().unwrap_or_default());
    put(&header.job, options.job);
    put(&header.host, options.host);
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    put(&header.program, &program.unwrap_or_default());
    fence(Ordering::Release);
    set(&header.magic, u64::from_ne_bytes(MAGIC));
}

/// Stores a text, cut where there is no room.
pub(super) fn put<const WORDS: usize>(at: &Text<WORDS>, text: &str) {
    let mut end = text.len().min(8 * WORDS);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = &text.as_bytes()[..end];
    for (word, at) in at.0.iter().enumerate() {
        let byte = |i: usize| bytes.get(8 * word + i).copied().unwrap_or(0);
        at.store(u64::from_ne_bytes(std::array::from_fn(byte)), Ordering::Relaxed);
    }
}
