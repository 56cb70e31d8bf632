//! Everything that can go wrong, as values: what happened, where, and a stable code with a page in `docs/errors.md`.

use std::fmt;
use std::time::Duration;

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An operation as the caller named it, for error texts: `all_reduce #42 (1024 x f32, sum)`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationName(pub String);

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rank in an error. A communicator that was made by a split has numbers of its own, and a rank that fails need not be in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankName {
    /// Its number in the communicator that reports the error; `None` where it is not in it.
    pub rank: Option<usize>,
    /// Its number in the job.
    pub job_rank: usize,
}

impl fmt::Display for RankName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankName { rank, job_rank } = self;
        match rank {
            Some(rank) if rank == job_rank => write!(f, "rank {rank}"),
            Some(rank) => write!(f, "rank {rank} (rank {job_rank} of the job)"),
            None => write!(f, "rank {job_rank} of the job (not in this communicator)"),
        }
    }
}

/// A failure of the library. Texts are lower case and carry the value that was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting (flag, `HCOMM_*` variable, TOML key) has a value that is not allowed.
    #[error("{name}={value}: {allowed}")]
    Setting {
        /// Name of the variable, key or flag.
        name: String,
        /// The value as given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A call of the operating system failed.
    #[error("{what}: {cause}")]
    System {
        /// What was being done, with the object (path, address) it was done to.
        what: String,
        /// The system's own words.
        cause: String,
    },
    /// The rendezvous store cannot be reached or answered with an error.
    #[error("store {url}: {what}")]
    Store {
        /// URL of the store.
        url: String,
        /// What failed.
        what: String,
    },
    /// The ranks of a job did not find each other.
    #[error("start-up: {0}")]
    Startup(String),
    /// A rank died, or its connection broke.
    #[error("{rank} on {host} is lost: {cause} ({operation}, waited {waited:.1?})")]
    PeerLost {
        /// The lost rank.
        rank: RankName,
        /// Its host name.
        host: String,
        /// What was seen of it (connection reset, killed by signal 9, ...).
        cause: String,
        /// The operation in which this rank noticed.
        operation: OperationName,
        /// How long that operation had waited.
        waited: Duration,
    },
    /// An operation stood still for `HCOMM_TIMEOUT`.
    #[error("{operation} timed out after {waited:.1?}: {missing}")]
    Timeout {
        /// The operation that did not finish.
        operation: OperationName,
        /// How long it waited.
        waited: Duration,
        /// The ranks that have not come, and at which call each of them is.
        missing: String,
    },
    /// Two ranks called different things.
    #[error("ranks disagree: {rank} called {mine}, {peer} called {theirs}")]
    Mismatch {
        /// This rank.
        rank: RankName,
        /// Its call.
        mine: OperationName,
        /// The other rank.
        peer: RankName,
        /// The other rank's call.
        theirs: OperationName,
    },
    /// The algorithm does not do this collective, or not for this shape.
    #[error("algorithm {algorithm} cannot do this {collective}: {reason}")]
    Unsuited {
        /// The algorithm asked for.
        algorithm: &'static str,
        /// The collective.
        collective: &'static str,
        /// Why it does not fit.
        reason: String,
    },
    /// Memory could not be reserved.
    #[error("cannot reserve {needed_bytes} bytes of {what}: {cause}")]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// How much was asked for.
        needed_bytes: u64,
        /// The system's words, with what is free when that is known.
        cause: String,
    },
    /// No network interface fits the job or the settings.
    #[error("no usable network interface: {0}")]
    Interface(String),
    /// An argument of a call is out of range.
    #[error("{call}: {reason}")]
    Argument {
        /// The call.
        call: &'static str,
        /// Which argument, its value, and what is allowed.
        reason: String,
    },
    /// Another rank failed first, and its error ended this operation.
    #[error("{rank} failed: {cause}")]
    Aborted {
        /// The rank that failed first.
        rank: RankName,
        /// Its error.
        cause: String,
    },
    /// The communicator failed earlier and takes no more calls.
    #[error("this communicator failed before ({0}); start the job again")]
    Broken(String),
    /// A peer speaks another version or something else than hcomm.
    #[error("protocol error with {peer}: {what}")]
    Protocol {
        /// The peer's address or rank.
        peer: String,
        /// What was received, and what was expected.
        what: String,
    },
}

impl Error {
    /// The stable code, as in `docs/errors.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Setting { .. } => "HC-E0001",
            Error::System { .. } => "HC-E0002",
            Error::Store { .. } => "HC-E0003",
            Error::Startup(_) => "HC-E0004",
            Error::PeerLost { .. } => "HC-E0005",
            Error::Timeout { .. } => "HC-E0006",
            Error::Mismatch { .. } => "HC-E0007",
            Error::Unsuited { .. } => "HC-E0008",
            Error::Memory { .. } => "HC-E0009",
            Error::Interface(_) => "HC-E0010",
            Error::Argument { .. } => "HC-E0011",
            Error::Aborted { .. } => "HC-E0012",
            Error::Broken(_) => "HC-E0013",
            Error::Protocol { .. } => "HC-E0014",
        }
    }

    /// Adds to what is said of a failure in the middle of an operation; other errors have nothing to add to.
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        match &mut self {
            Error::PeerLost { cause, .. } | Error::Aborted { cause, .. } => cause.push_str(note),
            Error::Timeout { missing, .. } => missing.push_str(note),
            Error::Mismatch { theirs, .. } => theirs.0.push_str(note),
            Error::Protocol { what, .. } => what.push_str(note),
            _ => {}
        }
        self
    }

    /// Wraps a failed system call with what was being done.
    pub fn system(what: impl Into<String>, cause: impl fmt::Display) -> Self {
        Error::System { what: what.into(), cause: cause.to_string() }
    }
}
