//! What writing down a call costs: `cargo run --release -p hcomm-telemetry --example cost`. Nanoseconds a call, the least of some rounds.

use std::sync::Arc;

use hcomm_telemetry::{Kind, LaneWriter, Options, Recorder, Shape, monotonic_ns};

const CALLS: u64 = 1_000_000;

fn shape(bytes: u64) -> Arc<Shape> {
    Arc::new(Shape {
        kind: Kind(0),
        algorithm: 4,
        transport: 1,
        channels: 1,
        element: 1,
        operation: 0,
        peer: None,
        chunk_bytes: 0,
        bytes,
        traffic: Vec::new(),
    })
}

fn least(mut round: impl FnMut()) -> f64 {
    let time = |round: &mut dyn FnMut()| {
        let start = monotonic_ns();
        round();
        (monotonic_ns() - start) as f64 / CALLS as f64
    };
    (0..15).map(|_| time(&mut round)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let folder = std::env::temp_dir().join(format!("hcomm-cost-{}", std::process::id()));
    let options = Options { folder: Some(&folder), job: "cost", rank: 0, world_size: 2, host: "here" };
    let recorder = match Recorder::create(&options) {
        Ok(recorder) => recorder,
        Err(refused) => return eprintln!("{refused}"),
    };
    let (small, other) = (shape(8), shape(4096));
    if let Some(mut lane) = recorder.lane(0, 0, 2) {
        let mut number = 0;
        let mut calls = |lane: &mut LaneWriter, shapes: [&Arc<Shape>; 2]| {
            for at in 0..CALLS {
                number += 1;
                let shape = shapes[at as usize % 2];
                lane.begin(number, std::hint::black_box(shape));
                lane.end(number, std::hint::black_box(shape));
            }
        };
        println!("clock           {:6.2}", least(|| (0..CALLS).for_each(|_| _ = std::hint::black_box(monotonic_ns()))));
        println!("same shape      {:6.2}", least(|| calls(&mut lane, [&small, &small])));
        println!("shapes in turn  {:6.2}", least(|| calls(&mut lane, [&small, &other])));
    }
    drop(recorder);
    // What is left is for the system to clean.
    let _ = std::fs::remove_dir(&folder);
}
