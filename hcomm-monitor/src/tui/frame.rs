//! One frame: title, views, what is wrong, the table, and the line of keys.

use ratatui::buffer::Buffer;

use super::banner;
use super::look::{Look, Tone};
use super::pen::{Pen, wrap};
use super::state::State;
use super::views::{View, jobs};
use crate::model::{Job, Model};
use crate::units;

/// Lines of one notice.
const NOTICE_LINES: usize = 3;
/// From so many lines on the title and the line of keys are shown.
const WHOLE: u16 = 6;
/// Those that fit are shown.
const KEYS: [&str; 9] =
    ["q quit", "? help", "tab view", "s sort", "/ filter", "space freeze", "r reset", "+/- interval", "e export"];

/// Draws what is known.
pub fn draw(buffer: &mut Buffer, look: Look, state: &mut State, model: &Model) {
    // Taken out for the time of drawing, which changes the state.
    let frozen = state.frozen.take();
    let shown = frozen.as_ref().unwrap_or(model);
    let mut pen = Pen::new(buffer, look);
    let (height, width) = (pen.height(), pen.width());
    let (mut top, mut bottom) = (0, height);
    if height >= WHOLE {
        title(&mut pen, state, shown, frozen.is_some());
        tabs(&mut pen, state);
        bottom -= 1;
        foot(&mut pen.lines(bottom, 1), state);
        top = 2;
    }
    let notices = banner::notices(shown, state.job(shown));
    let lines = notices.iter().flat_map(|(tone, text)| {
        wrap(&look.text(text), width, NOTICE_LINES).into_iter().map(move |line| (*tone, line))
    });
    // At least half of what is left is the table's.
    let most = usize::from(bottom - top).div_ceil(2);
    for (tone, line) in lines.take(most) {
        pen.put(0, top, width, &line, tone);
        top += 1;
    }
    body(&mut pen.lines(top, bottom - top), state, shown);
    state.frozen = frozen;
}

fn title(pen: &mut Pen<'_>, state: &State, model: &Model, frozen: bool) {
    let look = pen.look;
    let mut x = pen.put(0, 0, u16::MAX, "hcomm-monitor", Tone::Strong);
    let mut say = |text: &str, tone: Tone| x += pen.put(x, 0, u16::MAX, text, tone);
    if let Some(job) = state.job(model) {
        let (here, all) = (job.processes().len(), job.world_size);
        let ranks = if here == all as usize { format!("{all} ranks") } else { format!("{here} of {all} ranks here") };
        say("  ", Tone::Plain);
        // What counts comes first: a narrow screen cuts the rest.
        say(&look.text(&standing(job, model)), jobs::tone(&job.outcome()));
        if frozen {
            say("  FROZEN", Tone::Warning);
        }
        let number = model.jobs().iter().position(|other| other.id == job.id).unwrap_or(0) + 1;
        if model.jobs().len() > 1 {
            say(&format!("  job {number} of {}", model.jobs().len()), Tone::Plain);
        } else {
            say("  job", Tone::Plain);
        }
        say(&format!(" {}  {ranks}  {}", look.text(&job.name), look.text(&job.program)), Tone::Plain);
    } else {
        say("  waiting for a job", Tone::Warning);
        if frozen {
            say("  FROZEN", Tone::Warning);
        }
    }
}

/// Whether a job runs, and since when, or how it ended.
fn standing(job: &Job, model: &Model) -> String {
    match job.ended_wall_ns {
        None => format!("running {}", units::duration(model.wall_ns().saturating_sub(job.started_wall_ns))),
        Some(ended) => {
            format!("{}, after {}", job.outcome(), units::duration(ended.saturating_sub(job.started_wall_ns)))
                .replacen("ended", "ENDED", 1)
        }
    }
}

/// The names of the views; where they do not fit, that of the shown one.
fn tabs(pen: &mut Pen<'_>, state: &State) {
    let whole: usize = View::ALL.iter().map(|view| view.name().len() + 3).sum();
    if whole > usize::from(pen.width()) {
        let text = format!("{}/{} [{}] tab: next", state.view as usize + 1, View::ALL.len(), state.view.name());
        pen.line(1, &text, Tone::Plain);
        return;
    }
    let mut x = 0;
    for view in View::ALL {
        let (text, tone) = if view == state.view {
            (format!("[{}]", view.name()), Tone::Strong)
        } else {
            (format!(" {} ", view.name()), Tone::Plain)
        };
        x += pen.put(x, 1, u16::MAX, &text, tone) + 1;
    }
    let mut right = format!("every {}", units::duration(state.interval.as_nanos() as u64));
    if !state.filter.is_empty() && state.typing.is_none() {
        right = format!("filter: {}  {right}", pen.look.text(&state.filter));
    }
    let left = pen.width().saturating_sub(x + 2);
    pen.cell(x + 2, 1, left, &right, true, Tone::Faint);
}

fn foot(pen: &mut Pen<'_>, state: &State) {
    let look = pen.look;
    match (&state.typing, &state.message) {
        (Some(_), _) => {
            // The end is what is being typed.
            let room = usize::from(pen.width()).saturating_sub(2);
            let text: Vec<char> = look.text(&state.filter).chars().collect();
            let shown: String = text[text.len().saturating_sub(room)..].iter().collect();
            pen.line(0, &format!("/{shown}_"), Tone::Strong);
        }
        (None, Some(message)) => pen.line(0, &look.text(message), Tone::Strong),
        (None, None) => {
            let mut x = 0;
            for keys in KEYS {
                if x + keys.len() as u16 <= pen.width() {
                    x += pen.put(x, 0, u16::MAX, keys, Tone::Faint) + 2;
                }
            }
        }
    }
}

fn body(pen: &mut Pen<'_>, state: &mut State, model: &Model) {
    if let Some(first) = state.help {
        let lines = banner::help(state.view);
        let first = first.min(lines.len().saturating_sub(pen.height().into()));
        state.help = Some(first);
        for (y, (tone, line)) in (0..pen.height()).zip(&lines[first..]) {
            pen.line(y, line, *tone);
        }
        return;
    }
    if model.jobs().is_empty() {
        nobody(pen, model);
        return;
    }
    let room = usize::from(pen.height()).saturating_sub(1);
    let grid = state.grid(model, room);
    let mut top = 0;
    for (tone, line) in &grid.heading {
        pen.line(top, &pen.look.text(line), *tone);
        top = (top + 1).min(pen.height());
    }
    let height = pen.height() - top;
    let mut table = pen.lines(top, height);
    let place = state.fit(grid.rows.len(), usize::from(height).saturating_sub(1));
    let chosen = (state.view != View::Histogram).then_some(place.row);
    grid.draw(&mut table, place.top, chosen, place.sort);
}

/// Nothing is there yet: says for what it waits, and where it looks.
fn nobody(pen: &mut Pen<'_>, model: &Model) {
    let look = pen.look;
    let mut lines = vec!["No job yet. Jobs of this user on this host are looked for in".to_owned()];
    lines.extend(model.places().iter().map(|place| format!("  {}", look.text(place))));
    lines.push("and are shown as soon as they begin. One to look at: hcomm-bench -g 2 --time 60s".into());
    let (mut y, width) = (0, pen.width());
    for line in lines.iter().flat_map(|line| wrap(line, width, 4)) {
        pen.line(y, &line, Tone::Plain);
        y = y.saturating_add(1);
    }
}
