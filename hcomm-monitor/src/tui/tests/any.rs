//! Any model, any keys, any screen: no panic.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;

use super::*;
use crate::tui::state::Action;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("job".to_owned()), Just(String::new()), Just("日本\u{301}\u{200d}\x1b[2J".to_owned()), ".{0,40}"]
}

/// Numbers as they are, and as a damaged file may have them.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..5, 4 => BOOT_NS..BOOT_NS + 10_000_000_000, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn any_rank() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0_u32..6, 1 => any::<u32>()]
}

prop_compose! {
    fn any_operation()(kind in 0_u8..15, class in any::<u8>(), ranks in any_rank(), numbers in prop::array::uniform7(any_number()),
        durations in prop::collection::vec((any_number(), any_number()), 0..4), named: bool) -> Operation {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|&(ns, times)| histogram.record(ns, times));
        let [count, bytes, errors, timed, total_ns, max, last] = numbers;
        Operation {
            kind: Kind(kind), class: class % 66, ranks, count, bytes, errors, timed, total_ns,
            min_ns: named.then_some(0), max_ns: Some(max), algorithm: named.then_some("tree"), transport: named.then_some("tcp"),
            channels: None, chunk_bytes: None, element: None, last_end_ns: Some(last), durations: histogram,
        }
    }
}

prop_compose! {
    fn any_record()(kind in 0_u8..15, lane in 0_u32..2, numbers in prop::array::uniform6(any_number()), flags: [bool; 3]) -> Record {
        let [communicator, number, bytes, start_ns, duration_ns, weight] = numbers;
        Record {
            communicator: communicator % 3, lane, number, kind: Kind(kind), bytes, start_ns, duration_ns, weight,
            slept: flags[0], late_start: flags[1], failed: flags[2], ..record(0, ALL_REDUCE, 0, 0, 0)
        }
    }
}

prop_compose! {
    fn any_lane()(numbers in prop::array::uniform5(any_number()), ranks in any_rank(), now: Option<bool>, kind in 0_u8..15,
        awaited in prop::collection::vec(any_rank(), 0..5)) -> Lane {
        let [communicator, begun, ended, since, slept] = numbers;
        let now = now.map(|timed| Now {
            number: begun, kind: Kind(kind), bytes: timed.then_some(ended), since_ns: timed.then_some(since), late_start: timed,
            slept_ns: timed.then_some(slept), awaited_count: slept, awaited,
        });
        Lane { communicator: communicator % 3, lane: 0, ranks, begun, ended, now, recent: Vec::new() }
    }
}

prop_compose! {
    fn any_process()(
        job in name(), number in any_rank(), world in any_rank(), host in name(), taken in any_number(), started in any_number(),
        state in prop_oneof![4 => Just(ProcessState::Running), 1 => Just(ProcessState::Ended), 1 => Just(ProcessState::Killed),
            1 => name().prop_map(ProcessState::Failed)],
        dead in prop::bool::weighted(0.1), stopped: Option<bool>, whole in prop::bool::weighted(0.8), offset: i64, missed in any_number(),
        operations in prop::collection::vec(any_operation(), 0..4), records in prop::collection::vec(any_record(), 0..6),
        lanes in prop::collection::vec(any_lane(), 0..3), links in prop::collection::vec((any_rank(), any_number()), 0..4),
    ) -> Snapshot {
        let mut snapshot = rank(&job, number, world, 0);
        snapshot.identity.host = host;
        snapshot.identity.pid = number;
        snapshot.identity.started_ns = started;
        snapshot.identity.wall_offset_ns = offset;
        Snapshot {
            state, liveness: if dead { Liveness::Dead } else { Liveness::Alive }, stopped, taken_ns: taken, whole, missed, operations,
            records, lanes, links: links.into_iter().map(|(peer, bytes)| link(peer, "tcp", bytes)).collect(), ..snapshot
        }
    }
}

prop_compose! {
    fn any_tick()(at_ns in any_number(), wall_ns in any_number(), processes in prop::collection::vec(any_process(), 0..5),
        unreadable in prop::collection::vec(name(), 0..5)) -> Tick {
        let unread = |reason: String| Unread { path: reason.clone().into(), reason };
        Tick { at_ns, wall_ns, processes, unreadable: unreadable.into_iter().map(unread).collect() }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Key(KeyEvent),
    Tick(Tick),
}

fn any_key() -> impl Strategy<Value = KeyEvent> {
    let special = prop::sample::select(vec![
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::F(3),
    ]);
    let known = prop::sample::select("?hjklsS/ r+-egGnpN123456".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char);
    let code = prop_oneof![6 => known, 4 => special, 1 => any::<char>().prop_map(KeyCode::Char)];
    (code, prop::bool::weighted(0.03)).prop_map(|(code, control)| {
        KeyEvent::new(code, if control { KeyModifiers::CONTROL } else { KeyModifiers::NONE })
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![6 => any_key().prop_map(Event::Key), 1 => any_tick().prop_map(Event::Tick)]
}

fn any_side() -> impl Strategy<Value = u16> {
    prop_oneof![1 => 0_u16..4, 3 => 4_u16..90]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn nothing_panics(first in any_tick(), events in prop::collection::vec(any_event(), 0..40), width in any_side(),
        height in any_side(), color: bool, unicode: bool) {
        let look = Look { color, unicode };
        let mut model = model();
        let mut state = State::new(Duration::from_millis(100));
        model.update(first);
        for event in events {
            match event {
                Event::Tick(tick) => model.update(tick),
                Event::Key(key) => match state.key(key, &model) {
                    Action::Reset => model.reset(),
                    Action::Export => {
                        let shown = state.frozen.as_ref().unwrap_or(&model);
                        let _ = state.grid(shown, usize::MAX).csv();
                    }
                    _ => {}
                },
            }
            let seen = screen(&model, &mut state, look, width, height);
            // What a terminal would obey must not come out of a name.
            let safe = |symbol: &str| !symbol.chars().any(char::is_control) && (unicode || symbol.is_ascii());
            prop_assert!(seen.content().iter().all(|cell| safe(cell.symbol())));
        }
    }
}
