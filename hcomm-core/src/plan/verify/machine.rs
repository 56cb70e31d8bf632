//! Runs the plans of all ranks over symbolic memory.

use std::rc::Rc;

use super::super::{Buffer, Collective, Operand, Range, RankPlan, Reach, Request, Step};
use super::memory::{Memory, Run, Value, aligned};
use super::races::{Access, check_tracks, conflict, operands};
use super::{Fault, Traffic};

/// A queued message; queues hold one.
struct Message {
    runs: Vec<Run>,
    count: u64,
    /// Where its sender has it, for steps that would overwrite it.
    source: (Buffer, u64),
    /// What its sender knew, in remote plans.
    clock: Option<Rc<[u64]>>,
}

/// One track of one rank.
#[derive(Clone, Copy, Default)]
struct Track {
    /// Steps done.
    done: usize,
    /// The current step has received, and has yet to send.
    received: bool,
}

/// Outcome of trying a step.
enum Tried {
    Done,
    Waits,
}

/// Where the buffers of a rank lie.
struct Placement {
    /// Elements of input, output and scratch.
    sizes: [u64; 3],
    /// In place: where input and output begin in the one memory they share.
    shared: Option<(u64, u64)>,
}

impl Placement {
    fn new(request: &Request, rank: usize, plan: &RankPlan) -> Placement {
        let shared = request.in_place_at(rank).then(|| match request.collective {
            Collective::AllGather | Collective::Gather => (request.displacement(rank), 0),
            Collective::ReduceScatter | Collective::Scatter => (0, request.displacement(rank)),
            _ => (0, 0),
        });
        Placement { sizes: [request.input_count(rank), request.output_count(rank), plan.scratch], shared }
    }

    /// Where a range really lies: what input and output share goes as output here.
    fn locate(&self, range: Range) -> (Buffer, u64) {
        match (range.buffer, self.shared) {
            (Buffer::Input, Some((input, _))) => (Buffer::Output, range.offset + input),
            (Buffer::Output, Some((_, output))) => (Buffer::Output, range.offset + output),
            _ => (range.buffer, range.offset),
        }
    }

    fn memory(&self) -> [Memory; 3] {
        let [input, output, scratch] = self.sizes;
        match self.shared {
            Some(_) => [Memory::default(), Memory::new(input.max(output)), Memory::new(scratch)],
            None => [Memory::new(input), Memory::new(output), Memory::new(scratch)],
        }
    }
}

pub(super) struct Machine<'a> {
    request: &'a Request,
    plans: &'a [RankPlan],
    placements: Vec<Placement>,
    /// By rank: input, output, scratch. In place all is in one of the first two.
    memory: Vec<[Memory; 3]>,
    tracks: Vec<Vec<Track>>,
    /// Indexed by (track, from, to).
    queues: Vec<Option<Message>>,
    /// By rank: (from, to, track) of messages not yet received.
    in_flight: Vec<Vec<usize>>,
    /// By rank: steps of all ranks known to be done. Empty unless plans are remote.
    clocks: Vec<Vec<u64>>,
    /// By owner and buffer.
    accesses: Vec<[Vec<Access>; 3]>,
    sent: Vec<u64>,
    messages: u64,
}

impl<'a> Machine<'a> {
    pub fn new(request: &'a Request, plans: &'a [RankPlan]) -> Result<Self, Fault> {
        let n = request.ranks;
        let remote = plans.iter().any(|plan| plan.remote);
        if remote
            && !(request.reach != Reach::Messages && plans.iter().all(|plan| plan.remote && plan.tracks.len() <= 1))
        {
            return Err(Fault::wrong(
                0,
                "a remote plan where that is not allowed, on some ranks only, or with more tracks",
            ));
        }
        let most_tracks = plans.iter().map(|plan| plan.tracks.len()).max().unwrap_or(0);
        let mut machine = Machine {
            request,
            plans,
            placements: plans.iter().enumerate().map(|(rank, plan)| Placement::new(request, rank, plan)).collect(),
            memory: Vec::new(),
            tracks: plans.iter().map(|plan| vec![Track::default(); plan.tracks.len()]).collect(),
            queues: std::iter::repeat_with(|| None).take(most_tracks * n * n).collect(),
            in_flight: vec![Vec::new(); n],
            clocks: if remote { vec![vec![0; n]; n] } else { vec![] },
            accesses: std::iter::repeat_with(Default::default).take(n).collect(),
            sent: vec![0; n * n],
            messages: 0,
        };
        for (rank, placement) in machine.placements.iter().enumerate() {
            let mut memory = placement.memory();
            let (buffer, offset) = placement.locate(Range::new(Buffer::Input, 0, 0));
            memory[buffer as usize].write(offset, &super::input(request, rank));
            machine.memory.push(memory);
        }
        for (rank, plan) in plans.iter().enumerate() {
            for step in plan.tracks.iter().flatten() {
                machine.check_step(rank, plan, step)?;
            }
            check_tracks(rank, &plan.tracks, |range| machine.locate(rank, range))?;
        }
        Ok(machine)
    }

