//! What telemetry is told of calls, and what becomes of it when one fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use hcomm_telemetry::{
    Kind, LaneWriter, Options, ProfileStats, Reader, Recorder, Shape, TRANSPORTS, Traffic, flight, monotonic_ns,
};

use super::call::{Call, RunInfo};
use super::group::Group;
use super::world::World;
use crate::config::{Debug, Telemetry};
use crate::control::Activity;
use crate::engine::Waiter;
use crate::error::Error;
use crate::plan::{Operand, RankPlan, Step};
use crate::reduce::DataType;

/// Where the call under way is written down.
pub(super) struct Log<'a> {
    pub writer: Option<&'a mut LaneWriter>,
    pub number: u64,
    pub shape: Option<&'a Arc<Shape>>,
}

impl Log<'_> {
    /// The call is about to sleep, for want of `senders` and of those that have not taken what was sent to them.
    #[cold]
    pub fn sleeps(
        &mut self,
        waiter: &Waiter,
        group: &Group,
        senders: impl Iterator<Item = usize>,
        unsent: impl Iterator<Item = usize>,
    ) {
        let (Some(writer), Some(shape)) = (&mut self.writer, self.shape) else { return };
        let waited = waiter.since().map_or(0, |since| since.elapsed().as_nanos() as u64);
        let mut ranks: Vec<u32> = senders.chain(unsent).map(|rank| group.world_ranks[rank] as u32).collect();
        ranks.sort_unstable();
        ranks.dedup();
        writer.sleeps(self.number, shape, monotonic_ns().saturating_sub(waited), ranks.into_iter());
    }
}

pub(super) fn transport_number(name: &str) -> u8 {
    TRANSPORTS.iter().position(|known| *known == name).map_or(u8::MAX, |at| at as u8)
}

/// Bytes by peer, of the group.
type Bytes = BTreeMap<usize, (u64, u64)>;

fn traffic_of(group: &Group, bytes: Bytes) -> Vec<Traffic> {
    let peers = bytes.into_iter().filter(|(peer, _)| *peer != group.me);
    let traffic = peers.map(|(peer, (sent_bytes, received_bytes))| Traffic {
        peer: group.world_ranks[peer] as u32,
        transport: transport_number(if group.shared[peer] { "shm" } else { "tcp" }),
        sent_bytes,
        received_bytes,
    });
    traffic.collect()
}

/// What a plan moves between this rank and each other, in bytes.
fn traffic(group: &Group, plan: &RankPlan, element: u64) -> Vec<Traffic> {
    let mut bytes = Bytes::new();
    let mut sent = |peer: usize, count: u64| bytes.entry(peer).or_default().0 += count * element;
    for step in plan.tracks.iter().flatten() {
        match step {
            Step::Send { peer, src } => sent(*peer, src.count),
            Step::RecvReduceSend { dst, to, .. } | Step::RecvSend { dst, to, .. } => sent(*to, dst.count),
            Step::Reduce { dsts, .. } => remote(dsts).for_each(|(peer, count)| sent(peer, count)),
            Step::Copy { dst, .. } => remote([dst]).for_each(|(peer, count)| sent(peer, count)),
            Step::Recv { .. } | Step::RecvReduce { .. } => {}
        }
    }
    let mut received = |peer: usize, count: u64| bytes.entry(peer).or_default().1 += count * element;
    for step in plan.tracks.iter().flatten() {
        match step {
            Step::Recv { peer, dst } | Step::RecvReduce { peer, dst, .. } => received(*peer, dst.count),
            Step::RecvReduceSend { from, dst, .. } | Step::RecvSend { from, dst, .. } => received(*from, dst.count),
            Step::Reduce { srcs, .. } => remote(srcs).for_each(|(peer, count)| received(peer, count)),
            Step::Copy { src, .. } => remote([src]).for_each(|(peer, count)| received(peer, count)),
            Step::Send { .. } => {}
        }
    }
    traffic_of(group, bytes)
}

/// Operands in other ranks' memory: rank and elements.
fn remote<'a>(operands: impl IntoIterator<Item = &'a Operand>) -> impl Iterator<Item = (usize, u64)> {
    operands.into_iter().filter_map(|operand| Some((operand.rank?, operand.range.count)))
}

/// What a collective is counted as.
pub(super) fn shape(
    group: &Group,
    call: &Call,
    info: &RunInfo,
    bytes: u64,
    root: Option<usize>,
    plan: &RankPlan,
) -> Shape {
    Shape {
        kind: Kind(call.collective as u8),
        algorithm: info.algorithm as u8,
        transport: transport_number(info.transport),
        channels: info.channels as u8,
        element: call.dtype as u8,
        operation: call.op as u8,
        peer: root.map(|root| root as u32),
        chunk_bytes: info.chunk_bytes.try_into().unwrap_or(u32::MAX),
        bytes,
        traffic: traffic(group, plan, call.dtype.size() as u64),
    }
}

