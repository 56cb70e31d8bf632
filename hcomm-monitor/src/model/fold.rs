//! Ranks that are alike as one row, those that are not first: ten thousand ranks fit a screen.

use std::collections::{BTreeMap, BTreeSet};

use hcomm_telemetry::Kind;

use super::job::Job;
use super::process::Process;
use super::ranks::{Condition, RankRow};

/// Rows of ranks with nothing odd about them, at most; the smallest groups beyond are one row.
const MOST_ROWS: usize = 12;
/// A rank that was not heard of for so long is silent, if others were.
const SILENT_NS: u64 = 10_000_000_000;
/// Share of segments sent again above which a path counts as bad.
const LOSSY: f64 = 0.01;
/// Share of the time in operations above which ranks are said to wait for one that has less than half of it.
const WAITING: f64 = 0.2;
/// Share of calls to which a rank comes last, above which it is late: with that of two ranks it says nothing.
const LAST: f64 = 0.6;
/// Median lateness from which on that matters, in nanoseconds.
const LATE_NS: u64 = 50_000;

/// What sets ranks apart, the worst first.
#[derive(Debug, Clone, PartialEq)]
pub enum Oddity {
    /// An operation failed; the error of the first.
    Failed(String),
    /// Gone without a word.
    Killed,
    /// Stopped (SIGSTOP, a debugger).
    Stopped,
    /// Others stand in an operation to which they have not come.
    Missing,
    /// They stand in an operation, for so long at most, in nanoseconds.
    Standing(Kind, u64),
    /// Not heard of for so long at most, in nanoseconds.
    Silent(u64),
    /// A path loses up to this share of its segments.
    Lossy(f64),
    /// The others wait for them: they came last to this share of calls at least.
    Late(f64),
    /// The others wait for them: they spend this share of their time in operations, the others at least twice as much.
    Busy(f64),
}

impl Oddity {
    /// Those of one kind are one row.
    fn rank(&self) -> u8 {
        match self {
            Oddity::Failed(_) => 0,
            Oddity::Killed => 1,
            Oddity::Stopped => 2,
            Oddity::Missing => 3,
            Oddity::Standing(..) => 4,
            Oddity::Silent(_) => 5,
            Oddity::Lossy(_) => 6,
            Oddity::Late(_) => 7,
            Oddity::Busy(_) => 8,
        }
    }

    fn join(&mut self, other: Oddity) {
        match (self, other) {
            (Oddity::Standing(_, a), Oddity::Standing(_, b)) | (Oddity::Silent(a), Oddity::Silent(b)) => {
                *a = (*a).max(b)
            }
            (Oddity::Lossy(a), Oddity::Lossy(b)) => *a = a.max(b),
            (Oddity::Late(a), Oddity::Late(b)) | (Oddity::Busy(a), Oddity::Busy(b)) => *a = a.min(b),
            _ => {}
        }
    }
}

/// Ranks that are alike.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The ranks, in order.
    pub ranks: Vec<u32>,
    /// Their hosts, in order.
    pub hosts: Vec<String>,
    /// How they are; of one of them, where that has an error.
    pub condition: Condition,
    /// What sets them apart; `None` for those that are as they should be.
    pub oddity: Option<Oddity>,
    /// Calls that ended well: fewest and most.
    pub calls: (u64, u64),
    /// Bytes of those: fewest and most.
    pub bytes: (u64, u64),
    /// Calls a second of the interval, the mean; `None` when nothing is known of it.
    pub calls_per_s: Option<f64>,
    /// Share of the interval that they spent in operations, the mean. Above 1 where several run at a time.
    pub inside: Option<f64>,
    /// Segments that their sockets sent again, the sum; `None` when there are no sockets.
    pub retransmits: Option<u64>,
}

/// A rank as it is folded.
struct Member<'a> {
    process: &'a Process,
    row: RankRow,
    calls_per_s: Option<f64>,
    inside: Option<f64>,
    retransmits: Option<u64>,
    oddity: Option<Oddity>,
}

impl<'a> Member<'a> {
    fn of(process: &'a Process) -> Self {
        let interval = process.interval.as_ref();
        let per_s = |of: fn(&hcomm_telemetry::Operation) -> u64| {
            interval.map(|interval| interval.operations.iter().map(of).sum::<u64>() as f64 / interval.seconds)
        };
        let links = &process.latest.links;
        let retransmits = links.iter().filter_map(|link| link.retransmits).reduce(u64::saturating_add);
        Self {
            process,
            row: RankRow::of(process),
            calls_per_s: per_s(|operation| operation.count),
            inside: per_s(|operation| operation.total_ns).map(|ns| ns / 1e9),
            retransmits,
            oddity: None,
        }
    }

