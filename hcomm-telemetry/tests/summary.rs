//! Summaries: within their bound, right in sum, and steady from one to the next.

use std::sync::Arc;

use hcomm_telemetry::{
    Kind, LaneWriter, MOST_SUMMARY_BYTES, Options, Reader, Recorder, Shape, Snapshot, Summarizer, read_summary,
};

struct Job {
    _folder: tempfile::TempDir,
    recorder: Arc<Recorder>,
    lane: LaneWriter,
    number: u64,
}

fn job() -> Job {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(folder.path()), job: "test", rank: 3, world_size: 9, host: "here" };
    let recorder = Recorder::create(&options).unwrap();
    let lane = recorder.lane(0, 0, 9).unwrap();
    Job { _folder: folder, recorder, lane, number: 0 }
}

impl Job {
    fn call(&mut self, kind: u8, bytes: u64) {
        let shape = Arc::new(Shape {
            kind: Kind(kind),
            algorithm: 0,
            transport: 2,
            channels: 1,
            element: 1,
            operation: 0,
            peer: None,
            chunk_bytes: 0,
            bytes,
            traffic: Vec::new(),
        });
        self.number += 1;
        self.lane.begin(self.number, &shape);
        self.lane.end(self.number, &shape);
    }

    fn snapshot(&self) -> Snapshot {
        Reader::of(&self.recorder).unwrap().snapshot().unwrap()
    }
}

#[test]
fn a_small_job_is_told_whole_but_for_its_records() {
    let mut job = job();
    (0..300).for_each(|_| job.call(0, 8));
    job.call(1, 1 << 20);
    let snapshot = job.snapshot();
    let read = read_summary(Summarizer::new(8192).encode(snapshot.clone()).as_bytes()).unwrap();
    assert_eq!(
        (&read.identity, read.total(), read.taken_ns),
        (&snapshot.identity, snapshot.total(), snapshot.taken_ns)
    );
    assert!(read.records.is_empty() && !snapshot.records.is_empty());
    assert_eq!(read.operations.len(), 2);
    let near = |a: u64, b: u64| a.abs_diff(b) * 4 <= b;
    for (told, known) in read.operations.iter().zip(&snapshot.operations) {
        assert_eq!(
            (told.key(), told.count, told.bytes, told.max_ns),
            (known.key(), known.count, known.bytes, known.max_ns)
        );
        assert_eq!(told.durations.total(), known.durations.total());
        let median = |operation: &hcomm_telemetry::Operation| operation.durations.quantile(0.5).unwrap();
        assert!(near(median(told), median(known)), "{} is told as {}", median(known), median(told));
    }
}

#[test]
fn many_operations_stay_within_the_bound_and_the_sum_is_right() {
    let mut job = job();
    let mut summarizer = Summarizer::new(4096);
    let mut kept: Option<Vec<_>> = None;
    for round in 0..20 {
        for class in 0..30 + round {
            (0..10).for_each(|_| job.call(class as u8 % 9, 1 << class.min(40)));
        }
        let snapshot = job.snapshot();
        let text = summarizer.encode(snapshot.clone());
        assert!(text.len() <= 4096, "{} bytes", text.len());
        let read = read_summary(text.as_bytes()).unwrap();
        assert_eq!(read.total(), snapshot.total(), "calls and bytes, told by kind or not");
        let keys: Vec<_> = read.operations.iter().map(|operation| operation.key()).collect();
        assert!(keys.len() >= 3, "{keys:?}");
        let before = kept.replace(keys.clone()).unwrap_or_default();
        // Two of the sums differ by what was done in between: none of them came or went with its past.
        assert!(before.iter().filter(|key| !keys.contains(key)).count() <= 1, "{before:?} to {keys:?}");
    }
}

#[test]
fn what_is_no_summary_is_refused() {
    for bytes in [&b""[..], b"{}", b"[1]", b"\xff\xfe", &[b' '; MOST_SUMMARY_BYTES + 1]] {
        assert!(read_summary(bytes).is_err());
    }
}
