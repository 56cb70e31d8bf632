//! A job that this process plays: its telemetry files, written by the library's own writer.

use std::process::Command;
use std::sync::Arc;

use hcomm_telemetry::{Kind, LaneWriter, Options, Recorder, Shape, Traffic};
use tempfile::TempDir;

/// All reduce.
pub const ALL_REDUCE: u8 = 0;
/// Broadcast.
pub const BROADCAST: u8 = 3;

/// A job of which this process plays all ranks.
pub struct Job {
    pub name: String,
    pub folder: TempDir,
    pub ranks: Vec<(Arc<Recorder>, LaneWriter)>,
}

impl Job {
    /// With so many ranks. Other jobs may run on this machine: programs find this one by its name.
    pub fn new(name: &str, ranks: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{name}-{}", std::process::id());
        let make = |rank| {
            let options = Options { folder: Some(folder.path()), job: &name, rank, world_size: ranks, host: "here" };
            let recorder = Recorder::create(&options).unwrap();
            let lane = recorder.lane(0, 0, ranks).unwrap();
            (recorder, lane)
        };
        let ranks = (0..ranks).map(make).collect();
        Self { name, folder, ranks }
    }

    /// Each rank makes calls number `from` up to and without `to`.
    pub fn calls(&mut self, kind: u8, bytes: u64, from: u64, to: u64) {
        let shape = shape(kind, bytes);
        for (_, lane) in &mut self.ranks {
            for number in from..to {
                begin(lane, number, &shape);
                lane.end(number, &shape);
                lane.calls().end(number);
            }
        }
    }

    /// The program, looking at this job only.
    pub fn monitor(&self, arguments: &[&str]) -> Command {
        let mut command = super::monitor(&["--job", &self.name]);
        command.args(arguments).env("HCOMM_TELEMETRY", self.folder.path());
        command
    }
}

/// A rank comes to a call.
pub fn begin(lane: &mut LaneWriter, number: u64, shape: &Arc<Shape>) {
    lane.calls().begin(number, [u64::from(shape.kind.0) | 1 << 8, shape.bytes / 4, 0, 1]);
    lane.begin(number, shape);
}

/// A shape of f32 sums over shared memory.
pub fn shape(kind: u8, bytes: u64) -> Arc<Shape> {
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