    /// Ranks that do the same: the same operations, in the same condition.
    fn likeness(&self) -> (&'static str, BTreeSet<(Kind, u8, u32)>) {
        let keys = self.process.latest.operations.iter().map(|operation| operation.key());
        (self.row.condition.word(), keys.collect())
    }
}

/// The ranks of a job, the odd ones first, then the largest groups of equal ones.
pub(super) fn folds(job: &Job, now_ns: u64) -> Vec<Fold> {
    let mut members: Vec<Member<'_>> = job.processes().map(Member::of).collect();
    judge(job, &mut members, now_ns);
    let mut odd: BTreeMap<u8, Vec<Member<'_>>> = BTreeMap::new();
    let mut even: BTreeMap<_, Vec<Member<'_>>> = BTreeMap::new();
    for member in members {
        match &member.oddity {
            Some(oddity) => odd.entry(oddity.rank()).or_default().push(member),
            None => even.entry(member.likeness()).or_default().push(member),
        }
    }
    let mut even: Vec<Vec<Member<'_>>> = even.into_values().collect();
    even.sort_by_key(|members| (std::cmp::Reverse(members.len()), members[0].row.rank));
    if even.len() > MOST_ROWS {
        let mut rest: Vec<_> = even.drain(MOST_ROWS - 1..).flatten().collect();
        rest.sort_by_key(|member| member.row.rank);
        even.push(rest);
    }
    odd.into_values().chain(even).filter_map(fold).collect()
}

/// Finds what is odd about each.
fn judge(job: &Job, members: &mut [Member<'_>], now_ns: u64) {
    let over = job.is_over();
    let mut shares: Vec<f64> = members.iter().filter_map(|member| member.inside).collect();
    shares.sort_by(f64::total_cmp);
    let usual = shares.get(shares.len() / 2).copied().unwrap_or(0.0);
    let quiet = |member: &Member<'_>| now_ns.saturating_sub(member.process.changed_ns);
    let shortest = members.iter().map(quiet).min().unwrap_or(0);
    let mut standing: BTreeMap<u32, (Kind, u64)> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for stall in job.stalls() {
        standing.extend(stall.inside.iter().map(|&rank| (rank, (stall.kind, stall.age_ns))));
        missing.extend(stall.late.iter().map(|(rank, _)| *rank));
        missing.extend(stall.awaited.iter().filter(|rank| !stall.inside.contains(rank)));
    }
    for member in members {
        let rank = member.row.rank;
        let silent = quiet(member);
        let loss = member.process.latest.paths.iter().filter_map(|path| path.loss()).max_by(f64::total_cmp);
        let late = member.row.last_share.filter(|&share| share > LAST && member.row.late_p50_ns > Some(LATE_NS));
        member.oddity = match &member.row.condition {
            Condition::Failed(error) => Some(Oddity::Failed(error.clone())),
            Condition::Killed => Some(Oddity::Killed),
            Condition::Ended => None,
            _ if over => None,
            Condition::Stopped => Some(Oddity::Stopped),
            Condition::Running if missing.contains(&rank) => Some(Oddity::Missing),
            Condition::Running if silent > SILENT_NS && silent / 4 > shortest => Some(Oddity::Silent(silent)),
            Condition::Running => {
                let stands = standing.get(&rank).map(|&(kind, age)| Oddity::Standing(kind, age));
                let lossy = loss.filter(|&loss| loss > LOSSY).map(Oddity::Lossy);
                let busy = member.inside.filter(|&share| usual > WAITING && share < usual / 2.0).map(Oddity::Busy);
                stands.or(lossy).or(late.map(Oddity::Late)).or(busy)
            }
        };
    }
}

fn fold(members: Vec<Member<'_>>) -> Option<Fold> {
    let mean = |of: fn(&Member<'_>) -> Option<f64>| {
        let known: Vec<f64> = members.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let span = |of: fn(&RankRow) -> u64| {
        let values = || members.iter().map(|member| of(&member.row));
        (values().min().unwrap_or(0), values().max().unwrap_or(0))
    };
    let hosts: BTreeSet<&str> = members.iter().map(|member| member.row.host.as_str()).collect();
    Some(Fold {
        ranks: members.iter().map(|member| member.row.rank).collect(),
        hosts: hosts.into_iter().map(str::to_owned).collect(),
        condition: members.first()?.row.condition.clone(),
        oddity: members.iter().filter_map(|member| member.oddity.clone()).reduce(|mut all, one| {
            all.join(one);
            all
        }),
        calls: span(|row| row.calls),
        bytes: span(|row| row.bytes),
        calls_per_s: mean(|member| member.calls_per_s),
        inside: mean(|member| member.inside),
        retransmits: members.iter().filter_map(|member| member.retransmits).reduce(u64::saturating_add),
    })
}
