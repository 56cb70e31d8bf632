//! Parsers of values for clap's `value_parser`.

use std::time::Duration;

use hcomm_core::units;

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
