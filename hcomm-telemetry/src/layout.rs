//! The file as it lies in memory. `docs/telemetry.md` is the description; a change here is a new version there.
//!
//! Every word is an atomic of 64 bits in the byte order of the host, or a part of one. Offsets are written into the header, so
//! that a reader depends on the parts and not on their order.

#[cfg(not(loom))]
use std::mem::offset_of;

use crate::histogram::BUCKETS;
use crate::primitive::AtomicU64;

/// First eight bytes; written last, when the rest of the header stands.
pub(crate) const MAGIC: [u8; 8] = *b"hcommtel";
/// Of the layout.
pub(crate) const VERSION: u64 = 1;
/// Bytes of the header, with room to spare.
pub(crate) const HEADER_BYTES: usize = 4096;

/// Calls of a lane that are remembered in words, timed or not.
pub(crate) const RECENT: usize = 16;
/// Records of a lane's ring.
pub(crate) const RING: usize = 2048;
/// Ranks that a waiting call names.
pub(crate) const AWAITED: usize = 16;
/// Lanes of a process that are written down at a time.
pub(crate) const LANES: usize = 64;
/// Pairs of lane and (kind, size class).
pub(crate) const SLOTS: usize = 384;
/// Peers whose bytes are counted.
pub(crate) const LINKS: usize = 1024;
/// Sockets that are written down at a time.
pub(crate) const PATHS: usize = 1024;

/// "None" for numbers that may be 0.
pub(crate) const NONE: u64 = u64::MAX;
/// "None" for ranks.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// States of a process, by number.
pub(crate) const RUNNING: u64 = 1;
pub(crate) const ENDED: u64 = 2;
pub(crate) const FAILED: u64 = 3;

/// Flags of a record.
pub(crate) const SLEPT: u8 = 1;
pub(crate) const LATE_START: u8 = 2;
pub(crate) const ERROR: u8 = 4;

/// A text of at most `8 * WORDS` bytes, UTF-8, filled up with zeros.
#[repr(C)]
pub(crate) struct Text<const WORDS: usize>(pub [AtomicU64; WORDS]);

#[repr(C)]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU64,
    pub header_bytes: AtomicU64,
    pub links_offset: AtomicU64,
    pub link_bytes: AtomicU64,
    pub link_capacity: AtomicU64,
    pub lanes_offset: AtomicU64,
    pub lane_bytes: AtomicU64,
    pub lane_capacity: AtomicU64,
    pub ring_offset: AtomicU64,
    pub record_bytes: AtomicU64,
    pub ring_capacity: AtomicU64,
    pub slots_offset: AtomicU64,
    pub slot_bytes: AtomicU64,
    pub slot_capacity: AtomicU64,
    pub bucket_count: AtomicU64,
    /// Parts in use from the first on; only ever more.
    pub links_used: AtomicU64,
    pub lanes_used: AtomicU64,
    pub slots_used: AtomicU64,
    /// Lanes for which there was no room.
    pub lanes_missed: AtomicU64,
    pub state: AtomicU64,
    pub rank: AtomicU64,
    pub world_size: AtomicU64,
    pub pid: AtomicU64,
    /// Inode of the pid namespace in which `pid` counts.
    pub pid_namespace: AtomicU64,
    /// Start of the process in clock ticks since boot: field 22 of /proc/PID/stat, proc_pid_stat(5).
    pub process_start_ticks: AtomicU64,
    /// `CLOCK_MONOTONIC` when the file was made.
    pub started_ns: AtomicU64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at that time, as a signed number.
    pub wall_offset_ns: AtomicU64,
    /// One of how many short calls is timed.
    pub stride: AtomicU64,
    /// Calls at least this long are all timed.
    pub always_timed_ns: AtomicU64,
    pub boot_id: Text<8>,
    pub job: Text<16>,
    pub host: Text<32>,
    pub program: Text<32>,
    pub failure: Text<128>,
    pub paths_offset: AtomicU64,
    pub path_bytes: AtomicU64,
    pub path_capacity: AtomicU64,
    pub paths_used: AtomicU64,
    /// Sockets for which there is no room now.
    pub paths_missed: AtomicU64,
}

/// Traffic with one peer, all lanes together. Each word counts by itself.
#[repr(C)]
pub(crate) struct LinkPart {
    /// Rank in the job.
    pub peer: AtomicU64,
    pub transport: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    /// Of TCP; [`NONE`] where not known.
    pub round_trip_ns: AtomicU64,
    pub retransmits: AtomicU64,
    pub queued_bytes: AtomicU64,
    pub sampled_ns: AtomicU64,
}

/// One socket to a peer. Addresses are 16 bytes in the order of the network, IPv4 as `::ffff:a.b.c.d`.
#[repr(C)]
pub(crate) struct PathPart {
    /// Guards the rest.
    pub sequence: AtomicU64,
    /// 1 while the socket is open; the part is given to another when it is closed.
    pub in_use: AtomicU64,
    /// Rank in the job.
    pub peer: AtomicU64,
    pub transport: AtomicU64,
    pub communicator: AtomicU64,
    /// Lane, and in the upper half the number of the socket in its link.
    pub lane: AtomicU64,
    /// The kernel's number.
    pub state: AtomicU64,
    pub opened_ns: AtomicU64,
    pub sampled_ns: AtomicU64,
    pub local: [AtomicU64; 2],
    pub remote: [AtomicU64; 2],
    /// Local port, and in the upper half the remote one; [`NONE`] where the addresses are not known.
    pub ports: AtomicU64,
    pub interface: Text<2>,
    /// From here on [`NONE`] where not known.
    pub round_trip_ns: AtomicU64,
    pub round_trip_deviation_ns: AtomicU64,
    pub retransmits: AtomicU64,
    pub segments_sent: AtomicU64,
    pub segments_received: AtomicU64,
    pub acknowledged_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    pub queued_bytes: AtomicU64,
}

