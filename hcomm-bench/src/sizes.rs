//! The series of message sizes: from the first to the last, by a factor or by a step.

use hcomm_cli::{Failure, Result};

/// Rows beyond which a series is taken for a mistake.
const MAX_ROWS: u64 = 10_000;

/// How one size leads to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Times so much, at least 2.
    Factor(u64),
    /// So many bytes more, at least 1.
    Bytes(u64),
}

/// All sizes from `first` to `last`, both included when the step meets them. Every mistake is refused with exit code 2.
pub fn series(first: u64, last: u64, step: Step) -> Result<Vec<u64>> {
    if first > last {
        return Err(Failure::usage(
            format!("the first size is above the last: -b {first} > -e {last} (bytes)"),
            "swap them, or raise -e/--max-bytes",
        ));
    }
    if last == 0 {
        return Err(Failure::usage("nothing to move: -b 0 -e 0", "give a last size, such as -e 1M"));
    }
    let rows = match step {
        Step::Factor(factor) if factor < 2 => {
            return Err(Failure::usage(
                format!("-f {factor}: a factor below 2 never reaches the last size"),
                "use -f 2 or more, or -i/--step-bytes for equal steps",
            ));
        }
        Step::Factor(_) if first == 0 => {
            return Err(Failure::usage(
                "-b 0: no factor leads away from 0",
                "begin at -b 1, or use -i/--step-bytes for equal steps",
            ));
        }
        Step::Bytes(0) => {
            return Err(Failure::usage(
                "-i 0: a step of 0 bytes never reaches the last size",
                "use a step such as -i 1M",
            ));
        }
        Step::Factor(factor) => last.ilog(factor) as u64 + 1, // an upper bound
        Step::Bytes(bytes) => ((last - first) / bytes).saturating_add(1),
    };
    if rows > MAX_ROWS {
        return Err(Failure::usage(
            format!("that would be {rows} sizes; at most {MAX_ROWS} are measured in one run"),
            "raise -i/--step-bytes, or use a factor (-f 2)",
        ));
    }
    let next = |size: &u64| match step {
        Step::Factor(factor) => size.checked_mul(factor),
        Step::Bytes(bytes) => size.checked_add(bytes),
    };
    Ok(std::iter::successors(Some(first), next).take_while(|size| *size <= last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_reach_their_last_size() {
        assert_eq!(series(8, 64, Step::Factor(2)).unwrap(), [8, 16, 32, 64]);
        assert_eq!(series(64 << 20, 70 << 20, Step::Bytes(2 << 20)).unwrap().len(), 4);
        assert_eq!(series(0, 3, Step::Bytes(1)).unwrap(), [0, 1, 2, 3]);
        assert_eq!(series(5, 5, Step::Factor(2)).unwrap(), [5]);
        // Multiplying or adding beyond 64 bits ends the series instead of wrapping for ever.
        assert_eq!(series(1 << 62, u64::MAX, Step::Factor(2)).unwrap(), [1 << 62, 1 << 63]);
        assert_eq!(series(u64::MAX - 1, u64::MAX, Step::Bytes(7)).unwrap(), [u64::MAX - 1]);
    }

    #[test]
    fn series_that_cannot_be_run_are_usage_errors() {
        for (first, last, step) in [
            (1 << 30, 1 << 20, Step::Factor(2)),
            (8, 64, Step::Factor(1)),
            (8, 64, Step::Factor(0)),
            (8, 64, Step::Bytes(0)),
            (0, 0, Step::Factor(2)),
            (0, 0, Step::Bytes(1)),
            (0, 64, Step::Factor(2)),
            (0, u64::MAX, Step::Bytes(1)),
        ] {
            assert_eq!(series(first, last, step).unwrap_err().code, 2, "{first} {last} {step:?}");
        }
    }
}
