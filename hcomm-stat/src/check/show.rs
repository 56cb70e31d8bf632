//! Findings as text and JSON.

use hcomm_cli::{Cell, Column, Screen, Table, lines, printable, wrap};
use hcomm_topology::Root;
use serde_json::json;

use super::{Finding, Verdict};

/// A line for all findings of a check that came out alike; then what to do about those that need it.
pub fn text(findings: &[Finding], screen: Screen) -> String {
    let mut table = Table::new([
        Column::text(""),
        Column::text("CHECK"),
        Column::text("SUBJECT").wrap_to(8),
        Column::text("FOUND").wrap_to(20),
    ]);
    let groups = groups(findings);
    for group in &groups {
        let same = group.iter().all(|finding| finding.reason == group[0].reason);
        let each = || group.iter().map(|finding| format!("{}: {}", finding.subject, finding.reason));
        let reason = if same { group[0].reason.clone() } else { each().collect::<Vec<_>>().join("; ") };
        table.row(row(group[0], &subjects(group), &reason));
    }
    let mut text = table.render(screen);
    let attention = groups.iter().filter(|group| needs_attention(group[0]));
    for (number, group) in attention.enumerate() {
        if number == 0 {
            text += "\n";
            text += &wrap("What to do:", screen);
        }
        let Finding { check, reason, fix, .. } = group[0];
        let others = if group.len() > 1 { " (and alike for the others)" } else { "" };
        let what = printable(&format!("{check} {}: {reason}", subjects(group)));
        text += &lines("  ", "  ", what.split(' '), screen);
        text += &remedy(&printable(&format!("{fix}{others}")), screen);
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let sum = format!(
        "{} ok, {} warn, {} fail, {} unknown",
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail),
        count(Verdict::Unknown)
    );
    text + "\n" + &wrap(&sum, screen)
}

/// What to do, in one line where that fits; else each command in one of its own, so that it can be copied.
fn remedy(fix: &str, screen: Screen) -> String {
    const INDENT: &str = "    ";
    if screen.width.is_none_or(|width| INDENT.len() + fix.chars().count() <= width) {
        return format!("{INDENT}{fix}\n");
    }
    let last = fix.matches("; ").count();
    let part = |(at, part): (usize, &str)| {
        let end = if at < last { ";" } else { "" };
        lines(INDENT, "      ", format!("{part}{end}").split(' '), screen)
    };
    fix.split("; ").enumerate().map(part).collect()
}

fn needs_attention(finding: &Finding) -> bool {
    matches!(finding.verdict, Verdict::Warn | Verdict::Fail)
}

fn subjects(group: &[&Finding]) -> String {
    group.iter().map(|finding| finding.subject.as_str()).collect::<Vec<_>>().join(" ")
}

/// Findings of one check and verdict; those that need attention only together with the same reason.
fn groups(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let alike = |group: &&mut Vec<&Finding>| {
            let first = group[0];
            first.check == finding.check
                && first.verdict == finding.verdict
                && (!needs_attention(first) || first.reason == finding.reason)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn row(finding: &Finding, subjects: &str, reason: &str) -> [Cell; 4] {
    let verdict = match finding.verdict {
        Verdict::Ok => Cell::from("ok").good(),
        Verdict::Warn => Cell::from("warn").warning(),
        Verdict::Fail => Cell::from("fail").bad(),
        Verdict::Unknown => Cell::from("unknown").faint(),
    };
    [verdict, Cell::from(finding.check), Cell::from(subjects), Cell::from(reason)]
}

/// One document.
pub fn json(root: &Root, findings: &[Finding]) -> String {
    let mut document = crate::json::head(root);
    document["checks"] = json!(findings);
    for (key, verdict) in
        [("ok", Verdict::Ok), ("warn", Verdict::Warn), ("fail", Verdict::Fail), ("unknown", Verdict::Unknown)]
    {
        document["counts"][key] = json!(findings.iter().filter(|finding| finding.verdict == verdict).count());
    }
    format!("{document:#}\n")
}
