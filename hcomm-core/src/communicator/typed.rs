//! The collectives as methods on typed slices: thin shells over [`Communicator::run`].

use super::buffer::{bytes, bytes_mut};
use super::{Call, Communicator};
use crate::error::Result;
use crate::plan::{Collective, Counts};
use crate::reduce::{Element, ReduceOp};

fn call<T: Element>(collective: Collective, counts: Counts, op: ReduceOp, root: usize) -> Call {
    Call { collective, counts, dtype: T::TYPE, op, root }
}

/// The collectives. All ranks call the same ones in the same order, with counts that fit together. Slices that are too short,
/// ranks that die, stay silent or call something else are errors as of [`Communicator::run`].
impl Communicator {
    /// Reduces `input` of all ranks, element by element, into `output` of all ranks; both have the same length everywhere.
    pub fn all_reduce<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        let call = call::<T>(Collective::AllReduce, Counts::Even(input.len() as u64), op, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Reduces `buffer` of all ranks, element by element, in place.
    pub fn all_reduce_in_place<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let call = call::<T>(Collective::AllReduce, Counts::Even(buffer.len() as u64), op, 0);
        self.run_in_place(&call, bytes_mut(buffer))
    }

    /// Reduces `input` of all ranks; rank r gets block r of the result. `input` is `size` times as long as `output`.
    pub fn reduce_scatter<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        let call = call::<T>(Collective::ReduceScatter, Counts::Even(output.len() as u64), op, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// As [`Communicator::reduce_scatter`] with a block length for each rank.
    pub fn reduce_scatter_uneven<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[u64],
        op: ReduceOp,
    ) -> Result<()> {
        let call = call::<T>(Collective::ReduceScatter, Counts::PerRank(counts.into()), op, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Concatenates `input` of all ranks, in rank order, into `output` of all ranks.
    pub fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<()> {
        let call = call::<T>(Collective::AllGather, Counts::Even(input.len() as u64), ReduceOp::Sum, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// As [`Communicator::all_gather`] with a block length for each rank.
    pub fn all_gather_uneven<T: Element>(&mut self, input: &[T], output: &mut [T], counts: &[u64]) -> Result<()> {
        let call = call::<T>(Collective::AllGather, Counts::PerRank(counts.into()), ReduceOp::Sum, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Copies `buffer` of `root` to all ranks.
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: usize) -> Result<()> {
        let call = call::<T>(Collective::Broadcast, Counts::Even(buffer.len() as u64), ReduceOp::Sum, root);
        self.run_in_place(&call, bytes_mut(buffer))
    }

    /// Reduces `input` of all ranks into `output` of `root`; elsewhere `output` may be empty.
    pub fn reduce<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        let call = call::<T>(Collective::Reduce, Counts::Even(input.len() as u64), op, root);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Rank r gets block r of `input` of `root`; elsewhere `input` may be empty.
    pub fn scatter<T: Element>(&mut self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let call = call::<T>(Collective::Scatter, Counts::Even(output.len() as u64), ReduceOp::Sum, root);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Concatenates `input` of all ranks, in rank order, into `output` of `root`; elsewhere `output` may be empty.
    pub fn gather<T: Element>(&mut self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let call = call::<T>(Collective::Gather, Counts::Even(input.len() as u64), ReduceOp::Sum, root);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Rank i's block j becomes rank j's block i; all blocks have `count` elements.
    pub fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T], count: usize) -> Result<()> {
        let call = call::<T>(Collective::AllToAll, Counts::Even(count as u64), ReduceOp::Sum, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// As [`Communicator::all_to_all`]; `counts[i * size + j]` elements go from rank i to rank j.
    pub fn all_to_all_uneven<T: Element>(&mut self, input: &[T], output: &mut [T], counts: &[u64]) -> Result<()> {
        let call = call::<T>(Collective::AllToAll, Counts::Matrix(counts.into()), ReduceOp::Sum, 0);
        self.run(&call, bytes(input), bytes_mut(output))
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&mut self) -> Result<()> {
        let call = call::<u8>(Collective::Barrier, Counts::Even(0), ReduceOp::Sum, 0);
        self.run(&call, &[], &mut [])
    }
}
