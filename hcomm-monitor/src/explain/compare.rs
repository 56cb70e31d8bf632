//! From records to findings.

use std::collections::BTreeMap;

use hcomm_telemetry::flight::{FlightLane, FlightRecord};
use hcomm_telemetry::{Call, Kind};
use serde::Serialize;

use super::files::{Found, missing};
use crate::units;

/// Communicator and lane: where numbers of calls are compared.
pub type Lane = (u64, u32);

/// What is wrong, the cause before its consequences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// Ranks made different calls with the same number.
    Diverged {
        communicator: u64,
        lane: u32,
        /// The first number at which that is known.
        number: u64,
        /// Each call, and the ranks that made it; what most made first.
        calls: Vec<Made>,
    },
    /// Ranks of which there is no record and for which others wait.
    Silent {
        communicator: u64,
        lane: u32,
        /// The call in which the others are.
        number: u64,
        operation: Kind,
        ranks: Vec<u32>,
        /// Who waits for them.
        waiting_ranks: Vec<u32>,
    },
    /// Ranks that have not come to the call in which others are.
    Behind {
        communicator: u64,
        lane: u32,
        number: u64,
        operation: Option<Kind>,
        waiting_ranks: Vec<u32>,
        ranks: Vec<Late>,
    },
    /// All whose records are here are in the same call.
    AllInside {
        communicator: u64,
        lane: u32,
        number: u64,
        operation: Kind,
        ranks: Vec<u32>,
        /// Ranks that others wait for.
        awaited_ranks: Vec<u32>,
        /// The rank that came last, and how much later than the first by the clocks of their hosts.
        last_rank: Option<u32>,
        last_rank_late_ns: Option<u64>,
    },
}

/// A call and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Made {
    pub ranks: Vec<u32>,
    /// The call in words.
    pub call: String,
}

/// A rank that is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Late {
    pub rank: u32,
    /// The last call that it began,
    pub begun: u64,
    /// in words, if it is known,
    pub call: Option<String>,
    /// whether it is still in it,
    pub inside: bool,
    /// and the message that it is in, if any, in words.
    pub message: Option<String>,
}

/// What the records say together. They are sorted by rank.
pub fn findings(records: &[Found]) -> Vec<Finding> {
    let mut lanes: BTreeMap<Lane, Vec<(u32, &FlightLane)>> = BTreeMap::new();
    for Found { record, .. } in records {
        for lane in &record.lanes {
            lanes.entry((lane.communicator, lane.lane)).or_default().push((record.rank, lane));
        }
    }
    let missing = missing(records);
    let mut findings: Vec<Finding> = lanes.iter().filter_map(|(lane, ranks)| diverged(*lane, ranks)).collect();
    findings.extend(lanes.iter().filter_map(|(lane, ranks)| silent(*lane, ranks, &missing)));
    // Ranks that are not in the other's call wait for something else, or nothing, because they call other things.
    let apart: Vec<Lane> = findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Diverged { communicator, lane, .. } => Some((*communicator, *lane)),
            _ => None,
        })
        .collect();
    for (lane, ranks) in lanes.iter().filter(|(lane, _)| !apart.contains(lane)) {
        findings.extend(behind(*lane, ranks).or_else(|| all_inside(*lane, ranks)));
    }
    findings
}

/// The first number at which ranks made different calls, as far back as the records go.
fn diverged(lane: Lane, ranks: &[(u32, &FlightLane)]) -> Option<Finding> {
    let mut numbers: BTreeMap<u64, Vec<(u32, &Call)>> = BTreeMap::new();
    for (rank, mine) in ranks {
        for call in &mine.calls {
            numbers.entry(call.number).or_default().push((*rank, call));
        }
    }
    for (number, calls) in numbers {
        let mut made: Vec<(&Call, Vec<u32>)> = Vec::new();
        for (rank, call) in calls {
            match made.iter_mut().find(|(other, _)| agree(other, call)) {
                Some((_, ranks)) => ranks.push(rank),
                None => made.push((call, vec![rank])),
            }
        }
        if made.len() > 1 {
            made.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
            let calls = made.into_iter().map(|(call, ranks)| Made { ranks, call: words(call) }).collect();
            return Some(Finding::Diverged { communicator: lane.0, lane: lane.1, number, calls });
        }
    }
    None
}

