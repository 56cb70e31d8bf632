//! The live screen.
//!
//! ```text
//! terminal.rs  takes the terminal over and gives it back; keys and signals
//! state.rs     what the user has chosen, and how keys change it
//! views/       each view makes a table (grid.rs) of what is known of a job
//! frame.rs     puts title, views, banner and table on the screen
//! banner.rs    what is wrong now, in words, and the help
//! look.rs      colours or none, Unicode or ASCII      pen.rs  writes within bounds
//! export.rs    writes the shown view to a file
//! ```
//!
//! All but `terminal.rs` and `export.rs` work on values: screens are tested without a terminal.

mod banner;
mod export;
mod frame;
mod grid;
mod look;
mod pen;
mod state;
mod terminal;
mod views;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hcomm_cli::{Failure, Result};

use crate::model::Model;
use crate::output;
use crate::source::Source;
use look::Look;
use state::{Action, State};
pub use terminal::die_of;
use terminal::{Event, Input, Screen};

/// How often the screen is looked at when the source is at its end.
const IDLE: Duration = Duration::from_secs(1);

/// Shows what `source` gives until the user ends it, or `duration` is over. Gives the signal that ended it, if one did.
///
/// # Errors
/// There is no terminal, no job came within `duration`, or what the source says.
pub fn run(
    source: &mut dyn Source,
    interval: Duration,
    duration: Option<Duration>,
    no_color: bool,
) -> Result<Option<i32>> {
    let look = Look::of_environment(no_color);
    let start = Instant::now();
    let mut model = Model::new(source.places());
    let mut state = State::new(interval);
    // What cannot be watched is said on a terminal that is still as it was.
    let mut source = Some(source);
    look_again(&mut source, &mut model)?;
    let mut input = Input::new().map_err(|cause| no_terminal(&cause))?;
    let mut screen = Screen::enter().map_err(|cause| no_terminal(&cause))?;
    let mut next = start + interval;
    let mut ends_by = None;
    while ends_by.is_none() {
        state.follow(&model);
        if screen.draw(|buffer| frame::draw(buffer, look, &mut state, &model)).is_err() {
            break;
        }
        let until = duration.map_or(next, |duration| next.min(start + duration));
        let Ok(events) = input.wait(until) else { break };
        let mut over = false;
        for event in events {
            match event {
                Event::End(signal) => ends_by = Some(signal),
                Event::Gone => over = true,
                Event::Stop => over |= screen.suspend().is_err(),
                Event::Continued => over |= screen.retake().is_err(),
                Event::Key(key) => match state.key(key, &model) {
                    Action::None => {}
                    Action::Quit => over = true,
                    Action::Suspend => over |= screen.suspend().is_err(),
                    Action::Reset => model.reset(),
                    Action::Export => state.message = Some(tell(export::export(Path::new("."), &state, &model))),
                },
            }
        }
        if over {
            break;
        }
        if duration.is_some_and(|duration| start.elapsed() >= duration) {
            drop(screen);
            return if model.jobs().is_empty() { Err(output::no_job(&model)) } else { Ok(None) };
        }
        // A shorter interval counts at once.
        next = next.min(Instant::now() + state.interval);
        if Instant::now() >= next {
            look_again(&mut source, &mut model)?;
            let wait = if source.is_some() { state.interval } else { IDLE };
            next = (next + wait).max(Instant::now());
        }
    }
    drop(screen);
    Ok(ends_by)
}

/// Takes in what the source sees now; at its end there is no source any more, and what is known stays.
fn look_again(source: &mut Option<&mut dyn Source>, model: &mut Model) -> Result<()> {
    if let Some(open) = source {
        match open.poll()? {
            Some(tick) => model.update(tick),
            None => *source = None,
        }
    }
    Ok(())
}

fn tell(exported: io::Result<std::path::PathBuf>) -> String {
    match exported {
        Ok(path) => format!("wrote {}", path.file_name().unwrap_or_default().to_string_lossy()),
        Err(cause) => format!("cannot write a file in the current folder: {cause}"),
    }
}

fn no_terminal(cause: &io::Error) -> Failure {
    Failure::run(
        format!("the terminal cannot be used: {cause}"),
        "--log writes a line each operation, wherever it goes",
    )
}
