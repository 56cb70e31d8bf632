//! Speeds and rates as people read them.

/// `400 Gb/s`, `2.5 Gb/s`, `100 Mb/s`.
pub fn speed(gbit_per_s: f64) -> String {
    if gbit_per_s < 1.0 {
        format!("{:.0} Mb/s", gbit_per_s * 1000.0)
    } else {
        format!("{} Gb/s", rounded(gbit_per_s, 2))
    }
}

/// `0 B/s`, `12.3 kB/s`, `1.25 GB/s`: three digits, powers of 1000.
pub fn rate(bytes_per_s: f64) -> String {
    scaled(bytes_per_s, ["B/s", "kB/s", "MB/s", "GB/s"], "TB/s")
}

/// As [`rate`].
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, ["B", "kB", "MB", "GB"], "TB")
}

/// In the first of the units in which it has three digits, else in the last; whole where the unit is the smallest.
fn scaled<const N: usize>(value: f64, units: [&str; N], last: &str) -> String {
    let mut value = value;
    for (at, unit) in units.into_iter().enumerate() {
        // 999.5 would be shown as 1000.
        if value < 999.5 {
            let digits = if at == 0 || value >= 99.95 {
                0
            } else if value >= 9.995 {
                1
            } else {
                2
            };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.2} {last}")
}

/// `950 ns`, `42.1 us`, `3.50 ms`, `2.00 s`: three digits.
pub fn time(ns: u64) -> String {
    scaled(ns as f64, ["ns", "us", "ms"], "s")
}

/// `0 %`, `0.012 %`, `1.5 %`.
pub fn percent(percent: f64) -> String {
    format!("{} %", rounded(percent, 3))
}

/// To so many digits after the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0 B/s"),
            (999.0, "999 B/s"),
            (999.7, "1.00 kB/s"),
            (12_345.0, "12.3 kB/s"),
            (123_456.0, "123 kB/s"),
            (1.25e9, "1.25 GB/s"),
            (5e10, "50.0 GB/s"),
            (2e12, "2.00 TB/s"),
        ] {
            assert_eq!(rate(value), text);
        }
        for (ns, text) in [(0, "0 ns"), (42_123, "42.1 us"), (3_500_000, "3.50 ms"), (2_000_000_000, "2.00 s")] {
            assert_eq!(time(ns), text);
        }
        assert_eq!((percent(0.0), percent(0.0123), bytes(262_144)), ("0 %".into(), "0.012 %".into(), "262 kB".into()));
        for (value, text) in [(400.0, "400 Gb/s"), (2.5, "2.5 Gb/s"), (0.1, "100 Mb/s"), (1.0, "1 Gb/s")] {
            assert_eq!(speed(value), text);
        }
    }
}