    fn locate(&self, rank: usize, range: Range) -> (Buffer, u64) {
        self.placements[rank].locate(range)
    }

    /// What can be said of a step without running it.
    fn check_step(&self, rank: usize, plan: &RankPlan, step: &Step) -> Result<(), Fault> {
        let wrong = |why: &str| Err(Fault::wrong(rank, format!("`{step}`: {why}")));
        let (reads, writes) = operands(step);
        for operand in reads.iter().chain(&writes) {
            let owner = operand.rank.unwrap_or(rank);
            if operand.rank.is_some() && (!plan.remote || operand.range.buffer == Buffer::Scratch || owner == rank) {
                return wrong("no such operand of another rank");
            }
            if owner >= self.request.ranks {
                return wrong("no such rank");
            }
            let range = operand.range;
            match range.offset.checked_add(range.count) {
                Some(end) if end <= self.placements[owner].sizes[range.buffer as usize] => {}
                _ => return wrong("out of bounds"),
            }
        }
        let elsewhere = |operand: &Operand| operand.rank.is_some();
        let copied = matches!(step, Step::Copy { .. });
        if self.request.reach == Reach::Read && (writes.iter().any(elsewhere) || !copied && reads.iter().any(elsewhere))
        {
            return wrong("other ranks' buffers can only be copied from");
        }
        if writes.iter().any(|operand| operand.range.buffer == Buffer::Input && operand.range.count > 0) {
            return wrong("input is never written");
        }
        let counts: Vec<u64> = reads.iter().chain(&writes).map(|operand| operand.range.count).collect();
        if counts.windows(2).any(|pair| pair[0] != pair[1]) {
            return wrong("counts differ");
        }
        let overlap = |a: &Operand, b: &Operand| {
            let (a_owner, b_owner) = (a.rank.unwrap_or(rank), b.rank.unwrap_or(rank));
            let (a_at, b_at) = (self.locate(a_owner, a.range), self.locate(b_owner, b.range));
            let apart = a_at.1.abs_diff(b_at.1);
            a_owner == b_owner && a_at.0 == b_at.0 && apart < a.range.count && apart > 0
        };
        if writes.iter().any(|write| reads.iter().any(|read| overlap(read, write))) {
            return wrong("source and destination overlap, and are not the same");
        }
        let (peers, message) = match step {
            Step::Send { peer, .. } | Step::Recv { peer, .. } | Step::RecvReduce { peer, .. } => ([*peer, *peer], true),
            Step::RecvReduceSend { from, to, .. } | Step::RecvSend { from, to, .. } => ([*from, *to], true),
            Step::Reduce { srcs, dsts } if srcs.len() < 2 || dsts.is_empty() => return wrong("too few operands"),
            Step::Reduce { .. } | Step::Copy { .. } => ([0, 0], false),
        };
        if message && peers.iter().any(|&peer| peer >= self.request.ranks || peer == rank) {
            return wrong("no such peer");
        }
        if message && counts[0] > self.request.chunk {
            return wrong("longer than a chunk");
        }
        if message && plan.remote && counts[0] > 0 {
            return wrong("a remote plan sends notes only");
        }
        Ok(())
    }

