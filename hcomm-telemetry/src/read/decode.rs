//! From bytes to values. Nothing in the bytes is trusted: every offset and count is bounded before it is used.

use std::net::SocketAddr;
use std::path::Path;

use super::reader::Unreadable;
use super::snapshot::{Call, Identity, Link, Now, Operation, Record};
use crate::histogram::{BUCKETS, Histogram};
use crate::layout::{
    AWAITED, ERROR, HEADER_BYTES, LATE_START, LanePart, LinkPart, MAGIC, NO_RANK, NONE, PathPart, RECENT, RecordPart,
    SLEPT, SlotPart, VERSION,
};
use crate::names::{ALGORITHMS, ELEMENTS, Kind, OPERATIONS, TRANSPORTS, name_of};
use crate::path::{LinkPath, PathFigures, STATES, address_of};

/// Words of a part; 0 beyond its end.
pub(super) struct Words<'a>(pub &'a [u8]);

impl Words<'_> {
    pub fn at(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    fn text(&self, offset: usize, words: usize) -> String {
        let bytes = self.0.get(offset..offset + 8 * words).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

macro_rules! word {
    ($words:expr, $part:ty, $field:ident) => {
        $words.at(std::mem::offset_of!($part, $field))
    };
}

/// An array of parts in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Array {
    pub offset: u64,
    pub stride: u64,
    pub capacity: u64,
}

impl Array {
    /// Most parts of any array: bounds what a reader allocates.
    const MOST: u64 = 1 << 16;
    const MOST_BYTES: u64 = 1 << 24;

    fn check(self, what: &str, least: usize) -> Result<Self, Unreadable> {
        let Array { offset, stride, capacity } = self;
        let good = offset % 8 == 0
            && stride % 8 == 0
            && (least as u64..=Self::MOST_BYTES).contains(&stride)
            && capacity <= Self::MOST
            && offset.checked_add(stride * capacity).is_some_and(|end| end <= i64::MAX as u64);
        if good {
            Ok(self)
        } else {
            Err(Unreadable::Damaged(format!("{capacity} {what} of {stride} bytes at {offset}")))
        }
    }

    /// Byte offset of part `index`, if there is one.
    pub fn at(&self, index: u64) -> Option<u64> {
        (index < self.capacity).then(|| self.offset + index * self.stride)
    }
}

/// Where things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub links: Array,
    pub lanes: Array,
    pub slots: Array,
    pub paths: Array,
    /// Within a lane.
    pub ring: Array,
}

use crate::layout::Header;

/// What of the header does not change.
pub(super) fn header(bytes: &[u8], path: &Path) -> Result<(Layout, Identity), Unreadable> {
    let words = Words(bytes);
    match bytes.first_chunk::<8>() {
        Some(&MAGIC) => {}
        Some([0, 0, 0, 0, 0, 0, 0, 0]) => return Err(Unreadable::NotReady),
        None => return Err(Unreadable::Truncated(bytes.len() as u64)),
        Some(_) => return Err(Unreadable::Foreign),
    }
    match word!(words, Header, version) {
        VERSION => {}
        found => return Err(Unreadable::Version { found, known: VERSION }),
    }
    if bytes.len() < HEADER_BYTES {
        return Err(Unreadable::Truncated(bytes.len() as u64));
    }
    let array = |offset, stride, capacity| Array { offset, stride, capacity };
    let lanes = array(
        word!(words, Header, lanes_offset),
        word!(words, Header, lane_bytes),
        word!(words, Header, lane_capacity),
    )
    .check("lanes", std::mem::offset_of!(LanePart, ring))?;
    let ring = array(
        word!(words, Header, ring_offset),
        word!(words, Header, record_bytes),
        word!(words, Header, ring_capacity),
    )
    .check("records", size_of::<RecordPart>())?;
    if ring.capacity == 0 || ring.offset + ring.stride * ring.capacity > lanes.stride {
        return Err(Unreadable::Damaged(format!("a ring of {} records does not fit into its lane", ring.capacity)));
    }
    let links = array(
        word!(words, Header, links_offset),
        word!(words, Header, link_bytes),
        word!(words, Header, link_capacity),
    )
    .check("links", size_of::<LinkPart>())?;
    let slots = array(
        word!(words, Header, slots_offset),
        word!(words, Header, slot_bytes),
        word!(words, Header, slot_capacity),
    )
    .check("slots", size_of::<SlotPart>())?;
    let paths = array(
        word!(words, Header, paths_offset),
        word!(words, Header, path_bytes),
        word!(words, Header, path_capacity),
    )
    .check("paths", size_of::<PathPart>())?;
    if word!(words, Header, bucket_count) != BUCKETS as u64 {
        return Err(Unreadable::Damaged(format!("{} buckets", word!(words, Header, bucket_count))));
    }
    let small = |what: &str, value: u64| {
        u32::try_from(value).map_err(|_| Unreadable::Damaged(format!("{what} is {value}, which none is")))
    };
    let identity = Identity {
        path: path.to_owned(),
        job: words.text(std::mem::offset_of!(Header, job), 16),
        rank: small("the rank", word!(words, Header, rank))?,
        world_size: small("the number of ranks", word!(words, Header, world_size))?,
        host: words.text(std::mem::offset_of!(Header, host), 32),
        boot_id: words.text(std::mem::offset_of!(Header, boot_id), 8),
        program: words.text(std::mem::offset_of!(Header, program), 32),
        pid: small("the process id", word!(words, Header, pid))?,
        pid_namespace: known(word!(words, Header, pid_namespace)),
        process_start_ticks: word!(words, Header, process_start_ticks),
        started_ns: word!(words, Header, started_ns),
        wall_offset_ns: word!(words, Header, wall_offset_ns) as i64,
    };
    Ok((Layout { links, lanes, slots, paths, ring }, identity))
}

