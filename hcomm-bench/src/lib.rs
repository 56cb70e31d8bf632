//! hcomm-bench: measures and checks collective communication across local ranks and hosts.
//!
//! A process is first a launcher or a rank (`ranks`). Every rank runs the same program (`run`): for each row it times
//! (`measure`), then checks (`check`) the collective; rank 0 prints (`output`). The command line is in `args`; what the
//! program needs of a communicator is the trait in `group`, so all of it is tested with a group of threads.

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
mod check;
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

use std::process::ExitCode;

use hcomm_cli::{Failure, Result};

use args::Cli;
use group::Group;
use ranks::Role;
use run::Outcome;

/// The whole program.
pub fn main() -> ExitCode {
    if let Some(ended) = ranks::as_agent() {
        return exit(ended);
    }
    let cli: Cli = match hcomm_cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    exit(match &cli.print {
        Some(print) => print.print::<Cli>(),
        None => bench(&cli.bench),
    })
}

fn exit(result: Result<ExitCode>) -> ExitCode {
    hcomm_cli::end("hcomm-bench", result)
}

fn bench(arguments: &args::Bench) -> Result<ExitCode> {
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
