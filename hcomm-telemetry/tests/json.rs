//! The JSON form of a snapshot: what is written is read as the same, and anything else is refused or bounded.

use hcomm_telemetry::{
    ALGORITHMS, BUCKETS, Call, ELEMENTS, Histogram, Identity, Kind, Lane, Link, LinkPath, Liveness, Now, OPERATIONS,
    Operation, PathFigures, Record, Snapshot, State, TRANSPORTS,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

type Name = Option<&'static str>;

fn name(names: &'static [&'static str]) -> impl Strategy<Value = Name> {
    prop::option::of(select(names))
}

fn histogram() -> impl Strategy<Value = Histogram> {
    vec((any::<u64>(), 1_u64..1 << 40), 0..20).prop_map(|durations| {
        let mut histogram = Histogram::default();
        durations.into_iter().for_each(|(ns, times)| histogram.record(ns, times));
        histogram
    })
}

prop_compose! {
    fn identity()(
        path in "\\PC*", (job, host, boot_id, program) in any::<(String, String, String, String)>(),
        (rank, world_size, pid) in any::<(u32, u32, u32)>(), pid_namespace in any::<Option<u64>>(),
        (process_start_ticks, started_ns, wall_offset_ns) in any::<(u64, u64, i64)>(),
    ) -> Identity {
        Identity {
            path: path.into(), job, rank, world_size, host, boot_id, program, pid, pid_namespace, process_start_ticks,
            started_ns, wall_offset_ns,
        }
    }
}

prop_compose! {
    fn operation()(
        (kind, class, ranks, count, bytes, errors, timed, total_ns) in any::<(u8, u8, u32, u64, u64, u64, u64, u64)>(),
        (min_ns, max_ns, channels, chunk_bytes, last_end_ns) in
            any::<(Option<u64>, Option<u64>, Option<u8>, Option<u32>, Option<u64>)>(),
        algorithm in name(&ALGORITHMS), transport in name(&TRANSPORTS), element in name(&ELEMENTS),
        durations in histogram(),
    ) -> Operation {
        Operation {
            kind: Kind(kind), class, ranks, count, bytes, errors, timed, total_ns, min_ns, max_ns, algorithm, transport,
            channels, chunk_bytes, element, last_end_ns, durations,
        }
    }
}

prop_compose! {
    fn record()(
        (communicator, number, bytes, start_ns, duration_ns, weight) in any::<(u64, u64, u64, u64, u64, u64)>(),
        (lane, kind, channels, chunk_bytes, peer) in any::<(u32, u8, u8, Option<u32>, Option<u32>)>(),
        (slept, late_start, failed) in any::<(bool, bool, bool)>(),
        algorithm in name(&ALGORITHMS), transport in name(&TRANSPORTS), element in name(&ELEMENTS),
        operation in name(&OPERATIONS),
    ) -> Record {
        Record {
            communicator, lane, number, kind: Kind(kind), bytes, start_ns, duration_ns, weight, algorithm, transport, channels,
            chunk_bytes, element, operation, peer, slept, late_start, failed,
        }
    }
}

prop_compose! {
    fn call()(
        (number, kind, count, even, root) in any::<(u64, u8, u64, bool, u64)>(),
        element in name(&ELEMENTS), operation in name(&OPERATIONS),
    ) -> Call {
        Call { number, kind: Kind(kind), count, even, element, operation, root }
    }
}

prop_compose! {
    fn now()(
        (number, kind, bytes, since_ns, late_start) in any::<(u64, u8, Option<u64>, Option<u64>, bool)>(),
        slept_ns in any::<Option<u64>>(), awaited in vec(any::<u32>(), 0..=16), awaited_count in any::<u64>(),
    ) -> Now {
        Now { number, kind: Kind(kind), bytes, since_ns, late_start, slept_ns, awaited, awaited_count }
    }
}

prop_compose! {
    fn lane()(
        (communicator, lane, ranks, begun, ended) in any::<(u64, u32, u32, u64, u64)>(),
        now in prop::option::of(now()), recent in vec(call(), 0..=16),
    ) -> Lane {
        Lane { communicator, lane, ranks, begun, ended, now, recent }
    }
}

prop_compose! {
    fn link()(
        (peer, sent_bytes, received_bytes) in any::<(u32, u64, u64)>(), transport in name(&TRANSPORTS),
        (round_trip_ns, retransmits, queued_bytes, sampled_ns) in
            any::<(Option<u64>, Option<u64>, Option<u64>, Option<u64>)>(),
    ) -> Link {
        Link { peer, transport, sent_bytes, received_bytes, round_trip_ns, retransmits, queued_bytes, sampled_ns }
    }
}

prop_compose! {
    fn path()(
        (peer, communicator, lane, number, opened_ns, sampled_ns) in any::<(u32, u64, u32, u32, u64, u64)>(),
        transport in name(&TRANSPORTS), state in name(&["established", "close_wait"]), interface in any::<Option<String>>(),
        (local, remote) in any::<(Option<std::net::SocketAddrV4>, Option<std::net::SocketAddrV4>)>(),
        figures in [any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>()],
    ) -> LinkPath {
        LinkPath {
            peer, transport, communicator, lane, number, interface, local: local.map(Into::into),
            remote: remote.map(Into::into), state, opened_ns, sampled_ns,
            figures: PathFigures {
                round_trip_ns: figures[0], retransmits: figures[1], segments_sent: figures[2], queued_bytes: figures[3],
                ..PathFigures::default()
            },
        }
    }
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![Just(State::Running), Just(State::Ended), any::<String>().prop_map(State::Failed), Just(State::Killed)]
}

