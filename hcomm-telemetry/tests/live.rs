//! Writers and readers: what is written is read, also while it is being written, by other processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hcomm_telemetry::{
    Kind, LaneWriter, Liveness, Options, Reader, Recorder, Shape, Snapshot, State, Traffic, find, skews, stalls,
};

const CHILD: &str = "HCOMM_TELEMETRY_TEST_FOLDER";

fn recorder(folder: &Path, rank: u32) -> Arc<Recorder> {
    let options = Options { folder: Some(folder), job: "test", rank, world_size: 2, host: "here" };
    Recorder::create(&options).unwrap()
}

fn shape(kind: u8, bytes: u64) -> Arc<Shape> {
    Arc::new(Shape {
        kind: Kind(kind),
        algorithm: 4,
        transport: 1,
        channels: 2,
        element: 1,
        operation: 0,
        peer: None,
        chunk_bytes: 4096,
        bytes,
        traffic: vec![Traffic { peer: 1, transport: 1, sent_bytes: bytes, received_bytes: 2 * bytes }],
    })
}

fn call(lane: &mut LaneWriter, number: u64, shape: &Arc<Shape>) {
    lane.calls().begin(number, [u64::from(shape.kind.0) | 1 << 8, shape.bytes / 4, 0, 1]);
    lane.begin(number, shape);
    lane.end(number, shape);
    lane.calls().end(number);
}

fn operations(snapshot: &Snapshot) -> Vec<(&str, u64, u64, u64)> {
    snapshot.operations.iter().map(|o| (o.kind.name(), o.class_bytes(), o.count, o.bytes)).collect()
}

#[test]
fn every_call_is_counted_and_some_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    let mut lane = recorder.lane(0, 0, 2).unwrap();
    let (small, large) = (shape(0, 8), shape(2, 1000));
    (1..=1000).for_each(|number| call(&mut lane, number, &small));
    let mut reader = Reader::of(&recorder).unwrap();
    let first = reader.snapshot().unwrap();
    assert_eq!(operations(&first), [("all_reduce", 8, 1000, 8000)], "also what is not in the slot yet");
    let operation = &first.operations[0];
    assert!(operation.timed >= 2 && operation.timed == first.records.len() as u64, "{operation:?}");
    assert!(operation.durations.total() <= 1000 && operation.durations.total() > 1000 - 251, "{operation:?}");
    assert_eq!(first.records.iter().map(|record| record.weight).sum::<u64>(), operation.durations.total());
    assert_eq!((operation.algorithm, operation.transport), (Some("direct"), Some("shm")));
    assert_eq!((operation.channels, operation.chunk_bytes, operation.element), (Some(2), Some(4096), Some("f32")));
    assert!(first.whole && first.missed == 0 && first.state == State::Running);
    assert_eq!((first.lanes[0].begun, first.lanes[0].ended, &first.lanes[0].now), (1000, 1000, &None));
    assert_eq!((first.lanes[0].recent[0].number, first.lanes[0].recent[0].count), (1000, 2));

    (1001..=1003).for_each(|number| call(&mut lane, number, &large));
    call(&mut lane, 1004, &small);
    let second = reader.snapshot().unwrap();
    assert_eq!(operations(&second), [("all_reduce", 8, 1001, 8008), ("all_gather", 512, 3, 3000)]);
    let delta: Vec<_> = second.operations_since(&first).iter().map(|o| (o.kind.name(), o.count, o.bytes)).collect();
    assert_eq!(delta, [("all_reduce", 1, 8), ("all_gather", 3, 3000)]);
    assert!(second.records.iter().all(|record| record.number > 1000), "{:?}", second.records);
    drop(lane);
    let link = &reader.snapshot().unwrap().links[0];
    assert_eq!((link.peer, link.sent_bytes, link.received_bytes), (1, 11_008, 22_016));
    assert_eq!((link.round_trip_ns, link.retransmits), (None, None), "nobody has looked");
}

#[test]
fn a_part_that_is_used_again_goes_on_counting() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    let small = shape(0, 8);
    for communicator in [0, 7] {
        let mut lane = recorder.lane(communicator, 0, 2).unwrap();
        (1..=5).for_each(|number| call(&mut lane, number, &small));
    }
    let mut third = recorder.lane(9, 1, 3).unwrap();
    call(&mut third, 1, &small);
    let snapshot = Reader::of(&recorder).unwrap().snapshot().unwrap();
    let counts: Vec<_> = snapshot.operations.iter().map(|o| (o.ranks, o.count)).collect();
    assert_eq!(counts, [(2, 10), (3, 1)]);
    assert_eq!(snapshot.lanes.iter().map(|l| (l.communicator, l.lane)).collect::<Vec<_>>(), [(9, 1)]);
}

