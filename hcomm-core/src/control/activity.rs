//! What a rank is doing, written by its data plane and read by its membership thread.

use std::fmt;
use std::time::Duration;

use hcomm_telemetry::{Calls, Part};

/// Words that say what a call is, in the writer's own encoding.
pub type CallWords = [u64; 4];

/// Calls that are told of: ranks that disagree may find out a few calls later.
const RECENT: usize = 4;

/// The latest calls of one communicator. The data plane writes it with plain stores; a reader in between may see the words of
/// one call with the number of the next, which does not matter: it is read to say where a rank *stays*. Lies in the telemetry
/// file, if there is one, so that each call is written down once for both.
#[derive(Debug)]
pub struct Activity {
    calls: Part<Calls>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { calls: Calls::apart() }
    }
}

impl From<Part<Calls>> for Activity {
    fn from(calls: Part<Calls>) -> Self {
        Self { calls }
    }
}

impl Activity {
    /// Call `number`, counted from 1, begins.
    #[inline]
    pub fn begin(&self, number: u64, words: CallWords) {
        self.calls.begin(number, words);
    }

    /// Call `number` has ended.
    #[inline]
    pub fn end(&self, number: u64) {
        self.calls.end(number);
    }

    /// One line for the store.
    pub(super) fn line(&self, communicator: u64, describe: fn(&CallWords) -> String) -> String {
        let (begun, ended) = self.calls.state();
        let text = |number: u64| describe(&self.calls.words(number)).replace(['\n', '\r', '\t'], " ");
        let operations: Vec<String> = recent(begun).map(text).collect();
        format!("{communicator} {begun} {ended} {}\n", operations.join("\t"))
    }
}

/// Numbers of the calls that are remembered when `begun` is the latest; that one first.
fn recent(begun: u64) -> impl Iterator<Item = u64> {
    (1..=begun).rev().take(RECENT)
}

/// What [`Activity::line`] said of the latest calls of `communicator`: number and words, the latest first.
pub(super) fn parse_recent(lines: &[u8], communicator: u64) -> Vec<(u64, String)> {
    let Some((begun, _, operations)) = parse_line(lines, communicator) else { return Vec::new() };
    recent(begun).zip(operations.split('\t').map(str::to_owned)).collect()
}

/// A rank that has not come to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laggard {
    /// Its rank in the job.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Whether it has the communicator asked for.
    pub knows: bool,
    /// Number of its latest call on the communicator asked for; 0 when it has made none.
    pub call: u64,
    /// Whether it is still in that call.
    pub inside: bool,
    /// That call in words.
    pub operation: String,
    /// How long nothing was heard of its process; `None` when nothing ever was.
    pub silent: Option<Duration>,
    /// Whether it has left the job in good order.
    pub left: bool,
}

/// A process is heard of five times a second: less silence than this says nothing.
const NOTABLE_SILENCE: Duration = Duration::from_secs(1);

impl Laggard {
    /// Whether its process has been silent for longer than heartbeats explain.
    pub fn is_silent(&self) -> bool {
        self.silent.is_none_or(|silent| silent >= NOTABLE_SILENCE)
    }
}

impl Laggard {
    /// The laggard in words, called `name`.
    pub fn describe(&self, name: impl fmt::Display) -> String {
        let Laggard { host, knows, call, inside, operation, silent, left, .. } = self;
        let place = match (*left, *call) {
            (true, 0) => return format!("{name} on {host} has not come: it has left the job"),
            (true, _) => {
                return format!("{name} on {host} has not come: it has left the job after call #{call} ({operation})");
            }
            _ if !knows => "it does not have this communicator (not yet, or no longer)".to_owned(),
            (_, 0) => "it has made no call yet".to_owned(),
            _ if *inside => format!("it is in call #{call} ({operation})"),
            _ => format!("its last call was #{call} ({operation})"),
        };
        let heard = match silent {
            None => "never heard of".to_owned(),
            Some(silent) if self.is_silent() => format!("silent for {:.1} s", silent.as_secs_f64()),
            Some(_) => "its process is alive".to_owned(),
        };
        format!("{name} on {host} has not come: {place}, {heard}")
    }
}

impl fmt::Display for Laggard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(format_args!("rank {}", self.rank)))
    }
}

/// What [`Activity::line`] said of `communicator`: latest call, whether it is still in it, and its words.
pub(super) fn parse(lines: &[u8], communicator: u64) -> Option<(u64, bool, String)> {
    let (begun, inside, operations) = parse_line(lines, communicator)?;
    Some((begun, inside, operations.split('\t').next().unwrap_or_default().to_owned()))
}

fn parse_line(lines: &[u8], communicator: u64) -> Option<(u64, bool, String)> {
    let lines = String::from_utf8_lossy(lines);
    lines.lines().find_map(|line| {
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (theirs, begun, ended) = (number()?, number()?, number()?);
        (theirs == communicator).then(|| (begun, begun != ended, words.next().unwrap_or_default().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_written() {
        let activity = Activity::default();
        let describe = |words: &CallWords| format!("all_reduce of {}", words[0]);
        assert_eq!(parse(activity.line(7, describe).as_bytes(), 7), Some((0, false, String::new())));
        activity.begin(3, [1024, 0, 0, 0]);
        let lines = format!("{}{}", Activity::default().line(6, describe), activity.line(7, describe));
        assert_eq!(parse(lines.as_bytes(), 7), Some((3, true, "all_reduce of 1024".into())));
        activity.end(3);
        assert_eq!(parse(activity.line(7, describe).as_bytes(), 7), Some((3, false, "all_reduce of 1024".into())));
        assert_eq!(parse(lines.as_bytes(), 8), None);
        assert_eq!(parse(b"\xff garbage\n7 x", 7), None);
        assert_eq!(parse_recent(lines.as_bytes(), 8), []);
    }

    #[test]
    fn the_latest_calls_are_remembered() {
        let activity = Activity::default();
        let describe = |words: &CallWords| format!("all_reduce of {}", words[0]);
        let recent = |activity: &Activity| parse_recent(activity.line(7, describe).as_bytes(), 7);
        assert_eq!(recent(&activity), []);
        activity.begin(1, [10, 0, 0, 0]);
        assert_eq!(recent(&activity), [(1, "all_reduce of 10".to_owned())]);
        (2..=6).for_each(|number| activity.begin(number, [10 * number, 0, 0, 0]));
        assert_eq!(recent(&activity), [6, 5, 4, 3].map(|number| (number, format!("all_reduce of {}", 10 * number))));
    }

    #[test]
    fn laggards_in_words() {
        let (host, operation) = ("b".to_owned(), "barrier".to_owned());
        let silent = Some(Duration::from_millis(12_340));
        let mut laggard =
            Laggard { rank: 2, host, knows: true, call: 41, inside: true, operation, silent, left: false };
        assert_eq!(laggard.to_string(), "rank 2 on b has not come: it is in call #41 (barrier), silent for 12.3 s");
        laggard = Laggard { inside: false, silent: Some(Duration::from_millis(90)), ..laggard };
        assert_eq!(
            laggard.to_string(),
            "rank 2 on b has not come: its last call was #41 (barrier), its process is alive"
        );
        laggard = Laggard { left: true, ..laggard };
        assert_eq!(laggard.to_string(), "rank 2 on b has not come: it has left the job after call #41 (barrier)");
    }
}
