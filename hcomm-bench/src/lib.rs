//! hcomm-bench: measures and checks collective communication across local ranks and hosts.
//!
//! A process is first a launcher or a rank (`ranks`). Every rank runs the same program (`run`): for each row it times
//! (`measure`), then checks (`check`) the collective; rank 0 prints (`output`). The command line is in `args`; what the
//! program needs of a communicator is the trait in `group`, so all of it is tested with a group of threads.

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
mod check;
mod failure;
mod group;
mod machine;
mod measure;
mod noise;
mod output;
mod ranks;
mod results;
mod run;
mod sizes;
#[cfg(test)]
mod testing;
mod values;
mod workload;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use failure::Failure;
use group::Group;
use ranks::Role;
use run::Outcome;

/// The whole program.
pub fn main() -> ExitCode {
    if let Some(ended) = ranks::as_agent() {
        return exit(ended);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are data and exit 0, mistakes are words and exit 2; a closed pipe is neither's fault.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let result = match &cli.command {
        Some(command) => print(command),
        None => bench(&cli.bench),
    };
    exit(result)
}

fn exit(result: failure::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        eprintln!("hcomm-bench: {failure}");
        ExitCode::from(failure.code)
    })
}

fn bench(arguments: &args::Bench) -> failure::Result<ExitCode> {
    let settings = arguments.settings()?;
    let mut ranks = match ranks::become_rank(&settings)? {
        Role::Rank(ranks) => ranks,
        Role::Launcher(code) => return Ok(code),
    };
    let rank = ranks.rank();
    match run::run(&mut *ranks, &settings) {
        Ok(Outcome::Good) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Wrong) => Ok(ExitCode::from(1)),
        Err(failure) if rank > 0 && failure.code == 2 => Ok(ExitCode::from(2)), // rank 0 says the same
        Err(failure) => Err(Failure { text: format!("rank {rank}: {}", failure.text), ..failure }),
    }
}

/// Completions and the manual page.
fn print(command: &Command) -> failure::Result<ExitCode> {
    let mut text = Vec::new();
    match command {
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "hcomm-bench", &mut text)
        }
        Command::Man => clap_mangen::Man::new(Cli::command())
            .render(&mut text)
            .map_err(|e| Failure::run(format!("the manual page: {e}"), ""))?,
    }
    match io::stdout().write_all(&text) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::run(format!("cannot write: {e}"), "")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
