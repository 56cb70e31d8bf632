//! Values on the command line, refused by the flag's name: sizes and durations, and the names of types, operations and
//! workloads.

use std::time::Duration;

use hcomm_cli::{Failure, Result};
use hcomm_core::config::Config;
use hcomm_core::{Algorithm, DataType, ReduceOp, units};

use crate::workload::Workload;

/// A size, as [`units::parse_size`] reads it.
pub fn size(flag: &str, text: &str) -> Result<u64> {
    let refuse = |why| Failure::usage(format!("{flag} {text}: {why}"), "for example 8, 64K, 1M, 1MiB or 2G");
    units::parse_size(text).map_err(refuse)
}

/// A duration that is not zero.
pub fn duration(flag: &str, text: &str) -> Result<Duration> {
    let refuse = |why| Failure::usage(format!("{flag} {text}: {why}"), "for example 100ms, 5s, 0.5s or 2m");
    hcomm_cli::values::duration(text).map_err(refuse)
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
            let what = match word.trim() {
                "" => format!("{flag} '{text}': a name is missing"),
                word if word.eq_ignore_ascii_case("all") => format!("{flag} {text}: all stands alone"),
                word => format!("{flag} {word}: not known"),
            };
            Failure::usage(what, format!("known are {}, or all", known.join(", ")))
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

/// Chunk sizes separated by commas, as the setting takes them; `auto` leaves the choice to the library.
pub fn chunk_sizes(flag: &str, text: &str) -> Result<Vec<Option<u64>>> {
    settings(flag, text, |config| config.chunk_size)
}

/// Counts of channels separated by commas, as the setting takes them; `auto` leaves the choice to the library.
pub fn channel_counts(flag: &str, text: &str) -> Result<Vec<Option<usize>>> {
    settings(flag, text, |config| config.channels)
}

/// A list of values of the setting that a flag is named after.
fn settings<T>(flag: &str, text: &str, value: impl Fn(&Config) -> T) -> Result<Vec<T>> {
    let item = |word: &str| {
        let mut config = Config::default();
        let refuse = |error| Failure { hint: "auto leaves the choice to the library".into(), ..Failure::from(error) };
        config.set(flag, word.trim()).map_err(refuse)?;
        Ok(value(&config))
    };
    text.split(',').map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_those_of_the_library() {
        assert_eq!(size("-b", "64KiB").unwrap(), 65536);
        for text in ["", "-1", "1.5M", "16E", "8X"] {
            let failure = size("-b", text).unwrap_err();
            assert!(failure.code == 2 && failure.text.starts_with("-b "), "{failure}");
        }
        assert_eq!(duration("-T", "30").unwrap(), Duration::from_secs(30));
        for text in ["0", "0s", "-1s", "abc", ""] {
            assert_eq!(duration("--time", text).unwrap_err().code, 2, "{text}");
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
        assert_eq!(channel_counts("--channels", "4,auto").unwrap(), [Some(4), None]);
        for text in ["", "0", "63", "2G", "64K,", "many"] {
            let failure = chunk_sizes("--chunk-size", text).unwrap_err();
            assert!(failure.code == 2 && failure.text.contains("from 64 to 1G"), "{failure}");
        }
        for text in ["", "0", "5", "1000", "-1", "1,"] {
            let failure = channel_counts("--channels", text).unwrap_err();
            assert!(failure.code == 2 && failure.text.contains("from 1 to 4"), "{failure}");
        }
    }
}
