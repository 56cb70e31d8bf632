//! Proves a request's plans without a network: all ranks are run symbolically and every output element must hold exactly
//! the right contributions, no step may wait for ever, leave its buffers, or race with another.
//!
//! One run decides. Steps of a track run in order, messages of a link and track arrive in order, and tracks of a rank
//! share no memory that one of them writes (checked), so the result does not depend on timing; and a run in which each
//! queue holds one message, and a step waits while it would overwrite a message still queued, meets every wait that any
//! engine can meet. Remote plans share memory between ranks: there vector clocks show that every two conflicting accesses
//! are ordered by messages.

mod machine;
mod memory;
mod races;

use std::collections::BTreeMap;

use self::machine::Machine;
use self::memory::{Run, Value, aligned};
use super::{Collective, RankPlan, Request};
use crate::error::Error;

/// Why a request's plans are not right.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// There are no plans.
    #[error(transparent)]
    Unsuited(#[from] Error),
    /// More ranks than can be verified (64: a rank is a bit).
    #[error("{0} ranks: at most 64 can be verified")]
    TooMany(usize),
    /// A plan does something wrong.
    #[error("rank {rank}: {what}")]
    Wrong {
        /// The rank whose plan it is.
        rank: usize,
        /// What it does.
        what: String,
    },
}

impl Fault {
    fn wrong(rank: usize, what: impl Into<String>) -> Fault {
        Fault::Wrong { rank, what: what.into() }
    }
}

/// What plans move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Elements that go from one rank to another: sent, or in remote plans read or written in place.
    pub elements: BTreeMap<(usize, usize), u64>,
    /// Messages, notes included.
    pub messages: u64,
    /// Every reduced element is one left fold by rank with one rounding.
    pub rank_ordered: bool,
}

impl Traffic {
    /// Elements that leave `rank`.
    pub fn sent_by(&self, rank: usize) -> u64 {
        self.elements.iter().filter(|((from, _), _)| *from == rank).map(|(_, count)| count).sum()
    }

    /// Elements on all links together.
    pub fn total(&self) -> u64 {
        self.elements.values().sum()
    }
}

/// Builds and verifies the plans of all ranks.
///
/// # Errors
/// [`Fault`], with the first rank found at fault.
pub fn verify(request: &Request) -> Result<Traffic, Fault> {
    request.supports()?;
    if request.ranks > 64 {
        return Err(Fault::TooMany(request.ranks));
    }
    let plans = (0..request.ranks).map(|rank| super::build(request, rank)).collect::<Result<Vec<_>, _>>()?;
    verify_plans(request, &plans)
}

/// Verifies given plans, one a rank, as answers to `request`.
///
/// # Errors
/// As [`verify`].
pub fn verify_plans(request: &Request, plans: &[RankPlan]) -> Result<Traffic, Fault> {
    request.supports()?;
    if request.ranks > 64 {
        return Err(Fault::TooMany(request.ranks));
    }
    if plans.len() != request.ranks {
        return Err(Fault::wrong(plans.len(), format!("{} plans for {} ranks", plans.len(), request.ranks)));
    }
    let mut machine = Machine::new(request, plans)?;
    machine.run()?;
    let mut traffic = machine.traffic()?;
    traffic.rank_ordered = true;
    let mut first: Option<Vec<Run>> = None;
    for rank in 0..request.ranks {
        let output = machine.output(rank);
        let ordered = check_output(request, rank, output.clone())?;
        traffic.rank_ordered &= ordered;
        if request.collective == Collective::AllReduce {
            let first = first.get_or_insert_with(|| output.clone());
            same_bits(rank, first, output)?;
        }
    }
    Ok(traffic)
}

/// What `rank` brings: runs of its input.
fn input(request: &Request, rank: usize) -> Vec<Run> {
    let count = request.input_count(rank);
    let element = match request.collective {
        Collective::AllGather | Collective::Gather => request.displacement(rank),
        _ => 0,
    };
    vec![Run { count, value: Some(Value::own(rank, element)) }]
}

/// What `rank`'s output must be: (count, ranks, first element).
fn expected(request: &Request, rank: usize) -> Vec<(u64, u64, u64)> {
    let n = request.ranks;
    let all = u64::MAX >> (64 - n);
    let count = request.output_count(rank);
    match request.collective {
        Collective::AllReduce | Collective::Reduce => vec![(count, all, 0)],
        Collective::ReduceScatter => vec![(count, all, request.displacement(rank))],
        Collective::Broadcast => vec![(count, 1 << request.root, 0)],
        Collective::Scatter => vec![(count, 1 << request.root, request.displacement(rank))],
        Collective::AllGather | Collective::Gather if count > 0 => {
            (0..n).map(|from| (request.block(from), 1 << from, request.displacement(from))).collect()
        }
        Collective::AllToAll => (0..n)
            .map(|from| (request.pair(from, rank), 1 << from, (0..rank).map(|to| request.pair(from, to)).sum()))
            .collect(),
        Collective::SendRecv => vec![(count, 1 << ((rank + n - 1) % n), 0)],
        Collective::AllGather | Collective::Gather | Collective::Barrier => vec![],
    }
}

/// Whether the output, which must be right, is folded in rank order.
fn check_output(request: &Request, rank: usize, output: Vec<Run>) -> Result<bool, Fault> {
    let wanted: Vec<Run> = expected(request, rank)
        .into_iter()
        .filter(|&(count, ..)| count > 0)
        .map(|(count, ranks, element)| Run {
            count,
            value: Some(Value { ranks, element, expression: 0, ordered: true }),
        })
        .collect();
    if wanted.is_empty() {
        return Ok(true);
    }
    let (mut at, mut ordered, mut fault) = (0, true, None);
    aligned(&[wanted, output], |count, column| {
        match (column[0].value, column[1].value) {
            (Some(wanted), Some(value)) if wanted.ranks == value.ranks && wanted.element == value.element => {
                ordered &= value.ordered;
            }
            (wanted, value) if fault.is_none() => {
                let what = format!("output[{at}] holds {}, not {}", describe(value), describe(wanted));
                fault = Some(Fault::wrong(rank, what));
            }
            _ => {}
        }
        at += count;
    });
    fault.map_or(Ok(ordered), Err)
}

fn describe(value: Option<Value>) -> String {
    value.map_or("nothing".into(), |value| format!("element {} of ranks {:#b}", value.element, value.ranks))
}

/// Every rank must have evaluated the same expression for an element as the first.
fn same_bits(rank: usize, first: &[Run], output: Vec<Run>) -> Result<(), Fault> {
    let mut same = true;
    if !first.is_empty() {
        aligned(&[first.to_vec(), output], |_, column| {
            let expression = |run: &Run| run.value.map(|value| value.expression);
            same &= expression(&column[0]) == expression(&column[1]);
        });
    }
    if same { Ok(()) } else { Err(Fault::wrong(rank, "adds up in another order than rank 0: bits may differ")) }
}
