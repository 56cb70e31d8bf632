//! Direct where every rank reaches every other's buffers: data is read and written where it lies, once, and notes
//! (messages of no elements) carry the order. The engine's exchange of addresses comes first, so all have entered; a
//! rank leaves when those whose steps name its buffers have told it that they are done.

use super::builder::Builder;
use super::group::Group;
use super::{Buffer, Collective, Operand, Range, RankPlan, Reach, Request};

/// Up to this many ranks notes go between all pairs: one hop. Beyond, in rounds.
const ALL_PAIRS: usize = 8;

/// The plan; `None` where messages do as well: nothing to move, or input that others would overwrite before it is read; and
/// where ranks would have to write to each other and cannot.
pub(super) fn build(request: &Request, rank: usize) -> Option<RankPlan> {
    let n = request.ranks;
    let empty = (0..n).all(|rank| request.input_count(rank) == 0 && request.output_count(rank) == 0);
    let overwritten = request.in_place && matches!(request.collective, Collective::AllToAll | Collective::SendRecv);
    let unreachable = request.reach == Reach::Read && request.collective.reduces();
    if n == 1 || empty || overwritten || unreachable {
        return None;
    }
    let mut plan = Remote { request, g: Group::new((0..n).collect(), rank)?, rank, b: Builder::new(request.chunk, 1) };
    if request.in_place_at(rank) && matches!(request.collective, Collective::ReduceScatter | Collective::Scatter) {
        plan.b.output_in_input = Some(request.displacement(rank));
    }
    plan.steps();
    Some(plan.b.finish(true))
}

struct Remote<'a> {
    request: &'a Request,
    g: Group,
    rank: usize,
    b: Builder,
}

impl Remote<'_> {
    fn at(&self, rank: usize, buffer: Buffer, offset: u64, count: u64) -> Operand {
        Operand { rank: (rank != self.rank).then_some(rank), range: Range::new(buffer, offset, count) }
    }

    /// The same part of every rank's input, in rank order.
    fn inputs(&self, part: Range) -> Vec<Operand> {
        (0..self.request.ranks).map(|rank| self.at(rank, Buffer::Input, part.offset, part.count)).collect()
    }

    /// This rank's share of work that anyone could do.
    fn share(&self) -> Range {
        Range::new(Buffer::Input, 0, self.request.block(0)).part(self.request.ranks, self.rank)
    }

    fn copy(&mut self, src: Operand, dst: Operand) {
        if src.rank.is_none() && dst.rank.is_none() {
            return self.b.copy(src.range, dst.range);
        }
        self.b.copy_remote(src, dst);
    }

    /// Nobody leaves before all have come here.
    fn sync(&mut self) {
        match self.request.ranks {
            0..=ALL_PAIRS => self.b.notes_all_pairs(&self.g),
            _ => self.b.notes_dissemination(&self.g),
        }
    }

    /// The root leaves when all others have come here; they need not wait.
    fn release_root(&mut self) {
        let root = self.request.root;
        if self.rank != root {
            return self.b.note_to(root);
        }
        for distance in 1..self.request.ranks {
            self.b.note_from(self.g.after(distance));
        }
    }

    fn steps(&mut self) {
        let (request, rank, root) = (self.request, self.rank, self.request.root);
        let (n, count, displacement) = (request.ranks, request.block(rank), request.displacement(rank));
        let own_input = |plan: &Self| match request.in_place {
            true => plan.at(rank, Buffer::Output, displacement, count),
            false => plan.at(rank, Buffer::Input, 0, count),
        };
        match request.collective {
            // In place nobody may read what another one has already overwritten: each share has one reader, its writer.
            Collective::AllReduce if count <= request.chunk && !request.in_place => {
                let all = Range::new(Buffer::Input, 0, count);
                self.b.reduce(self.inputs(all), vec![self.at(rank, Buffer::Output, 0, count)]);
                self.sync();
            }
            Collective::AllReduce => {
                let share = self.share();
                // Every writer begins with another rank's output.
                let outputs = (0..n).map(|distance| self.g.after(distance));
                let outputs = outputs.map(|rank| self.at(rank, Buffer::Output, share.offset, share.count)).collect();
                self.b.reduce(self.inputs(share), outputs);
                self.sync();
            }
            Collective::Reduce => {
                let share = self.share();
                let output = self.at(root, Buffer::Output, share.offset, share.count);
                self.b.reduce(self.inputs(share), vec![output]);
                self.sync();
            }
            Collective::ReduceScatter => {
                let block = Range::new(Buffer::Input, displacement, count);
                self.b.reduce(self.inputs(block), vec![self.at(rank, Buffer::Output, 0, count)]);
                self.sync();
            }
            Collective::AllGather => {
                let own = own_input(self);
                self.copy(own, self.at(rank, Buffer::Output, displacement, count));
                for distance in 1..n {
                    let from = self.g.after(distance);
                    let (count, displacement) = (request.block(from), request.displacement(from));
                    let src = self.at(from, Buffer::Input, 0, count);
                    self.copy(src, self.at(rank, Buffer::Output, displacement, count));
                }
                self.sync();
            }
            Collective::AllToAll => {
                for distance in 0..n {
                    let from = self.g.after(distance);
                    let count = request.pair(from, rank);
                    let there = (0..rank).map(|to| request.pair(from, to)).sum();
                    let here = (0..from).map(|from| request.pair(from, rank)).sum();
                    let src = self.at(from, Buffer::Input, there, count);
                    self.copy(src, self.at(rank, Buffer::Output, here, count));
                }
                self.sync();
            }
            Collective::Broadcast => {
                if !(rank == root && request.in_place) {
                    let src = self.at(root, Buffer::Input, 0, count);
                    self.copy(src, self.at(rank, Buffer::Output, 0, count));
                }
                self.release_root();
            }
            Collective::Scatter => {
                let src = self.at(root, Buffer::Input, displacement, count);
                self.copy(src, self.at(rank, Buffer::Output, 0, count));
                self.release_root();
            }
            Collective::Gather if request.reach == Reach::Read => {
                if rank != root {
                    return self.b.note_from(root);
                }
                let own = own_input(self);
                self.copy(own, self.at(rank, Buffer::Output, displacement, count));
                for distance in 1..n {
                    let from = self.g.after(distance);
                    let (count, displacement) = (request.block(from), request.displacement(from));
                    let src = self.at(from, Buffer::Input, 0, count);
                    self.copy(src, self.at(rank, Buffer::Output, displacement, count));
                    self.b.note_to(from);
                }
            }
            Collective::Gather => {
                let own = if rank == root { own_input(self) } else { self.at(rank, Buffer::Input, 0, count) };
                self.copy(own, self.at(root, Buffer::Output, displacement, count));
                self.release_root();
            }
            Collective::SendRecv => {
                let (from, to) = (self.g.before(1), self.g.after(1));
                let src = self.at(from, Buffer::Input, 0, count);
                self.copy(src, self.at(rank, Buffer::Output, 0, count));
                self.b.note_to(from);
                self.b.note_from(to);
            }
            Collective::Barrier => self.sync(),
        }
    }
}