/// Whether two ranks made the same call: what does not matter to it is not compared, nor are counts that each rank has its own of.
fn agree(a: &Call, b: &Call) -> bool {
    (a.kind, a.even, a.element) == (b.kind, b.even, b.element)
        && (!a.even || a.count == b.count)
        && (!reduces(a.kind) || a.operation == b.operation)
        && (!rooted(a.kind) || a.root == b.root)
}

fn reduces(kind: Kind) -> bool {
    matches!(kind.name(), "all_reduce" | "reduce_scatter" | "reduce")
}

fn rooted(kind: Kind) -> bool {
    matches!(kind.name(), "broadcast" | "reduce" | "scatter" | "gather")
}

/// A call as the library's errors write it.
pub fn words(call: &Call) -> String {
    let uneven = if call.even { "" } else { " uneven" };
    let mut text = format!("{}({}{uneven} x {}", call.kind, call.count, call.element.unwrap_or("?"));
    if reduces(call.kind) {
        text += &format!(", {}", call.operation.unwrap_or("?"));
    }
    if rooted(call.kind) {
        text += &format!(", root {}", call.root);
    }
    text + ")"
}

/// Ranks without a record that others name as those for whom they wait.
fn silent(lane: Lane, ranks: &[(u32, &FlightLane)], missing: &[u32]) -> Option<Finding> {
    let waits = |mine: &FlightLane| -> Vec<u32> {
        let awaited = mine.now.iter().flat_map(|now| &now.awaited_ranks);
        awaited.filter(|rank| missing.binary_search(rank).is_ok()).copied().collect()
    };
    let waiting: Vec<(u32, &FlightLane)> = ranks.iter().filter(|(_, mine)| !waits(mine).is_empty()).copied().collect();
    let now = waiting.first().and_then(|(_, mine)| mine.now.as_ref())?;
    let mut awaited: Vec<u32> = waiting.iter().flat_map(|(_, mine)| waits(mine)).collect();
    awaited.sort_unstable();
    awaited.dedup();
    Some(Finding::Silent {
        communicator: lane.0,
        lane: lane.1,
        number: now.number,
        operation: now.operation,
        ranks: awaited,
        waiting_ranks: waiting.iter().map(|(rank, _)| *rank).collect(),
    })
}

/// Ranks that have begun fewer calls than others.
fn behind(lane: Lane, ranks: &[(u32, &FlightLane)]) -> Option<Finding> {
    let number = ranks.iter().map(|(_, mine)| mine.begun).max()?;
    let (front, late): (Vec<_>, Vec<_>) = ranks.iter().partition(|(_, mine)| mine.begun == number);
    let inside: Vec<_> = front.iter().filter(|(_, mine)| mine.ended < number).collect();
    if late.is_empty() || inside.is_empty() {
        return None;
    }
    let late = late.iter().map(|(rank, mine)| Late {
        rank: *rank,
        begun: mine.begun,
        call: mine.calls.iter().find(|call| call.number == mine.begun).map(words),
        inside: mine.ended < mine.begun,
        message: mine.now.as_ref().filter(|now| now.operation.is_message()).map(|now| {
            let awaited = units::ranks(&now.awaited_ranks);
            let whom = if now.awaited_ranks.is_empty() { String::new() } else { format!(", and waits for {awaited}") };
            format!("{} #{}{whom}", now.operation, now.number)
        }),
    });
    let operation = |mine: &FlightLane| mine.calls.iter().find(|call| call.number == number).map(|call| call.kind);
    Some(Finding::Behind {
        communicator: lane.0,
        lane: lane.1,
        number,
        operation: inside.iter().find_map(|(_, mine)| operation(mine)),
        waiting_ranks: inside.iter().map(|(rank, _)| *rank).collect(),
        ranks: late.collect(),
    })
}

