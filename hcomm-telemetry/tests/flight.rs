//! Flight records: what is written is read, and anything else is refused or bounded.

use std::sync::Arc;

use hcomm_telemetry::flight::{FlightRecord, NoRecord, lines};
use hcomm_telemetry::{Kind, Options, Reader, Recorder, Shape};
use proptest::prelude::*;

/// The record of a rank that ended 41 calls and is in one more.
fn record() -> String {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(folder.path()), job: "test", rank: 1, world_size: 3, host: "here" };
    let recorder = Recorder::create(&options).unwrap();
    let mut lane = recorder.lane(0, 0, 3).unwrap();
    let shape = Arc::new(Shape {
        kind: Kind(0),
        algorithm: 0,
        transport: 1,
        channels: 1,
        element: 1,
        operation: 0,
        peer: None,
        chunk_bytes: 0,
        bytes: 4096,
        traffic: Vec::new(),
    });
    for number in 1..=42 {
        lane.calls().begin(number, [1 << 8, 1024, 0, 1]);
        lane.begin(number, &shape);
        if number < 42 {
            lane.end(number, &shape);
            lane.calls().end(number);
        }
    }
    lines(&Reader::of(&recorder).unwrap().snapshot().unwrap(), "HC-E0006", "nothing \"moves\"")
}

#[test]
fn what_is_written_is_read() {
    let text = record();
    let read = FlightRecord::parse(&text).unwrap();
    assert_eq!((read.job.as_str(), read.rank, read.world_size, read.host.as_str()), ("test", 1, 3, "here"));
    assert_eq!(
        (read.code.as_str(), read.error.as_str(), read.pid),
        ("HC-E0006", "nothing \"moves\"", std::process::id())
    );
    assert!(read.started_unix_ns <= read.written_unix_ns && !read.cut);
    let [lane] = &read.lanes[..] else { panic!("{read:?}") };
    assert_eq!((lane.communicator, lane.lane, lane.ranks, lane.begun, lane.ended), (0, 0, 3, 42, 41));
    assert_eq!(lane.calls.iter().map(|call| call.number).collect::<Vec<_>>(), (27..=42).rev().collect::<Vec<_>>());
    let call = &lane.calls[0];
    assert_eq!((call.kind, call.count, call.even, call.element), (Kind(0), 1024, true, Some("f32")));
}

#[test]
fn what_is_none_is_refused() {
    let text = record();
    let refused = |text: &str| FlightRecord::parse(text).unwrap_err();
    assert_eq!(refused(""), NoRecord::Empty);
    assert_eq!(refused("{}\n"), NoRecord::Foreign);
    assert_eq!(refused("[1]"), NoRecord::Foreign);
    assert_eq!(refused(&text[..50]), NoRecord::Cut);
    assert_eq!(refused(&text.replace("flight/1", "flight/2")), NoRecord::Version("hcomm-flight/2".into()));
    assert!(matches!(refused(&text.replace("\"rank\":1", "\"rank\":-1")), NoRecord::Damaged(1, _)));
    assert!(matches!(refused(&text.replace("\"ended\":41", "\"ended\":null")), NoRecord::Damaged(2, _)));
    let lane = text.lines().nth(1).unwrap();
    assert!(matches!(refused(&(text.clone() + &format!("{lane}\n").repeat(5000))), NoRecord::Damaged(..)), "no end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damage_is_refused_or_read(at: prop::sample::Index, with: Vec<u8>, cut: bool) {
        let mut bytes = record().into_bytes();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
            let text = String::from_utf8(bytes).unwrap();
            match FlightRecord::parse(&text) {
                Ok(read) => prop_assert_eq!(read.cut, !text.ends_with('\n')),
                Err(reason) => prop_assert!(matches!(reason, NoRecord::Empty | NoRecord::Cut | NoRecord::Foreign)),
            }
        } else {
            let end = bytes.len().min(at + with.len());
            bytes.splice(at..end, with);
            let _ = FlightRecord::parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
