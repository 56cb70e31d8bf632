//! What the user has chosen, and how keys change it. Knows no terminal.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::grid::{Grid, Sort};
use super::views::{self, View};
use crate::model::{Job, Key, Model};

/// The intervals that + and - go through, in milliseconds.
const INTERVALS: [u64; 10] = [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
/// Characters of a filter at most.
const LONGEST_FILTER: usize = 100;

/// What a key asks for beyond the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// To end.
    Quit,
    /// To stop, as Ctrl-Z does.
    Suspend,
    /// To count from now on.
    Reset,
    /// To write the shown view to a file.
    Export,
}

/// What is shown.
#[derive(Debug)]
pub struct State {
    /// View.
    pub view: View,
    /// How often to look.
    pub interval: Duration,
    /// The job that is shown.
    pub job: Option<u64>,
    /// Text that rows must hold.
    pub filter: String,
    /// Whether the filter is being typed, and what it was before.
    pub typing: Option<String>,
    /// Whether help is shown, and its first line.
    pub help: Option<usize>,
    /// What was known when the screen was frozen.
    pub frozen: Option<Model>,
    /// The operation of the histogram.
    pub operation: Option<Key>,
    /// Words about the last key, until the next one.
    pub message: Option<String>,
    /// Where each view is.
    places: [Place; View::ALL.len()],
    /// Rows that fit on the screen: a page.
    page: usize,
}

/// Where a view is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// Row that is marked.
    pub row: usize,
    /// First row that is shown.
    pub top: usize,
    /// Order of the rows.
    pub sort: Option<Sort>,
}

impl State {
    /// At the beginning.
    pub fn new(interval: Duration) -> Self {
        Self {
            view: View::Operations,
            interval,
            job: None,
            filter: String::new(),
            typing: None,
            help: None,
            frozen: None,
            operation: None,
            message: None,
            places: Default::default(),
            page: 1,
        }
    }

