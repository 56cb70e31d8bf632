//! Hierarchical: within a host first, then between hosts, then within the host again, so that between hosts travels only
//! what must. Every rank of a host talks to other hosts for a slice of its own: all rails work.
//!
//! Hosts may have any numbers of ranks, spread in any way. Each host cuts a vector evenly among its own ranks, and the
//! *segments* between the cuts of all hosts are what travels between hosts: a segment has one owner a host. (A slice for
//! each rank of the smallest host would leave rails idle; the least common multiple of the sizes can be huge.)

use std::collections::{BTreeMap, BTreeSet};

use super::builder::Builder;
use super::group::{Group, cut};
use super::pipeline::{self, Place};
use super::{Range, binomial, bruck, chain, direct, recursive_doubling, ring};

/// Which ranks share a host, seen by one of them.
pub(super) struct Hosts {
    rank: usize,
    /// Ranks of each host, ascending.
    hosts: Vec<Vec<usize>>,
    /// This rank's host, and the index there.
    host: usize,
    local: usize,
    own_host: Group,
}

impl Hosts {
    /// `None` when `rank` is not among the ranks.
    pub fn new(hosts: Option<&[usize]>, ranks: usize, rank: usize) -> Option<Hosts> {
        let mut by_host: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for member in 0..ranks {
            by_host.entry(hosts.map_or(0, |hosts| hosts[member])).or_default().push(member);
        }
        let hosts: Vec<Vec<usize>> = by_host.into_values().collect();
        let (host, local) = locate(&hosts, rank)?;
        let own_host = Group::new(hosts[host].clone(), rank)?;
        Some(Hosts { rank, hosts, host, local, own_host })
    }

    fn group(&self, members: Vec<usize>) -> Option<Group> {
        Group::new(members, self.rank)
    }

    fn size(&self) -> usize {
        self.hosts[self.host].len()
    }

    /// Segments of `range`, each with its owner on every host.
    fn segments(&self, range: Range) -> Vec<(Range, Vec<usize>)> {
        let cuts: BTreeSet<u64> = self
            .hosts
            .iter()
            .flat_map(|ranks| (0..=ranks.len()).map(|index| cut(range.count, ranks.len(), index)))
            .collect();
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let owner = |ranks: &Vec<usize>, start: u64| {
            let ends = |index: &usize| cut(range.count, ranks.len(), index + 1) > start;
            ranks[(0..ranks.len()).find(ends).unwrap_or(ranks.len() - 1)]
        };
        let segment = |pair: &[u64]| {
            let owners = self.hosts.iter().map(|ranks| owner(ranks, pair[0])).collect();
            (range.slice(pair[0], pair[1] - pair[0]), owners)
        };
        cuts.windows(2).map(segment).collect()
    }

