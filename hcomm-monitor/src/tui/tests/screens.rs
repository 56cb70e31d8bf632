//! Screens as they are seen. What they must show is asserted; how it looks is kept in files (`cargo insta review`).

use std::time::Duration;

use ratatui::style::Color;

use super::*;
use crate::tui::views::View;

const SIZES: [(u16, u16); 5] = [(80, 24), (120, 40), (200, 60), (40, 10), (1, 1)];

fn at(view: View) -> State {
    let mut state = State::new(Duration::from_millis(100));
    state.view = view;
    state
}

fn shown(model: &Model, view: View, look: Look, (width, height): (u16, u16)) -> String {
    text(&screen(model, &mut at(view), look, width, height), model)
}

/// Compares a screen with the one that is kept.
fn keep(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn every_view_at_every_size() {
    let model = busy(4);
    for view in View::ALL {
        for size in SIZES {
            keep(&format!("{}-{}x{}", view.name(), size.0, size.1), &shown(&model, view, PLAIN, size));
        }
        let plain = shown(&model, view, ASCII, (80, 24));
        assert!(plain.is_ascii(), "{plain}");
        keep(&format!("{}-ascii", view.name()), &plain);
    }
}

#[test]
fn waiting_for_a_job_says_where() {
    let model = model();
    let text = shown(&model, View::Operations, PLAIN, (80, 24));
    for place in model.places() {
        assert!(text.contains(place), "{text}");
    }
    keep("waiting", &text);
    keep("waiting-40x10", &shown(&model, View::Operations, PLAIN, (40, 10)));
}

#[test]
fn a_stuck_operation_is_named_in_every_view() {
    let model = stuck(4, 2);
    for view in View::ALL {
        let text = shown(&model, view, PLAIN, (80, 24)).replace('\n', " ");
        for words in ["STUCK for 1.25s", "AllReduce 1MB, call 481", "stopped and not come: rank 2", "ranks 0, 1, 3"] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
    }
    keep("stuck-operations", &shown(&model, View::Operations, PLAIN, (80, 24)));
    keep("stuck-ranks", &shown(&model, View::Ranks, PLAIN, (120, 40)));
    keep("stuck-40x10", &shown(&model, View::Ranks, PLAIN, (40, 10)));
}

/// A rank that was stopped within a call which the others have left already, and who wait for it in the next one.
#[test]
fn a_rank_that_is_a_call_behind_is_named_with_the_call_that_waits() {
    let mut model = busy(4);
    let mut ranks: Vec<Snapshot> = (0..4).map(|number| working("train-7", number, 4, 12)).collect();
    for (number, snapshot) in (0..).zip(&mut ranks) {
        snapshot.taken_ns = BOOT_NS + 2_450_000_000;
        snapshot.stopped = Some(number == 2);
        if number == 2 { inside(snapshot, 481, 1_199, &[]) } else { inside(snapshot, 482, 1_200, &[2]) }
    }
    model.update(tick(2_450, ranks));
    let text = shown(&model, View::Operations, PLAIN, (120, 40));
    let words = "STUCK for 1.25s: AllReduce 1MB, call 482; stopped and not come: rank 2; waiting: ranks 0, 1, 3";
    assert!(text.contains(words), "{text}");
}

#[test]
fn many_ranks_stay_readable() {
    let model = stuck(64, 17);
    let text = shown(&model, View::Ranks, PLAIN, (80, 24));
    assert!(text.contains("    0 wwwwwwwwwwwwwwwwwSww"), "{text}");
    keep("ranks-of-64", &text);
    keep("ranks-of-64-120x40", &shown(&model, View::Ranks, PLAIN, (120, 40)));
    keep("links-of-64", &shown(&model, View::Links, PLAIN, (80, 24)));
}

#[test]
fn a_job_that_ended_stays_until_another_comes() {
    let mut model = several();
    let mut state = at(View::Operations);
    state.job = Some(1);
    let seen = text(&screen(&model, &mut state, PLAIN, 80, 24), &model);
    assert!(seen.contains("ENDED"), "{seen}");
    assert!(seen.contains("skipped /dev/shm/hcomm-1000/old.0.9.telemetry: it is cut short"), "{seen}");
    keep("ended", &seen);
    keep("two-jobs", &shown(&model, View::Jobs, PLAIN, (120, 40)));
    model.update(tick(1_500, vec![rank("next", 0, 1, 0)]));
    let seen = text(&screen(&model, &mut state, PLAIN, 80, 24), &model);
    assert!(!seen.contains("train-7"), "{seen}");
}

#[test]
fn ranks_that_are_lost_are_named() {
    let mut model = busy(4);
    let mut ranks: Vec<Snapshot> = (0..4).map(|number| working("train-7", number, 4, 13)).collect();
    (ranks[1].state, ranks[1].liveness) = (ProcessState::Killed, Liveness::Dead);
    ranks[3].state = ProcessState::Failed("[HC-E0007] rank 1 is gone\n\x1b[2J".into());
    model.update(tick(1_300, ranks));
    let seen = shown(&model, View::Ranks, PLAIN, (120, 40));
    assert!(seen.contains("rank 1 killed") && seen.contains("rank 3 failed: [HC-E0007] rank 1 is gone"), "{seen}");
    assert!(!seen.contains('\x1b'));
    keep("lost", &seen);
}

#[test]
fn help_of_every_view() {
    for view in View::ALL {
        let mut state = at(view);
        state.help = Some(0);
        let model = busy(2);
        keep(&format!("help-{}", view.name()), &text(&screen(&model, &mut state, ASCII, 120, 40), &model));
    }
}

#[test]
fn colours_only_where_they_are_wanted_and_never_alone() {
    let model = stuck(4, 2);
    for view in View::ALL {
        let colored = |look| {
            let buffer = screen(&model, &mut at(view), look, 120, 40);
            let is = |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
            buffer.content().iter().any(is)
        };
        assert!(!colored(PLAIN), "{view:?}");
        assert!(colored(COLOR), "{view:?}: a stuck operation is red");
        assert_eq!(shown(&model, view, PLAIN, (120, 40)), shown(&model, view, COLOR, (120, 40)));
    }
}
