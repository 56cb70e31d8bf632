//! hcomm-monitor: what the operations of running jobs move, how long they take, and who is late.
//!
//! ```text
//! source/   where figures come from: a `Source` gives a `Tick`, the snapshots of all processes at one time
//!           live.rs (the telemetry files of this host)
//! model/    what they mean: from ticks to jobs with rows of operations, finished calls, ranks, links and stalls.
//!           Knows no terminal, reads no file, asks no clock
//! output/   what is written: each form in a file of its own
//!           log.rs (a line an operation)
//! watch.rs  the loop of all outputs but the screen: poll, update, write
//! units.rs  numbers as people read them
//! ```

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
pub mod model;
mod output;
pub mod source;
pub mod units;
mod watch;

use std::process::ExitCode;

use hcomm_cli::Result;

use args::{Cli, Command};
use source::{Live, Selection};

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
        Some(Command::Print(print)) => return print.print::<Cli>(),
        None => {}
    }
    let mut source = Live::new(Selection { pid: cli.pid, job: cli.job.clone() })?;
    let mut log = output::Log::default();
    watch::run(&mut source, cli.interval, cli.duration, |model| log.write(model))?;
    Ok(ExitCode::SUCCESS)
}
