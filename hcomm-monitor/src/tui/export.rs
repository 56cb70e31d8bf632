//! Writes the shown view to a file.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::state::State;
use crate::model::Model;

/// Names that are tried when files of that second are there already.
const TRIES: u32 = 100;

/// Writes the rows of the shown view, all columns and as they are sorted and searched, to a new CSV file in `folder`.
///
/// # Errors
/// The file cannot be written.
pub fn export(folder: &Path, state: &State, model: &Model) -> io::Result<PathBuf> {
    let model = state.frozen.as_ref().unwrap_or(model);
    let text = state.grid(model, usize::MAX).csv();
    let time = chrono::DateTime::from_timestamp_nanos(i64::try_from(model.wall_ns()).unwrap_or(i64::MAX));
    let time = time.with_timezone(&chrono::Local).format("%Y%m%d-%H%M%S");
    for attempt in 1..=TRIES {
        let more = if attempt > 1 { format!("-{attempt}") } else { String::new() };
        let path = folder.join(format!("hcomm-monitor-{}-{time}{more}.csv", state.view.name()));
        // Never over another file, nor through a link.
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| path),
            Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(cause),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