#[test]
fn without_room_operations_are_counted_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    let mut lanes: Vec<LaneWriter> = (0..64).map(|lane| recorder.lane(0, lane, 2).unwrap()).collect();
    assert!(recorder.lane(0, 64, 2).is_none());
    let mut number = 0;
    for lane in &mut lanes {
        for class in 0..10 {
            number += 1;
            call(lane, number, &shape(0, 1 << class));
        }
    }
    let snapshot = Reader::of(&recorder).unwrap().snapshot().unwrap();
    assert_eq!((snapshot.total(), snapshot.lanes_missed), ((640, 64 * 1023), 1));
    assert_eq!(snapshot.unsorted_calls, 640 - 384);
}

#[test]
fn a_full_ring_counts_what_was_missed() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    let mut lane = recorder.lane(0, 0, 2).unwrap();
    let mut reader = Reader::of(&recorder).unwrap();
    reader.snapshot().unwrap();
    let small = shape(0, 8);
    // Those that sleep are all recorded.
    let mut sleep = |number| {
        lane.begin(number, &small);
        lane.sleeps(number, &small, 1, [1].into_iter());
        lane.end(number, &small);
    };
    (1..=2048).for_each(&mut sleep);
    let snapshot = reader.snapshot().unwrap();
    assert_eq!((snapshot.records.len(), snapshot.missed), (2048, 0));
    (2049..=5000).for_each(&mut sleep);
    let snapshot = reader.snapshot().unwrap();
    assert_eq!((snapshot.records.len(), snapshot.missed), (2048, 5000 - 2048 - 2048));
    let first = snapshot.records.iter().map(|record| record.number).min();
    assert_eq!((first, snapshot.operations[0].count), (Some(5000 - 2047), 5000));
}

#[test]
fn a_waiting_call_says_for_whom() {
    let folder = tempfile::tempdir().unwrap();
    let ranks: Vec<_> = (0..2).map(|rank| recorder(folder.path(), rank)).collect();
    let mut lanes: Vec<_> = ranks.iter().map(|recorder| recorder.lane(0, 0, 3).unwrap()).collect();
    let large = shape(0, 1 << 20);
    lanes.iter_mut().for_each(|lane| (1..=4).for_each(|number| call(lane, number, &large)));
    let since = hcomm_telemetry::monotonic_ns();
    lanes[0].calls().begin(5, [1 << 8, 1 << 18, 0, 1]);
    lanes[0].begin(5, &large);
    lanes[0].sleeps(5, &large, since, 1..=40);
    let snapshot = || -> Vec<Snapshot> {
        ranks.iter().map(|recorder| Reader::of(recorder).unwrap().snapshot().unwrap()).collect()
    };
    let snapshots = snapshot();
    let now = snapshots[0].lanes[0].now.clone().unwrap();
    assert_eq!((now.number, now.kind.name(), now.bytes), (5, "all_reduce", Some(1 << 20)));
    assert_eq!((now.awaited, now.awaited_count), ((1..=16).collect(), 40));
    assert!(now.slept_ns.unwrap() >= since);
    let stalls = stalls(&snapshots, 0);
    assert_eq!(stalls.len(), 1);
    assert_eq!((&stalls[0].inside[..], &stalls[0].late[..]), (&[0][..], &[(1, 4)][..]));
    assert_eq!((stalls[0].number, stalls[0].unseen), (5, 1));
    assert!(hcomm_telemetry::stalls(&snapshots, u64::MAX).is_empty());
    assert!(!skews(&snapshots).is_empty(), "the calls before were timed by both");

    lanes[0].end(5, &large);
    lanes[0].calls().end(5);
    let snapshots = snapshot();
    assert_eq!(snapshots[0].lanes[0].now, None);
    assert!(hcomm_telemetry::stalls(&snapshots, 0).is_empty());
    assert!(snapshots[0].records.iter().any(|record| record.number == 5 && record.slept));
}