    /// Number of columns: column j holds the j-th rank of each host; hosts with fewer ranks go round.
    fn columns(&self) -> usize {
        self.hosts.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Those who carry the column between hosts, and for each the rank there whose data the column means, if there is one.
    fn column(&self, column: usize) -> (Vec<usize>, Vec<Option<usize>>) {
        let carriers = self.hosts.iter().map(|ranks| ranks[column % ranks.len()]).collect();
        (carriers, self.hosts.iter().map(|ranks| ranks.get(column).copied()).collect())
    }

    /// For each host, in waves as wide as this host: the ranks there whose data this host's ranks carry.
    fn waves(&self) -> Vec<Vec<Option<usize>>> {
        let width = self.size();
        let waves = |ranks: &Vec<usize>| -> Vec<Vec<Option<usize>>> {
            let wave = |start| (0..width).map(|index| ranks.get(start + index).copied()).collect();
            (0..ranks.len()).step_by(width).map(wave).collect()
        };
        self.hosts.iter().flat_map(waves).collect()
    }

    fn columns_of_own(&self) -> impl Iterator<Item = usize> + use<> {
        (self.local..self.columns()).step_by(self.size())
    }
}

fn locate(hosts: &[Vec<usize>], rank: usize) -> Option<(usize, usize)> {
    hosts.iter().enumerate().find_map(|(host, ranks)| Some((host, ranks.iter().position(|&member| member == rank)?)))
}

/// Between hosts: few long messages go along a chain, short ones down a binomial tree.
fn place(b: &Builder, g: &Group, root: usize, count: u64) -> Place {
    if b.is_short(count) { binomial::place(g, root) } else { chain::place(g, root) }
}

pub(super) fn all_reduce(b: &mut Builder, hosts: &Hosts, input: Range, output: Range) {
    let own_host = &hosts.own_host;
    let own = output.part(hosts.size(), hosts.local);
    direct::reduce_scatter(b, own_host, &input.parts(hosts.size()), own);
    for (segment, owners) in hosts.segments(output) {
        let Some(owners) = hosts.group(owners) else { continue };
        if b.is_short(segment.count) {
            recursive_doubling::all_reduce(b, &owners, segment, segment);
        } else {
            ring::all_reduce(b, &owners, segment, segment);
        }
    }
    direct::all_gather(b, own_host, own, &output.parts(hosts.size()));
}

/// Long vectors are scattered on the root's host, travel in segments, and are gathered on each host.
pub(super) fn broadcast(b: &mut Builder, hosts: &Hosts, root: usize, input: Range, output: Range) {
    let own_host = &hosts.own_host;
    let Some((root_host, root_local)) = locate(&hosts.hosts, root) else { return };
    if b.is_short(output.count) {
        let leader = |(host, ranks): (usize, &Vec<usize>)| if host == root_host { root } else { ranks[0] };
        let leaders: Vec<usize> = hosts.hosts.iter().enumerate().map(leader).collect();
        let local = if hosts.host == root_host { root_local } else { 0 };
        if let Some(leaders) = hosts.group(leaders) {
            pipeline::broadcast(b, &binomial::place(&leaders, root_host), input, output);
        }
        return direct::broadcast(b, own_host, local, output, output);
    }
    let (parts, own) = (output.parts(hosts.size()), output.part(hosts.size(), hosts.local));
    if hosts.rank == root {
        b.copy(input, output);
    }
    if hosts.host == root_host {
        direct::scatter(b, own_host, root_local, &parts, own);
    }
    for (segment, owners) in hosts.segments(output) {
        if let Some(owners) = hosts.group(owners) {
            let place = place(b, &owners, root_host, segment.count);
            pipeline::broadcast(b, &place, segment, segment);
        }
    }
    direct::all_gather(b, own_host, own, &parts);
}

/// `output` is used on the root only.
pub(super) fn reduce(b: &mut Builder, hosts: &Hosts, root: usize, input: Range, output: Range) {
    let own_host = &hosts.own_host;
    let Some((root_host, root_local)) = locate(&hosts.hosts, root) else { return };
    let own_part = input.part(hosts.size(), hosts.local);
    let own = match hosts.rank == root {
        true => output.part(hosts.size(), hosts.local),
        false if hosts.size() == 1 => own_part,
        false => b.scratch(own_part.count),
    };
    direct::reduce_scatter(b, own_host, &input.parts(hosts.size()), own);
    for (segment, owners) in hosts.segments(input) {
        if let Some(owners) = hosts.group(owners) {
            let sum = own.slice(segment.offset - own_part.offset, segment.count);
            pipeline::reduce(b, &place(b, &owners, root_host, segment.count), sum, sum);
        }
    }
    if hosts.host == root_host {
        direct::gather(b, own_host, root_local, own, &output.parts(hosts.size()));
    }
}

/// `outputs[i]` is where rank i's input goes: column by column between hosts, then wave by wave within.
pub(super) fn all_gather(b: &mut Builder, hosts: &Hosts, input: Range, outputs: &[Range]) {
    let block = |rank: Option<usize>| rank.map_or(Range::nothing(), |rank| outputs[rank]);
    for column in hosts.columns_of_own() {
        let (carriers, sources) = hosts.column(column);
        let Some(carriers) = hosts.group(carriers) else { continue };
        let blocks: Vec<Range> = sources.into_iter().map(block).collect();
        let own = if column == hosts.local { input } else { Range::nothing() };
        if blocks.iter().all(|block| b.is_short(block.count)) {
            bruck::all_gather(b, &carriers, own, &blocks);
        } else {
            ring::all_gather(b, &carriers, own, &blocks);
        }
    }
    for wave in hosts.waves() {
        let blocks: Vec<Range> = wave.into_iter().map(block).collect();
        direct::all_gather(b, &hosts.own_host, blocks[hosts.local], &blocks);
    }
}

/// `inputs[i]` is rank i's block: wave by wave within the host, then column by column between hosts.
pub(super) fn reduce_scatter(b: &mut Builder, hosts: &Hosts, inputs: &[Range], output: Range) {
    let block = |rank: Option<usize>| rank.map_or(Range::nothing(), |rank| inputs[rank]);
    let mut sums = inputs.to_vec();
    for wave in hosts.waves() {
        let blocks: Vec<Range> = wave.iter().map(|&rank| block(rank)).collect();
        if let (Some(rank), true) = (wave[hosts.local], hosts.size() > 1) {
            sums[rank] = b.scratch(inputs[rank].count);
        }
        let own = wave[hosts.local].map_or(Range::nothing(), |rank| sums[rank]);
        direct::reduce_scatter(b, &hosts.own_host, &blocks, own);
    }
    for column in hosts.columns_of_own() {
        let (carriers, targets) = hosts.column(column);
        let Some(carriers) = hosts.group(carriers) else { continue };
        let blocks: Vec<Range> =
            targets.into_iter().map(|rank| rank.map_or(Range::nothing(), |rank| sums[rank])).collect();
        ring::reduce_scatter(b, &carriers, &blocks, if column == hosts.local { output } else { Range::nothing() });
    }
}

/// All come to the first rank of their host, these meet, and send them on.
pub(super) fn barrier(b: &mut Builder, hosts: &Hosts) {
    let ranks = &hosts.hosts[hosts.host];
    if hosts.local > 0 {
        b.note_to(ranks[0]);
        return b.note_from(ranks[0]);
    }
    for &rank in &ranks[1..] {
        b.note_from(rank);
    }
    if let Some(leaders) = hosts.group(hosts.hosts.iter().map(|ranks| ranks[0]).collect()) {
        b.notes_dissemination(&leaders);
    }
    for &rank in &ranks[1..] {
        b.note_to(rank);
    }
}