/// What of the header changes.
pub(super) struct Counters {
    pub state: u64,
    pub failure: String,
    pub links: u64,
    pub lanes: u64,
    pub slots: u64,
    pub paths: u64,
    pub paths_missed: u64,
    pub lanes_missed: u64,
    pub stride: u64,
    pub always_timed_ns: u64,
}

pub(super) fn counters(bytes: &[u8], layout: &Layout) -> Counters {
    let words = Words(bytes);
    Counters {
        state: word!(words, Header, state),
        failure: words.text(std::mem::offset_of!(Header, failure), 128),
        links: word!(words, Header, links_used).min(layout.links.capacity),
        lanes: word!(words, Header, lanes_used).min(layout.lanes.capacity),
        slots: word!(words, Header, slots_used).min(layout.slots.capacity),
        paths: word!(words, Header, paths_used).min(layout.paths.capacity),
        paths_missed: word!(words, Header, paths_missed),
        lanes_missed: word!(words, Header, lanes_missed),
        stride: word!(words, Header, stride),
        always_timed_ns: word!(words, Header, always_timed_ns),
    }
}

fn known(word: u64) -> Option<u64> {
    (word != NONE).then_some(word)
}

pub(super) fn link(bytes: &[u8]) -> Link {
    let words = Words(bytes);
    let sampled = word!(words, LinkPart, sampled_ns);
    Link {
        peer: word!(words, LinkPart, peer) as u32,
        transport: name_of(&TRANSPORTS, word!(words, LinkPart, transport) as u8),
        sent_bytes: word!(words, LinkPart, sent_bytes),
        received_bytes: word!(words, LinkPart, received_bytes),
        round_trip_ns: known(word!(words, LinkPart, round_trip_ns)),
        retransmits: known(word!(words, LinkPart, retransmits)),
        queued_bytes: known(word!(words, LinkPart, queued_bytes)),
        sampled_ns: (sampled > 0).then_some(sampled),
    }
}

