//! Rows of links: traffic of a rank with one peer.

use hcomm_telemetry::Link;

use super::process::Process;

/// A link, as one of its ends sees it.
#[derive(Debug, Clone)]
pub struct LinkRow {
    /// Rank that says so.
    pub rank: u32,
    /// Its counters.
    pub link: Link,
    /// Interfaces of its sockets, each once, in the order of the alphabet.
    pub interfaces: Vec<String>,
    /// Bytes a second sent in the interval; `None` when nothing is known of it.
    pub sent_per_s: Option<f64>,
    /// Bytes a second received.
    pub received_per_s: Option<f64>,
}

/// The links of a process.
pub(super) fn rows(process: &Process) -> impl Iterator<Item = LinkRow> + '_ {
    process.latest.links.iter().map(|link| {
        let rate = |of: fn(&Link) -> u64| {
            let interval = process.interval.as_ref()?;
            // A link that was not there at its begin had carried nothing.
            let before = interval.links.iter().find(|before| before.peer == link.peer).map_or(0, of);
            Some(of(link).saturating_sub(before) as f64 / interval.seconds)
        };
        let sockets = process.latest.paths.iter().filter(|path| path.peer == link.peer);
        let mut interfaces: Vec<String> = sockets.filter_map(|path| path.interface.clone()).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        LinkRow {
            interfaces,
            rank: process.latest.identity.rank,
            sent_per_s: rate(|link| link.sent_bytes),
            received_per_s: rate(|link| link.received_bytes),
            link: link.clone(),
        }
    })
}
