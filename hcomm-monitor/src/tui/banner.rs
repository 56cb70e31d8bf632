//! What is wrong now, in words: operations that stand, ranks that are gone, files that cannot be read.

use hcomm_telemetry::Stall;

use super::look::Tone;
use super::views;
use crate::model::{Condition, Job, Model};
use crate::units;

/// Operations that stand and are named; the rest is counted.
const MOST: usize = 3;

/// What is to be told, the worst first.
pub fn notices(model: &Model, job: Option<&Job>) -> Vec<(Tone, String)> {
    let mut notices = Vec::new();
    if let Some(job) = job {
        notices.extend(job.stalls().iter().take(MOST).map(|stall| (Tone::Bad, stuck(stall))));
        if job.stalls().len() > MOST {
            notices.push((Tone::Bad, format!("{} more operations are stuck", job.stalls().len() - MOST)));
        }
        if !job.is_over() {
            notices.extend(lost(job));
        }
    }
    for unread in model.unreadable().iter().take(MOST) {
        notices.push((Tone::Warning, format!("skipped {}: {}", unread.path.display(), unread.reason)));
    }
    if model.unreadable().len() > MOST {
        notices.push((Tone::Warning, format!("skipped {} more files", model.unreadable().len() - MOST)));
    }
    notices
}

/// An operation that stands: its age, the call, who has not come and who has.
pub fn stuck(stall: &Stall) -> String {
    let late: Vec<u32> = stall.late.iter().map(|(rank, _)| *rank).collect();
    let within =
        |ranks: &[u32], of: &[u32]| ranks.iter().copied().filter(|rank| of.contains(rank)).collect::<Vec<u32>>();
    let without =
        |ranks: &[u32], of: &[u32]| ranks.iter().copied().filter(|rank| !of.contains(rank)).collect::<Vec<u32>>();
    let size = stall.bytes.map(|bytes| format!(" {}", units::size(bytes))).unwrap_or_default();
    let mut text =
        format!("STUCK for {}: {}{size}, call {}", units::duration(stall.age_ns), stall.kind.title(), stall.number);
    let mut say = |words: &str, ranks: &[u32]| {
        if !ranks.is_empty() {
            text += &format!("; {words} {}", units::ranks(ranks));
        }
    };
    let broken: Vec<u32> = [&stall.stopped[..], &stall.gone].concat();
    say("stopped and not come:", &within(&late, &stall.stopped));
    say("killed and not come:", &within(&late, &stall.gone));
    say("not come:", &without(&late, &broken));
    say("stopped:", &without(&stall.stopped, &late));
    say("killed:", &without(&stall.gone, &late));
    // Those in a later call wait too: it cannot end before this one.
    let mut waiting = without(&[&stall.inside[..], &stall.ahead].concat(), &broken);
    waiting.sort_unstable();
    say("waiting:", &waiting);
    // Where all that can be seen have come, those inside know better.
    if late.is_empty() && broken.is_empty() {
        say("for:", &stall.awaited);
    }
    if stall.unseen > 0 {
        text += &format!("; {} not on this host", units::count(stall.unseen.into()));
    }
    text
}

/// Ranks that are gone while others go on.
fn lost(job: &Job) -> Vec<(Tone, String)> {
    let (mut killed, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    for rank in job.ranks() {
        match rank.condition {
            Condition::Killed => killed.push(rank.rank),
            Condition::Failed(error) => {
                failed.push(rank.rank);
                first = first.or(Some(error));
            }
            _ => {}
        }
    }
    let mut lost = Vec::new();
    if !killed.is_empty() {
        lost.push((Tone::Bad, format!("{} killed", units::ranks(&killed))));
    }
    if let Some(error) = first {
        lost.push((Tone::Bad, format!("{} failed: {error}", units::ranks(&failed))));
    }
    lost
}

/// The help of a view, and the keys.
pub fn help(view: views::View) -> Vec<(Tone, String)> {
    const KEYS: &[&str] = &[
        "tab, l, right    next view; h, left: the one before; 1 to 6",
        "j, k, up, down   move; PgUp, PgDn, g, G (home, end): far",
        "s, S             sort by the next column; the other way round",
        "/                show only rows with this text; esc shows all",
        "space            freeze the screen, go on",
        "r                count from now on",
        "+, -             look less often, more often",
        "enter            durations of the operation, or show the job",
        "n, p             next job, the one before",
        "e                write the shown rows to a CSV file in the current folder",
        "q, Ctrl-C        end; Ctrl-Z: stop until fg",
    ];
    let title = |text: String| std::iter::once((Tone::Strong, text));
    let plain = |lines: &[&str]| lines.iter().map(|line| (Tone::Plain, (*line).to_owned())).collect::<Vec<_>>();
    title("Keys (any other key closes this)".into())
        .chain(plain(KEYS))
        .chain([(Tone::Plain, String::new())])
        .chain(title(format!("The view {}", view.name())))
        .chain(plain(view.help()))
        .collect()
}
