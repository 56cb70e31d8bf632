//! A call: a collective with its counts, type, operation and root; and what is known of it once it is prepared.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use hcomm_telemetry::Shape;

use crate::engine::Compiled;
use crate::error::{Error, OperationName, Result};
use crate::plan::{Algorithm, Collective, Counts, Reach};
use crate::reduce::{DataType, ReduceOp};

/// A collective to run, typed at run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// What.
    pub collective: Collective,
    /// Elements each rank takes part with.
    pub counts: Counts,
    /// Element type.
    pub dtype: DataType,
    /// Operation of reducing collectives, else ignored.
    pub op: ReduceOp,
    /// Root of rooted collectives, else 0.
    pub root: usize,
}

/// How a call ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Largest message in bytes; 0 where the message was not cut.
    pub chunk_bytes: u64,
    /// Parallel parts.
    pub channels: usize,
    /// `shm`, `tcp`, `shm+tcp`, or `self` with one rank.
    pub transport: &'static str,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.collective)?;
        match &self.counts {
            Counts::Even(count) => write!(f, "{count}")?,
            Counts::PerRank(counts) | Counts::Matrix(counts) => {
                write!(f, "{} uneven", counts.iter().fold(0_u64, |sum, &count| sum.saturating_add(count)))?;
            }
        }
        write!(f, " x {}", self.dtype)?;
        if self.collective.reduces() {
            write!(f, ", {}", self.op)?;
        }
        if self.collective.rooted() {
            write!(f, ", root {}", self.root)?;
        }
        f.write_str(")")
    }
}

impl Call {
    /// The call with everything that does not matter to it set to one value, so that equal calls compare equal on all
    /// ranks.
    pub(crate) fn normalised(&self) -> Call {
        let mut call = self.clone();
        if !call.collective.reduces() {
            call.op = ReduceOp::Sum;
        }
        if !call.collective.rooted() {
            call.root = 0;
        }
        call
    }

    /// Checks root and counts against the number of ranks.
    pub(crate) fn check(&self, ranks: usize) -> Result<()> {
        let fail = |reason: String| Err(Error::Argument { call: self.collective.name(), reason });
        if self.collective.rooted() && self.root >= ranks {
            return fail(format!("root {} is not a rank: this communicator has ranks 0 to {}", self.root, ranks - 1));
        }
        let blocks = match self.collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => 1,
            Collective::SendRecv | Collective::Barrier => 1,
            Collective::AllGather | Collective::ReduceScatter | Collective::Gather | Collective::Scatter => {
                ranks as u64
            }
            Collective::AllToAll => ranks as u64,
        };
        let elements = match &self.counts {
            Counts::Even(count) => count.checked_mul(blocks),
            Counts::PerRank(counts) | Counts::Matrix(counts) => {
                counts.iter().try_fold(0_u64, |sum, &count| sum.checked_add(count))
            }
        };
        // No slice is longer than that; below it no offset overflows.
        if elements.and_then(|count| count.checked_mul(self.dtype.size() as u64)).is_none_or(|b| b > isize::MAX as u64)
        {
            return fail(format!("{self} exceeds the address space"));
        }
        match (&self.counts, self.collective) {
            (Counts::Even(_), _) => Ok(()),
            (
                Counts::PerRank(counts),
                Collective::AllGather | Collective::ReduceScatter | Collective::Gather | Collective::Scatter,
            ) if counts.len() == ranks => Ok(()),
            (Counts::Matrix(counts), Collective::AllToAll) if counts.len() == ranks * ranks => Ok(()),
            (Counts::PerRank(counts), _) => fail(format!("{} counts do not fit {ranks} ranks", counts.len())),
            (Counts::Matrix(counts), _) => fail(format!("a matrix of {} does not fit {ranks} ranks", counts.len())),
        }
    }
}

/// A call with its plan: made once a shape, then reused.
pub(crate) struct Prepared {
    /// The plan over messages.
    pub plan: Arc<Compiled>,
    /// The plan over mapped memory, tried first: it runs when all ranks passed registered buffers.
    pub mapped: Option<Way>,
    /// The plan that reads other ranks' buffers where they lie, registered or not.
    pub read: Option<Way>,
    pub info: RunInfo,
    /// The same on all ranks that made the same call and chose the same plan.
    pub hash: u64,
    pub input_bytes: usize,
    pub output_bytes: usize,
    /// The bytes of output that an average still has to be divided in, and the element count.
    pub finish_count: usize,
    pub name: OperationName,
    /// What telemetry counts it as, over messages.
    pub shape: Arc<Shape>,
    /// The call in four words, for the control plane; see [`describe`].
    pub words: [u64; 4],
}

/// A plan, and what telemetry counts it as.
pub(crate) type Way = (Arc<Compiled>, Arc<Shape>);

impl Prepared {
    /// The best way for ranks that reach each other's buffers as said: one that has a plan.
    #[inline]
    pub fn nearest(&self, reach: Reach) -> Reach {
        match reach {
            Reach::ReadWrite if self.mapped.is_some() => Reach::ReadWrite,
            Reach::ReadWrite | Reach::Read if self.read.is_some() => Reach::Read,
            _ => Reach::Messages,
        }
    }

