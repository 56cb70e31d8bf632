//! Parsers of values for clap's `value_parser`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use hcomm_core::units;

use crate::failure::{Failure, Result as Outcome};

/// A duration that is not zero: `100ms`, `0.5s`, or seconds without a unit.
///
/// # Errors
/// A sentence that says what is wrong and what is allowed.
pub fn duration(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text)? {
        Duration::ZERO => Err(format!("no time at all; give {}", units::DURATION_FORM)),
        duration => Ok(duration),
    }
}

/// A size in bytes: `64K`, `1MiB`.
///
/// # Errors
/// A sentence that says what is wrong and what is allowed.
pub fn size(text: &str) -> Result<u64, String> {
    units::parse_size(text)
}

/// How often something is done: at least once.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn count(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(0) => Err("give a whole number from 1 on".into()),
        Ok(count) => Ok(count),
        Err(_) if digits => Err(format!("more than {}; leave it out to go on until Ctrl-C", u64::MAX)),
        Err(_) => Err("give a whole number from 1 on, such as 10".into()),
    }
}

/// Checks the folder that was given with `option` and holds another machine's sys and proc. An empty one is a machine of which nothing is
/// known.
///
/// # Errors
/// There is no such folder, it is a file, or it may not be read: bad arguments.
pub fn check_sysroot(option: &str, folder: &Path) -> Outcome<()> {
    let what = match fs::metadata(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        Err(error) => error.to_string(),
        Ok(meta) if !meta.is_dir() => "this is a file and no folder".to_owned(),
        Ok(_) => match fs::read_dir(folder).and_then(|_| fs::metadata(folder.join("."))) {
            Err(error) => format!("cannot be read: {error}"),
            Ok(_) => return Ok(()),
        },
    };
    let text = format!("{option} {}: {what}", folder.display());
    Err(Failure::usage(text, "give the folder that holds the other machine's sys and proc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!((count("1"), count("18446744073709551615")), (Ok(1), Ok(u64::MAX)));
        for (text, word) in
            [("0", "from 1"), ("-1", "such as"), ("", "such as"), ("18446744073709551616", "leave it out")]
        {
            let error = count(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
