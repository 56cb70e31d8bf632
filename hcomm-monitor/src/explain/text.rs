//! Findings in words, and the ranks side by side.

use hcomm_cli::{Cell, Column, Screen, Table, printable};
use hcomm_telemetry::flight::{FlightLane, FlightRecord};

use super::compare::{Finding, first_error, words};
use super::files::Evidence;
use crate::units;

/// All that there is to say.
pub fn text(evidence: &Evidence, findings: &[Finding], screen: Screen) -> String {
    let mut lines = Vec::new();
    let ranks: Vec<u32> = evidence.records.iter().map(|found| found.record.rank).collect();
    if let Some(found) = evidence.records.first() {
        let FlightRecord { job, program, world_size, .. } = &found.record;
        let missing = evidence.missing();
        let none = if missing.is_empty() { String::new() } else { format!(", none of {}", units::ranks(&missing)) };
        lines.push(format!("job {job}: {program}, {world_size} ranks; records of {}{none}", units::ranks(&ranks)));
    }
    lines.push(String::new());
    lines.extend(findings.iter().flat_map(Finding::sentences));
    if findings.is_empty() {
        lines.push("No rank was in a call, and none is behind another.".into());
    }
    if let Some(first) = first_error(&evidence.records) {
        let FlightRecord { rank, code, error, written_unix_ns, .. } = first;
        lines.push(String::new());
        lines.push(format!("The first to fail was rank {rank}, at {}:", units::time_of_day(*written_unix_ns)));
        lines.push(format!("  [{code}] {error}"));
    }
    for found in evidence.records.iter().filter(|found| found.record.cut) {
        lines.push(format!("{} is cut short; what is whole in it was used.", found.path.display()));
    }
    lines.push(String::new());
    let words: String = lines.iter().map(|line| printable(line) + "\n").collect();
    words + &table(evidence).render(screen)
}

/// A line a rank and lane.
fn table(evidence: &Evidence) -> Table {
    let mut table = Table::new([
        Column::number("RANK"),
        Column::text("HOST").shrink_to(8).drop_rank(4),
        Column::number("PID").drop_rank(5),
        Column::text("WRITTEN").drop_rank(3),
        Column::text("CODE").drop_rank(2),
        Column::text("LANE").drop_rank(6),
        Column::number("BEGUN"),
        Column::number("ENDED"),
        Column::text("IN"),
        Column::number("FOR"),
        Column::text("AWAITS").shrink_to(10),
        Column::text("LAST CALL").shrink_to(12).drop_rank(1),
    ]);
    for found in &evidence.records {
        let record = &found.record;
        // Lanes that were never used say nothing, unless there are no others.
        let used = |lane: &&FlightLane| lane.begun > 0 || lane.now.is_some();
        for lane in record.lanes.iter().filter(used) {
            table.row(row(record, Some(lane)));
        }
        if !record.lanes.iter().any(|lane| used(&lane)) {
            table.row(row(record, None));
        }
    }
    table
}

fn row(record: &FlightRecord, lane: Option<&FlightLane>) -> Vec<Cell> {
    let now = lane.and_then(|lane| lane.now.as_ref());
    vec![
        Cell::from(record.rank.to_string()),
        Cell::from(record.host.as_str()),
        Cell::from(record.pid.to_string()),
        Cell::from(units::time_of_day(record.written_unix_ns)),
        Cell::from(record.code.as_str()),
        Cell::of(lane.map(|lane| match lane.communicator {
            0 => format!("{}", lane.lane),
            communicator => format!("{communicator:x}/{}", lane.lane),
        })),
        Cell::of(lane.map(|lane| lane.begun)),
        Cell::of(lane.map(|lane| lane.ended)),
        Cell::of(now.map(|now| format!("{} #{}", now.operation, now.number))),
        Cell::of(now.and_then(|now| now.waited_ns).map(units::duration)),
        Cell::of(now.filter(|now| !now.awaited_ranks.is_empty()).map(|now| units::ranks(&now.awaited_ranks))),
        Cell::of(lane.and_then(|lane| lane.calls.first()).map(words)),
    ]
}