/// What a lane is doing and did last, in the words of the control plane: plain stores, for every call.
#[repr(C)]
pub struct Calls {
    pub(crate) begun: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// Call n in slot n modulo [`RECENT`].
    pub(crate) words: [[AtomicU64; 4]; RECENT],
}

#[repr(C)]
pub(crate) struct LanePart {
    /// Guards what follows, to `flushed`.
    pub sequence: AtomicU64,
    pub communicator: AtomicU64,
    /// Number of the lane, and ranks of the communicator in the upper half.
    pub lane: AtomicU64,
    /// 1 while a lane writes here.
    pub in_use: AtomicU64,
    /// The call that the next five are about: packed as [`RecordPart::what`], [`NONE`] for none.
    pub now_what: AtomicU64,
    pub now_number: AtomicU64,
    pub now_bytes: AtomicU64,
    /// When it began; with [`LATE_START`] in `now_what`, when it was first seen to wait.
    pub now_since_ns: AtomicU64,
    /// When it last went to sleep; 0 for never.
    pub now_slept_ns: AtomicU64,
    /// Ranks that were awaited then: how many, and the first of them.
    pub awaited: AtomicU64,
    pub awaited_ranks: [AtomicU64; AWAITED],
    /// The slot of the latest calls, and the bytes of each; those after the first `flushed` calls are not in it yet.
    pub slot: AtomicU64,
    pub call_bytes: AtomicU64,
    pub flushed: AtomicU64,
    /// Calls for which no slot was left.
    pub unsorted_calls: AtomicU64,
    pub unsorted_bytes: AtomicU64,
    /// Calls ended on this part, every one.
    pub calls: AtomicU64,
    pub recent: Calls,
    /// Records of the ring that were begun, and that are done.
    pub ring_begun: AtomicU64,
    pub ring_done: AtomicU64,
    pub ring: [RecordPart; RING],
}

/// A timed operation.
#[repr(C)]
pub(crate) struct RecordPart {
    /// Its place in the lane's history, from 0: record n is in slot n modulo the capacity.
    pub index: AtomicU64,
    pub number: AtomicU64,
    pub communicator: AtomicU64,
    pub start_ns: AtomicU64,
    pub duration_ns: AtomicU64,
    pub bytes: AtomicU64,
    /// Bytes from the lowest: kind, algorithm, transport, flags, channels, element type, operation, 0.
    pub what: AtomicU64,
    /// Chunk in bytes, 0 for whole messages; peer or root in the upper half.
    pub chunk_peer: AtomicU64,
    /// Calls that it stands for.
    pub weight: AtomicU64,
}

/// Calls of one kind and size class on one lane.
#[repr(C)]
pub(crate) struct SlotPart {
    /// Guards the rest.
    pub sequence: AtomicU64,
    /// Kind in the lowest byte, size class in the next, lane part in the upper half.
    pub key: AtomicU64,
    pub ranks: AtomicU64,
    pub count: AtomicU64,
    pub bytes: AtomicU64,
    pub errors: AtomicU64,
    /// Calls that were timed themselves.
    pub timed: AtomicU64,
    /// Sum over the histogram, by weight.
    pub total_ns: AtomicU64,
    pub min_ns: AtomicU64,
    pub max_ns: AtomicU64,
    /// Of the latest: as in [`RecordPart`].
    pub what: AtomicU64,
    pub chunk_peer: AtomicU64,
    pub last_end_ns: AtomicU64,
    /// Sum of the histogram.
    pub weight: AtomicU64,
    pub histogram: [AtomicU64; BUCKETS],
}

pub(crate) const LANES_OFFSET: usize = HEADER_BYTES + LINKS * size_of::<LinkPart>();
pub(crate) const SLOTS_OFFSET: usize = LANES_OFFSET + LANES * size_of::<LanePart>();
pub(crate) const PATHS_OFFSET: usize = SLOTS_OFFSET + SLOTS * size_of::<SlotPart>();
/// Size of the file; parts that are not in use take no memory.
pub(crate) const FILE_BYTES: usize = PATHS_OFFSET + PATHS * size_of::<PathPart>();

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() <= HEADER_BYTES);
    assert!(
        size_of::<LinkPart>() == 64 && size_of::<RecordPart>() == 72 && size_of::<SlotPart>() == 14 * 8 + 8 * BUCKETS
    );
    assert!(size_of::<PathPart>() == 24 * 8 && offset_of!(Header, paths_offset) == 1968);
    assert!(offset_of!(LanePart, recent) == 32 * 8 && offset_of!(LanePart, ring) == 100 * 8);
};

/// The size class of an operation: 0 for no bytes, else 1 more than the base-2 logarithm of its bytes.
pub(crate) fn class_of(bytes: u64) -> u8 {
    bytes.checked_ilog2().map_or(0, |log| log as u8 + 1)
}

/// Smallest number of bytes of a size class.
pub(crate) fn class_floor(class: u8) -> u64 {
    match class {
        0 => 0,
        class => 1 << (class - 1).min(63),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        assert_eq!([0, 1, 2, 3, 4, 1 << 20, u64::MAX].map(class_of), [0, 1, 2, 2, 3, 21, 64]);
        for bytes in [0, 1, 5, 8, 1000, 1 << 40, u64::MAX] {
            let class = class_of(bytes);
            assert!(class_floor(class) <= bytes && (class == 64 || bytes < class_floor(class + 1).max(1)));
        }
    }
}
