//! The control plane: how ranks find each other ([`Store`]), and who is alive ([`Membership`]). The data plane never
//! waits for it once a communicator is up.
//!
//! Two stores, chosen by URL ([`connect`]): `tcp://host:port`, served by one process of the job ([`StoreServer`]), and
//! `file:///shared/dir`, served by nobody. Both tell a dead process from a silent one: the first by its closed connection,
//! the second by its released file lock. That distinction is why neither is a plain key-value server with expiring keys:
//! expiry alone is either slow to see a death or quick to bury a process that was only stopped.

mod activity;
mod embedded;
mod file;
mod membership;
mod observer;
mod protocol;
mod server;
mod table;

use std::sync::Arc;
use std::time::Duration;

pub use activity::{Activity, CallWords, Laggard};
pub use membership::{LIVES, Member, Membership, Verdict, is_lost};
pub use observer::{Change, Observer};
pub use server::StoreServer;

use crate::error::{Error, Result};

/// How often a process lets the others hear of it (`HCOMM_HEARTBEAT_INTERVAL`).
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(200);

/// After so long a wait at the start of a job, it is said what is waited for.
pub(crate) const NOTICE: Duration = Duration::from_secs(5);

/// Longest key, in bytes. Keys are file names in the file store, which leaves room for a prefix in 255 bytes.
pub const MAX_KEY_BYTES: usize = 200;

/// Where ranks publish what they do (`HCOMM_SUMMARY_INTERVAL`): a summary of `hcomm-telemetry` under this and the rank.
pub const SUMMARIES: &str = "summary/";

/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// A pair of the store, with its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Key.
    pub key: String,
    /// Value.
    pub value: Vec<u8>,
    /// Time since it was last set, by the store's own clock.
    pub age: Duration,
}

/// What [`Store::watch`] tells: the new revision, and the pairs that changed.
pub type Changes = (u64, Vec<(String, Vec<u8>)>);

/// A small shared map through which ranks meet. Keys are paths (`job/rank/3`) of letters, digits and `/ . _ - :`, at most
/// [`MAX_KEY_BYTES`] long; values are at most [`MAX_VALUE_BYTES`].
///
/// All calls are safe from any thread. A call that cannot reach the store fails within a bound of its own.
pub trait Store: Send + Sync {
    /// Sets a key, waking whoever waits for it. A lease on the key stays.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;
    /// The value now, if any.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Waits until the key exists; an error after `timeout` names the key.
    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;
    /// Adds to a decimal counter (absent is 0) and returns the new value.
    fn add(&self, key: &str, delta: i64) -> Result<i64>;
    /// Sets the key only if it holds `expected` (`None`: only if absent); returns whether it did.
    fn compare_and_swap(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<bool>;
    /// Removes a key and its lease; absent is fine.
    fn delete(&self, key: &str) -> Result<()>;
    /// All pairs whose key begins with `prefix`, in order of their keys.
    fn list(&self, prefix: &str) -> Result<Vec<Item>>;
    /// All pairs whose key begins with `prefix` that changed after `revision`, with the new revision; waits up to
    /// `timeout` for a first change. Start with revision 0. Deleted keys are not told. A revision means something to
    /// the store object that gave it only.
    fn watch(&self, prefix: &str, revision: u64, timeout: Duration) -> Result<Changes>;
    /// Sets `key` to `value` and keeps it while this process lives and renews it: when the process dies, or is not
    /// heard of for `ttl`, the store sets `key` to `lost` instead (so watchers see who went). Renewal is automatic.
    fn lease(&self, key: &str, value: &[u8], lost: &[u8], ttl: Duration) -> Result<()>;
    /// Ends a lease: the key stays, as an ordinary key with the value it has. No lease is fine.
    fn release(&self, key: &str) -> Result<()>;
    /// Why this store can never answer again, if so: whoever served it is gone.
    fn broken(&self) -> Option<String> {
        None
    }
    /// From now on a call to a store that is silent gives up soon, if it knows how: the job is failing, and whoever serves the
    /// store may be what failed.
    fn hasten(&self) {}
    /// The URL that others connect to.
    fn url(&self) -> String;
}

/// Connects to the store at `url` (`tcp://host:port` or `file:///dir`) and tries until `timeout`, since the one who
/// serves it may start later.
///
/// # Errors
/// [`Error::Setting`] for a URL that names no store, [`Error::Store`] with the last cause when time is up.
pub fn connect(url: &str, job_id: &str, timeout: Duration) -> Result<Arc<dyn Store>> {
    connect_telling(url, job_id, timeout, &mut |_| ())
}

/// [`connect`], where `tell` hears what is waited for when that takes long.
pub(crate) fn connect_telling(
    url: &str,
    job_id: &str,
    timeout: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Arc<dyn Store>> {
    check_job_id(job_id)?;
    if let Some(address) = url.strip_prefix("tcp://") {
        let (host, port) = split_address(url, address)?;
        return Ok(Arc::new(embedded::EmbeddedStore::connect(&host, port, job_id, timeout, tell)?));
    }
    if let Some(path) = url.strip_prefix("file://") {
        if !path.starts_with('/') || path.len() < 2 {
            return Err(bad_url(url));
        }
        return Ok(Arc::new(file::FileStore::open(path.as_ref(), job_id, timeout, tell)?));
    }
    Err(bad_url(url))
}

/// Splits `host:port`, with an IPv6 host in brackets, which the result has not.
///
/// # Errors
/// [`Error::Setting`] naming `url`.
pub(crate) fn split_address(url: &str, address: &str) -> Result<(String, u16)> {
    let (host, port) = address.trim_end_matches('/').rsplit_once(':').ok_or_else(|| bad_url(url))?;
    let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| bad_url(url))?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    if host.is_empty() || host.contains(['[', ']', '/', ' ']) || (bare.is_none() && host.contains(':')) {
        return Err(bad_url(url));
    }
    Ok((host.to_owned(), port))
}

fn bad_url(url: &str) -> Error {
    Error::Setting {
        name: "HCOMM_STORE".into(),
        value: url.into(),
        allowed: "tcp://host:port (an IPv6 address in brackets) or file:///directory".into(),
    }
}

fn check_job_id(job_id: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if job_id.is_empty() || job_id.len() > 128 || !job_id.chars().all(fits) || job_id.starts_with('.') {
        return Err(Error::Setting {
            name: "HCOMM_JOB_ID".into(),
            value: job_id.into(),
            allowed: "1 to 128 letters, digits, dots, dashes, colons and underscores, no dot first".into(),
        });
    }
    Ok(())
}

/// The words for a key that no store takes.
fn check_key(key: &str) -> std::result::Result<(), String> {
    if key.is_empty() || key.starts_with('/') || key.ends_with('/') {
        return Err(format!("key {key:?} is empty, or begins or ends with a slash"));
    }
    check_prefix(key)
}

fn check_prefix(prefix: &str) -> std::result::Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if prefix.len() > MAX_KEY_BYTES {
        return Err(format!("key of {} bytes is longer than {MAX_KEY_BYTES}", prefix.len()));
    }
    if !prefix.chars().all(fits) {
        return Err(format!("key {prefix:?} has a character that is not a letter, a digit or one of / . _ - :"));
    }
    Ok(())
}

fn check_value(value: &[u8]) -> std::result::Result<(), String> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(format!("value of {} bytes is longer than {MAX_VALUE_BYTES}", value.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
