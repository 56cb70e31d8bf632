//! Numbers as people read them.

use chrono::{DateTime, Local};

/// Not known.
pub const UNKNOWN: &str = "-";

/// A size: exact where it is a whole number of its unit, else with three digits. KB, MB, ... are powers of 1024.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];
    let power = if bytes == 0 { 0 } else { bytes.ilog2() as usize / 10 };
    let unit = 1_u64 << (10 * power);
    if bytes.is_multiple_of(unit) {
        return format!("{}{}", bytes / unit, UNITS[power]);
    }
    format!("{}{}", three_digits(bytes as f64 / unit as f64), UNITS[power])
}

/// A duration of so many nanoseconds, with three digits.
pub fn duration(ns: u64) -> String {
    // The limits are those from which on three digits would be written as 1000 of the smaller unit.
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..999_500 => format!("{}us", three_digits(ns as f64 / 1e3)),
        999_500..999_500_000 => format!("{}ms", three_digits(ns as f64 / 1e6)),
        999_500_000..120_000_000_000 => format!("{}s", three_digits(ns as f64 / 1e9)),
        120_000_000_000..7_200_000_000_000 => format!("{}m{:02}s", ns / 60_000_000_000, ns / 1_000_000_000 % 60),
        _ => format!("{}h{:02}m", ns / 3_600_000_000_000, ns / 60_000_000_000 % 60),
    }
}

/// A bandwidth: powers of 1000, as links are sold.
pub fn bandwidth(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, ["B/s", "KB/s", "MB/s", "GB/s", "TB/s", "PB/s"])
}

/// So many a second.
pub fn rate(per_second: f64) -> String {
    scaled(per_second, ["/s", "k/s", "M/s", "G/s", "T/s", "P/s"])
}

/// A count, exact up to six digits.
pub fn count(count: u64) -> String {
    if count < 1_000_000 { count.to_string() } else { scaled(count as f64, ["", "k", "M", "G", "T", "P"]) }
}

/// Ranks, as `rank 3` or `ranks 0-3, 7`; those beyond a dozen ranges are counted only.
pub fn ranks(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, hcomm_cli::ranges(ranks))
}

fn scaled(value: f64, units: [&str; 6]) -> String {
    let mut rest = value;
    for unit in &units[..units.len() - 1] {
        // 999.5 would be written as 1000.
        if rest.abs() < 999.5 {
            return format!("{}{unit}", three_digits(rest));
        }
        rest /= 1000.0;
    }
    format!("{}{}", three_digits(rest), units[units.len() - 1])
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Time of the day in local time, from nanoseconds since 1970: `10:01:07.120`.
pub fn time_of_day(wall_ns: u64) -> String {
    let time = DateTime::from_timestamp_nanos(i64::try_from(wall_ns).unwrap_or(i64::MAX));
    time.with_timezone(&Local).format("%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            (0, "0B"),
            (8, "8B"),
            (1023, "1023B"),
            (64 << 10, "64KB"),
            (256 << 20, "256MB"),
            (1536, "1.50KB"),
            (1_000_000, "977KB"),
            (u64::MAX, "16.0EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn durations() {
        let cases = [
            (0, "0ns"),
            (999, "999ns"),
            (8_785, "8.79us"),
            (999_499, "999us"),
            (999_500, "1.00ms"),
            (999_600_000, "1.00s"),
            (18_700_000, "18.7ms"),
            (1_250_000_000, "1.25s"),
            (61_000_000_000, "61.0s"),
            (125_000_000_000, "2m05s"),
            (7_260_000_000_000, "2h01m"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn rates_and_counts() {
        assert_eq!((bandwidth(0.0), bandwidth(12_340_000_000.0)), ("0B/s".into(), "12.3GB/s".into()));
        assert_eq!((rate(53.4), rate(999.7), rate(1e22)), ("53.4/s".into(), "1.00k/s".into(), "10000000P/s".into()));
        assert_eq!((count(999_999), count(12_345_678)), ("999999".into(), "12.3M".into()));
    }

    #[test]
    fn ranks_are_folded() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[0, 1, 2, 3, 7, 8]), "ranks 0-3, 7, 8");
        let odd: Vec<u32> = (0..40).map(|n| 2 * n).collect();
        assert!(ranks(&odd).ends_with("20, 22 and 28 more"), "{}", ranks(&odd));
        let _ = (ranks(&[]), ranks(&[u32::MAX, 0, u32::MAX]));
    }

    #[test]
    fn no_time_panics() {
        let _ = (time_of_day(0), time_of_day(u64::MAX));
    }
}
