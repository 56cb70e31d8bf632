//! From a request to a plan: lays out the buffers, cuts the data into tracks, calls the algorithm.

use super::builder::Builder;
use super::group::{Group, pieces};
use super::hierarchical::Hosts;
use super::{
    Algorithm, Buffer, Collective, Counts, Range, RankPlan, Reach, Request, binomial, bruck, chain, direct,
    halving_doubling, hierarchical, pairwise, pipeline, recursive_doubling, remote, ring, tree,
};
use crate::error::{Error, Result};

/// The steps of `rank`. Equal requests give plans that fit together on all ranks.
///
/// # Errors
/// As [`Request::supports`], and [`Error::Argument`] for a rank that does not exist.
pub fn build(request: &Request, rank: usize) -> Result<RankPlan> {
    request.supports()?;
    let Some(group) = Group::new((0..request.ranks).collect(), rank) else {
        let reason = format!("rank {rank} of {} ranks", request.ranks);
        return Err(Error::Argument { call: request.collective.name(), reason });
    };
    if let (Algorithm::Direct, Reach::Read | Reach::ReadWrite) = (request.algorithm, request.reach)
        && let Some(plan) = remote::build(request, rank)
    {
        return Ok(plan);
    }
    Ok(Maker { request, rank, group }.plan())
}

struct Maker<'a> {
    request: &'a Request,
    rank: usize,
    group: Group,
}

/// Where the data of one rank (or of one track of it) lies.
struct Layout {
    input: Range,
    output: Range,
    /// Blocks of the input, by the rank they go to.
    inputs: Vec<Range>,
    /// Blocks of the output, by the rank they come from.
    outputs: Vec<Range>,
}

impl Layout {
    fn part(&self, parts: usize, index: usize) -> Layout {
        let all = |ranges: &[Range]| ranges.iter().map(|range| range.part(parts, index)).collect();
        Layout {
            input: self.input.part(parts, index),
            output: self.output.part(parts, index),
            inputs: all(&self.inputs),
            outputs: all(&self.outputs),
        }
    }
}