/// A socket; `None` for a part that is not in use.
pub(super) fn path(bytes: &[u8]) -> Option<LinkPath> {
    let words = Words(bytes);
    if word!(words, PathPart, in_use) != 1 {
        return None;
    }
    let lane = word!(words, PathPart, lane);
    let ports = known(word!(words, PathPart, ports));
    let address = |at: usize, port: u64| SocketAddr::new(address_of([words.at(at), words.at(at + 8)]), port as u16);
    let interface = words.text(std::mem::offset_of!(PathPart, interface), 2);
    Some(LinkPath {
        peer: word!(words, PathPart, peer) as u32,
        transport: name_of(&TRANSPORTS, word!(words, PathPart, transport) as u8),
        communicator: word!(words, PathPart, communicator),
        lane: lane as u32,
        number: (lane >> 32) as u32,
        interface: (!interface.is_empty()).then_some(interface),
        local: ports.map(|ports| address(std::mem::offset_of!(PathPart, local), ports)),
        remote: ports.map(|ports| address(std::mem::offset_of!(PathPart, remote), ports >> 32)),
        state: name_of(&STATES[1..], (word!(words, PathPart, state) as u8).wrapping_sub(1)),
        opened_ns: word!(words, PathPart, opened_ns),
        sampled_ns: word!(words, PathPart, sampled_ns),
        figures: PathFigures {
            round_trip_ns: known(word!(words, PathPart, round_trip_ns)),
            round_trip_deviation_ns: known(word!(words, PathPart, round_trip_deviation_ns)),
            retransmits: known(word!(words, PathPart, retransmits)),
            segments_sent: known(word!(words, PathPart, segments_sent)),
            segments_received: known(word!(words, PathPart, segments_received)),
            acknowledged_bytes: known(word!(words, PathPart, acknowledged_bytes)),
            received_bytes: known(word!(words, PathPart, received_bytes)),
            queued_bytes: known(word!(words, PathPart, queued_bytes)),
        },
    })
}

/// The packed word of a record.
struct What([u8; 8]);

impl What {
    fn of(word: u64) -> Self {
        Self(word.to_le_bytes())
    }

    fn kind(&self) -> Kind {
        Kind(self.0[0])
    }

    fn algorithm(&self) -> Option<&'static str> {
        name_of(&ALGORITHMS, self.0[1])
    }

    fn transport(&self) -> Option<&'static str> {
        name_of(&TRANSPORTS, self.0[2])
    }

    fn has(&self, flag: u8) -> bool {
        self.0[3] & flag != 0
    }

    fn channels(&self) -> u8 {
        self.0[4]
    }

    fn element(&self) -> Option<&'static str> {
        name_of(&ELEMENTS, self.0[5])
    }

    fn operation(&self) -> Option<&'static str> {
        name_of(&OPERATIONS, self.0[6])
    }
}

fn chunk(chunk_peer: u64) -> Option<u32> {
    Some(chunk_peer as u32).filter(|&bytes| bytes > 0)
}

/// Record `index` of a ring, in its lane; `None` when something else lies there.
pub(super) fn record(bytes: &[u8], index: u64, lane: u32) -> Option<Record> {
    let words = Words(bytes);
    if word!(words, RecordPart, index) != index {
        return None;
    }
    let what = What::of(word!(words, RecordPart, what));
    let chunk_peer = word!(words, RecordPart, chunk_peer);
    Some(Record {
        communicator: word!(words, RecordPart, communicator),
        lane,
        number: word!(words, RecordPart, number),
        kind: what.kind(),
        bytes: word!(words, RecordPart, bytes),
        start_ns: word!(words, RecordPart, start_ns),
        duration_ns: word!(words, RecordPart, duration_ns),
        weight: word!(words, RecordPart, weight),
        algorithm: what.algorithm(),
        transport: what.transport(),
        channels: what.channels(),
        chunk_bytes: chunk(chunk_peer),
        element: what.element(),
        operation: what.operation(),
        peer: Some((chunk_peer >> 32) as u32).filter(|&peer| peer != NO_RANK),
        slept: what.has(SLEPT),
        late_start: what.has(LATE_START),
        failed: what.has(ERROR),
    })
}

