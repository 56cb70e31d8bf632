//! Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats"): seconds and bytes, counters that end in `_total`.

use std::fmt::Write;

use crate::read::{Operation, Snapshot, State};

/// Upper ends of the duration buckets, as powers of two of nanoseconds: 256 ns to 69 s. There the histogram's own buckets end too,
/// so the counts are exact.
const ENDS: std::ops::RangeInclusive<u32> = 8..=36;

/// All snapshots as one exposition.
pub fn prometheus(snapshots: &[Snapshot]) -> String {
    let mut text = String::new();
    let labels: Vec<String> = snapshots.iter().map(identity).collect();
    let ranks = || snapshots.iter().zip(&labels);

    family(&mut text, "hcomm_rank_running", "gauge", "1 while the process runs its job, 0 after.");
    for (snapshot, labels) in ranks() {
        sample(&mut text, "hcomm_rank_running", labels, u8::from(snapshot.state == State::Running));
    }
    family(&mut text, "hcomm_rank_start_time_seconds", "gauge", "When the process joined its job, since 1970.");
    for (snapshot, labels) in ranks() {
        let start = snapshot.identity.wall_ns(snapshot.identity.started_ns);
        sample(&mut text, "hcomm_rank_start_time_seconds", labels, seconds(start));
    }
    type Count = fn(&Operation) -> u64;
    let counters: [(&str, &str, Count); 3] = [
        ("hcomm_operations_total", "Operations that ended well.", |o| o.count),
        ("hcomm_operation_bytes_total", "Bytes of the operations that ended well.", |o| o.bytes),
        ("hcomm_operation_errors_total", "Operations that failed.", |o| o.errors),
    ];
    for (name, help, of) in counters {
        family(&mut text, name, "counter", help);
        for (snapshot, labels) in ranks() {
            for operation in &snapshot.operations {
                sample(&mut text, name, &with_operation(labels, operation), of(operation));
            }
        }
    }
    let name = "hcomm_operation_duration_seconds";
    family(
        &mut text,
        name,
        "histogram",
        "Duration of operations; short ones by sample, each counted for all it stands for.",
    );
    for (snapshot, labels) in ranks() {
        for operation in &snapshot.operations {
            histogram(&mut text, name, &with_operation(labels, operation), operation);
        }
    }
    let name = "hcomm_operation_under_way_seconds";
    family(&mut text, name, "gauge", "Age of the oldest timed operation under way; no sample when there is none.");
    for (snapshot, labels) in ranks() {
        let since = snapshot.lanes.iter().filter_map(|lane| lane.now.as_ref()?.since_ns).min();
        if let Some(since) = since {
            sample(&mut text, name, labels, seconds(snapshot.taken_ns.saturating_sub(since)));
        }
    }
    type Bytes = fn(&crate::Link) -> u64;
    let links: [(&str, &str, Bytes); 2] = [
        ("hcomm_link_sent_bytes_total", "Bytes sent to a peer.", |link| link.sent_bytes),
        ("hcomm_link_received_bytes_total", "Bytes received from a peer.", |link| link.received_bytes),
    ];
    for (name, help, of) in links {
        family(&mut text, name, "counter", help);
        for (snapshot, labels) in ranks() {
            for link in &snapshot.links {
                let transport = link.transport.unwrap_or("?");
                let labels = format!("{labels},peer=\"{}\",transport=\"{transport}\"", link.peer);
                sample(&mut text, name, &labels, of(link));
            }
        }
    }
    text
}

fn identity(snapshot: &Snapshot) -> String {
    let identity = &snapshot.identity;
    let [job, host] = [&identity.job, &identity.host].map(|text| escaped(text));
    format!("job_id=\"{job}\",rank=\"{}\",host=\"{host}\",pid=\"{}\"", identity.rank, identity.pid)
}

/// A label's value: backslash, quotation mark and line feed are written with a backslash.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn with_operation(labels: &str, operation: &Operation) -> String {
    let Operation { kind, ranks, .. } = operation;
    format!("{labels},operation=\"{kind}\",from_bytes=\"{}\",ranks=\"{ranks}\"", operation.class_bytes())
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn sample(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{name}{{{labels}}} {value}");
}

fn histogram(text: &mut String, name: &str, labels: &str, operation: &Operation) {
    let bucket = format!("{name}_bucket");
    for end in ENDS.step_by(2) {
        let ns = 1_u64 << end;
        // Durations are whole nanoseconds: those below the end are those up to one less.
        let labels = format!("{labels},le=\"{}\"", seconds(ns - 1));
        sample(text, &bucket, &labels, operation.durations.below(ns));
    }
    sample(text, &bucket, &format!("{labels},le=\"+Inf\""), operation.durations.total());
    sample(text, &format!("{name}_sum"), labels, seconds(operation.total_ns));
    sample(text, &format!("{name}_count"), labels, operation.durations.total());
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(
            [0, 1, 255, 1_500_000_000, 10_000_000_000].map(seconds),
            ["0", "0.000000001", "0.000000255", "1.5", "10"]
        );
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
