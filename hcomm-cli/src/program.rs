//! The beginning and the end of a program.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use nix::sys::signal::{SigSet, Signal};

use crate::failure::{Failure, Result};
use crate::screen;
use crate::words::printable;

/// Reads the command line. `Err` is how the program ends at once: help and version are data (stdout, 0), mistakes are words
/// (stderr, 2).
pub fn parse<C: Parser>() -> std::result::Result<C, ExitCode> {
    // Beyond `ulimit -f` a write is then an error, which says what could not be written, instead of the end of the process.
    // Threads and children inherit it.
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
    C::try_parse().map_err(|error| {
        if error.use_stderr() {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
        let text = error.render();
        let color = std::io::stdout().is_terminal() && !screen::is_plain(false);
        let text = if color { text.ansi().to_string() } else { text.to_string() };
        // A closed pipe is nobody's fault; a full disk is a failure.
        end(C::command().get_name(), screen::write(text).map(|_| ExitCode::SUCCESS))
    })
}

/// The end of the program `name`: a failure goes to stderr, and its code is the exit code.
pub fn end(name: &str, result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        let words = failure.to_string().lines().map(printable).collect::<Vec<_>>().join("\n");
        let _ = writeln!(std::io::stderr(), "{name}: {words}");
        ExitCode::from(failure.code)
    })
}

/// The subcommands that every tool has: texts about itself.
#[derive(Debug, Subcommand)]
pub enum Print {
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    Man,
}

impl Print {
    /// Writes the text for the command `C` to stdout.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn print<C: CommandFactory>(&self) -> Result<ExitCode> {
        let mut command = C::command();
        let mut text = Vec::new();
        match self {
            Print::Completions { shell } => {
                let name = command.get_name().to_owned();
                clap_complete::generate(*shell, &mut command, name, &mut text)
            }
            Print::Man => clap_mangen::Man::new(command)
                .render(&mut text)
                .map_err(|e| Failure::run(format!("the manual page: {e}"), ""))?,
        }
        screen::write(text)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        print: Print,
    }

    #[test]
    fn a_failure_gives_its_code() {
        for (failure, code) in
            [(Failure::run("a", ""), 1), (Failure::usage("a", "b"), 2), (Failure::check("a", "b"), 3)]
        {
            assert_eq!(end("test", Err(failure)), ExitCode::from(code));
        }
    }

    #[test]
    fn the_subcommands_are_sound() {
        Cli::command().debug_assert();
        assert!(matches!(Cli::try_parse_from(["a", "man"]).unwrap().print, Print::Man));
        assert!(Cli::try_parse_from(["a", "completions", "nosuch"]).is_err());
    }
}
