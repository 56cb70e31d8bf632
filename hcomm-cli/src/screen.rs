//! Where words and tables appear: a terminal of some width, or a file or pipe.

use std::io::{self, IsTerminal, Write};

use crate::failure::{Failure, Result};

/// Whether somebody still reads what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// The text went out.
    Listening,
    /// The pipe is closed: a program that would write more has reached its end, and all is well.
    Gone,
}

/// Writes to stdout and flushes.
///
/// # Errors
/// Stdout cannot be written (a full disk); a closed pipe is no error.
pub fn write(text: impl AsRef<[u8]>) -> Result<Readers> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Readers::Listening),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Readers::Gone),
        Err(e) => Err(Failure::run(format!("cannot write: {e}"), "look at the space left where stdout goes")),
    }
}

/// What stdout can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Whether colours are wanted and can be seen.
    pub color: bool,
    /// Columns of text that fit; `None` if there is no limit.
    pub width: Option<usize>,
}

impl Screen {
    /// Stdout as it is. `no_color` is the flag `--no-color`; the variable `COLUMNS` sets the width where there is no terminal.
    pub fn stdout(no_color: bool) -> Screen {
        let terminal = io::stdout().is_terminal();
        let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let seen = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let width = if terminal { seen().or(asked).or(Some(80)) } else { asked };
        Screen { color: terminal && !is_plain(no_color), width: width.filter(|width| *width > 0) }
    }

    /// No terminal.
    pub fn plain() -> Screen {
        Screen { color: false, width: None }
    }
}

/// Whether colours and moving lines are unwanted: by `--no-color`, [`NO_COLOR`](https://no-color.org) (set and not empty) or
/// `TERM=dumb`.
pub fn is_plain(no_color: bool) -> bool {
    let set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    no_color || set || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}
