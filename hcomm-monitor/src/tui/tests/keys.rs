//! What keys do.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::tui::export::export;
use crate::tui::state::Action;
use crate::tui::views::View;

/// A user at a screen of 80 by 24.
struct User {
    model: Model,
    state: State,
}

impl User {
    fn of(model: Model) -> Self {
        let mut user = Self { model, state: State::new(Duration::from_millis(100)) };
        user.look();
        user
    }

    fn look(&mut self) -> String {
        text(&screen(&self.model, &mut self.state, PLAIN, 80, 24), &self.model)
    }

    /// Types characters, each on a screen that was drawn; returns the last one's action.
    fn types(&mut self, keys: &str) -> Action {
        let mut action = Action::None;
        for key in keys.chars() {
            action = self.press(KeyCode::Char(key));
        }
        action
    }

    fn press(&mut self, code: KeyCode) -> Action {
        let action = self.state.key(KeyEvent::from(code), &self.model);
        self.look();
        action
    }

    /// The first words of the lines of the table.
    fn rows(&mut self) -> Vec<String> {
        let seen = self.look();
        let title = seen.lines().position(|line| line.starts_with("OP_TYPE") || line.trim_start().starts_with("RANK"));
        let lines =
            seen.lines().skip(title.unwrap() + 1).take_while(|line| !line.is_empty() && !line.starts_with("q quit"));
        lines.map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

#[test]
fn tab_and_arrows_go_through_the_views() {
    let mut user = User::of(busy(4));
    for view in View::ALL {
        assert_eq!(user.state.view, view);
        assert!(user.look().contains(&format!("[{}]", view.name())));
        user.press(KeyCode::Tab);
    }
    assert_eq!(user.state.view, View::Operations, "round");
    for (keys, view) in [("l", View::Live), ("h", View::Operations), ("h", View::Jobs), ("3", View::Ranks)] {
        user.types(keys);
        assert_eq!(user.state.view, view, "{keys}");
    }
    user.press(KeyCode::Right);
    user.press(KeyCode::Left);
    user.press(KeyCode::BackTab);
    assert_eq!(user.state.view, View::Live);
}

#[test]
fn ends_by_q_and_ctrl_c() {
    let mut user = User::of(busy(2));
    assert_eq!(user.types("q"), Action::Quit);
    let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(user.state.key(ctrl('c'), &user.model), Action::Quit);
    assert_eq!(user.state.key(ctrl('z'), &user.model), Action::Suspend);
    // Also while a filter is typed, where q is a letter.
    assert_eq!(user.types("/q"), Action::None);
    assert_eq!(user.state.key(ctrl('c'), &user.model), Action::Quit);
}

#[test]
fn sorts_by_each_column_and_back() {
    let mut user = User::of(busy(4));
    let usual = user.rows();
    assert_eq!(usual, ["AllReduce 1MB", "AllReduce 256MB", "Broadcast 3.91KB"]);
    user.types("ss");
    assert_eq!(user.rows(), ["AllReduce 256MB", "AllReduce 1MB", "Broadcast 3.91KB"], "by size, largest first");
    assert!(user.look().contains("SIZE▼"));
    user.types("S");
    assert_eq!(user.rows(), ["Broadcast 3.91KB", "AllReduce 1MB", "AllReduce 256MB"]);
    let columns = user.state.grid(&user.model, 10).columns.len();
    (2..=columns).for_each(|_| _ = user.types("s"));
    assert_eq!(user.rows(), usual);
}

#[test]
fn filters_while_it_is_typed() {
    let mut user = User::of(busy(4));
    user.types("/bRoad");
    assert_eq!(user.rows(), ["Broadcast 3.91KB"]);
    assert!(user.look().contains("/bRoad_"));
    user.press(KeyCode::Enter);
    assert!(user.look().contains("filter: bRoad"));
    user.types("/x");
    assert_eq!(user.rows(), ["no operation"]);
    user.press(KeyCode::Esc);
    assert_eq!(user.rows(), ["Broadcast 3.91KB"], "the filter of before");
    user.press(KeyCode::Esc);
    assert_eq!(user.rows().len(), 3);
}

#[test]
fn freezes_while_the_job_goes_on() {
    let mut user = User::of(busy(4));
    let before = user.look();
    user.types(" ");
    let frozen = user.look();
    assert!(frozen.contains("FROZEN"));
    user.model.update(tick(1_300, (0..4).map(|number| working("train-7", number, 4, 13)).collect()));
    assert_eq!(user.look(), frozen);
    // Nothing is counted anew behind its back.
    assert_eq!(user.types("r"), Action::None);
    user.types("2");
    assert!(user.look().contains("[live]"), "views can be looked through");
    user.types("1 ");
    assert!(user.look() != before && !user.look().contains("FROZEN"));
}

#[test]
fn resets_what_is_counted() {
    let mut user = User::of(busy(4));
    assert_eq!(user.types("r"), Action::Reset);
    user.model.reset();
    let totals: Vec<u64> = user.model.jobs()[0].operations().iter().map(|row| row.total.count).collect();
    assert!(totals.iter().all(|&count| count == 0), "{totals:?}");
}

#[test]
fn the_interval_has_bounds() {
    let mut user = User::of(busy(2));
    user.types("+");
    assert_eq!(user.state.interval, Duration::from_millis(200));
    assert!(user.look().contains("every 200ms"));
    (0..30).for_each(|_| _ = user.types("+"));
    assert_eq!(user.state.interval, Duration::from_secs(10));
    (0..30).for_each(|_| _ = user.types("-"));
    assert_eq!(user.state.interval, Duration::from_millis(10));
}

#[test]
fn the_durations_of_the_marked_operation() {
    let mut user = User::of(busy(4));
    user.types("j");
    user.press(KeyCode::Enter);
    assert_eq!(user.state.view, View::Histogram);
    assert!(user.look().contains("AllReduce 256MB, 4 ranks (2 of 3)"), "{}", user.look());
    user.types("j");
    assert!(user.look().contains("Broadcast"));
    user.types("jjj");
    assert!(user.look().contains("Broadcast"));
    user.types("k");
    assert!(user.look().contains("AllReduce 256MB"));
}

#[test]
fn a_page_at_a_time() {
    let mut user = User::of(busy(64));
    user.types("5");
    let first = user.rows();
    user.press(KeyCode::PageDown);
    user.press(KeyCode::PageDown);
    assert_ne!(user.rows(), first);
    user.types("G");
    assert_eq!(user.rows().last().unwrap(), "63 62");
    user.types("g");
    assert_eq!(user.rows(), first);
}

#[test]
fn chooses_among_jobs() {
    let mut user = User::of(several());
    assert_eq!(user.state.job(&user.model).unwrap().name, "other", "one that runs");
    user.types("n");
    assert_eq!(user.state.job(&user.model).unwrap().name, "train-7");
    user.types("p");
    assert_eq!(user.state.job(&user.model).unwrap().name, "other");
    user.types("6g");
    user.press(KeyCode::Enter);
    assert_eq!(user.state.job(&user.model).unwrap().name, "train-7");
    assert_eq!(user.state.view, View::Operations);
}

#[test]
fn exports_what_is_shown_to_new_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut user = User::of(busy(4));
    user.types("/broad");
    user.press(KeyCode::Enter);
    assert_eq!(user.types("e"), Action::Export);
    let first = export(folder.path(), &user.state, &user.model).unwrap();
    let second = export(folder.path(), &user.state, &user.model).unwrap();
    assert_ne!(first, second);
    let text = std::fs::read_to_string(first).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let field = |name| lines[0].split(',').zip(lines[1].split(',')).find(|(title, _)| *title == name).unwrap().1;
    // 12 steps of 5000 broadcasts of 4000 bytes, a tenth of a second each.
    assert_eq!(
        (field("op_type"), field("size_bytes"), field("calls"), field("bytes")),
        ("Broadcast", "4000", "60000", "240000000")
    );
    assert_eq!(field("bytes_per_s").parse::<f64>().unwrap().round(), 200_000_000.0);
    assert!(export(std::path::Path::new("/nonexistent"), &user.state, &user.model).is_err());
}

#[test]
fn help_comes_and_goes() {
    let mut user = User::of(busy(2));
    user.types("?");
    assert!(user.look().contains("Keys"));
    user.types("jjjjjjjjjjjjjjjjjjjjjjjjjjjjkk");
    user.types("x");
    assert!(!user.look().contains("Keys"));
    user.types("?");
    assert_eq!(user.types("q"), Action::Quit);
}
