//! A file to be: it overwrites none, and has an end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use hcomm_cli::{Failure, Result};

/// A new file of at most so many bytes.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    out: BufWriter<File>,
    left: u64,
    full: bool,
}

impl NewFile {
    /// Makes it. What is there already and is no regular file (a pipe, a device) is written into.
    ///
    /// # Errors
    /// There is such a file, or it cannot be made.
    pub fn create(path: &Path, most: u64) -> Result<Self> {
        let mut options = File::options();
        options.write(true);
        let special = std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir());
        let file = options.create_new(!special).open(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::run(format!("{} is there already", path.display()), "name another file, or remove that one")
            }
            _ => Failure::run(format!("cannot make {}: {cause}", path.display()), ""),
        })?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), left: most, full: false })
    }

    /// Adds `text`, if it still fits; what comes after one that did not is left out too.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, text: &str) -> Result<()> {
        if self.full {
            return Ok(());
        }
        let length = text.len() as u64;
        if length > self.left {
            self.full = true;
            return Ok(());
        }
        self.left -= length;
        self.force(text)
    }

    /// Adds `text`, although there is no room: an end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn force(&mut self, text: &str) -> Result<()> {
        let cannot = |cause: io::Error| {
            Failure::run(format!("cannot write {}: {cause}", self.path.display()), "look at the space left there")
        };
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).map_err(cannot)
    }

    /// Whether everything that was to be added was.
    pub fn is_whole(&self) -> bool {
        !self.full
    }

    /// That something is missing, if so.
    pub fn notes(&self) -> Vec<String> {
        let early = format!("{} ends early: more would not have fitted into --max-size", self.path.display());
        self.full.then_some(early).into_iter().collect()
    }
}
