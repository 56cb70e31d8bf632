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
    let mut value = bytes_per_s;
    for unit in ["B/s", "kB/s", "MB/s", "GB/s"] {
        // 999.5 would be shown as 1000.
        if value < 999.5 {
            let digits = if unit == "B/s" || value >= 99.95 {
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
    format!("{value:.2} TB/s")
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
        for (value, text) in [(400.0, "400 Gb/s"), (2.5, "2.5 Gb/s"), (0.1, "100 Mb/s"), (1.0, "1 Gb/s")] {
            assert_eq!(speed(value), text);
        }
    }
}