/// All have come, and none went on.
fn all_inside(lane: Lane, ranks: &[(u32, &FlightLane)]) -> Option<Finding> {
    let inside: Vec<_> = ranks.iter().filter_map(|(rank, mine)| Some((*rank, mine.now.as_ref()?))).collect();
    let (_, first) = inside.first()?;
    let mut awaited: Vec<u32> = inside.iter().flat_map(|(_, now)| now.awaited_ranks.iter().copied()).collect();
    awaited.sort_unstable();
    awaited.dedup();
    let since = || inside.iter().filter_map(|(rank, now)| Some((now.since_unix_ns?, *rank)));
    let late = since().max().zip(since().min()).filter(|(last, first)| last.1 != first.1);
    Some(Finding::AllInside {
        communicator: lane.0,
        lane: lane.1,
        number: first.number,
        operation: first.operation,
        ranks: inside.iter().map(|(rank, _)| *rank).collect(),
        awaited_ranks: awaited,
        last_rank: late.map(|(last, _)| last.1),
        last_rank_late_ns: late.map(|(last, first)| last.0 - first.0),
    })
}

/// The record that was written first: its error is the least likely to follow from another's.
pub fn first_error(records: &[Found]) -> Option<&FlightRecord> {
    records.iter().map(|found| &found.record).min_by_key(|record| record.written_unix_ns)
}

impl Finding {
    /// In words: a sentence each line.
    pub fn sentences(&self) -> Vec<String> {
        let ranks = |ranks: &[u32]| units::ranks(ranks);
        match self {
            Finding::Diverged { communicator, lane, number, calls } => {
                let made = calls.iter().map(|made| format!("  {} called {}", ranks(&made.ranks), made.call));
                let where_ = place(*communicator, *lane);
                std::iter::once(format!("Ranks diverged at call #{number}{where_}: none can go on."))
                    .chain(made)
                    .collect()
            }
            Finding::Silent { communicator, lane, number, operation, ranks: silent, waiting_ranks } => vec![format!(
                "{} left no record, and {} {} for {} in {operation} #{number}{}: killed, stopped, or busy outside hcomm.",
                capital(&ranks(silent)),
                ranks(waiting_ranks),
                if waiting_ranks.len() == 1 { "waits" } else { "wait" },
                if silent.len() == 1 { "it" } else { "them" },
                place(*communicator, *lane),
            )],
            Finding::Behind { communicator, lane, number, operation, waiting_ranks, ranks: late } => {
                let all: Vec<u32> = late.iter().map(|late| late.rank).collect();
                let call = operation.map_or("call".into(), |kind| kind.to_string());
                let mut sentences = vec![format!(
                    "{} {} behind: {} {} in {call} #{number}{}.",
                    capital(&ranks(&all)),
                    if all.len() == 1 { "is" } else { "are" },
                    ranks(waiting_ranks),
                    if waiting_ranks.len() == 1 { "waits" } else { "wait" },
                    place(*communicator, *lane),
                )];
                sentences.extend(late.iter().map(Late::sentence));
                sentences
            }
            Finding::AllInside { communicator, lane, number, operation, ranks: inside, awaited_ranks, .. } => {
                let place = place(*communicator, *lane);
                let mut text = format!(
                    "{} {} in {operation} #{number}{place}",
                    capital(&ranks(inside)),
                    if inside.len() == 1 { "was" } else { "were" }
                );
                if !awaited_ranks.is_empty() {
                    text += &format!("; waited for: {}", ranks(awaited_ranks));
                }
                if let Finding::AllInside { last_rank: Some(last), last_rank_late_ns: Some(late), .. } = self {
                    text += &format!("; rank {last} came last, {} after the first", units::duration(*late));
                }
                vec![text + "."]
            }
        }
    }
}

impl Late {
    fn sentence(&self) -> String {
        let Late { rank, begun, call, inside, message } = self;
        let call = call.as_deref().map_or(String::new(), |call| format!(", {call}"));
        let last = match begun {
            0 => "has made no call there".to_owned(),
            _ if *inside => format!("is still in #{begun}{call}"),
            _ => format!("has ended #{begun}{call}, and did not come to the next"),
        };
        let message = message.as_deref().map_or(String::new(), |message| format!("; it is in {message}"));
        format!("  rank {rank} {last}{message}")
    }
}

/// Where a call is numbered; nothing for the lane on which most are.
fn place(communicator: u64, lane: u32) -> String {
    match (communicator, lane) {
        (0, 0) => String::new(),
        (0, lane) => format!(" of lane {lane}"),
        (communicator, lane) => format!(" of communicator {communicator:x}, lane {lane}"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
