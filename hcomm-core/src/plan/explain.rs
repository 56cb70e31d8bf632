//! Plans as text: one step a line, `input[0..64]` for ranges, `3:output[0..64]` for another rank's.

use std::fmt;

use super::{Buffer, Operand, Range, RankPlan, Step};

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.buffer {
            Buffer::Input => "input",
            Buffer::Output => "output",
            Buffer::Scratch => "scratch",
        };
        write!(f, "{name}[{}..{}]", self.offset, self.end())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{rank}:{}", self.range),
            None => self.range.fmt(f),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |operands: &[Operand], separator: &str| -> String {
            operands.iter().map(Operand::to_string).collect::<Vec<_>>().join(separator)
        };
        match self {
            Step::Send { peer, src } if src.count == 0 => write!(f, "note to {peer}"),
            Step::Send { peer, src } => write!(f, "send {src} to {peer}"),
            Step::Recv { peer, dst } if dst.count == 0 => write!(f, "await note from {peer}"),
            Step::Recv { peer, dst } => write!(f, "{dst} = receive from {peer}"),
            Step::RecvReduce { peer, operand, dst } => write!(f, "{dst} = {operand} + receive from {peer}"),
            Step::RecvReduceSend { from, operand, dst, to } => {
                write!(f, "{dst} = {operand} + receive from {from}, send to {to}")
            }
            Step::RecvSend { from, dst, to } => write!(f, "{dst} = receive from {from}, send to {to}"),
            Step::Reduce { srcs, dsts } => write!(f, "{} = {}", list(dsts, ", "), list(srcs, " + ")),
            Step::Copy { src, dst } => write!(f, "{dst} = {src}"),
        }
    }
}

impl fmt::Display for RankPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.remote {
            writeln!(f, "exchange addresses")?;
        }
        for (index, track) in self.tracks.iter().enumerate() {
            if self.tracks.len() > 1 {
                writeln!(f, "track {index}")?;
            }
            for step in track {
                writeln!(f, "{step}")?;
            }
        }
        if self.scratch > 0 {
            writeln!(f, "scratch: {} elements", self.scratch)?;
        }
        Ok(())
    }
}