    /// The job that is shown: the chosen one as long as there is one, else one that runs.
    pub fn job<'a>(&self, model: &'a Model) -> Option<&'a Job> {
        let jobs = model.jobs();
        self.job
            .and_then(|id| model.job(id))
            .or_else(|| jobs.iter().find(|job| !job.is_over()))
            .or_else(|| jobs.first())
    }

    /// Keeps to the job that is shown now, so that it stays when another one begins.
    pub fn follow(&mut self, model: &Model) {
        self.job = self.job(model).map(|job| job.id);
    }

    /// Where the shown view is.
    pub fn place(&self) -> Place {
        self.places[self.view as usize]
    }

    /// The order of the rows of a view.
    pub fn sort(&self, view: View) -> Option<Sort> {
        self.places[view as usize].sort
    }

    /// The shown view has so many rows, of which `page` fit.
    pub fn fit(&mut self, rows: usize, page: usize) -> Place {
        self.page = page.max(1);
        let place = &mut self.places[self.view as usize];
        place.row = place.row.min(rows.saturating_sub(1));
        place.top = place.top.min(rows.saturating_sub(page)).min(place.row);
        if place.row >= place.top + page {
            place.top = (place.row + 1).saturating_sub(page);
        }
        *place
    }

    /// The rows of the shown view, in order.
    pub fn grid(&self, model: &Model, room: usize) -> Grid {
        let mut grid = views::grid(self, model, room);
        // Ranges of durations have one order, and their operation is what the filter is for.
        if self.view != View::Histogram {
            grid.arrange(&self.filter, self.place().sort);
        }
        grid
    }

    /// A key. `model` is what is known now.
    pub fn key(&mut self, key: KeyEvent, model: &Model) -> Action {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Quit,
                KeyCode::Char('z') => Action::Suspend,
                _ => Action::None,
            };
        }
        if self.typing.is_some() {
            self.type_filter(key.code);
            return Action::None;
        }
        if let Some(top) = &mut self.help {
            match key.code {
                KeyCode::Char('j') | KeyCode::Down => *top += 1,
                KeyCode::Char('k') | KeyCode::Up => *top = top.saturating_sub(1),
                KeyCode::Char('q') => return Action::Quit,
                _ => self.help = None,
            }
            return Action::None;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('r') => return self.reset(),
            KeyCode::Char('e') => return Action::Export,
            KeyCode::Char('?') => self.help = Some(0),
            KeyCode::Char('/') => self.typing = Some(self.filter.clone()),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char(' ') => self.freeze(model),
            KeyCode::Char('+' | '=') => self.change_interval(true),
            KeyCode::Char('-' | '_') => self.change_interval(false),
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.view = self.view.next(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => self.view = self.view.next(View::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='6') => self.view = View::ALL[digit as usize - '1' as usize],
            KeyCode::Down | KeyCode::Char('j') => self.step(model, |row, _| row.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.step(model, |row, _| row.saturating_sub(1)),
            KeyCode::PageDown => self.step(model, |row, page| row.saturating_add(page)),
            KeyCode::PageUp => self.step(model, |row, page| row.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.step(model, |_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.step(model, |_, _| usize::MAX),
            KeyCode::Char('s') => self.next_sort(model),
            KeyCode::Char('S') => self.turn(model),
            KeyCode::Char('n') => self.next_job(model, 1),
            KeyCode::Char('N' | 'p') => self.next_job(model, usize::MAX),
            KeyCode::Enter => self.enter(model),
            _ => {}
        }
        Action::None
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => self.filter = self.typing.take().unwrap_or_default(),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < LONGEST_FILTER => self.filter.push(c),
            _ => {}
        }
    }

    fn reset(&mut self) -> Action {
        if self.frozen.is_some() {
            self.message = Some("frozen: space goes on, then r counts from now on".into());
            return Action::None;
        }
        self.message = Some("counting from now on".into());
        Action::Reset
    }

    fn freeze(&mut self, model: &Model) {
        self.frozen = if self.frozen.is_none() { Some(model.clone()) } else { None };
    }

    fn change_interval(&mut self, longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVALS.iter().find(|&&interval| interval > now)
        } else {
            INTERVALS.iter().rev().find(|&&interval| interval < now)
        };
        self.interval = next.map_or(self.interval, |&next| Duration::from_millis(next));
        self.message = Some(format!("looks every {}", crate::units::duration(self.interval.as_nanos() as u64)));
    }

    /// What the screen shows: what is known, or was when it was frozen.
    fn shown<'a>(&'a self, model: &'a Model) -> &'a Model {
        self.frozen.as_ref().unwrap_or(model)
    }

    fn step(&mut self, model: &Model, to: impl Fn(usize, usize) -> usize) {
        if self.view == View::Histogram {
            let keys = views::histogram::operations(self, self.shown(model));
            let at = self.operation.and_then(|key| keys.iter().position(|&other| other == key)).unwrap_or(0);
            self.operation = keys.get(to(at, 1).min(keys.len().saturating_sub(1))).copied();
            return;
        }
        let page = self.page;
        let place = &mut self.places[self.view as usize];
        place.row = to(place.row, page);
    }

    /// Sorts by the next column; after the last one comes the order that the view has by itself.
    fn next_sort(&mut self, model: &Model) {
        let columns = self.grid(self.shown(model), 1).columns;
        let place = &mut self.places[self.view as usize];
        let next = place.sort.map_or(0, |sort| sort.column + 1);
        place.sort = (next < columns.len()).then(|| Sort::first(&columns, next));
        self.message = Some(match columns.get(next) {
            Some(column) => format!("sorted by {}; S turns it round", column.title),
            None => "in the usual order".into(),
        });
    }

    fn turn(&mut self, model: &Model) {
        let columns = self.grid(self.shown(model), 1).columns;
        let sort = &mut self.places[self.view as usize].sort;
        *sort = sort.or((!columns.is_empty()).then(|| Sort::first(&columns, 0)));
        if let Some(sort) = sort {
            sort.descending = !sort.descending;
        }
    }

    fn next_job(&mut self, model: &Model, by: usize) {
        let shown = self.shown(model);
        let jobs = shown.jobs();
        let at = self.job(shown).and_then(|job| jobs.iter().position(|other| other.id == job.id));
        if let Some(at) = at {
            self.job = Some(jobs[(at + if by == 1 { 1 } else { jobs.len() - 1 }) % jobs.len()].id);
        }
    }

    /// An operation is shown as a histogram, a job becomes the one that is shown.
    fn enter(&mut self, model: &Model) {
        let shown = self.shown(model);
        let row = self.place().row;
        match self.view {
            View::Operations => {
                if let Some(key) = views::operations::keys(self, shown).get(row).copied() {
                    self.operation = Some(key);
                    self.view = View::Histogram;
                }
            }
            View::Jobs => {
                if let Some(id) = views::jobs::ids(self, shown).get(row).copied() {
                    self.job = Some(id);
                    self.view = View::Operations;
                }
            }
            _ => {}
        }
    }
}
