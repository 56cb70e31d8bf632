//! Screens of made-up jobs, and any keys on any screen.

mod any;
mod keys;
mod screens;
mod torn;

use hcomm_telemetry::{Histogram, Kind, Lane, Liveness, Now, Operation, Record, Snapshot, State as ProcessState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::look::Look;
use super::state::State;
use super::{Model, frame};
use crate::fixtures::*;
use crate::source::{Tick, Unread};
use crate::units;

const PLAIN: Look = Look { color: false, unicode: true };
const ASCII: Look = Look { color: false, unicode: false };
const COLOR: Look = Look { color: true, unicode: true };

fn model() -> Model {
    Model::new(vec!["/run/user/1000/hcomm".into(), "/dev/shm/hcomm-1000".into(), "/tmp/hcomm-1000".into()])
}

/// A rank that works: at `step`, a tenth of a second each.
fn working(job: &str, number: u32, world_size: u32, step: u64) -> Snapshot {
    let mut snapshot = rank(job, number, world_size, 100 * step);
    let calls = 40 * step;
    // The last rank is always late.
    let late_us = if number + 1 == world_size { 700 } else { u64::from(number) };
    snapshot.operations = vec![
        operation(ALL_REDUCE, world_size, 1 << 20, calls + calls * (step % 3), 700_000, "ring"),
        operation(ALL_REDUCE, world_size, 256 << 20, step, 18_700_000, "halving_doubling"),
        operation(BROADCAST, world_size, 4000, 5000 * step, 2_300, "binomial"),
    ];
    snapshot.lanes[0].begun = calls;
    snapshot.lanes[0].ended = calls;
    let begin = |call: u64| 100_000 * (step - 1) + 2_500 * call;
    snapshot.records = (0..40)
        .map(|call| record(calls - 40 + call + 1, ALL_REDUCE, 1 << 20, begin(call) + late_us, 1_400 - late_us))
        .collect();
    let peers =
        (0..world_size).filter(|&peer| peer != number && (peer + 1 == number || number + 1 == peer || peer == 0));
    snapshot.links =
        peers.map(|peer| link(peer, if peer % 2 == number % 2 { "shm" } else { "tcp" }, calls << 20)).collect();
    snapshot
}

/// A job of so many ranks that works.
fn busy(world_size: u32) -> Model {
    let mut model = model();
    for step in 1..=12 {
        let ranks = (0..world_size).map(|number| working("train-7", number, world_size, step)).collect();
        model.update(tick(100 * step, ranks));
    }
    model
}

/// The same, of which a rank is stopped and has not come to a call.
fn stuck(world_size: u32, stopped: u32) -> Model {
    let mut model = busy(world_size);
    let ranks = (0..world_size).map(|number| {
        let mut snapshot = working("train-7", number, world_size, 12);
        snapshot.taken_ns = BOOT_NS + 2_450_000_000;
        snapshot.records.clear();
        if number == stopped {
            snapshot.stopped = Some(true);
        } else {
            inside(&mut snapshot, 481, 1_200, &[stopped]);
        }
        snapshot
    });
    model.update(tick(2_450, ranks.collect()));
    model
}

/// A job that ended, one that runs, and a file that cannot be read.
fn several() -> Model {
    let mut model = busy(4);
    let mut ranks: Vec<Snapshot> = (0..4).map(|number| working("train-7", number, 4, 13)).collect();
    ranks.extend((0..2).map(|number| working("other", number, 2, 13)));
    model.update(tick(1_300, ranks));
    let mut ended: Vec<Snapshot> = (0..4).map(|number| working("train-7", number, 4, 14)).collect();
    ended.iter_mut().for_each(|snapshot| snapshot.state = ProcessState::Ended);
    ended.extend((0..2).map(|number| working("other", number, 2, 14)));
    let mut tick = tick(1_400, ended);
    tick.unreadable.push(Unread {
        path: "/dev/shm/hcomm-1000/old.0.9.telemetry".into(),
        reason: "it is cut short: 100 bytes where more should be".into(),
    });
    model.update(tick);
    model
}

/// The screen.
fn screen(model: &Model, state: &mut State, look: Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    state.follow(model);
    terminal.draw(|drawn| frame::draw(drawn.buffer_mut(), look, state, model)).unwrap();
    terminal.backend().buffer().clone()
}

/// Its text: lines without the space at their ends, times of the day as they are in UTC.
fn text(buffer: &Buffer, model: &Model) -> String {
    let area = buffer.area;
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let line: String = (area.left()..area.right()).map(|x| buffer[(x, y)].symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    let calls =
        model.jobs().iter().flat_map(|job| job.calls.recent().map(|call| call.wall_ns).chain([job.started_wall_ns]));
    for wall_ns in calls {
        let utc = chrono::DateTime::from_timestamp_nanos(wall_ns as i64).format("%H:%M:%S%.3f").to_string();
        text = text.replace(&units::time_of_day(wall_ns), &utc);
    }
    text
}
