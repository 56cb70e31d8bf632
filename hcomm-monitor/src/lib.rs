//! hcomm-monitor: what the operations of running jobs move, how long they take, and who is late.
//!
//! ```text
//! source/   where figures come from: a `Source` gives a `Tick`, the snapshots of all processes at one time
//!           live.rs (the telemetry files of this host), store.rs (what ranks of all hosts publish), replay.rs (a recording),
//!           tap.rs (what else is done with each tick)
//! export/   taps: recording.rs, trace.rs (for Perfetto), metrics.rs (for Prometheus; http.rs serves them), file.rs (new files)
//! model/    what they mean: from ticks to jobs with rows of operations, finished calls, ranks, links and stalls.
//!           Knows no terminal, reads no file, asks no clock
//! output/   what is written: each form in a file of its own
//!           lines.rs (which form), log.rs and csv.rs (a line an operation), json.rs (a line a look), once.rs (how jobs are now),
//!           folded.rs (equal ranks as one line), rows.rs (rows as JSON and CSV have them), news.rs (words on stderr)
//! tui/      the live screen, drawn from the model
//! explain/  the flight records of ranks that failed, side by side
//! watch.rs  the loop of all outputs but the screen: poll, update, write
//! units.rs  numbers as people read them
//! ```

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
mod explain;
mod export;
#[cfg(test)]
mod fixtures;
pub mod model;
mod output;
pub mod source;
mod tui;
pub mod units;
mod watch;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use hcomm_cli::{Readers, Result};

use args::{Cli, Command, Watch};
use export::{Metrics, Recording, TraceFile};
use source::{Live, Replay, Selection, Source, Store, Tap, Tapped};
use watch::End;

/// The whole program.
pub fn main() -> ExitCode {
    let cli: Cli = match hcomm_cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    hcomm_cli::end("hcomm-monitor", run(&cli))
}

fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.command {
        Some(Command::Explain(explain)) => return explain.run(),
        Some(Command::Print(print)) => return print.print::<Cli>(),
        None => {}
    }
    let watch = &cli.watch;
    let source: Box<dyn Source> = match (&watch.replay, &watch.store) {
        (Some(file), _) => Box::new(Replay::open(file)?),
        (None, Some(url)) => Box::new(Store::open(url, watch.job.clone())?),
        (None, None) => Box::new(Live::new(Selection { pid: watch.pid, job: watch.job.clone() })?),
    };
    let taps = taps(watch, source.as_ref())?;
    let mut source = Tapped::new(source, taps);
    let shown = show(watch, &mut source);
    // A trace is closed also after a failure, which counts more than its own, and after a signal.
    let ended = source.end();
    source.notes().iter().for_each(|note| output::say(note));
    if let Some(signal) = shown.and_then(|signal| ended.map(|()| signal))? {
        tui::die_of(signal);
    }
    Ok(ExitCode::SUCCESS)
}

/// What else is done with what the source sees.
fn taps(watch: &Watch, source: &dyn Source) -> Result<Vec<Box<dyn Tap>>> {
    let mut taps: Vec<Box<dyn Tap>> = Vec::new();
    if let Some(file) = &watch.record {
        taps.push(Box::new(Recording::create(file, watch.max_size, &source.places())?));
    }
    if let Some(file) = &watch.trace {
        taps.push(Box::new(TraceFile::create(file, watch.max_size)?));
    }
    if let Some(address) = &watch.prometheus {
        taps.push(Box::new(Metrics::listen(address)?));
    }
    Ok(taps)
}

/// How often to look: what ranks publish changes less often than what they do.
fn interval(watch: &Watch) -> Duration {
    const PUBLISHED: Duration = Duration::from_secs(1);
    /// Within which most jobs publish anew, so that rates are known.
    const TWICE: Duration = Duration::from_millis(2500);
    match (&watch.store, watch.once) {
        (None, _) => watch.interval,
        (Some(_), false) => watch.interval.max(PUBLISHED),
        (Some(_), true) => watch.interval.max(TWICE),
    }
}

/// Shows what the source sees, in the form that was asked for. Gives the signal by which the program is to end, if one ended the
/// screen.
fn show(watch: &Watch, source: &mut dyn Source) -> Result<Option<i32>> {
    let interval = interval(watch);
    if watch.once {
        let (model, _) = watch::run(source, interval, Some(interval), true, |_| Ok(Readers::Listening))?;
        if model.jobs().is_empty() {
            return Err(output::no_job(&model));
        }
        return output::once(watch, &model).map(|_| None);
    }
    if wants_screen(watch) {
        return tui::run(source, interval, watch.duration, watch.no_color);
    }
    let mut out = output::Lines::new(watch);
    let listens = out.writes();
    let (model, end) = watch::run(source, interval, watch.duration, listens, |model| out.write(model))?;
    if end == End::Time && model.jobs().is_empty() { Err(output::no_job(&model)) } else { Ok(None) }
}

/// Whether the live screen is wanted and can be shown: a terminal that cannot move its cursor gets lines.
fn wants_screen(watch: &Watch) -> bool {
    let lines = watch.log || watch.json || watch.csv || watch.prometheus.is_some();
    !lines && io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
