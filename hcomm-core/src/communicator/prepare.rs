//! From a call to its plans.

use std::sync::Arc;

use hcomm_telemetry::Shape;

use super::Force;
use super::call::{Call, Prepared, RunInfo, hash_of, words};
use super::group::Group;
use super::record;
use crate::config::{Config, SingleCopy};
use crate::engine::{Aliasing, Compiled, MAX_TRACKS};
use crate::error::{Error, OperationName, Result};
use crate::plan::{self, Algorithm, Collective, Counts, Reach, Request};
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
        // On one host, NUMA nodes are to memory what hosts are to a network.
        hosts: group.hosts.clone().or_else(|| group.nodes.clone()),
        in_place,
        reach: Reach::Messages,
    };
    let largest = (0..group.size()).map(|r| request.input_count(r).max(request.output_count(r))).max().unwrap_or(0);
    let facts = Facts {
        collective: call.collective,
        bytes: largest.saturating_mul(element),
        ranks: group.size(),
        hosts: group.host_count(),
        numa_nodes: group.node_count(),
        nics: group.nics,
        shared_memory: group.all_shared,
        readable: group.all_open,
        in_place,
        deterministic: config.deterministic,
    };
    let mut choice = tuner::choose(&facts);
    if config.single_copy == SingleCopy::On {
        choice.read = choice.mapped && group.all_open && !call.collective.reduces();
    }
    if let Some(algorithm) = force.algorithm {
        choice.mapped &= algorithm == Algorithm::Direct;
        choice.read &= algorithm == Algorithm::Direct;
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
    let root = call.collective.rooted().then_some(call.root);
    let compile = |request: &Request, info: &RunInfo| -> Result<(Arc<Compiled>, Arc<Shape>)> {
        let plan = plan::build(request, group.me)?;
        if plan.tracks.len() > MAX_TRACKS {
            return Err(Error::Unsuited {
                algorithm: request.algorithm.name(),
                collective: request.collective.name(),
                reason: format!("it needs {} tracks, a lane has {MAX_TRACKS}; use fewer channels", plan.tracks.len()),
            });
        }
        let reducer = call.collective.reduces().then(|| Reducer::new(call.dtype, call.op));
        let size = largest_count(request).saturating_mul(element as u64);
        let shape = record::shape(group, call, info, size, root, &plan);
        Ok((Arc::new(Compiled::new(&plan, element, reducer, aliasing)), Arc::new(shape)))
    };
    let info = RunInfo {
        algorithm: choice.algorithm,
        chunk_bytes: if request.chunk >= largest_count(&request) { 0 } else { choice.chunk_bytes },
        channels: choice.channels,
        transport: group.transport(),
    };
    let (plan, shape) = compile(&request, &info)?;
    let remote = |wanted: bool, reach| {
        if !wanted || group.size() == 1 {
            return Ok(None);
        }
        let direct = RunInfo { algorithm: Algorithm::Direct, chunk_bytes: 0, channels: 1, ..info.clone() };
        let request = Request { reach, algorithm: Algorithm::Direct, ..request.clone() };
        compile(&request, &direct).map(Some)
    };
    let (mapped, read) = (remote(choice.mapped, Reach::ReadWrite)?, remote(choice.read, Reach::Read)?);
    let bytes = |count: u64| count as usize * element;
    let output_count = request.output_count(group.me);
    Ok(Prepared {
        plan,
        mapped,
        read,
        info,
        shape,
        // Plans in place and out of place differ in their messages, so all ranks must agree on it.
        hash: hash_of(&(
            &call.normalised(),
            in_place,
            request.algorithm,
            request.chunk,
            request.channels,
            (choice.mapped, choice.read),
        )),
        input_bytes: bytes(request.input_count(group.me)),
        output_bytes: bytes(output_count),
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

#[cfg(test)]
mod tests {
    use super::super::group::tests::group;
    use super::*;
    use crate::reduce::DataType;

    fn call(collective: Collective, count: u64) -> Call {
        Call { collective, counts: Counts::Even(count), dtype: DataType::F32, op: ReduceOp::Sum, root: 1 }
    }

    fn prepared(me: usize, hosts: &str, call: &Call, in_place: bool, force: &Force) -> Result<Prepared> {
        prepare(&group(me, hosts), &Config::default(), call, in_place, force)
    }

    #[test]
    fn ranks_agree_on_a_call_and_on_nothing_else() {
        let hash = |me, call: &Call, in_place, force: &Force| prepared(me, "aab", call, in_place, force).unwrap().hash;
        for collective in Collective::ALL {
            let call = call(collective, if collective == Collective::Barrier { 0 } else { 10_000 });
            let of = |me| hash(me, &call, false, &Force::default());
            assert_eq!(of(0), of(1), "{call}");
            assert_eq!(of(0), of(2), "{call}");
            let same = Call { op: if collective.reduces() { call.op } else { ReduceOp::Max }, ..call.clone() };
            assert_eq!(of(0), hash(1, &same, false, &Force::default()), "{call}");
            let chunked = Force { chunk_bytes: Some(512), ..Force::default() };
            assert_ne!(of(0), hash(0, &call, false, &chunked), "{call}");
        }
        let none = Force::default();
        let first = hash(0, &call(Collective::AllReduce, 10), false, &none);
        let product = Call { op: ReduceOp::Prod, ..call(Collective::AllReduce, 10) };
        for (other, in_place) in [
            (call(Collective::AllReduce, 11), false),
            (call(Collective::AllReduce, 10), true),
            (call(Collective::ReduceScatter, 10), false),
            (product, false),
        ] {
            assert_ne!(first, hash(0, &other, in_place, &none), "{other}");
        }
    }

    #[test]
    fn lengths_are_in_bytes_and_of_this_rank() {
        let bytes = |me, collective| {
            let prepared = prepared(me, "aaa", &call(collective, 10), false, &Force::default()).unwrap();
            (prepared.input_bytes, prepared.output_bytes)
        };
        assert_eq!(bytes(0, Collective::AllReduce), (40, 40));
        assert_eq!(bytes(0, Collective::Reduce), (40, 0));
        assert_eq!(bytes(1, Collective::Reduce), (40, 40));
        assert_eq!(bytes(0, Collective::ReduceScatter), (120, 40));
        assert_eq!(bytes(1, Collective::Gather), (40, 120));
        assert_eq!(bytes(2, Collective::Broadcast), (0, 40));
    }

    #[test]
    fn in_place_the_smaller_buffer_lies_in_the_larger() {
        let offsets = |me, collective| in_place_offsets(&call(collective, 10), me);
        assert_eq!(offsets(2, Collective::AllGather), (80, 0));
        assert_eq!(offsets(2, Collective::ReduceScatter), (0, 80));
        assert_eq!((offsets(1, Collective::Gather), offsets(2, Collective::Gather)), ((40, 0), (0, 0)));
        assert_eq!((offsets(1, Collective::Scatter), offsets(2, Collective::Scatter)), ((0, 40), (0, 0)));
        let uneven = Call { counts: Counts::PerRank([3, 4, 5].into()), ..call(Collective::AllGather, 0) };
        assert_eq!(in_place_offsets(&uneven, 2), (28, 0));
        assert_eq!(aliasing(&uneven, true, 2), Aliasing::InputInOutput(28));
        assert_eq!(aliasing(&uneven, false, 2), Aliasing::Apart);
        assert_eq!(aliasing(&call(Collective::ReduceScatter, 10), true, 2), Aliasing::OutputInInput(80));
    }

    #[test]
    fn what_is_asked_for_is_done_or_refused() {
        let force = |algorithm, channels| Force { algorithm: Some(algorithm), channels, ..Force::default() };
        let large = call(Collective::AllReduce, 1 << 20);
        let ring = prepared(0, "aaa", &large, false, &force(Algorithm::Ring, Some(4))).unwrap();
        assert_eq!((ring.info.algorithm, ring.info.channels, ring.mapped.is_none()), (Algorithm::Ring, 4, true));
        let tree = prepared(0, "aaa", &large, false, &force(Algorithm::Tree, Some(4))).unwrap();
        assert_eq!((tree.info.channels, tree.plan.tracks.len()), (2, MAX_TRACKS));
        let refused = prepared(0, "aaa", &large, false, &force(Algorithm::Binomial, None)).err().unwrap();
        assert_eq!(refused.code(), "HC-E0008");
        let config = Config { deterministic: true, ..Config::default() };
        let ring = |call| prepare(&group(0, "ab"), &config, call, false, &force(Algorithm::Ring, None));
        assert!(ring(&large).err().unwrap().to_string().contains("HCOMM_DETERMINISTIC=1"));
        assert!(ring(&call(Collective::AllGather, 10)).is_ok(), "nothing is reduced");
        let chosen = prepare(&group(0, "ab"), &config, &large, false, &Force::default()).unwrap();
        assert!(chosen.info.algorithm.rank_ordered(Collective::AllReduce));
    }

    #[test]
    fn mapped_memory_is_tried_where_all_share_it() {
        let remote = |hosts, count| {
            prepared(0, hosts, &call(Collective::AllReduce, count), false, &Force::default()).unwrap().mapped.is_some()
        };
        assert!(remote("aaa", 1 << 20));
        assert!(!remote("aab", 1 << 20) && !remote("a", 1 << 20) && !remote("aaa", 1));
    }
}
