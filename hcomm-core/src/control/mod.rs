//! The control plane: how ranks find each other ([`Store`]), and who is alive ([`membership`]). The data plane never
//! waits for it once a communicator is up.

use std::time::Duration;

use crate::error::Result;

/// A small shared map through which ranks meet. Keys are paths (`job/rank/3`), values bytes of at most 1 MiB.
///
/// All calls are safe from any thread. A call that cannot reach the store retries within its own bound, then fails.
pub trait Store: Send + Sync {
    /// Sets a key, waking whoever waits for it.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;
    /// The value now, if any.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Waits until the key exists; an error after `timeout` names the key.
    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;
    /// Adds to a decimal counter (absent is 0) and returns the new value.
    fn add(&self, key: &str, delta: i64) -> Result<i64>;
    /// Sets the key only if it holds `expected` (`None`: only if absent); returns whether it did.
    fn compare_and_swap(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<bool>;
    /// Removes a key; absent is fine.
    fn delete(&self, key: &str) -> Result<()>;
    /// All pairs whose key begins with `prefix` that changed after `revision`, with the new revision; waits up to
    /// `timeout` for a first change. Start with revision 0.
    fn watch(&self, prefix: &str, revision: u64, timeout: Duration) -> Result<(u64, Vec<(String, Vec<u8>)>)>;
    /// Sets `key` to `value` and keeps it while this process lives and renews it: when the process dies, or is not
    /// heard of for `ttl`, the store sets `key` to `lost` instead (so watchers see who went).
    fn lease(&self, key: &str, value: &[u8], lost: &[u8], ttl: Duration) -> Result<()>;
    /// The URL that others connect to.
    fn url(&self) -> String;
}
