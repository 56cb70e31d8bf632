//! Topology files of other tools: NCCL's (and RCCL's) XML, hwloc's XML, Ascend's rank tables.

pub mod ascend;
pub mod hwloc;
pub mod nccl;
mod xml;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Machine;

/// Why a file was not taken: which, where in it, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; `None` where the file as a whole is meant.
    pub line: Option<u32>,
    /// What was expected and what was found.
    pub problem: String,
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.problem),
            None => write!(f, "{}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for FormatError {}

/// The largest file that is read. hwloc's export of a machine with 256 processors has 280 KB.
const MOST_BYTES: u64 = 16 << 20;

/// The text of a file, if it is one and not too large.
pub(crate) fn text_of(path: &Path) -> Result<String, FormatError> {
    let error = |problem: String| FormatError { file: path.display().to_string(), line: None, problem };
    let file = File::open(path).map_err(|e| error(format!("cannot be opened: {e}")))?;
    let meta = file.metadata().map_err(|e| error(format!("cannot be read: {e}")))?;
    if meta.is_dir() {
        return Err(error("expected a file, found a folder".into()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| error(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(error(format!("expected a topology file, found more than {} MiB", MOST_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|b| **b == b'\n').count() as u32;
        FormatError { line: Some(line), ..error("expected text in UTF-8, found other bytes".into()) }
    })
}

impl Machine {
    /// The machine that a topology file describes: NCCL's and RCCL's XML (`<system>`) or hwloc's (`<topology>`).
    ///
    /// # Errors
    /// With file, line and what was expected, if it is no such file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Machine, FormatError> {
        let path = path.as_ref();
        Machine::from_xml(&path.display().to_string(), &text_of(path)?)
    }

    /// The machine that the text of a topology file describes; `file` names it in errors.
    ///
    /// # Errors
    /// As [`Machine::from_file`].
    pub fn from_xml(file: &str, text: &str) -> Result<Machine, FormatError> {
        let source = xml::Source::new(file, text);
        let document = source.parse()?;
        let root = document.root_element();
        match root.tag_name().name() {
            "system" => nccl::read(&source, root),
            "topology" => hwloc::read(&source, root),
            other => Err(source
                .error(root, format!("expected <system> (NCCL's topology) or <topology> (hwloc's), found <{other}>"))),
        }
    }
}
