//! hcomm-monitor: what the operations of running jobs move, how long they take, and who is late.
//!
//! ```text
//! source/   where figures come from: a `Source` gives a `Tick`, the snapshots of all processes at one time
//!           live.rs (the telemetry files of this host)
//! model/    what they mean: from ticks to jobs with rows of operations, finished calls, ranks, links and stalls.
//!           Knows no terminal, reads no file, asks no clock
//! output/   what is written: each form in a file of its own
//!           log.rs (a line an operation)
//! tui/      the live screen, drawn from the model
//! watch.rs  the loop of all outputs but the screen: poll, update, write
//! units.rs  numbers as people read them
//! ```

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
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
    if wants_screen(cli) {
        tui::run(&mut source, cli.interval, cli.duration, cli.no_color)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut log = output::Log::default();
    watch::run(&mut source, cli.interval, cli.duration, |model| log.write(model))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the live screen is wanted and can be shown: a terminal that cannot move its cursor gets lines.
fn wants_screen(cli: &Cli) -> bool {
    !cli.log && io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