/// What a message is counted as: to and from a rank of the group, with the bytes. `last` is given back if it is the same.
pub(super) fn message(
    group: &Group,
    to: Option<(usize, u64)>,
    from: Option<(usize, u64)>,
    dtype: DataType,
    last: Option<Arc<Shape>>,
) -> Arc<Shape> {
    let (kind, peer) = match (to, from) {
        (Some((peer, _)), None) => (Kind::SEND, peer),
        (None, Some((peer, _))) => (Kind::RECEIVE, peer),
        (to, from) => (Kind::SEND_RECEIVE, to.or(from).map_or(0, |(peer, _)| peer)),
    };
    let (sent, received) = (to.map_or(0, |(_, bytes)| bytes), from.map_or(0, |(_, bytes)| bytes));
    let world_rank = |side: Option<(usize, u64)>| side.map(|(peer, _)| group.world_ranks[peer] as u32);
    let same = |shape: &Shape| {
        let peers = |t: &Traffic| {
            (t.sent_bytes == 0 || Some(t.peer) == world_rank(to))
                && (t.received_bytes == 0 || Some(t.peer) == world_rank(from))
        };
        let sum = |of: fn(&Traffic) -> u64| shape.traffic.iter().map(of).sum::<u64>();
        (shape.kind, shape.peer, shape.element) == (kind, Some(peer as u32), dtype as u8)
            && (sum(|t| t.sent_bytes), sum(|t| t.received_bytes)) == (sent, received)
            && shape.traffic.iter().all(peers)
    };
    if let Some(last) = last.filter(|last| same(last)) {
        return last;
    }
    let mut bytes = Bytes::new();
    if let Some((peer, sent)) = to {
        bytes.entry(peer).or_default().0 += sent;
    }
    if let Some((peer, received)) = from {
        bytes.entry(peer).or_default().1 += received;
    }
    Arc::new(Shape {
        kind,
        algorithm: u8::MAX,
        transport: transport_number(if group.shared[peer] { "shm" } else { "tcp" }),
        channels: 1,
        element: dtype as u8,
        operation: u8::MAX,
        peer: Some(peer as u32),
        chunk_bytes: 0,
        bytes: sent.max(received),
        traffic: traffic_of(group, bytes),
    })
}

impl World {
    /// Makes the telemetry file, unless it is switched off. Without one the job runs all the same.
    pub(super) fn start_telemetry(&self) -> Option<Arc<Recorder>> {
        let folder = match &self.config.telemetry {
            Telemetry::Off => return None,
            Telemetry::On => None,
            Telemetry::Folder(folder) => Some(folder.as_path()),
        };
        let options = Options {
            folder,
            job: &self.place.job_id,
            rank: self.place.rank as u32,
            world_size: self.place.size as u32,
            host: self.host_of(self.place.rank),
        };
        match Recorder::create(&options) {
            Ok(recorder) => Some(recorder),
            Err(refused) => {
                self.config.debug.say(Debug::Warn, || format!("runs without telemetry: {refused}"));
                None
            }
        }
    }

    /// Where the calls of a lane are written down: for the other ranks, and for tools.
    pub(super) fn write_down(&self, key: u64, group: &Group, lane: u32) -> (Arc<Activity>, Option<LaneWriter>) {
        let writer = self.telemetry.as_ref().and_then(|recorder| recorder.lane(group.id, lane, group.size() as u32));
        let activity = Arc::new(writer.as_ref().map_or_else(Activity::default, |writer| writer.calls().into()));
        if let Some(membership) = &self.membership {
            membership.tell_of(key, &activity);
        }
        (activity, writer)
    }

    pub(super) fn profile_stats(&self) -> Option<ProfileStats> {
        let snapshot = Reader::of(self.telemetry.as_ref()?).and_then(|mut reader| reader.snapshot());
        match snapshot {
            Ok(snapshot) => Some(ProfileStats::of(&snapshot)),
            Err(cause) => {
                self.config.debug.say(Debug::Warn, || format!("the telemetry file cannot be read: {cause}"));
                None
            }
        }
    }

    /// Notes that an operation failed, and writes what this rank did last to a file that the error then names.
    #[cold]
    pub(super) fn record_failure(&self, error: Error) -> Error {
        let Some(recorder) = &self.telemetry else { return error };
        let text = error.to_string();
        recorder.failed(&text);
        let written = Reader::of(recorder).and_then(|mut reader| reader.snapshot()).map_err(|cause| cause.to_string());
        let written = written.and_then(|snapshot| {
            let lines = flight::lines(&snapshot, error.code(), &text);
            recorder.write_flight_record(lines.as_bytes()).map_err(|cause| cause.to_string())
        });
        match written {
            Ok(path) => error.with_note(&format!("; what this rank did last is in {}", path.display())),
            Err(cause) => {
                self.config.debug.say(Debug::Warn, || format!("no flight record is written: {cause}"));
                error
            }
        }
    }
}
