//! `explain`: the flight records of a job's ranks side by side.
//!
//! ```text
//! files.rs    reads files, and sorts out those that are of no use
//! compare.rs  from records to findings: who is behind, where ranks diverged, who is missing
//! text.rs     findings in words and tables      json.rs   for programs
//! ```

mod compare;
mod files;
mod json;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hcomm_cli::{Failure, Result, Screen};

use crate::output::say;

pub use files::Evidence;

/// What is to be explained.
#[derive(Debug, Args)]
pub struct Explain {
    /// Flight records: the files whose paths are at the end of the ranks' errors, JOB.RANK.PID.flight.jsonl
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// No colours; as do NO_COLOR and TERM=dumb
    #[arg(long)]
    pub no_color: bool,
}

impl Explain {
    /// Explains. The exit code is 1 when some file was of no use.
    ///
    /// # Errors
    /// All files are of no use, or stdout cannot be written.
    pub fn run(&self) -> Result<ExitCode> {
        let evidence = Evidence::read(&self.files);
        for skipped in &evidence.skipped {
            say(&format!("skipped {}: {}", skipped.path.display(), skipped.reason));
        }
        let findings = compare::findings(&evidence.records);
        if self.json {
            hcomm_cli::write(json::object(&evidence, &findings))?;
        }
        if evidence.records.is_empty() {
            return Err(Failure::run(
                "there is no flight record among these files",
                "ranks write them when an operation fails; the error ends with the path",
            ));
        }
        if !self.json {
            hcomm_cli::write(text::text(&evidence, &findings, Screen::stdout(self.no_color)))?;
        }
        Ok(if evidence.skipped.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
