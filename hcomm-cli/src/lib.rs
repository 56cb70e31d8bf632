//! What the tools share, so that they behave alike: how a command line is read and a program ends ([`program`]), how it fails
//! ([`Failure`]), and how it writes to terminals and pipes ([`screen`], [`Table`]).

pub mod failure;
pub mod program;
pub mod screen;
pub mod table;
pub mod values;
mod words;

pub use failure::{Failure, Result};
pub use program::{Print, end, parse};
pub use screen::{Readers, Screen, write};
pub use table::{Cell, Column, Table};
pub use words::{lines, printable, ranges, shell_word, wrap};