    /// Runs everything to the end, or to where nothing moves.
    pub fn run(&mut self) -> Result<(), Fault> {
        loop {
            let mut moved = false;
            let mut stuck = None;
            for rank in 0..self.plans.len() {
                for track in 0..self.plans[rank].tracks.len() {
                    while let Some(step) = self.plans[rank].tracks[track].get(self.tracks[rank][track].done) {
                        let before = self.tracks[rank][track].received;
                        match self.attempt(rank, track, step)? {
                            Tried::Done => {
                                let state = &mut self.tracks[rank][track];
                                *state = Track { done: state.done + 1, received: false };
                                moved = true;
                            }
                            Tried::Waits => {
                                moved |= before != self.tracks[rank][track].received;
                                stuck = stuck.or(Some((rank, step)));
                                break;
                            }
                        }
                    }
                }
            }
            match (moved, stuck) {
                (_, None) => break,
                (false, Some((rank, step))) => return Err(Fault::wrong(rank, format!("`{step}` waits for ever"))),
                _ => {}
            }
        }
        match self.queues.iter().position(Option::is_some) {
            Some(queue) => Err(Fault::wrong(self.sender(queue), "sends a message that nobody receives")),
            None => Ok(()),
        }
    }

    fn queue(&self, track: usize, from: usize, to: usize) -> usize {
        (track * self.request.ranks + from) * self.request.ranks + to
    }

    fn sender(&self, queue: usize) -> usize {
        queue / self.request.ranks % self.request.ranks
    }

    fn attempt(&mut self, rank: usize, track: usize, step: &Step) -> Result<Tried, Fault> {
        let received = self.tracks[rank][track].received;
        let (from, operand, dst, to) = match step {
            Step::Send { peer, src } => return self.send(rank, track, step, *src, *peer),
            Step::Reduce { srcs, dsts } => return self.local(rank, step, srcs, dsts),
            Step::Copy { src, dst } => return self.local(rank, step, &[*src], &[*dst]),
            Step::Recv { peer, dst } => (*peer, None, *dst, None),
            Step::RecvReduce { peer, operand, dst } => (*peer, Some(*operand), *dst, None),
            Step::RecvReduceSend { from, operand, dst, to } => (*from, Some(*operand), *dst, Some(*to)),
            Step::RecvSend { from, dst, to } => (*from, None, *dst, Some(*to)),
        };
        if !received {
            let queue = self.queue(track, from, rank);
            if self.queues[queue].is_none() || self.overwrites_in_flight(rank, dst) {
                return Ok(Tried::Waits);
            }
            let Some(message) = self.queues[queue].take() else { return Ok(Tried::Waits) };
            self.in_flight[from].retain(|&other| other != queue);
            if message.count != dst.count {
                let what = format!("`{step}` gets {} elements from rank {from}", message.count);
                return Err(Fault::wrong(rank, what));
            }
            if let Some(clock) = message.clock {
                for (mine, &theirs) in self.clocks[rank].iter_mut().zip(clock.iter()) {
                    *mine = theirs.max(*mine);
                }
            }
            let runs = match operand {
                None => message.runs,
                Some(operand) => fold(rank, step, &[self.read(rank, rank, step, operand)?, message.runs])?,
            };
            self.write(rank, dst, &runs);
            self.tracks[rank][track].received = true;
        }
        match to {
            None => Ok(Tried::Done),
            Some(to) => self.send(rank, track, step, dst, to),
        }
    }

    fn send(&mut self, rank: usize, track: usize, step: &Step, src: Range, to: usize) -> Result<Tried, Fault> {
        let queue = self.queue(track, rank, to);
        if self.queues[queue].is_some() {
            return Ok(Tried::Waits);
        }
        let runs = self.read(rank, rank, step, src)?;
        let clock = self.tick(rank);
        self.queues[queue] = Some(Message { runs, count: src.count, source: self.locate(rank, src), clock });
        self.in_flight[rank].push(queue);
        self.sent[rank * self.request.ranks + to] += src.count;
        self.messages += 1;
        Ok(Tried::Done)
    }

    /// Whether a message of `rank` that is still queued has its source in `dst`.
    fn overwrites_in_flight(&self, rank: usize, dst: Range) -> bool {
        let (buffer, start) = self.locate(rank, dst);
        self.in_flight[rank].iter().filter_map(|&queue| self.queues[queue].as_ref()).any(|message| {
            let (other, at) = message.source;
            other == buffer && at < start + dst.count && start < at + message.count
        })
    }

