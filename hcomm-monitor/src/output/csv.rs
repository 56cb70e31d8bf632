//! `--csv` (RFC 4180, but with single line feeds): the rows of the JSON form, the keys of which are the header.

use serde::Serialize;
use serde_json::{Map, Value};

use super::rows::{CallLine, OperationLine};
use crate::model::{Call, Job, Model};

/// Rows of one kind.
#[derive(Debug)]
pub struct Csv {
    header: String,
}

impl Csv {
    /// Of calls.
    pub fn calls() -> Self {
        Self { header: header(&CallLine::default()) }
    }

    /// The first line.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// A call.
    pub fn call(&self, job: &Job, call: &Call) -> String {
        row(&CallLine::of(job, call))
    }
}

/// The operations of all jobs by kind and size, with the header.
pub fn operations(model: &Model) -> String {
    let rows =
        model.jobs().iter().flat_map(|job| job.operations().iter().map(|line| row(&OperationLine::of(job, line))));
    std::iter::once(header(&OperationLine::default())).chain(rows).collect()
}

fn object(row: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(row) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn header(row: &impl Serialize) -> String {
    object(row).keys().map(String::as_str).collect::<Vec<_>>().join(",") + "\n"
}

fn row(row: &impl Serialize) -> String {
    object(row).values().map(cell).collect::<Vec<_>>().join(",") + "\n"
}

/// Unknown is empty.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let cells = [json!(null), json!("a"), json!("a,\"b\"\nc"), json!(1.5), json!(u64::MAX), json!(true)];
        assert_eq!(
            cells.map(|value| cell(&value)),
            ["", "a", "\"a,\"\"b\"\"\nc\"", "1.5", "18446744073709551615", "true"]
        );
    }

    #[test]
    fn there_is_a_header_without_rows() {
        assert!(operations(&Model::default()).starts_with("job,operation,size_bytes,from_bytes,ranks,calls,bytes,"));
        assert!(
            Csv::calls().header().starts_with("time_unix_ns,job,communicator,lane,number,operation,bytes,duration_ns,")
        );
    }
}
