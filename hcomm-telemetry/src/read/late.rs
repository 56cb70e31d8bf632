//! Who waits for whom, from the files of a job's ranks on one host. The data path knows nothing of this.

use std::collections::BTreeMap;

use serde::Serialize;

use super::snapshot::{Lane, Now, Record, Snapshot};
use crate::names::Kind;

/// A call that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// Name of the job.
    pub job: String,
    /// Communicator, and its lane.
    pub communicator: u64,
    /// Lane of the communicator.
    pub lane: u32,
    /// Number of the call.
    pub number: u64,
    /// Kind.
    pub kind: Kind,
    /// Size in bytes, if known.
    pub bytes: Option<u64>,
    /// How long the first of those inside has been in it, in nanoseconds.
    pub age_ns: u64,
    /// Ranks of the job that are inside.
    pub inside: Vec<u32>,
    /// Ranks of the job that have not come to it, as far as their files can be seen, with the number of the last call that they
    /// began.
    pub late: Vec<(u32, u64)>,
    /// Ranks of the job that are in a later call of the lane.
    pub ahead: Vec<u32>,
    /// Ranks of the job whose process is stopped, inside or not.
    pub stopped: Vec<u32>,
    /// Ranks of the job whose process is gone.
    pub gone: Vec<u32>,
    /// Ranks of the job that those inside say they wait for.
    pub awaited: Vec<u32>,
    /// Ranks of the communicator of which nothing is seen here: they are on other hosts, or without telemetry.
    pub unseen: u32,
}

/// How far apart the ranks came to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skew {
    /// Name of the job.
    pub job: String,
    /// Communicator.
    pub communicator: u64,
    /// Lane of the communicator.
    pub lane: u32,
    /// Number of the call.
    pub number: u64,
    /// Kind.
    pub kind: Kind,
    /// Size in bytes.
    pub bytes: u64,
    /// Rank of the job, and how much later than the first it came, in nanoseconds; the first one first.
    pub ranks: Vec<(u32, u64)>,
}

/// The calls that some rank has been in for at least `least_ns`, the oldest first. Snapshots of several jobs and of ranks on
/// several hosts may be given; only those of one job and one host are compared.
pub fn stalls<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, least_ns: u64) -> Vec<Stall> {
    let mut stalls = Vec::new();
    for ranks in by_host(snapshots) {
        let mut lanes: BTreeMap<(u64, u32), Vec<(&Snapshot, &Lane)>> = BTreeMap::new();
        for snapshot in ranks {
            for lane in &snapshot.lanes {
                lanes.entry((lane.communicator, lane.lane)).or_default().push((snapshot, lane));
            }
        }
        stalls.extend(lanes.values().filter_map(|members| stall(members, least_ns)));
    }
    stalls.sort_by_key(|stall| std::cmp::Reverse(stall.age_ns));
    stalls
}

/// Snapshots of one job on one boot of one host.
fn by_host<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Vec<Vec<&'a Snapshot>> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Snapshot>> = BTreeMap::new();
    for snapshot in snapshots {
        let Snapshot { identity, .. } = snapshot;
        groups.entry((&identity.job, &identity.boot_id)).or_default().push(snapshot);
    }
    groups.into_values().collect()
}

/// What stands on one lane of one communicator.
fn stall(members: &[(&Snapshot, &Lane)], least_ns: u64) -> Option<Stall> {
    let age = |snapshot: &Snapshot, now: &Now| Some(snapshot.taken_ns.saturating_sub(now.since_ns?));
    let old = members.iter().filter_map(|(snapshot, lane)| {
        let now = lane.now.as_ref()?;
        Some((*snapshot, *lane, now, age(snapshot, now).filter(|&age| age >= least_ns)?))
    });
    // A rank that is stopped or gone hardly waits: the others may be in a later call, which cannot end for want of it.
    let waits = |of: &Snapshot| of.stopped != Some(true) && of.liveness != crate::Liveness::Dead;
    let (snapshot, lane, now, age_ns) = old.max_by_key(|(snapshot, .., age)| (waits(snapshot), *age))?;
    let message = now.kind.is_message();
    let seen = |snapshot: &Snapshot| snapshot.identity.wall_ns(snapshot.taken_ns);
    let since = snapshot.identity.wall_ns(now.since_ns.unwrap_or(0));
    let (mut inside, mut late, mut ahead, mut stopped, mut gone, mut awaited) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    for (other, other_lane) in members {
        let rank = other.identity.rank;
        // Messages are numbered by pair: nobody else can be said to be late to one.
        let same = other_lane.now.as_ref().is_some_and(|theirs| theirs.number == now.number && theirs.kind == now.kind);
        match () {
            () if same => {
                inside.push(rank);
                awaited.extend(other_lane.now.iter().flat_map(|now| &now.awaited));
            }
            // What was seen before the call began says nothing of it.
            () if !message && other_lane.begun < now.number && seen(other) >= since => {
                late.push((rank, other_lane.begun))
            }
            () if !message && other_lane.begun > now.number && other_lane.is_inside() => ahead.push(rank),
            () => {}
        }
        if other.stopped == Some(true) {
            stopped.push(rank);
        }
        if other.liveness == crate::Liveness::Dead {
            gone.push(rank);
        }
    }
    awaited.sort_unstable();
    awaited.dedup();
    Some(Stall {
        job: snapshot.identity.job.clone(),
        communicator: lane.communicator,
        lane: lane.lane,
        number: now.number,
        kind: now.kind,
        bytes: now.bytes,
        age_ns,
        inside,
        late,
        ahead,
        stopped,
        gone,
        awaited,
        unseen: lane.ranks.saturating_sub(members.len() as u32),
    })
}

/// Ranks with their records, by communicator, lane and number.
type Calls<'a> = BTreeMap<(u64, u32, u64), Vec<(u32, &'a Record)>>;

/// How far apart ranks came to the calls that at least two of them timed. Records whose begin is not known are left out.
pub fn skews(snapshots: &[Snapshot]) -> Vec<Skew> {
    let mut skews = Vec::new();
    for ranks in by_host(snapshots) {
        let mut calls: Calls<'_> = BTreeMap::new();
        for snapshot in &ranks {
            for record in snapshot.records.iter().filter(|record| !record.late_start && !record.kind.is_message()) {
                let key = (record.communicator, record.lane, record.number);
                calls.entry(key).or_default().push((snapshot.identity.rank, record));
            }
        }
        for ((communicator, lane, number), mut came) in calls {
            came.sort_by_key(|(rank, record)| (record.start_ns, *rank));
            let [(_, first), _, ..] = came[..] else { continue };
            skews.push(Skew {
                job: ranks[0].identity.job.clone(),
                communicator,
                lane,
                number,
                kind: first.kind,
                bytes: first.bytes,
                ranks: came.iter().map(|(rank, record)| (*rank, record.start_ns - first.start_ns)).collect(),
            });
        }
    }
    skews
}
