//! `explain --json`: one object. Keys stay, and have their units; unknown is null.

use serde_json::{Value, json};

use super::compare::{Finding, first_error};
use super::files::{Evidence, Found};

/// Name and version of the form.
const SCHEMA: &str = "hcomm-explain/1";

/// The object, on a line.
pub fn object(evidence: &Evidence, findings: &[Finding]) -> String {
    let any = evidence.records.first().map(|found| &found.record);
    let findings = findings.iter().map(|finding| {
        let mut value = json!(finding);
        value["text"] = finding.sentences().join("\n").into();
        value
    });
    let object = json!({
        "schema": SCHEMA,
        "job": any.map(|record| &record.job),
        "world_size": any.map(|record| record.world_size),
        "missing_ranks": evidence.missing(),
        "first_failed_rank": first_error(&evidence.records).map(|record| record.rank),
        "findings": findings.collect::<Vec<_>>(),
        "records": evidence.records.iter().map(record).collect::<Vec<_>>(),
        "skipped": evidence.skipped,
    });
    format!("{object}\n")
}

fn record(found: &Found) -> Value {
    let record = &found.record;
    let lanes = record.lanes.iter().map(|lane| {
        let now = lane.now.as_ref();
        json!({
            "communicator": lane.communicator,
            "lane": lane.lane,
            "ranks": lane.ranks,
            "begun": lane.begun,
            "ended": lane.ended,
            "operation": now.map(|now| now.operation),
            "operation_number": now.map(|now| now.number),
            "operation_bytes": now.map(|now| now.bytes),
            "waited_ns": now.map(|now| now.waited_ns),
            "awaited_ranks": now.map(|now| &now.awaited_ranks),
        })
    });
    json!({
        "rank": record.rank,
        "host": record.host,
        "pid": record.pid,
        "program": record.program,
        "path": found.path.to_string_lossy(),
        "written_unix_ns": record.written_unix_ns,
        "code": record.code,
        "error": record.error,
        "cut": record.cut,
        "lanes": lanes.collect::<Vec<_>>(),
    })
}