    fn local(&mut self, rank: usize, step: &Step, srcs: &[Operand], dsts: &[Operand]) -> Result<Tried, Fault> {
        if dsts.iter().any(|dst| dst.rank.is_none() && self.overwrites_in_flight(rank, dst.range)) {
            return Ok(Tried::Waits);
        }
        if let Some(clock) = self.tick(rank) {
            for (operand, write) in srcs.iter().map(|src| (src, false)).chain(dsts.iter().map(|dst| (dst, true))) {
                self.record(rank, *operand, write, &clock);
            }
        }
        let mut sources = Vec::with_capacity(srcs.len());
        for src in srcs {
            sources.push(self.read(rank, src.rank.unwrap_or(rank), step, src.range)?);
        }
        let runs = if sources.len() == 1 { sources.remove(0) } else { fold(rank, step, &sources)? };
        for dst in dsts {
            self.write(dst.rank.unwrap_or(rank), dst.range, &runs);
        }
        Ok(Tried::Done)
    }

    /// Counts a step of `rank`; what it then knows, in remote plans.
    fn tick(&mut self, rank: usize) -> Option<Rc<[u64]>> {
        let clock = self.clocks.get_mut(rank)?;
        clock[rank] += 1;
        Some(Rc::from(&clock[..]))
    }

    fn record(&mut self, rank: usize, operand: Operand, write: bool, clock: &Rc<[u64]>) {
        let owner = operand.rank.unwrap_or(rank);
        let (buffer, start) = self.locate(owner, operand.range);
        if owner != rank {
            let (from, to) = if write { (rank, owner) } else { (owner, rank) };
            self.sent[from * self.request.ranks + to] += operand.range.count;
        }
        let end = start + operand.range.count;
        let access = Access { by: rank, start, end, write, time: clock[rank], clock: clock.clone() };
        self.accesses[owner][buffer as usize].push(access);
    }

    fn read(&self, rank: usize, owner: usize, step: &Step, range: Range) -> Result<Vec<Run>, Fault> {
        let (buffer, offset) = self.locate(owner, range);
        let runs = self.memory[owner][buffer as usize].read(offset, range.count);
        if runs.iter().any(|run| run.value.is_none()) {
            return Err(Fault::wrong(rank, format!("`{step}` reads what was never written")));
        }
        Ok(runs)
    }

    fn write(&mut self, owner: usize, range: Range, runs: &[Run]) {
        let (buffer, offset) = self.locate(owner, range);
        self.memory[owner][buffer as usize].write(offset, runs);
    }

    /// What `rank`'s output holds at the end.
    pub fn output(&self, rank: usize) -> Vec<Run> {
        let range = Range::new(Buffer::Output, 0, self.request.output_count(rank));
        let (buffer, offset) = self.locate(rank, range);
        self.memory[rank][buffer as usize].read(offset, range.count)
    }

    /// What was moved, once it is clear that no two ranks raced and none left early.
    pub fn traffic(&mut self) -> Result<Traffic, Fault> {
        let n = self.request.ranks;
        for (owner, buffers) in self.accesses.iter_mut().enumerate() {
            for accesses in buffers {
                let left_early = accesses.iter().find(|access| self.clocks[owner][access.by] < access.time);
                if let Some(access) = left_early {
                    let what = format!("may leave while rank {} uses its buffers", access.by);
                    return Err(Fault::wrong(owner, what));
                }
                let ordered =
                    |one: &Access, other: &Access| one.time <= other.clock[one.by] || other.time <= one.clock[other.by];
                if let Some((one, other)) = conflict(accesses, ordered) {
                    let what =
                        format!("ranks {} and {} race for element {} of its buffers", one.by, other.by, other.start);
                    return Err(Fault::wrong(owner, what));
                }
            }
        }
        let links = self.sent.iter().enumerate().filter(|(_, count)| **count > 0);
        let elements = links.map(|(link, &count)| ((link / n, link % n), count)).collect();
        Ok(Traffic { elements, messages: self.messages, rank_ordered: false })
    }
}

fn fold(rank: usize, step: &Step, sources: &[Vec<Run>]) -> Result<Vec<Run>, Fault> {
    let mut runs = Vec::new();
    let mut fault = None;
    aligned(sources, |count, column| {
        let values: Vec<Value> = column.iter().filter_map(|run| run.value).collect();
        match Value::fold(&values) {
            Ok(value) => runs.push(Run { count, value: Some(value) }),
            Err(what) => fault = Some(Fault::wrong(rank, format!("`{step}`: {what}"))),
        }
    });
    fault.map_or(Ok(runs), Err)
}
