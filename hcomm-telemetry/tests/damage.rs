//! Files that are no good: each is refused with a sentence or read within bounds, and none ends the reader.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hcomm_telemetry::{Kind, Options, Reader, Recorder, Shape, Unreadable, find};
use proptest::prelude::*;
use tempfile::TempDir;

/// A good file, of a process that is this one.
fn good() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let options = Options { folder: Some(&made), job: "damage", rank: 0, world_size: 2, host: "here" };
    let recorder = Recorder::create(&options).unwrap();
    let mut lane = recorder.lane(0, 0, 2).unwrap();
    let shape = Arc::new(Shape {
        kind: Kind(0),
        algorithm: 0,
        transport: 1,
        channels: 1,
        element: 1,
        operation: 0,
        peer: None,
        chunk_bytes: 0,
        bytes: 64,
        traffic: Vec::new(),
    });
    for number in 1..=200 {
        lane.begin(number, &shape);
        lane.sleeps(number, &shape, number, 0..3);
        lane.end(number, &shape);
    }
    let copy = folder.path().join("damage.0.1.telemetry");
    std::fs::copy(recorder.path(), &copy).unwrap();
    (folder, copy)
}

fn refusal(path: &Path) -> Unreadable {
    Reader::open(path).unwrap_err()
}

fn put(path: &Path, at: u64, word: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&word.to_ne_bytes(), at).unwrap();
}

#[test]
fn what_is_wrong_is_said() {
    let (folder, path) = good();
    assert_eq!(Reader::open(&path).unwrap().snapshot().unwrap().total(), (200, 200 * 64));
    put(&path, 8, 2);
    assert_eq!(refusal(&path), Unreadable::Version { found: 2, known: 1 });
    assert!(refusal(&path).to_string().contains("layout version 2"));
    put(&path, 8, 1);
    put(&path, 64, 1 << 40);
    assert!(matches!(refusal(&path), Unreadable::Damaged(_)), "too many lanes");
    put(&path, 0, 0);
    assert_eq!(refusal(&path), Unreadable::NotReady);
    std::fs::write(&path, "something else altogether").unwrap();
    assert_eq!(refusal(&path), Unreadable::Foreign);
    std::fs::write(&path, "").unwrap();
    assert_eq!(refusal(&path), Unreadable::Truncated(0));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(refusal(&path), Unreadable::System(_)));
    assert!(matches!(refusal(folder.path()), Unreadable::System(_)));
}

#[test]
fn a_damaged_file_is_named_and_does_not_hide_the_others() {
    let (folder, path) = good();
    let bad = folder.path().join("bad.0.2.telemetry");
    std::fs::write(&bad, "garbage").unwrap();
    let other = folder.path().join("other.0.3.telemetry");
    std::fs::copy(&path, &other).unwrap();
    let found = find(&[folder.path().to_owned()]);
    let here: Vec<_> = found.iter().filter(|found| found.path.parent() == Some(folder.path())).collect();
    let good = |path: &Path| here.iter().find(|found| found.path == path).map(|found| found.reader.is_ok());
    assert_eq!((good(&path), good(&other), good(&bad)), (Some(true), Some(true), Some(false)));
}

#[test]
fn a_file_that_is_cut_short_while_it_is_open() {
    let (_folder, path) = good();
    let mut reader = Reader::open(&path).unwrap();
    let whole = File::options().write(true).open(&path).unwrap();
    for length in [5_000_000, 100_000, 70_000, 5000, 100, 0] {
        whole.set_len(length).unwrap();
        assert!(matches!(reader.snapshot(), Err(Unreadable::Truncated(_))), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_words_end_the_reader(
        changes in prop::collection::vec((0_u64..10_200, prop_oneof![any::<u64>(), 0..5000_u64, Just(u64::MAX)]), 1..8),
        in_header: bool,
    ) {
        let (_folder, path) = good();
        for (at, word) in changes {
            put(&path, 8 * if in_header { 3 + at % 115 } else { at }, word);
        }
        if let Ok(mut reader) = Reader::open(&path) {
            for _ in 0..2 {
                if let Ok(snapshot) = reader.snapshot() {
                    prop_assert!(snapshot.records.len() <= 64 * 65536);
                }
            }
        }
    }
}
