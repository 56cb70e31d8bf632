//! Why the program ends early: the exit code, one sentence, and what to do next.

use std::fmt;

use hcomm_core::Error;

/// A result whose error ends the program.
pub type Result<T> = std::result::Result<T, Failure>;

/// The reason for an early end, as it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit code: 1 for a run that failed, 2 for arguments that cannot be run, 3 for a check that failed.
    pub code: u8,
    /// What happened and where, lower case.
    pub text: String,
    /// What to do next; empty when the text says it.
    pub hint: String,
}

impl Failure {
    /// Arguments that cannot be run (exit code 2).
    pub fn usage(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { code: 2, text: text.into(), hint: hint.into() }
    }

    /// A run that failed (exit code 1).
    pub fn run(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { code: 1, text: text.into(), hint: hint.into() }
    }

    /// A check that failed (exit code 3).
    pub fn check(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure { code: 3, text: text.into(), hint: hint.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::PeerLost { .. } => {
                "look at that rank's own message, and at its host's kernel log for a killed process"
            }
            Error::Timeout { .. } => {
                "a rank is stopped, overloaded or unreachable; HCOMM_TIMEOUT (-T) sets a longer limit"
            }
            Error::Store { .. } => "check that every host was started and can reach the store's address",
            Error::Memory { .. } => "smaller messages (-e), fewer ranks (-g), or more memory",
            Error::Interface(_) => "HCOMM_SOCKET_IFNAME names the interface to use",
            Error::Mismatch { .. } => "every host must be given the same command line",
            _ => "",
        };
        let code = if matches!(error, Error::Setting { .. } | Error::Unsuited { .. }) { 2 } else { 1 };
        Failure { code, text: format!("[{}] {error}", error.code()), hint: hint.to_owned() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
