//! Which form the lines have.

use hcomm_cli::{Readers, Result, Screen};

use super::csv::Csv;
use super::folded;
use super::json;
use super::log;
use super::news::{self, News};
use crate::args::Watch;
use crate::model::{Call, Job, Model};

/// Writes lines to stdout as things happen, and words about jobs to stderr.
#[derive(Debug)]
pub struct Lines {
    form: Form,
    news: News,
    begun: bool,
}

#[derive(Debug)]
enum Form {
    /// For people: a line a call.
    Log,
    /// The same for programs.
    Csv(Csv),
    /// A line a look.
    Json,
    /// Without calls, as summaries have none: the ranks, a table a look.
    Ranks(Screen),
    /// Nothing but words: metrics are served.
    Quiet,
}

impl Lines {
    /// In the form that was asked for.
    pub fn new(watch: &Watch) -> Self {
        let form = match watch {
            Watch { json: true, .. } => Form::Json,
            Watch { csv: true, .. } => Form::Csv(Csv::calls()),
            Watch { log: false, prometheus: Some(_), .. } => Form::Quiet,
            Watch { store: Some(_), .. } => Form::Ranks(Screen::stdout(watch.no_color)),
            _ => Form::Log,
        };
        Self { form, news: News::default(), begun: false }
    }

    /// Whether something is ever written to stdout.
    pub fn writes(&self) -> bool {
        !matches!(self.form, Form::Quiet)
    }

    /// What is new.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn write(&mut self, model: &Model) -> Result<Readers> {
        let first = !std::mem::replace(&mut self.begun, true);
        if first && model.jobs().is_empty() {
            news::say(&format!("no job yet; waiting for one in {}", model.places().join(", ")));
        }
        let mut text = String::new();
        match &self.form {
            Form::Json => text = json::line(model), // has all news
            Form::Quiet => self.news.tell(model),
            Form::Ranks(screen) => {
                self.news.tell(model);
                text = folded::jobs(model, *screen);
            }
            Form::Csv(csv) => {
                self.news.tell(model);
                text += if first { csv.header() } else { "" };
                calls(model).iter().for_each(|(job, call)| text += &csv.call(job, call));
            }
            Form::Log => {
                self.news.tell(model);
                text += if first { log::HEADER } else { "" };
                calls(model).iter().for_each(|(_, call)| text += &log::line(call));
            }
        }
        if text.is_empty() { Ok(Readers::Listening) } else { hcomm_cli::write(text) }
    }
}

/// Calls that ended since the look before, by their begin.
fn calls(model: &Model) -> Vec<(&Job, &Call)> {
    let mut calls: Vec<(&Job, &Call)> =
        model.jobs().iter().flat_map(|job| job.calls.finished().map(move |call| (job, call))).collect();
    calls.sort_by_key(|(_, call)| call.wall_ns);
    calls
}
