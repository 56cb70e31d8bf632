//! Who may touch the same memory at the same time: tracks of a rank, and in remote plans the ranks.

use super::super::{Buffer, Operand, Range, Step};
use super::Fault;

/// An access of one step to a range, for the tracks' and the ranks' sake.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// Track or rank.
    pub by: usize,
    pub start: u64,
    pub end: u64,
    pub write: bool,
    /// Only between ranks: how many steps of the accessing rank were done, this one included.
    pub time: u64,
    /// Only between ranks: what the accessing rank then knew of the steps of all others.
    pub clock: std::rc::Rc<[u64]>,
}

/// Ranges that a step reads and writes.
pub(super) fn operands(step: &Step) -> (Vec<Operand>, Vec<Operand>) {
    let here = |range: &Range| vec![range.here()];
    match step {
        Step::Send { src, .. } => (here(src), vec![]),
        Step::Recv { dst, .. } | Step::RecvSend { dst, .. } => (vec![], here(dst)),
        Step::RecvReduce { operand, dst, .. } | Step::RecvReduceSend { operand, dst, .. } => (here(operand), here(dst)),
        Step::Reduce { srcs, dsts } => (srcs.clone(), dsts.clone()),
        Step::Copy { src, dst } => (vec![*src], vec![*dst]),
    }
}

/// The first pair of overlapping accesses, at least one of them a write, of which `ordered` says that nothing puts one
/// before the other.
pub(super) fn conflict<'a>(
    accesses: &'a mut [Access],
    ordered: impl Fn(&Access, &Access) -> bool,
) -> Option<(&'a Access, &'a Access)> {
    accesses.sort_by_key(|access| access.start);
    for (index, access) in accesses.iter().enumerate() {
        for other in accesses[index + 1..].iter().take_while(|other| other.start < access.end) {
            if access.by != other.by && (access.write || other.write) && !ordered(access, other) {
                return Some((access, other));
            }
        }
    }
    None
}

/// Tracks of a rank are not ordered at all. `resolve` gives memory and offset of a local range.
pub(super) fn check_tracks(
    rank: usize,
    tracks: &[Vec<Step>],
    resolve: impl Fn(Range) -> (Buffer, u64),
) -> Result<(), Fault> {
    if tracks.len() < 2 {
        return Ok(());
    }
    let nothing: std::rc::Rc<[u64]> = [].into();
    let mut by_buffer = [const { Vec::new() }; 3];
    for (by, track) in tracks.iter().enumerate() {
        for step in track {
            let (reads, writes) = operands(step);
            let reads = reads.into_iter().map(|operand| (operand, false));
            for (operand, write) in reads.chain(writes.into_iter().map(|operand| (operand, true))) {
                let (buffer, start) = resolve(operand.range);
                let end = start + operand.range.count;
                let access = Access { by, start, end, write, time: 0, clock: nothing.clone() };
                by_buffer[buffer as usize].push(access);
            }
        }
    }
    for accesses in &mut by_buffer {
        // Neighbouring accesses of one kind by one track count as one: chunks are many.
        accesses.sort_by_key(|access| (access.by, access.write, access.start));
        accesses.dedup_by(|next, last| {
            let joins = (next.by, next.write) == (last.by, last.write) && next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        if let Some((one, other)) = conflict(accesses, |_, _| false) {
            let what = format!("tracks {} and {} both use element {}", one.by, other.by, other.start);
            return Err(Fault::wrong(rank, what));
        }
    }
    Ok(())
}
