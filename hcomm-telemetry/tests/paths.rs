//! Sockets: what is written of each is read, parts of closed ones serve others, and those without room are counted.

use std::path::Path;
use std::sync::Arc;

use hcomm_telemetry::{LinkPath, Options, PathFigures, PathSample, Reader, Recorder};

fn recorder(folder: &Path) -> Arc<Recorder> {
    let options = Options { folder: Some(folder), job: "test", rank: 0, world_size: 9, host: "here" };
    Recorder::create(&options).unwrap()
}

fn sample(id: u64, peer: u32) -> PathSample {
    PathSample {
        id,
        peer,
        transport: 2,
        communicator: 1 << 40,
        lane: 3,
        number: 1,
        interface: "ens7f0np0".into(),
        addresses: Some(("10.0.0.1:4000".parse().unwrap(), "[fd00::2]:65535".parse().unwrap())),
        state: Some(1),
        figures: PathFigures { round_trip_ns: Some(7), retransmits: Some(0), ..PathFigures::default() },
    }
}

#[test]
fn what_is_written_is_read_until_the_socket_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path());
    let mut reader = Reader::of(&recorder).unwrap();
    assert_eq!(reader.snapshot().unwrap().paths, []);
    let mut paths = recorder.paths();
    let other = PathSample { interface: String::new(), addresses: None, state: None, ..sample(8, 2) };
    paths.write(&[sample(7, 5), other]);
    let read = reader.snapshot().unwrap().paths;
    let LinkPath { opened_ns, sampled_ns, .. } = read[1];
    assert!(opened_ns > 0 && sampled_ns == opened_ns);
    assert_eq!(
        read[1],
        LinkPath {
            peer: 5,
            transport: Some("tcp"),
            communicator: 1 << 40,
            lane: 3,
            number: 1,
            interface: Some("ens7f0np0".into()),
            local: Some("10.0.0.1:4000".parse().unwrap()),
            remote: Some("[fd00::2]:65535".parse().unwrap()),
            state: Some("established"),
            opened_ns,
            sampled_ns,
            figures: sample(7, 5).figures,
        }
    );
    assert_eq!((read[0].peer, &read[0].interface, read[0].local, read[0].state), (2, &None, None, None));

    let figures = PathFigures { retransmits: Some(3), segments_sent: Some(300), ..PathFigures::default() };
    paths.write(&[PathSample { figures, state: Some(8), ..sample(7, 5) }]);
    let read = reader.snapshot().unwrap().paths;
    assert_eq!(read.len(), 1, "the other is closed");
    assert_eq!((read[0].opened_ns, read[0].state, read[0].loss()), (opened_ns, Some("close_wait"), Some(0.01)));
    assert!(read[0].sampled_ns > opened_ns);
    paths.write(&[]);
    assert_eq!(reader.snapshot().unwrap().paths, []);
}

#[test]
fn parts_of_closed_sockets_serve_others() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path());
    let mut reader = Reader::of(&recorder).unwrap();
    let mut paths = recorder.paths();
    let mut look = |ids: std::ops::Range<u64>| {
        paths.write(&ids.map(|id| sample(id, id as u32)).collect::<Vec<_>>());
        let snapshot = reader.snapshot().unwrap();
        assert!(snapshot.whole);
        (snapshot.paths.len(), snapshot.paths_missed)
    };
    assert_eq!(look(0..1024), (1024, 0));
    assert_eq!(look(0..1030), (1024, 6), "no room for more");
    assert_eq!(look(1020..1034), (14, 0), "where others were closed there is");
    assert_eq!(look(2000..3024), (1024, 0), "and all of it comes back");
}
