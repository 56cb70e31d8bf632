//! From a call to its plans.

use std::sync::Arc;

use super::Force;
use super::call::{Call, Prepared, RunInfo, hash_of, words};
use super::group::Group;
use crate::config::Config;
use crate::engine::{Aliasing, Compiled, MAX_TRACKS};
use crate::error::{Error, OperationName, Result};
use crate::plan::{self, Algorithm, Collective, Counts, Request};
use crate::reduce::{ReduceOp, Reducer};
use crate::tuner::{self, Choice, Facts};

/// The request over messages and the choice behind it.
pub(crate) fn request(group: &Group, config: &Config, call: &Call, in_place: bool, force: &Force) -> (Request, Choice) {
    let call = call.normalised();
    let element = call.dtype.size() as u64;
    let mut request = Request {
        collective: call.collective,
        algorithm: Algorithm::Direct,
        ranks: group.size(),
        counts: call.counts,
        root: call.root,
        chunk: 1,
        channels: 1,
        hosts: group.hosts.clone(),
        in_place,
        remote: false,
    };
    let largest = (0..group.size()).map(|r| request.input_count(r).max(request.output_count(r))).max().unwrap_or(0);
    let facts = Facts {
        collective: call.collective,
        bytes: largest.saturating_mul(element),
        ranks: group.size(),
        hosts: group.host_count(),
        shared_memory: group.all_shared,
        deterministic: config.deterministic,
    };
    let mut choice = tuner::choose(&facts);
    if let Some(algorithm) = force.algorithm {
        choice.remote &= algorithm == Algorithm::Direct;
        choice.algorithm = algorithm;
        choice.because = "asked for";
    }
    choice.chunk_bytes = force.chunk_bytes.unwrap_or(choice.chunk_bytes);
    choice.channels = force.channels.unwrap_or(choice.channels);
    if choice.algorithm == Algorithm::Tree {
        // Two trees a channel, each with links of its own.
        choice.channels = choice.channels.min(MAX_TRACKS / 2);
    }
    request.algorithm = choice.algorithm;
    request.chunk = (choice.chunk_bytes / element).max(1);
    request.channels = choice.channels;
    (request, choice)
}

/// Makes the plans of a call.
pub(crate) fn prepare(group: &Group, config: &Config, call: &Call, in_place: bool, force: &Force) -> Result<Prepared> {
    call.check(group.size())?;
    let (request, choice) = request(group, config, call, in_place, force);
    if config.deterministic && call.collective.reduces() && !choice.algorithm.rank_ordered(call.collective) {
        return Err(Error::Unsuited {
            algorithm: choice.algorithm.name(),
            collective: call.collective.name(),
            reason: "HCOMM_DETERMINISTIC=1 asks for reduction in rank order, which it does not keep; use direct".into(),
        });
    }
    let element = call.dtype.size();
    let aliasing = aliasing(call, in_place, group.me);
    let compile = |request: &Request| -> Result<Arc<Compiled>> {
        let plan = plan::build(request, group.me)?;
        if plan.tracks.len() > MAX_TRACKS {
            return Err(Error::Unsuited {
                algorithm: request.algorithm.name(),
                collective: request.collective.name(),
                reason: format!("it needs {} tracks, a lane has {MAX_TRACKS}; use fewer channels", plan.tracks.len()),
            });
        }
        let reducer = call.collective.reduces().then(|| Reducer::new(call.dtype, call.op));
        Ok(Arc::new(Compiled::new(&plan, element, reducer, aliasing)))
    };
    let plan = compile(&request)?;
    let remote = if choice.remote && group.size() > 1 {
        Some(compile(&Request { remote: true, algorithm: Algorithm::Direct, ..request.clone() })?)
    } else {
        None
    };
    let bytes = |count: u64| {
        usize::try_from(count).ok().and_then(|count| count.checked_mul(element)).ok_or_else(|| Error::Argument {
            call: call.collective.name(),
            reason: format!("{count} elements of {} exceed the address space", call.dtype),
        })
    };
    let output_count = request.output_count(group.me);
    Ok(Prepared {
        plan,
        remote,
        info: RunInfo {
            algorithm: choice.algorithm,
            chunk_bytes: if request.chunk >= largest_count(&request) { 0 } else { choice.chunk_bytes },
            channels: choice.channels,
            transport: group.transport(),
        },
        // Plans in place and out of place differ in their messages, so all ranks must agree on it.
        hash: hash_of(&(
            &call.normalised(),
            in_place,
            request.algorithm,
            request.chunk,
            request.channels,
            choice.remote,
        )),
        input_bytes: bytes(request.input_count(group.me))?,
        output_bytes: bytes(output_count)?,
        finish_count: if call.op == ReduceOp::Avg && call.collective.reduces() { output_count as usize } else { 0 },
        name: OperationName(call.normalised().to_string()),
        words: words(&call.normalised()),
    })
}

fn largest_count(request: &Request) -> u64 {
    (0..request.ranks).map(|r| request.input_count(r).max(request.output_count(r))).max().unwrap_or(0)
}

/// Byte offsets of (input, output) in the one buffer of an in-place call.
pub(crate) fn in_place_offsets(call: &Call, me: usize) -> (usize, usize) {
    let block = |rank: usize| {
        let count = match &call.counts {
            Counts::Even(count) => *count * rank as u64,
            Counts::PerRank(counts) => counts[..rank].iter().sum(),
            Counts::Matrix(_) => 0,
        };
        count as usize * call.dtype.size()
    };
    match call.collective {
        Collective::AllGather => (block(me), 0),
        Collective::Gather if me == call.root => (block(me), 0),
        Collective::ReduceScatter => (0, block(me)),
        Collective::Scatter if me == call.root => (0, block(me)),
        _ => (0, 0),
    }
}

fn aliasing(call: &Call, in_place: bool, me: usize) -> Aliasing {
    match (in_place, in_place_offsets(call, me)) {
        (false, _) => Aliasing::Apart,
        (true, (input, 0)) => Aliasing::InputInOutput(input),
        (true, (_, output)) => Aliasing::OutputInInput(output),
    }
}
