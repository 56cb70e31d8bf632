//! Sizes and durations as people write them: one parser for every flag, variable and file.
//!
//! K, KB and KiB all mean 1024, as in the benchmarks people compare with. Fractions of a size are refused and not rounded: what
//! a size means must not depend on who rounds it.

use std::time::Duration;

/// What [`parse_size`] takes, for error texts.
pub const SIZE_FORM: &str =
    "a whole number of bytes, or of K, M, G, T, P, E (powers of 1024; 64K, 64KB and 64KiB are the same)";

/// Longer than any wait; a moment so far from now can still be told, as one 500 thousand million years from now cannot.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
/// What [`parse_duration`] takes, for error texts.
pub const DURATION_FORM: &str = "a duration such as 100ms, 0.5s, 5s, 2m, or a number of seconds";

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// Bytes that `text` means: `8`, `8B`, `64K`, `1MiB`, `256mb`.
///
/// # Errors
/// A sentence that says what is wrong with `text`, and what is allowed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        let what = match text.chars().next() {
            None => "an empty size",
            Some('-') => "a size cannot be negative",
            Some(_) => "a size begins with a number",
        };
        return Err(format!("{what}; give {SIZE_FORM}"));
    }
    if suffix.starts_with(['.', ',']) {
        return Err(format!("a size has no fraction (1536K is 1.5M); give {SIZE_FORM}"));
    }
    let bits = unit_bits(suffix).ok_or_else(|| format!("unknown unit '{suffix}'; give {SIZE_FORM}"))?;
    let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(1 << bits));
    bytes.ok_or_else(|| format!("more than {} bytes (16E - 1) cannot be counted", u64::MAX))
}

/// Binary logarithm of the unit, in any case and with any of its endings.
fn unit_bits(suffix: &str) -> Option<u32> {
    let suffix = suffix.to_ascii_uppercase();
    if suffix.is_empty() || suffix == "B" {
        return Some(0);
    }
    let power = UNITS.iter().zip(1..).find(|(unit, _)| suffix.starts_with(**unit))?.1;
    matches!(&suffix[1..], "" | "B" | "IB").then_some(power * 10)
}

/// The shortest exact text that [`parse_size`] reads as `bytes`: `1536`, `64K`, `3M`.
pub fn format_size(bytes: u64) -> String {
    let power = (bytes.trailing_zeros() / 10).min(UNITS.len() as u32) as usize;
    if bytes == 0 || power == 0 {
        return bytes.to_string();
    }
    format!("{}{}", bytes >> (power * 10), UNITS[power - 1])
}

/// The duration that `text` means: `100ms`, `0.5s`, `1h 30m`, or seconds without a unit.
///
/// # Errors
/// A sentence that says what is wrong with `text`, and what is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(format!("a duration cannot be negative; give {DURATION_FORM}"));
    }
    let bare = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let parsed = if bare { humantime::parse_duration(&format!("{text}s")) } else { humantime::parse_duration(text) };
    let duration = parsed.map_err(|cause| format!("{cause}; give {DURATION_FORM}"))?;
    if duration > LONGEST {
        return Err(format!("longer than a hundred years; give {DURATION_FORM}"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        let cases = [
            ("8", 8),
            ("8B", 8),
            ("0", 0),
            ("0K", 0),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("2M", 2 << 20),
            ("2m", 2 << 20),
            ("1MiB", 1 << 20),
            ("1mib", 1 << 20),
            ("256MB", 256 << 20),
            ("1G", 1 << 30),
            ("1T", 1 << 40),
            ("8E", 8 << 60),
            (" 64K ", 64 << 10),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_refused_with_a_reason() {
        let cases = [
            ("", "empty"),
            ("K", "begins with a number"),
            ("-1", "negative"),
            ("+1", "begins with a number"),
            ("1.5M", "no fraction"),
            ("1,5M", "no fraction"),
            ("0x10", "unknown unit 'x10'"),
            ("1KK", "unknown unit 'KK'"),
            ("1iB", "unknown unit 'iB'"),
            ("1µ", "unknown unit 'µ'"),
            ("1Kµ", "unknown unit 'Kµ'"),
            ("16E", "cannot be counted"),
            ("18446744073709551616", "cannot be counted"),
            ("99999999999999999999999K", "cannot be counted"),
        ];
        for (text, reason) in cases {
            let error = parse_size(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_shown_exactly() {
        for (bytes, text) in [(0, "0"), (8, "8"), (1536, "1536"), (64 << 10, "64K"), (3 << 20, "3M"), (8 << 60, "8E")] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn durations_as_people_write_them() {
        let cases = [
            ("100ms", 100),
            ("5s", 5000),
            ("0.5s", 500),
            ("300", 300_000),
            ("0.5", 500),
            ("0", 0),
            ("2m", 120_000),
            ("1m 30s", 90_000),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in
            ["", "-5s", "-1", "nan", "inf", "1e400", "5 parsecs", ".", "99999999999999999999", "1.2.3", "101years"]
        {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains("such as 100ms"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes in any::<u64>(), shift in 0..64u32) {
            let bytes = bytes >> shift << (shift / 2);
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (parse_size(&text), parse_duration(&text));
        }
    }
}
