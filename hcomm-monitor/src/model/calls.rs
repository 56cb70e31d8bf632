//! One call from the records of all its ranks.

use std::collections::{BTreeMap, VecDeque};

use hcomm_telemetry::{Kind, Record};

use super::process::Process;

/// Finished calls that are kept.
const RECENT: usize = 1000;
/// Calls of a lane that are waited for at most: those of a rank that says it is behind for ever must not fill the memory.
const MOST_PENDING: usize = 1 << 14;
/// Lanes of which it is known what was finished.
const MOST_LANES: usize = 1024;

/// A finished operation of a job: one line, however many ranks took part.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Communicator, and its lane.
    pub communicator: u64,
    /// Lane of the communicator.
    pub lane: u32,
    /// Number on the lane; of a message, among those of its rank and direction.
    pub number: u64,
    /// Kind.
    pub kind: Kind,
    /// Size as nccl-tests counts it.
    pub bytes: u64,
    /// When the first rank began, by `CLOCK_MONOTONIC` of its host,
    pub start_ns: u64,
    /// and since 1970.
    pub wall_ns: u64,
    /// Duration of the slowest rank.
    pub duration_ns: u64,
    /// The slowest rank.
    pub slowest: u32,
    /// Whether the slowest began earlier than it was seen to wait, so that the duration is longer by up to a millisecond.
    pub late_start: bool,
    /// Whether it failed on some rank.
    pub failed: bool,
    /// Calls that it stands for, itself among them.
    pub weight: u64,
    /// Algorithm.
    pub algorithm: Option<&'static str>,
    /// Transport.
    pub transport: Option<&'static str>,
    /// Rank of the job, and when it began; those whose begin is only known to be before that are told apart.
    pub starts: Vec<Start>,
}

/// When a rank began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Rank of the job.
    pub rank: u32,
    /// By `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Whether it was sooner than that.
    pub sooner: bool,
}

impl Call {
    fn new(rank: u32, wall_offset_ns: i64, record: &Record) -> Self {
        Self {
            communicator: record.communicator,
            lane: record.lane,
            number: record.number,
            kind: record.kind,
            bytes: record.bytes,
            start_ns: record.start_ns,
            wall_ns: record.start_ns.saturating_add_signed(wall_offset_ns),
            duration_ns: record.duration_ns,
            slowest: rank,
            late_start: record.late_start,
            failed: record.failed,
            weight: record.weight,
            algorithm: record.algorithm,
            transport: record.transport,
            starts: vec![Start::of(rank, record)],
        }
    }

    fn add(&mut self, rank: u32, wall_offset_ns: i64, record: &Record) {
        if record.start_ns < self.start_ns {
            self.start_ns = record.start_ns;
            self.wall_ns = record.start_ns.saturating_add_signed(wall_offset_ns);
        }
        if record.duration_ns > self.duration_ns {
            (self.duration_ns, self.slowest, self.late_start) = (record.duration_ns, rank, record.late_start);
        }
        self.bytes = self.bytes.max(record.bytes);
        self.failed |= record.failed;
        self.weight = self.weight.max(record.weight);
        self.starts.push(Start::of(rank, record));
    }

    /// Ranks and how much later than the first they came, where that is known. If the first was only seen when it already waited,
    /// the others were later by up to a millisecond more.
    pub fn lateness(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let comparable = self.starts.len() > 1;
        let known =
            self.starts.iter().filter(move |start| comparable && (!start.sooner || start.start_ns == self.start_ns));
        known.map(|start| (start.rank, start.start_ns.saturating_sub(self.start_ns)))
    }

    /// The rank that came last and how much later than the first, if that is known.
    pub fn last(&self) -> Option<(u32, u64)> {
        self.lateness().max_by_key(|(_, late)| *late).filter(|(_, late)| *late > 0)
    }
}

impl Start {
    fn of(rank: u32, record: &Record) -> Self {
        Self { rank, start_ns: record.start_ns, sooner: record.late_start }
    }
}

/// Communicator and lane.
type Lane = (u64, u32);

/// A call of which ranks' records may still come.
#[derive(Debug, Clone)]
struct Pending {
    call: Call,
    /// Ticks that it has seen.
    ticks: u32,
}

impl Pending {
    /// Number, and what tells calls of the same number apart: ranks may have called different things.
    fn key(&self) -> (u64, Kind) {
        (self.call.number, self.call.kind)
    }
}

/// The calls of a lane that are not finished.
#[derive(Debug, Clone, Default)]
struct Queue {
    /// By key. Each rank tells of its calls in their order, so that they are found one after the other.
    pending: VecDeque<Pending>,
    /// Number up to which calls have been finished. A record that comes later still adds nothing.
    finished_to: Option<u64>,
}