prop_compose! {
    fn snapshot()(
        identity in identity(), state in state(),
        liveness in select(&[Liveness::Alive, Liveness::Dead, Liveness::Unknown][..]),
        (stopped, whole) in any::<(Option<bool>, bool)>(),
        operations in vec(operation(), 0..4), lanes in vec(lane(), 0..3), links in vec(link(), 0..3),
        records in vec(record(), 0..5), paths in vec(path(), 0..3), paths_missed: u64,
        (taken_ns, missed, unsorted_calls, unsorted_bytes, lanes_missed, stride, always_timed_ns) in
            any::<(u64, u64, u64, u64, u64, u64, u64)>(),
    ) -> Snapshot {
        Snapshot {
            identity, state, liveness, stopped, taken_ns, operations, lanes, links, paths, paths_missed, records, missed, unsorted_calls,
            unsorted_bytes, lanes_missed, whole, stride, always_timed_ns,
        }
    }
}

fn text(snapshot: &Snapshot) -> String {
    serde_json::to_string(snapshot).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_as_the_same(snapshot in snapshot()) {
        let text = text(&snapshot);
        prop_assert!(!text.contains('\n'), "one line");
        prop_assert_eq!(&serde_json::from_str::<Snapshot>(&text).unwrap(), &snapshot);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(serde_json::from_value::<Snapshot>(value).unwrap(), snapshot, "also from a value");
    }

    #[test]
    fn damage_is_refused_or_read(snapshot in snapshot(), at: prop::sample::Index, with: Vec<u8>, cut: bool) {
        let mut bytes = text(&snapshot).into_bytes();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
            prop_assert!(serde_json::from_slice::<Snapshot>(&bytes).is_err(), "half a snapshot is none");
        } else {
            let end = bytes.len().min(at + with.len());
            bytes.splice(at..end, with);
            if let Ok(read) = serde_json::from_slice::<Snapshot>(&bytes) {
                let _ = (read.total(), text(&read), read.operations.iter().filter_map(Operation::bus_bandwidth).count());
            }
        }
    }
}

fn kind_of(text: &str) -> Kind {
    serde_json::from_value(serde_json::Value::from(text)).unwrap()
}

#[test]
fn names_are_looked_up_in_the_tables() {
    let read = |from: &str, to: &str| {
        let record = Record {
            communicator: 0,
            lane: 0,
            number: 1,
            kind: Kind(0),
            bytes: 8,
            start_ns: 1,
            duration_ns: 2,
            weight: 1,
            algorithm: Some("ring"),
            transport: Some("shm+tcp"),
            channels: 1,
            chunk_bytes: None,
            element: Some("bf16"),
            operation: Some("avg"),
            peer: None,
            slept: false,
            late_start: false,
            failed: false,
        };
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains(from), "{text}");
        serde_json::from_str::<Record>(&text.replace(from, to)).unwrap()
    };
    let read_back = read("\"ring\"", "\"r\\u0069ng\"");
    assert_eq!((read_back.algorithm, read_back.transport), (Some("ring"), Some("shm+tcp")));
    assert_eq!((read_back.element, read_back.operation), (Some("bf16"), Some("avg")));
    assert_eq!(read("\"algorithm\":\"ring\",", "").algorithm, None, "a key that is not there");
    assert_eq!(read("\"ring\"", "\"from a later version\"").algorithm, None);
    assert_eq!(read("\"all_reduce\"", "\"?14\"").kind, Kind(14));
    assert_eq!(["barrier", "?", "?256", "?-1", "all_reduce_of_later"].map(kind_of), [9, 255, 255, 255, 255].map(Kind));
}

#[test]
fn histograms_are_pairs_of_bucket_and_count() {
    let mut histogram = Histogram::default();
    histogram.record(3, 7);
    histogram.record(16, 1);
    histogram.record(u64::MAX, 2);
    let text = serde_json::to_string(&histogram).unwrap();
    assert_eq!(text, format!("[[3,7],[16,1],[{},2]]", BUCKETS - 1));
    assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    let twice: Histogram = serde_json::from_str(&format!("[[3,{0}],[3,{0}]]", u64::MAX)).unwrap();
    assert_eq!(twice.total(), u64::MAX, "no overflow");
    let refused = |text: &str| serde_json::from_str::<Histogram>(text).unwrap_err().to_string();
    assert!(refused(&format!("[[{BUCKETS},1]]")).starts_with("there is no bucket 592"));
    assert!(refused(&format!("[{}[0,1]]", "[0,1],".repeat(BUCKETS))).starts_with("invalid length 593"));
    for bad in ["[[0,-1]]", "[[0]]", "[0]", "{}", "[[0,1,2]]", "[[0,1.5]]", "null"] {
        refused(bad);
    }
}
