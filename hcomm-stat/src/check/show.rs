//! Findings as text and JSON.

use hcomm_cli::{Cell, Column, Screen, Table};
use hcomm_topology::Root;
use serde_json::json;

use super::{Finding, Verdict};

/// What needs attention first, each with its remedy; then what is good, by check.
pub fn text(findings: &[Finding], screen: Screen) -> String {
    let mut table = Table::new([
        Column::text(""),
        Column::text("CHECK"),
        Column::text("SUBJECT").shrink_to(8),
        Column::text("FOUND").shrink_to(20),
    ]);
    let mut seen: Vec<(&str, Verdict)> = Vec::new();
    for finding in findings {
        match finding.verdict {
            Verdict::Warn | Verdict::Fail => table.row(row(finding, &finding.subject)),
            // One line for all that came out alike.
            verdict if !seen.contains(&(finding.check, verdict)) => {
                seen.push((finding.check, verdict));
                let alike: Vec<&Finding> =
                    findings.iter().filter(|other| other.check == finding.check && other.verdict == verdict).collect();
                let subjects: Vec<&str> = alike.iter().map(|finding| finding.subject.as_str()).collect();
                let same = alike.iter().all(|other| other.reason == finding.reason);
                let merged =
                    Finding { reason: if same { finding.reason.clone() } else { each(&alike) }, ..finding.clone() };
                table.row(row(&merged, &subjects.join(" ")));
            }
            _ => {}
        }
    }
    let mut text = table.render(screen);
    let attention = findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Warn | Verdict::Fail));
    for (number, finding) in attention.enumerate() {
        if number == 0 {
            text += "\nWhat to do:\n";
        }
        text += &format!("  {} {}: {}\n    {}\n", finding.check, finding.subject, finding.reason, finding.fix);
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    text += &format!(
        "\n{} ok, {} warn, {} fail, {} unknown\n",
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail),
        count(Verdict::Unknown)
    );
    text
}

fn each(findings: &[&Finding]) -> String {
    findings.iter().map(|finding| format!("{}: {}", finding.subject, finding.reason)).collect::<Vec<_>>().join("; ")
}

fn row(finding: &Finding, subject: &str) -> [Cell; 4] {
    let verdict = match finding.verdict {
        Verdict::Ok => Cell::from("ok").good(),
        Verdict::Warn => Cell::from("warn").warning(),
        Verdict::Fail => Cell::from("fail").bad(),
        Verdict::Unknown => Cell::from("unknown").faint(),
    };
    [verdict, Cell::from(finding.check), Cell::from(subject), Cell::from(finding.reason.as_str())]
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
