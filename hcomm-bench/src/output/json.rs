//! JSON, schema `hcomm-bench/1`: stable keys, units in the keys, integers as integers, unknown is null.

use serde_json::{Map, Value, json};

use super::rounded;
use crate::args::{Average, Effort, Settings};
use crate::results::{Cell, Header, Row, Totals};

/// One document for the whole run.
pub fn render(header: &Header, settings: &Settings, rows: &[Row], totals: &Totals) -> String {
    let document = json!({
        "schema": "hcomm-bench/1",
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine(header),
        "settings": settings_object(settings),
        "results": rows.iter().map(|row| result(row, settings.outputs.per_rank)).collect::<Vec<_>>(),
        "average_busbw_gb_per_s": totals.average_busbw().map(|busbw| rounded(busbw, 4)),
        "wrong": totals.wrong,
        "out_of_bounds": totals.out_of_bounds,
    });
    format!("{document:#}\n")
}

fn machine(header: &Header) -> Value {
    let ranks: Vec<Value> = header
        .ranks
        .iter()
        .map(|info| {
            json!({"rank": info.rank, "pid": info.pid, "host": info.host, "host_index": info.host_index,
                   "cpu": info.cpu, "numa": info.numa})
        })
        .collect();
    let mut machine = Map::new();
    machine.insert("hosts".to_owned(), json!(header.hosts()));
    machine.extend(crate::machine::describe());
    machine.insert("ranks".to_owned(), json!(ranks));
    Value::Object(machine)
}

fn settings_object(settings: &Settings) -> Value {
    let (iterations, time_s) = match settings.effort {
        Effort::Auto => (None, None),
        Effort::Iterations(iterations) => (Some(iterations), None),
        Effort::Time(time) => (None, Some(time.as_secs_f64())),
    };
    json!({
        "iterations": iterations,
        "time_s": time_s,
        "warmup": settings.warmup,
        "operations_per_iteration": settings.aggregate,
        "blocking": settings.blocking,
        "average": match settings.average {
            Average::Rank0 => "rank0",
            Average::Mean => "mean",
            Average::Min => "min",
            Average::Max => "max",
        },
        "checks": settings.checks,
        "seed": settings.seed,
        "buffers": match settings.buffers {
            crate::args::Buffers::Registered => "registered",
            crate::args::Buffers::Plain => "plain",
        },
    })
}

fn result(row: &Row, per_rank: bool) -> Value {
    json!({
        "collective": row.workload.name(),
        "dtype": row.dtype.name(),
        "redop": row.op_name(),
        "root": row.root_number(),
        "ranks": row.ranks,
        "bytes": row.bytes,
        "count": row.count,
        "algorithm": row.run.algorithm.name(),
        "chunk_bytes": row.run.chunk_bytes,
        "channels": row.run.channels,
        "transport": row.run.transport,
        "out_of_place": cell(row, &row.out_of_place, per_rank),
        "in_place": row.in_place.as_ref().map(|in_place| cell(row, in_place, per_rank)),
    })
}

fn cell(row: &Row, cell: &Cell, per_rank: bool) -> Value {
    let times = &cell.times;
    let mut object = json!({
        "iterations": cell.iterations,
        "time_us": {
            "min": rounded(times.min, 4),
            "mean": rounded(times.mean, 4),
            "p50": rounded(times.p50, 4),
            "p99": rounded(times.p99, 4),
            "max": rounded(times.max, 4),
            "cv": rounded(times.cv, 4),
        },
        "algbw_gb_per_s": row.algbw(cell).map(|value| rounded(value, 6)),
        "busbw_gb_per_s": row.busbw(cell).map(|value| rounded(value, 6)),
        "cpu_us": rounded(cell.cpu_us, 4),
        "wrong": cell.wrong,
    });
    if per_rank {
        object["per_rank_time_us"] = cell.rank_us.iter().map(|time| rounded(*time, 4)).collect();
    }
    object
}
