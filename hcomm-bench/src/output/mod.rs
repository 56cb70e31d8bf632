//! Where results go. Rank 0 owns one [`Report`], which feeds the table row by row and writes the files at the end.

mod csv;
mod json;
mod markdown;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::args::{Outputs, Settings};
use crate::results::{Header, Row, Totals};
use crate::workload::Workload;
use hcomm_cli::{Failure, Result};

/// Everything that one run prints and writes.
pub struct Report {
    header: Header,
    settings: Settings,
    rows: Vec<Row>,
    totals: Totals,
    table: Option<table::Table<Box<dyn Write>>>,
    files: Vec<(Format, String, Box<dyn Write>)>,
    progress: ProgressBar,
}

#[derive(Clone, Copy)]
enum Format {
    Json,
    Csv,
    Markdown,
}

impl Report {
    /// Opens every file at once, so that one that cannot be written is known before anything is measured.
    pub fn new(header: Header, settings: &Settings, steps: u64) -> Result<Report> {
        let Outputs { table, json, csv, markdown, per_rank, cpu, plain } = &settings.outputs;
        let wanted = [(Format::Json, json), (Format::Csv, csv), (Format::Markdown, markdown)];
        let mut files = Vec::new();
        for (format, name) in wanted.into_iter().filter_map(|(format, name)| Some((format, name.as_ref()?))) {
            files.push((format, name.clone(), open(name)?));
        }
        let stdout = || Box::new(io::stdout()) as Box<dyn Write>;
        let table = table.then(|| table::Table::new(stdout(), *cpu, *per_rank));
        Ok(Report {
            header,
            settings: settings.clone(),
            rows: Vec::new(),
            totals: Totals::default(),
            table,
            files,
            progress: progress(steps, *plain),
        })
    }

    /// Says what is being measured: at once, as its first row may take long.
    pub fn doing(&mut self, workload: Workload, bytes: u64) -> io::Result<()> {
        self.progress.set_message(format!("{} {bytes} B", workload.name()));
        self.progress.inc(1);
        let (table, header) = (&mut self.table, &self.header);
        self.progress.suspend(|| table.as_mut().map_or(Ok(()), |table| table.begin(header, workload)))
    }

    /// Takes a row; the table shows it at once.
    pub fn row(&mut self, row: Row) -> io::Result<()> {
        self.totals.add(&row);
        let table = &mut self.table;
        let shown = self.progress.suspend(|| table.as_mut().map_or(Ok(()), |table| table.row(&row)));
        self.rows.push(row);
        shown
    }

    /// Ends the table and writes the files.
    pub fn finish(&mut self) -> io::Result<()> {
        self.progress.finish_and_clear();
        if let Some(table) = &mut self.table {
            table.finish()?;
        }
        for (format, name, file) in &mut self.files {
            let text = match format {
                Format::Json => json::render(&self.header, &self.settings, &self.rows, &self.totals),
                Format::Csv => csv::render(&self.rows, self.settings.outputs.per_rank),
                Format::Markdown => markdown::render(&self.header, &self.rows, &self.totals),
            };
            let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
            written.map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
        }
        Ok(())
    }

    /// All rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

fn open(name: &str) -> Result<Box<dyn Write>> {
    if name == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(name).map_err(|e| {
        Failure::usage(format!("cannot write {name}: {e}"), "give a file in a directory that exists and is yours")
    })?;
    Ok(Box::new(BufWriter::new(file)))
}

/// A line on stderr that says how far it is: on a terminal only, and on a plain one not at all.
fn progress(steps: u64, plain: bool) -> ProgressBar {
    let target = if hcomm_cli::screen::is_plain(plain) || !io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let style = indicatif::ProgressStyle::with_template("{pos}/{len} {msg}");
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Rounds to so many digits after the point, for files: more would be noise.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::example_rows;