    /// Plan and shape of a way; that over messages stands for those that are not there.
    #[inline]
    pub fn way(&self, reach: Reach) -> (&Arc<Compiled>, &Arc<Shape>) {
        let way = match reach {
            Reach::Messages => None,
            Reach::Read => self.read.as_ref(),
            Reach::ReadWrite => self.mapped.as_ref(),
        };
        way.map_or((&self.plan, &self.shape), |(plan, shape)| (plan, shape))
    }
}

/// A call in four words, which a rank can write down in nanoseconds.
pub(crate) fn words(call: &Call) -> [u64; 4] {
    let count = match &call.counts {
        Counts::Even(count) => *count,
        Counts::PerRank(counts) | Counts::Matrix(counts) => counts.iter().sum(),
    };
    let even = matches!(call.counts, Counts::Even(_));
    [call.collective as u64 | (call.dtype as u64) << 8 | (call.op as u64) << 16, count, call.root as u64, even.into()]
}

/// The words of [`words`], for people.
pub(crate) fn describe(words: &[u64; 4]) -> String {
    let byte = |at: u32| (words[0] >> (8 * at)) as u8;
    let collective = Collective::ALL.into_iter().find(|c| *c as u8 == byte(0));
    let dtype = DataType::ALL.into_iter().find(|t| *t as u8 == byte(1));
    let op = ReduceOp::ALL.into_iter().find(|o| *o as u8 == byte(2));
    let (Some(collective), Some(dtype), Some(op)) = (collective, dtype, op) else { return "?".into() };
    let counts = if words[3] == 1 { Counts::Even(words[1]) } else { Counts::PerRank([words[1]].into()) };
    Call { collective, counts, dtype, op, root: words[2] as usize }.to_string()
}

/// A hash that is equal on all ranks of a job that run the same build.
pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(collective: Collective, counts: Counts, root: usize) -> Call {
        Call { collective, counts, dtype: DataType::F32, op: ReduceOp::Max, root }
    }

    #[test]
    fn a_call_in_words_survives_its_four_numbers() {
        for collective in Collective::ALL {
            for counts in [Counts::Even(12), Counts::PerRank([3, 0, 9].into())] {
                let call = call(collective, counts, 2).normalised();
                assert_eq!(describe(&words(&call)), call.to_string());
            }
        }
        let reduce = call(Collective::Reduce, Counts::Even(1 << 40), 2);
        assert_eq!(reduce.to_string(), "reduce(1099511627776 x f32, max, root 2)");
        assert_eq!(
            call(Collective::AllToAll, Counts::Matrix([1; 4].into()), 0).to_string(),
            "all_to_all(4 uneven x f32)"
        );
        assert_eq!(describe(&[u64::MAX; 4]), "?");
    }

    #[test]
    fn what_does_not_matter_does_not_differ() {
        let gather = |op, root| Call { op, root, ..call(Collective::AllGather, Counts::Even(1), 0) }.normalised();
        assert_eq!(gather(ReduceOp::Max, 3), gather(ReduceOp::Sum, 1));
        let reduce = |op, root| Call { op, root, ..call(Collective::Reduce, Counts::Even(1), 0) }.normalised();
        assert_ne!(reduce(ReduceOp::Max, 1), reduce(ReduceOp::Sum, 1));
        assert_ne!(reduce(ReduceOp::Max, 1), reduce(ReduceOp::Max, 0));
    }

    #[test]
    fn arguments_are_checked() {
        use Collective as C;
        let good = [
            call(C::Broadcast, Counts::Even(1), 2),
            call(C::AllReduce, Counts::Even(1), 7), // it has no root
            call(C::Gather, Counts::PerRank([1, 2, 3].into()), 0),
            call(C::AllToAll, Counts::Matrix([0; 9].into()), 0),
            call(C::AllReduce, Counts::Even(isize::MAX as u64 / 4), 0),
        ];
        for call in good {
            assert!(call.check(3).is_ok(), "{call}");
        }
        let bad = [
            (call(C::Broadcast, Counts::Even(1), 3), "root 3 is not a rank"),
            (call(C::Gather, Counts::PerRank([1, 2].into()), 0), "2 counts do not fit 3 ranks"),
            (call(C::AllReduce, Counts::PerRank([1, 2, 3].into()), 0), "3 counts"),
            (call(C::AllToAll, Counts::Matrix([0; 3].into()), 0), "a matrix of 3"),
            (call(C::AllReduce, Counts::Even(isize::MAX as u64 / 4 + 1), 0), "address space"),
            (call(C::AllGather, Counts::Even(isize::MAX as u64 / 8), 0), "address space"),
            (call(C::AllToAll, Counts::Matrix([u64::MAX; 9].into()), 0), "address space"),
        ];
        for (call, words) in bad {
            let error = call.check(3).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