#[test]
fn an_error_is_counted_and_stays_to_be_seen() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    let mut lane = recorder.lane(0, 0, 2).unwrap();
    let small = shape(0, 8);
    lane.calls().begin(1, [0; 4]);
    lane.begin(1, &small);
    lane.fail(1, &small);
    recorder.failed("rank 1 has not come");
    recorder.failed("and later something else");
    let snapshot = Reader::of(&recorder).unwrap().snapshot().unwrap();
    assert_eq!((snapshot.operations[0].count, snapshot.operations[0].errors), (0, 1));
    assert_eq!(snapshot.state, State::Failed("rank 1 has not come".into()));
    assert!(snapshot.records[0].failed && snapshot.lanes[0].is_inside());
}

#[test]
fn the_file_is_gone_with_its_process_but_an_open_one_is_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    let path = recorder.path();
    let mut lane = recorder.lane(0, 0, 2).unwrap();
    call(&mut lane, 1, &shape(0, 8));
    let mut reader = Reader::open(&path).unwrap();
    drop((lane, recorder));
    assert!(!path.exists());
    let snapshot = reader.snapshot().unwrap();
    assert_eq!((snapshot.total(), snapshot.state), ((1, 8), State::Ended));
}

/// A process that writes until it is killed: `count` lanes at full speed.
fn writer(folder: &Path) -> ! {
    let recorder = recorder(folder, 0);
    let threads: Vec<_> = (0..2_u32)
        .map(|number| {
            let mut lane = recorder.lane(number.into(), number, 2).unwrap();
            std::thread::spawn(move || {
                // Sizes tell the numbers apart that belong together: n calls moved n times the bytes of one.
                let shapes = [shape(0, 24), shape(1, 3 << 20)];
                for number in 1.. {
                    let shape = &shapes[(number / 100 % 2) as usize];
                    lane.calls().begin(number, [0; 4]);
                    lane.begin(number, shape);
                    if number % 10 == 0 {
                        lane.sleeps(number, shape, number, (number as u32..).take(number as usize % 16));
                    }
                    lane.end(number, shape);
                    lane.calls().end(number);
                }
            })
        })
        .collect();
    println!("up");
    for thread in threads {
        thread.join().unwrap();
    }
    unreachable!()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program again, as a writer.
fn start(folder: &Path) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_writer_at_full_speed", "--nocapture"]).env(CHILD, folder);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("up")), "the writer came up");
    child
}

#[test]
fn a_writer_at_full_speed() {
    if let Some(folder) = std::env::var_os(CHILD) {
        writer(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path());
    let found = find(&[folder.path().to_owned()]);
    let found = found.into_iter().find(|found| found.path.starts_with(folder.path())).expect("it is found");
    let mut reader = found.reader.unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    let (mut whole, mut all, mut records, mut last) = (0, 0, 0, (0, 0));
    while Instant::now() < end {
        let snapshot = reader.snapshot().unwrap();
        all += 1;
        for record in &snapshot.records {
            let bytes = if record.number / 100 % 2 == 0 { 24 } else { 3 << 20 };
            assert_eq!((record.bytes, record.kind.0), (bytes, (record.number / 100 % 2) as u8), "{record:?}");
            assert_eq!(record.communicator, u64::from(record.lane), "{record:?}");
            records += 1;
        }
        // A snapshot that says that it is not whole has parts of different moments.
        if !snapshot.whole {
            continue;
        }
        assert!(snapshot.total() >= last, "counters only grow: {:?} after {last:?}", snapshot.total());
        last = snapshot.total();
        whole += 1;
        for operation in &snapshot.operations {
            let size = if operation.kind.0 == 0 { 24 } else { 3 << 20 };
            assert_eq!(operation.bytes, operation.count * size, "{operation:?}");
            assert!(operation.durations.total() <= operation.count + 2, "{operation:?}");
        }
        for lane in &snapshot.lanes {
            if let Some(now) = lane.now.as_ref().filter(|now| now.slept_ns.is_some() && now.bytes.is_some()) {
                let count = now.number % 16;
                assert_eq!((now.awaited_count, now.awaited.len() as u64), (count, count), "{now:?}");
                assert!(now.awaited.iter().zip(now.number..).all(|(rank, n)| *rank == n as u32), "{now:?}");
            }
        }
    }
    println!("{whole} of {all} snapshots whole, {records} records");
    assert!(whole > 0 && records > 0, "{whole} of {all} snapshots whole, {records} records");

    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert_eq!(reader.liveness(), Liveness::Dead);
    let snapshot = reader.snapshot().unwrap();
    assert_eq!((snapshot.state, snapshot.stopped), (State::Killed, None));
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left(), 1);
    assert!(!find(&[folder.path().to_owned()]).iter().any(|found| found.path.starts_with(folder.path())));
    assert_eq!(left(), 0, "the file of a dead process is removed");
}
