//! hcc-smi: which accelerators and network devices a machine has, on which links, and whether these are well.
//!
//! A `source::Source` is read (`source`), then shown as one of the views (`status`, `list`, `topo`, `links`, `rings`), as JSON (`json`) or as
//! NCCL's XML. Each view is a function from a machine to text.

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
mod json;
mod links;
mod list;
mod rings;
mod source;
mod status;
mod topo;
mod words;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hcomm_cli::{Failure, Readers, Result, Screen, screen};
use hcomm_topology::formats::nccl;

use args::{Cli, Command, Options, View};
use source::Source;

/// The whole program.
pub fn main() -> ExitCode {
    let cli: Cli = match hcomm_cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    hcomm_cli::end("hcc-smi", run(&cli))
}

fn run(cli: &Cli) -> Result<ExitCode> {
    let view = match &cli.view {
        Some(Command::Print(print)) => return print.print::<Cli>(),
        Some(_) if cli.list => return Err(Failure::usage("--list is no option of a subcommand", "hcc-smi --list")),
        Some(Command::Topo { .. }) => View::Topo,
        Some(Command::Links) => View::Links,
        Some(Command::Rings) => View::Rings,
        None if cli.list => View::List,
        None => View::Status,
    };
    if cli.options.xml && (view != View::Status || cli.options.watch.is_some()) {
        let (what, hint) = match cli.options.watch {
            Some(_) => ("--watch would write one document after the other", "call it again for another"),
            None => ("there is no XML of one view", "hcc-smi --xml writes the whole machine"),
        };
        return Err(Failure::usage(format!("--xml: {what}"), hint));
    }
    let screen = Screen::stdout(cli.options.no_color);
    let Some(interval) = cli.options.watch else {
        screen::write(once(view, &cli.options, screen)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    watch(view, &cli.options, screen, interval)
}

/// Shows the view until nobody reads it any more; Ctrl-C ends the program as it does any.
fn watch(view: View, options: &Options, screen: Screen, interval: Duration) -> Result<ExitCode> {
    let redraw = screen.width.is_some() && !options.json && !screen::is_plain(false);
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut next = Instant::now();
    for round in 0_u64.. {
        let text = once(view, options, screen)?;
        // ECMA-48: cursor home, erase display; the screen stays until the new text is there.
        let before = match (redraw && terminal, round) {
            (true, _) => "\x1b[H\x1b[2J",
            (false, 0) => "",
            (false, _) if options.json => "",
            (false, _) => "\n",
        };
        if screen::write(format!("{before}{text}"))? == Readers::Gone {
            break;
        }
        // Rounds that took longer than the interval are not made up for.
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(ExitCode::SUCCESS)
}

/// One text. JSON of a watch is a line each time.
fn once(view: View, options: &Options, screen: Screen) -> Result<String> {
    let source = Source::read(options.from.as_deref(), options.sysroot.as_deref())?;
    if options.xml {
        return Ok(nccl::write(&source.machine));
    }
    if options.json {
        return json::text(view, &source, options.watch.is_some());
    }
    Ok(match view {
        View::Status => status::text(&source, screen),
        View::List => list::text(&source),
        View::Topo => topo::text(&source, screen),
        View::Links => links::text(&source, screen),
        View::Rings => rings::text(&source, screen),
    })
}