/// A slot and the lane part that writes it.
pub(super) fn slot(bytes: &[u8]) -> (u64, Operation) {
    let words = Words(bytes);
    let key = word!(words, SlotPart, key);
    let what = What::of(word!(words, SlotPart, what));
    let timed = word!(words, SlotPart, timed);
    let if_timed = |value: u64| (timed > 0).then_some(value);
    let buckets = std::mem::offset_of!(SlotPart, histogram);
    let operation = Operation {
        kind: Kind(key as u8),
        class: (key >> 8) as u8,
        ranks: word!(words, SlotPart, ranks) as u32,
        count: word!(words, SlotPart, count),
        bytes: word!(words, SlotPart, bytes),
        errors: word!(words, SlotPart, errors),
        timed,
        total_ns: word!(words, SlotPart, total_ns),
        min_ns: if_timed(word!(words, SlotPart, min_ns)),
        max_ns: if_timed(word!(words, SlotPart, max_ns)),
        algorithm: if_timed(0).and_then(|_| what.algorithm()),
        transport: if_timed(0).and_then(|_| what.transport()),
        channels: if_timed(0).map(|_| what.channels()),
        chunk_bytes: if_timed(0).and_then(|_| chunk(word!(words, SlotPart, chunk_peer))),
        element: if_timed(0).and_then(|_| what.element()),
        last_end_ns: if_timed(word!(words, SlotPart, last_end_ns)),
        durations: Histogram::from_counts((0..BUCKETS).map(|bucket| words.at(buckets + 8 * bucket))),
    };
    (key >> 32, operation)
}

/// A lane as it lies there; see [`LanePart`].
pub(super) struct RawLane {
    pub communicator: u64,
    pub lane: u32,
    pub ranks: u32,
    pub in_use: bool,
    pub begun: u64,
    pub ended: u64,
    pub now: Option<Now>,
    pub recent: Vec<Call>,
    pub slot: Option<u64>,
    /// Calls and bytes that the slot does not have yet.
    pub pending_calls: u64,
    pub pending_bytes: u64,
    pub unsorted_calls: u64,
    pub unsorted_bytes: u64,
}

pub(super) fn lane(bytes: &[u8]) -> RawLane {
    let words = Words(bytes);
    let recent = std::mem::offset_of!(LanePart, recent);
    let (begun, ended) = (words.at(recent), words.at(recent + 8));
    let calls: Vec<Call> = (1..=begun).rev().take(RECENT).map(|number| call(&words, recent + 16, number)).collect();
    let what = known(word!(words, LanePart, now_what)).map(What::of);
    let some = |value: u64| (value > 0).then_some(value);
    let awaited_count = word!(words, LanePart, awaited);
    let awaited_at = std::mem::offset_of!(LanePart, awaited_ranks);
    let now = match what {
        Some(what) => Some(Now {
            number: word!(words, LanePart, now_number),
            kind: what.kind(),
            bytes: Some(word!(words, LanePart, now_bytes)),
            since_ns: some(word!(words, LanePart, now_since_ns)),
            late_start: what.has(LATE_START),
            slept_ns: some(word!(words, LanePart, now_slept_ns)),
            awaited: (0..AWAITED)
                .take(awaited_count.min(AWAITED as u64) as usize)
                .map(|at| words.at(awaited_at + 8 * at) as u32)
                .collect(),
            awaited_count,
        }),
        None if begun != ended => calls.first().map(|call| Now {
            number: begun,
            kind: call.kind,
            bytes: None,
            since_ns: None,
            late_start: false,
            slept_ns: None,
            awaited: Vec::new(),
            awaited_count: 0,
        }),
        None => None,
    };
    let pending_calls = word!(words, LanePart, calls).saturating_sub(word!(words, LanePart, flushed));
    let key = word!(words, LanePart, lane);
    RawLane {
        communicator: word!(words, LanePart, communicator),
        lane: key as u32,
        ranks: (key >> 32) as u32,
        in_use: word!(words, LanePart, in_use) == 1,
        begun,
        ended,
        now,
        recent: calls,
        slot: known(word!(words, LanePart, slot)),
        pending_calls,
        pending_bytes: pending_calls.saturating_mul(word!(words, LanePart, call_bytes)),
        unsorted_calls: word!(words, LanePart, unsorted_calls),
        unsorted_bytes: word!(words, LanePart, unsorted_bytes),
    }
}

/// A call in the four words of the control plane.
fn call(words: &Words<'_>, calls: usize, number: u64) -> Call {
    let at = calls + 32 * (number % RECENT as u64) as usize;
    let what = words.at(at).to_le_bytes();
    Call {
        number,
        kind: Kind(what[0]),
        count: words.at(at + 8),
        even: words.at(at + 24) == 1,
        element: name_of(&ELEMENTS, what[1]),
        operation: name_of(&OPERATIONS, what[2]),
        root: words.at(at + 16),
    }
}
