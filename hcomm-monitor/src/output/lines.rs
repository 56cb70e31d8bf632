//! Which form the lines have.

use hcomm_cli::{Readers, Result};

use super::csv::Csv;
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
}

impl Lines {
    /// In the form that was asked for.
    pub fn new(watch: &Watch) -> Self {
        let form = match watch {
            Watch { json: true, .. } => Form::Json,
            Watch { csv: true, .. } => Form::Csv(Csv::calls()),
            _ => Form::Log,
        };
        Self { form, news: News::default(), begun: false }
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
        if let Form::Json = self.form {
            text = json::line(model); // has all news
        } else {
            self.news.tell(model);
            if first {
                text += match &self.form {
                    Form::Csv(csv) => csv.header(),
                    _ => log::HEADER,
                };
            }
            let mut calls: Vec<(&Job, &Call)> =
                model.jobs().iter().flat_map(|job| job.calls.finished().map(move |call| (job, call))).collect();
            calls.sort_by_key(|(_, call)| call.wall_ns);
            for (job, call) in calls {
                text += &match &self.form {
                    Form::Csv(csv) => csv.call(job, call),
                    _ => log::line(call),
                };
            }
        }
        if text.is_empty() { Ok(Readers::Listening) } else { hcomm_cli::write(text) }
    }
}
