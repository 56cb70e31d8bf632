//! Telemetry of real ranks: what they did is what a reader sees, and a failed rank leaves a record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hcomm_core::control::{Observer, SUMMARIES};
use hcomm_core::plan::Algorithm;
use hcomm_core::reduce::ReduceOp;
use hcomm_core::telemetry::{
    ALGORITHMS, ELEMENTS, KINDS, OPERATIONS, Reader, Snapshot, State, find, monotonic_ns, read_summary, stalls,
};
use hcomm_core::{Collective, Communicator, DataType};
use nix::sys::signal::Signal;

use super::job::{Job, TELEMETRY, say};

pub const ACTS: &[(&str, fn())] = &[("known_operations", known_operations), ("late", late), ("published", published)];
pub const TESTS: &[(&str, fn())] = &[
    ("names_are_those_of_the_library", names),
    ("operations_are_seen_as_they_were", || {
        for transport in ["shm", "tcp"] {
            let folder = tempfile::tempdir().unwrap();
            let said = Job::new("known_operations", 2)
                .env("HCOMM_TELEMETRY", folder.path().display())
                .env("HCOMM_TRANSPORT", transport)
                .run();
            assert_eq!(said.concat(), Vec::<String>::new());
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        }
    }),
    ("without_a_folder_a_job_runs_on", || {
        let said = Job::new("known_operations", 2).env("HCOMM_TELEMETRY", "/proc/none").run();
        assert_eq!(said.concat(), ["no telemetry"; 2]);
    }),
    ("a_stopped_rank_is_seen_by_a_reader", stopped),
    ("summaries_are_in_the_store", || {
        // Asked for, by hosts, by hosts but switched off, on one host.
        for (hosts, interval, ranks) in [("", "100ms", 2), ("ab", "auto", 2), ("ab", "off", 0), ("", "auto", 0)] {
            let job = Job::new("published", 2).hosts(hosts).env("HCOMM_SUMMARY_INTERVAL", interval);
            let said = job.env("EXPECTED_SUMMARIES", ranks).run();
            assert_eq!(said.concat(), Vec::<String>::new(), "{hosts} {interval}");
        }
    }),
];