impl Maker<'_> {
    fn plan(&self) -> RankPlan {
        let request = self.request;
        let tracks = self.tracks();
        let mut b = Builder::new(request.chunk, tracks);
        let layout = self.layout(&mut b);
        for track in 0..tracks {
            if track > 0 {
                b.next_track();
            }
            self.track(&mut b, track, &layout.part(tracks, track));
        }
        b.finish(false)
    }

    /// As many as there are channels, but none for less than a chunk; the double tree takes two a channel.
    fn tracks(&self) -> usize {
        let request = self.request;
        let n = request.ranks as u64;
        let whole = match (&request.counts, request.collective) {
            (_, Collective::Barrier) => 0,
            (Counts::Matrix(counts), _) => counts.iter().max().copied().unwrap_or(0).saturating_mul(n),
            (Counts::Even(count), Collective::AllToAll) => count * n,
            (
                Counts::Even(count),
                Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::SendRecv,
            ) => *count,
            _ => request.displacement(request.ranks),
        };
        let copied_first =
            request.in_place && matches!(request.collective, Collective::AllToAll | Collective::SendRecv);
        let chunks = usize::try_from(pieces(whole, request.chunk)).unwrap_or(usize::MAX);
        match request.algorithm {
            _ if chunks <= 1 || request.ranks == 1 || copied_first => 1,
            Algorithm::Tree => request.channels.saturating_mul(2).min(chunks),
            _ => request.channels.min(chunks),
        }
    }

    /// In place the input goes by the output's name, so that an algorithm sees what is the same memory. Where the output
    /// lies in the input that cannot be; there the builder knows.
    fn layout(&self, b: &mut Builder) -> Layout {
        let (request, rank) = (self.request, self.rank);
        let n = request.ranks;
        let mut input = Range::new(Buffer::Input, 0, request.input_count(rank));
        let output = Range::new(Buffer::Output, 0, request.output_count(rank));
        if request.in_place_at(rank) {
            match request.collective {
                Collective::AllReduce | Collective::Broadcast | Collective::Reduce => input.buffer = Buffer::Output,
                Collective::AllGather | Collective::Gather => {
                    input = Range::new(Buffer::Output, request.displacement(rank), input.count);
                }
                Collective::ReduceScatter | Collective::Scatter => {
                    b.output_in_input = Some(request.displacement(rank));
                }
                Collective::AllToAll | Collective::SendRecv => {
                    let kept = b.scratch(input.count);
                    b.copy(input, kept);
                    input = kept;
                }
                Collective::Barrier => {}
            }
        }
        // What is known everywhere of the root's buffers: the layout, if not the data.
        let blocks = |buffer: Buffer, start: u64, count: &dyn Fn(usize) -> u64| {
            let mut offset = start;
            let block = |index: usize| {
                offset += count(index);
                Range::new(buffer, offset - count(index), count(index))
            };
            (0..n).map(block).collect()
        };
        let (inputs, outputs) = match request.collective {
            Collective::AllToAll => (
                blocks(input.buffer, input.offset, &|to| request.pair(rank, to)),
                blocks(Buffer::Output, 0, &|from| request.pair(from, rank)),
            ),
            Collective::ReduceScatter | Collective::Scatter => {
                (blocks(Buffer::Input, 0, &|to| request.block(to)), Vec::new())
            }
            Collective::AllGather | Collective::Gather => {
                (Vec::new(), blocks(Buffer::Output, 0, &|from| request.block(from)))
            }
            _ => (Vec::new(), Vec::new()),
        };
        Layout { input, output, inputs, outputs }
    }

    fn track(&self, b: &mut Builder, track: usize, layout: &Layout) {
        let Layout { inputs, outputs, .. } = layout;
        let (input, output) = (layout.input, layout.output);
        let (g, root) = (&self.group, self.request.root);
        // With one rank every algorithm is a copy, and direct knows all collectives.
        let algorithm = if g.len() == 1 { Algorithm::Direct } else { self.request.algorithm };
        let place = match algorithm {
            Algorithm::Hierarchical => return self.hierarchical(b, layout),
            Algorithm::Tree => Some(tree::place(g, root, track % 2 == 1)),
            Algorithm::Chain => Some(chain::place(g, root)),
            Algorithm::Binomial => Some(binomial::place(g, root)),
            _ => None,
        };
        match (self.request.collective, algorithm, place) {
            (Collective::AllReduce, _, Some(place)) => pipeline::all_reduce(b, &place, input, output),
            (Collective::Broadcast, _, Some(place)) => pipeline::broadcast(b, &place, input, output),
            (Collective::Reduce, _, Some(place)) => pipeline::reduce(b, &place, input, output),

            (Collective::AllReduce, Algorithm::Ring, _) => ring::all_reduce(b, g, input, output),
            (Collective::AllReduce, Algorithm::RecursiveDoubling, _) => {
                recursive_doubling::all_reduce(b, g, input, output);
            }
            (Collective::AllReduce, Algorithm::HalvingDoubling, _) => halving_doubling::all_reduce(b, g, input, output),
            (Collective::AllReduce, ..) => direct::all_reduce(b, g, input, output),

            (Collective::ReduceScatter, Algorithm::Ring, _) => ring::reduce_scatter(b, g, inputs, output),
            (Collective::ReduceScatter, Algorithm::HalvingDoubling, _) => {
                halving_doubling::reduce_scatter(b, g, inputs, output);
            }
            (Collective::ReduceScatter, Algorithm::Pairwise, _) => pairwise::reduce_scatter(b, g, inputs, output),
            (Collective::ReduceScatter, ..) => direct::reduce_scatter(b, g, inputs, output),

            (Collective::AllGather, Algorithm::Ring, _) => ring::all_gather(b, g, input, outputs),
            (Collective::AllGather, Algorithm::RecursiveDoubling, _) => {
                recursive_doubling::all_gather(b, g, input, outputs);
            }
            (Collective::AllGather, Algorithm::Bruck, _) => bruck::all_gather(b, g, input, outputs),
            (Collective::AllGather, ..) => direct::all_gather(b, g, input, outputs),

            (Collective::Broadcast, ..) => direct::broadcast(b, g, root, input, output),
            (Collective::Reduce, ..) => direct::reduce(b, g, root, input, output),

            (Collective::Scatter, Algorithm::Binomial, _) => binomial::scatter(b, g, root, inputs, output),
            (Collective::Scatter, ..) => direct::scatter(b, g, root, inputs, output),
            (Collective::Gather, Algorithm::Binomial, _) => binomial::gather(b, g, root, input, outputs),
            (Collective::Gather, ..) => direct::gather(b, g, root, input, outputs),

            (Collective::AllToAll, Algorithm::Bruck, _) => bruck::all_to_all(b, g, inputs, outputs),
            (Collective::AllToAll, Algorithm::Pairwise, _) => pairwise::all_to_all(b, g, inputs, outputs),
            (Collective::AllToAll, ..) => direct::all_to_all(b, g, inputs, outputs),

            (Collective::SendRecv, ..) => pairwise::send_to_next(b, g, input, output),

            (Collective::Barrier, Algorithm::RecursiveDoubling | Algorithm::Bruck, _) => b.notes_dissemination(g),
            (Collective::Barrier, ..) => b.notes_all_pairs(g),
        }
    }

    fn hierarchical(&self, b: &mut Builder, layout: &Layout) {
        let (input, output, root) = (layout.input, layout.output, self.request.root);
        let Some(hosts) = Hosts::new(self.request.hosts.as_deref(), self.request.ranks, self.rank) else { return };
        match self.request.collective {
            Collective::AllReduce => hierarchical::all_reduce(b, &hosts, input, output),
            Collective::ReduceScatter => hierarchical::reduce_scatter(b, &hosts, &layout.inputs, output),
            Collective::AllGather => hierarchical::all_gather(b, &hosts, input, &layout.outputs),
            Collective::Broadcast => hierarchical::broadcast(b, &hosts, root, input, output),
            Collective::Reduce => hierarchical::reduce(b, &hosts, root, input, output),
            Collective::Barrier => hierarchical::barrier(b, &hosts),
            // `supports` has refused these.
            Collective::Scatter | Collective::Gather | Collective::AllToAll | Collective::SendRecv => {}
        }
    }
}
