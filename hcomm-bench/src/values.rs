//! Values on the command line: sizes, durations, and the names of types, operations and workloads.

use std::time::Duration;

use hcomm_core::{Algorithm, DataType, ReduceOp};

use crate::failure::{Failure, Result};
use crate::workload::Workload;

/// A size such as `8`, `64K`, `1MiB`, `256mb`: K, M, G, T, P and E are powers of 1024.
pub fn size(flag: &str, text: &str) -> Result<u64> {
    let refuse = |why: &str| {
        let hint = "write a whole number of bytes, or one with a unit: 8, 64K, 1M, 1MiB, 2G";
        Failure::usage(format!("{flag} {text}: {why}"), hint)
    };
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.len() - upper.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = upper.split_at(digits);
    let power = match unit.trim().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return Err(refuse("not a size")),
    };
    if number.is_empty() {
        return Err(refuse("not a size"));
    }
    let number = number.parse::<u64>().map_err(|_| refuse("more than 64 bits can count"))?;
    number.checked_mul(1 << (10 * power)).ok_or_else(|| refuse("more than 64 bits can count"))
}

/// A duration such as `100ms`, `5s`, `0.5s`; a bare number is seconds, as nccl-tests' `-T`.
pub fn duration(flag: &str, text: &str) -> Result<Duration> {
    let refuse = || Failure::usage(format!("{flag} {text}: not a duration"), "write one such as 100ms, 5s, 0.5s or 2m");
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(refuse()),
    };
    let seconds = number.parse::<f64>().map_err(|_| refuse())? * scale;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(refuse()),
    }
}

/// A list separated by commas whose items are found by `find`, or `all` of them.
fn list<T: Clone>(
    flag: &str,
    text: &str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    find: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(all.to_vec());
    }
    let item = |word: &str| {
        find(word.trim()).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(&name).collect();
            Failure::usage(format!("{flag} {word}: not known"), format!("known are {}, or all", known.join(", ")))
        })
    };
    text.split(',').map(item).collect()
}

/// Workloads.
pub fn workloads(text: &str) -> Result<Vec<Workload>> {
    list("collective", text, &Workload::all(), |w| w.name(), Workload::parse)
}

/// Element types, by Rust's names or nccl-tests'.
pub fn data_types(flag: &str, text: &str) -> Result<Vec<DataType>> {
    let find = |word: &str| {
        let word = word.to_ascii_lowercase();
        DataType::ALL.into_iter().find(|t| word == t.name() || word == t.nccl_name())
    };
    list(flag, text, &DataType::ALL, |t| t.name(), find)
}

/// Operations.
pub fn operations(flag: &str, text: &str) -> Result<Vec<ReduceOp>> {
    let find = |word: &str| ReduceOp::ALL.into_iter().find(|op| word.eq_ignore_ascii_case(op.name()));
    list(flag, text, &ReduceOp::ALL, |op| op.name(), find)
}

/// Algorithms; `auto` leaves the choice to the library.
pub fn algorithms(flag: &str, text: &str) -> Result<Vec<Option<Algorithm>>> {
    let mut all: Vec<Option<Algorithm>> = vec![None];
    all.extend(Algorithm::ALL.map(Some));
    let name = |algorithm: &Option<Algorithm>| algorithm.map_or("auto", Algorithm::name);
    let find = |word: &str| {
        let word = word.to_ascii_lowercase().replace('-', "_");
        all.iter().find(|algorithm| word == name(algorithm)).copied()
    };
    let found = list(flag, text, &all, name, find)?;
    // `all` are the algorithms: `auto` would only repeat one of them.
    Ok(if text.eq_ignore_ascii_case("all") { found[1..].to_vec() } else { found })
}

/// Sizes separated by commas, none of them 0; `auto` leaves the choice to the library.
pub fn chunk_sizes(flag: &str, text: &str) -> Result<Vec<Option<u64>>> {
    let item = |word: &str| match word.trim() {
        word if word.eq_ignore_ascii_case("auto") => Ok(None),
        word => match size(flag, word)? {
            0 => Err(Failure::usage(format!("{flag} {word}: a chunk has at least 1 byte"), "use a size, or auto")),
            bytes => Ok(Some(bytes)),
        },
    };
    text.split(',').map(item).collect()
}

/// Counts of channels separated by commas; `auto` leaves the choice to the library.
pub fn channel_counts(flag: &str, text: &str) -> Result<Vec<Option<usize>>> {
    let item = |word: &str| match word.trim() {
        word if word.eq_ignore_ascii_case("auto") => Ok(None),
        word => match word.parse::<usize>() {
            Ok(count) if count > 0 => Ok(Some(count)),
            _ => Err(Failure::usage(format!("{flag} {word}: not a count of channels"), "use 1, 2, ..., or auto")),
        },
    };
    text.split(',').map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_every_usual_unit_and_nothing_else() {
        for (text, bytes) in [
            ("8", 8),
            ("0", 0),
            ("0K", 0),
            ("64K", 65536),
            ("64k", 65536),
            ("1M", 1 << 20),
            ("1MiB", 1 << 20),
            ("256MB", 256 << 20),
            ("8B", 8),
            ("8E", 8 << 60),
        ] {
            assert_eq!(size("-b", text).unwrap(), bytes, "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "16E", "99999999999999999999", "8X", "1 2", "nan"] {
            assert_eq!(size("-b", text).unwrap_err().code, 2, "{text}");
        }
    }

    #[test]
    fn durations_are_positive() {
        assert_eq!(duration("--time", "100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(duration("--time", "0.5s").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("-T", "30").unwrap(), Duration::from_secs(30));
        for text in ["0", "0s", "-1s", "abc", "1y", "", "99999999999999999999h"] {
            assert!(duration("--time", text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_name_what_is_known() {
        assert_eq!(data_types("-d", "float,bf16").unwrap(), [DataType::F32, DataType::Bf16]);
        assert_eq!(operations("-o", "all").unwrap().len(), 5);
        assert_eq!(algorithms("--algorithm", "ring,halving-doubling").unwrap().len(), 2);
        assert_eq!(algorithms("--algorithm", "all").unwrap().len(), Algorithm::ALL.len());
        assert_eq!(algorithms("--algorithm", "auto").unwrap(), [None]);
        let failure = algorithms("--algorithm", "nosuch").unwrap_err();
        assert!(failure.hint.contains("ring") && failure.hint.contains("hierarchical"), "{failure}");
        assert_eq!(chunk_sizes("--chunk-size", "64K,auto").unwrap(), [Some(65536), None]);
        assert!(chunk_sizes("--chunk-size", "0").is_err());
        assert!(channel_counts("--channels", "0").is_err());
    }
}