impl Queue {
    /// A rank's new records of this lane.
    fn take(&mut self, rank: u32, wall_offset_ns: i64, records: &[Record]) {
        let mut at = 0;
        for record in records {
            if record.kind.is_message() || self.finished_to.is_some_and(|to| record.number <= to) {
                continue;
            }
            let key = (record.number, record.kind);
            // The next one, as a rule.
            if self.pending.get(at).is_none_or(|pending| pending.key() != key) {
                at = self.pending.partition_point(|pending| pending.key() < key);
            }
            match self.pending.get_mut(at).filter(|pending| pending.key() == key) {
                Some(pending) => pending.call.add(rank, wall_offset_ns, record),
                None => self.pending.insert(at, Pending { call: Call::new(rank, wall_offset_ns, record), ticks: 0 }),
            }
            at += 1;
        }
    }

    /// Moves the calls to which nothing can be added to `finished`. All ranks are past the number `all_past`, and there are `members`
    /// of them, if that is known.
    fn end_tick(&mut self, all_past: u64, members: Option<usize>, finished: &mut Vec<Call>) {
        let over = self.pending.len().saturating_sub(MOST_PENDING);
        let mut left = VecDeque::with_capacity(self.pending.len());
        for (index, mut pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            pending.ticks = pending.ticks.saturating_add(1);
            let whole = members == Some(pending.call.starts.len());
            // A rank whose lane is not seen yet may come in a tick.
            if whole || (pending.call.number <= all_past && pending.ticks > 1) {
                self.finished_to = self.finished_to.max(Some(pending.call.number));
                finished.push(pending.call);
            } else if index < over {
                finished.push(pending.call);
            } else {
                left.push_back(pending);
            }
        }
        self.pending = left;
    }
}

/// The calls of a job.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    lanes: BTreeMap<Lane, Queue>,
    recent: VecDeque<Call>,
    /// How many of `recent`, from its end, were finished in this tick.
    new: usize,
    /// Calls finished in this tick that are no longer in `recent`.
    overflow: Vec<Call>,
}

impl Calls {
    /// The latest finished calls, newest first.
    pub fn recent(&self) -> impl Iterator<Item = &Call> {
        self.recent.iter().rev()
    }

    /// Those finished in this tick, oldest first.
    pub fn finished(&self) -> impl Iterator<Item = &Call> {
        self.overflow.iter().chain(self.recent.iter().skip(self.recent.len() - self.new))
    }

    pub(super) fn begin_tick(&mut self) {
        self.new = 0;
        self.overflow.clear();
    }

    /// A rank's new records.
    pub(super) fn take(&mut self, rank: u32, wall_offset_ns: i64, records: &[Record]) {
        let of = |record: &Record| (record.communicator, record.lane);
        for records in records.chunk_by(|a, b| of(a) == of(b)) {
            let queue = self.lanes.entry(of(&records[0])).or_default();
            queue.take(rank, wall_offset_ns, records);
        }
        let messages = records.iter().filter(|record| record.kind.is_message());
        self.finish(messages.map(|record| Call::new(rank, wall_offset_ns, record)).collect());
    }

    /// All ranks' records are in: finishes the calls to which none can be added.
    pub(super) fn end_tick(&mut self, processes: &[Process]) {
        let mut finished = Vec::new();
        for (&(communicator, lane), queue) in &mut self.lanes {
            if queue.pending.is_empty() {
                continue;
            }
            let all_past = processes.iter().filter_map(|process| process.is_past(communicator, lane)).min();
            let ranks = |process: &Process| {
                let mine =
                    process.latest.lanes.iter().find(|mine| (mine.communicator, mine.lane) == (communicator, lane));
                mine.map(|mine| mine.ranks as usize)
            };
            let members = processes.iter().find_map(ranks);
            queue.end_tick(all_past.unwrap_or(u64::MAX), members, &mut finished);
        }
        self.finish(finished);
        // Communicators come and go.
        if self.lanes.len() > MOST_LANES {
            self.lanes.retain(|_, queue| !queue.pending.is_empty());
        }
    }

    fn finish(&mut self, mut calls: Vec<Call>) {
        calls.sort_by_key(|call| (call.wall_ns, call.number));
        let old = self.recent.len() - self.new;
        self.new += calls.len();
        self.recent.extend(calls);
        let over = self.recent.len().saturating_sub(RECENT);
        self.overflow.extend(self.recent.drain(..over).skip(old));
        self.new = self.new.min(self.recent.len());
    }
}
