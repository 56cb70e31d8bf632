//! A flight record, read again: what is needed to compare the ranks. It may be cut short, and may be anybody's.

use serde::Deserialize;

use super::SCHEMA;
use crate::json;
use crate::layout::{AWAITED, RECENT};
use crate::names::Kind;
use crate::read::Call;

/// Lanes in a record at most.
const LANES: usize = 4096;

/// What a rank did last.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FlightRecord {
    /// Name of the job.
    pub job: String,
    /// Rank in it.
    pub rank: u32,
    /// Ranks of it.
    pub world_size: u32,
    /// Host, as the job calls it.
    pub host: String,
    /// Process id, in its own pid namespace.
    pub pid: u32,
    /// Name of the program.
    pub program: String,
    /// When it joined the job, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// When the record was written.
    pub written_unix_ns: u64,
    /// Stable code of the error for which it was written.
    pub code: String,
    /// That error.
    pub error: String,
    /// Its lanes.
    #[serde(skip)]
    pub lanes: Vec<FlightLane>,
    /// Whether the end is missing.
    #[serde(skip)]
    pub cut: bool,
}

/// One thread's operations on one communicator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FlightLane {
    /// Communicator; 0 is that of all ranks.
    pub communicator: u64,
    /// Lane of it.
    pub lane: u32,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Latest collective that began, from 1; 0 for none.
    pub begun: u64,
    /// Latest collective that ended well.
    pub ended: u64,
    /// What was under way.
    pub now: Option<FlightNow>,
    /// The latest calls, the last one first.
    #[serde(deserialize_with = "json::at_most::<RECENT, _, _>")]
    pub calls: Vec<Call>,
}

/// An operation that was under way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FlightNow {
    /// Number of the call on its lane; of a message, among those of its direction.
    pub number: u64,
    /// Kind.
    pub operation: Kind,
    /// Size in bytes, if known.
    pub bytes: Option<u64>,
    /// When it began, in nanoseconds since 1970, if known.
    pub since_unix_ns: Option<u64>,
    /// For how long it had lasted.
    pub waited_ns: Option<u64>,
    /// Ranks of the job without which it could not go on: the first of them,
    #[serde(deserialize_with = "json::at_most::<AWAITED, _, _>")]
    pub awaited_ranks: Vec<u32>,
    /// and how many there are.
    pub awaited_count: u64,
}

/// Why a text is no flight record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRecord {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It does not begin as one.
    #[error("it is no flight record of hcomm")]
    Foreign,
    /// It ends within its first line.
    #[error("it is cut short within its first line")]
    Cut,
    /// It was written by another version of hcomm.
    #[error("it has the form {0}, this program reads {SCHEMA}; use the tools of the version that the job ran")]
    Version(String),
    /// It contradicts its form.
    #[error("line {0} is damaged: {1}")]
    Damaged(usize, String),
}

/// What every first line has.
#[derive(Deserialize)]
struct First {
    line: String,
    schema: String,
}

#[derive(Deserialize)]
struct Line {
    line: String,
}

impl FlightRecord {
    /// Of the text of a file.
    ///
    /// # Errors
    /// It is no record of a version known here, or is damaged; one that ends early is good, and says so.
    pub fn parse(text: &str) -> Result<Self, NoRecord> {
        let mut lines = text.split_inclusive('\n').enumerate();
        let Some((_, first)) = lines.next() else { return Err(NoRecord::Empty) };
        let damaged = |at: usize, cause: serde_json::Error| NoRecord::Damaged(at + 1, cause.to_string());
        match serde_json::from_str::<First>(first) {
            Ok(First { line, schema }) if line == "process" && schema.starts_with("hcomm-flight/") => {
                if schema != SCHEMA {
                    return Err(NoRecord::Version(schema));
                }
            }
            Err(cause) if cause.is_eof() && first.starts_with("{\"line\":\"process\"") => return Err(NoRecord::Cut),
            _ => return Err(NoRecord::Foreign),
        }
        let mut record: FlightRecord = serde_json::from_str(first).map_err(|cause| damaged(0, cause))?;
        record.cut = !text.ends_with('\n');
        for (at, line) in lines {
            let whole = line.ends_with('\n');
            let kind = match serde_json::from_str::<Line>(line) {
                Ok(kind) => kind.line,
                Err(_) if !whole => break,
                Err(cause) => return Err(damaged(at, cause)),
            };
            if kind == "lane" {
                if record.lanes.len() == LANES {
                    return Err(NoRecord::Damaged(at + 1, format!("more than {LANES} lanes")));
                }
                record.lanes.push(serde_json::from_str(line).map_err(|cause| damaged(at, cause))?);
            }
        }
        Ok(record)
    }
}