/// The numbers in the file are those of the enumerations.
fn names() {
    let name = |names: &[&'static str], number: usize| names[number];
    Collective::ALL.into_iter().for_each(|collective| assert_eq!(name(&KINDS, collective as usize), collective.name()));
    Algorithm::ALL
        .into_iter()
        .for_each(|algorithm| assert_eq!(name(&ALGORITHMS, algorithm as usize), algorithm.name()));
    DataType::ALL.into_iter().for_each(|dtype| assert_eq!(name(&ELEMENTS, dtype as usize), dtype.name()));
    ReduceOp::ALL.into_iter().for_each(|op| assert_eq!(name(&OPERATIONS, op as usize), op.name()));
}

fn snapshots(folder: &Path) -> Vec<Snapshot> {
    let found = find(&[folder.to_owned()]).into_iter().filter(|found| found.path.parent() == Some(folder));
    let mut all: Vec<Snapshot> = found.map(|found| found.reader.unwrap().snapshot().unwrap()).collect();
    all.sort_by_key(|snapshot| snapshot.identity.rank);
    all
}

fn known_operations() {
    let mut c = Communicator::init().unwrap();
    let peer = 1 - c.rank();
    let (mut small, mut large) = ([1_f32; 2], c.alloc::<f32>(1 << 18).unwrap());
    let mut gathered = [0_u8; 2000];
    for _ in 0..1000 {
        c.all_reduce_in_place(&mut small, ReduceOp::Max).unwrap();
    }
    for _ in 0..7 {
        c.all_reduce_in_place(&mut large, ReduceOp::Max).unwrap();
        c.all_gather(&[0_u8; 1000], &mut gathered).unwrap();
        c.send_receive(&[0_u8; 100], peer, &mut gathered[..100], peer).unwrap();
    }
    if c.profile_stats().is_none() {
        say("no telemetry");
        return;
    }
    let folder = PathBuf::from(std::env::var("HCOMM_TELEMETRY").unwrap());
    // Here all have done the same, and wait for each other until all have looked.
    let own: Vec<_> = c
        .profile_stats()
        .unwrap()
        .operations
        .iter()
        .flat_map(|profile| &profile.sizes)
        .map(|o| (o.kind.name(), o.class_bytes(), o.count, o.bytes, o.errors))
        .collect();
    assert_eq!(
        own,
        [
            ("all_reduce", 8, 1000, 8000, 0),
            ("all_reduce", 1 << 20, 7, 7 << 20, 0),
            ("all_gather", 1024, 7, 14_000, 0),
            ("send_receive", 64, 7, 700, 0)
        ]
    );
    c.barrier().unwrap();
    let all = snapshots(&folder);
    assert_eq!(all.iter().map(|s| s.identity.rank).collect::<Vec<_>>(), [0, 1]);
    for snapshot in &all {
        assert_eq!((&snapshot.state, &snapshot.identity.job[..]), (&State::Running, "test"));
        let operation = |kind: &str, from: u64| {
            snapshot.operations.iter().find(|o| (o.kind.name(), o.class_bytes()) == (kind, from)).unwrap()
        };
        let (tiny, large) = (operation("all_reduce", 8), operation("all_reduce", 1 << 20));
        assert_eq!((tiny.count, large.count, large.bytes), (1000, 7, 7 << 20));
        assert_eq!((large.timed, large.durations.total(), large.algorithm.is_some()), (7, 7, true));
        assert!(tiny.timed < 1000 && tiny.durations.total() > 700, "{} timed", tiny.timed);
        assert!(snapshot.records.iter().any(|record| record.kind.name() == "all_gather" && record.bytes == 2000));
        let link = &snapshot.links[0];
        assert_eq!(link.peer, 1 - snapshot.identity.rank);
        // Each way half of each large one at least, whichever algorithm ran.
        assert!(link.sent_bytes >= 7 << 19 && link.received_bytes >= 7 << 19, "{link:?}");
        assert_eq!(link.transport, Some(c.last_run().transport));
    }
    // Sockets are read by a thread of their own in its own time; memory has nothing to be read.
    let over_sockets = c.last_run().transport == "tcp";
    let asked = Some(monotonic_ns());
    for rank in 0..2 {
        let (link, paths) = loop {
            let snapshot = &snapshots(&folder)[rank];
            let link = snapshot.links[0].clone();
            let read_since = link.sampled_ns > asked && snapshot.paths.iter().any(|path| Some(path.sampled_ns) > asked);
            if read_since || !over_sockets {
                break (link, snapshot.paths.clone());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        let known = [link.round_trip_ns, link.retransmits, link.queued_bytes].map(|value| value.is_some());
        assert_eq!(known, [over_sockets; 3], "{link:?}");
        if over_sockets {
            assert!((1..1_000_000_000).contains(&link.round_trip_ns.unwrap()), "{link:?}");
            assert!(link.queued_bytes.unwrap() < 1 << 20, "all was received: {link:?}");
            let path = &paths[0];
            assert_eq!(
                (path.peer, path.transport, path.state),
                (link.peer, Some("tcp"), Some("established")),
                "{path:?}"
            );
            assert!(path.local.is_some() && path.remote.is_some() && path.interface.is_some(), "{path:?}");
            let carried: u64 = paths.iter().filter_map(|path| path.figures.acknowledged_bytes).sum();
            assert!(carried + (1 << 20) >= link.sent_bytes, "{carried} of {}", link.sent_bytes);
        } else {
            assert_eq!(paths, []);
        }
    }
    c.barrier().unwrap();
}

/// Rank 0 reads the store from outside until it finds of all ranks what they did.
fn published() {
    let mut c = Communicator::init().unwrap();
    let mut value = [1.0_f32];
    for _ in 0..300 {
        c.all_reduce_in_place(&mut value, ReduceOp::Max).unwrap();
    }
    let expected: usize = std::env::var("EXPECTED_SUMMARIES").unwrap().parse().unwrap();
    if c.rank() == 0 {
        let mut observer = Observer::open(&std::env::var("HCOMM_STORE").unwrap(), Duration::from_secs(10)).unwrap();
        let mut found = BTreeMap::new();
        let done = |found: &BTreeMap<u32, Snapshot>| found.values().filter(|s| s.total() == (300, 1200)).count();
        let start = Instant::now();
        while done(&found) < expected {
            for change in observer.changes(&[SUMMARIES]).unwrap() {
                let snapshot = read_summary(&change.value).unwrap();
                assert_eq!(change.key, format!("{SUMMARIES}{}", snapshot.identity.rank));
                assert_eq!((&snapshot.identity.job[..], &snapshot.state), ("test", &State::Running));
                found.insert(snapshot.identity.rank, snapshot);
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{found:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(observer.changes(&[SUMMARIES]).unwrap().len() + found.len() > 0, expected > 0);
    }
    c.barrier().unwrap();
}

fn late() {
    let mut c = Communicator::init().unwrap();
    c.barrier().unwrap();
    if c.rank() == 1 {
        say("away");
        nix::sys::signal::raise(Signal::SIGSTOP).unwrap();
    }
    let result = c.all_reduce_in_place(&mut [1_f32; 64], ReduceOp::Sum);
    if let Err(error) = result {
        say(error);
    }
}

fn stopped() {
    let folder = tempfile::tempdir().unwrap();
    let timeout = |job: Job| job.env("HCOMM_TELEMETRY", folder.path().display()).env("HCOMM_TIMEOUT", "3s");
    let mut job = timeout(Job::new("late", 3)).start();
    job.await_line(1, "away");
    // In time, before the operation gives up.
    let stall = loop {
        let found = stalls(&snapshots(folder.path()), 300_000_000);
        if let Some(stall) = found.into_iter().find(|stall| stall.inside.len() == 2 && !stall.awaited.is_empty()) {
            break stall;
        }
        // Leaves the processors to the ranks.
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!((stall.kind.name(), stall.bytes, stall.number), ("all_reduce", Some(256), 2));
    assert_eq!((&stall.inside[..], &stall.late[..]), (&[0, 2][..], &[(1, 1)][..]));
    assert_eq!((&stall.stopped[..], stall.unseen), (&[1][..], 0));
    assert!(stall.awaited.contains(&1), "{stall:?}");

    // The others give up and leave records, which name it.
    for end in job.end_of(&[0, 2]) {
        let error = end.said.concat();
        let path = error.split("did last is in ").nth(1).unwrap_or_else(|| panic!("{error}"));
        let path = path.split(".jsonl").next().unwrap().to_owned() + ".jsonl";
        let lines: Vec<serde_json::Value> =
            std::fs::read_to_string(&path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["schema"], "hcomm-flight/1");
        assert_eq!(lines[0]["world_size"], 3);
        let lane = lines.iter().find(|line| line["line"] == "lane").unwrap();
        assert_eq!((&lane["begun"], &lane["ended"]), (&2.into(), &1.into()));
        assert_eq!(lane["now"]["operation"], "all_reduce");
        let awaited = lane["now"]["awaited_ranks"].as_array().unwrap();
        assert!(awaited.contains(&1.into()), "{lane}");
    }
    job.signal(1, Signal::SIGCONT);
    assert!(Path::new(TELEMETRY).is_absolute() && Reader::open(Path::new("/nowhere/x")).is_err());
}
