//! Markdown, for issues and wikis: one table a workload, with what ran it above.

use std::fmt::Write;

use super::table::{how, plural};
use crate::results::{Cell, Header, Row, Totals};

/// All rows.
pub fn render(header: &Header, rows: &[Row], totals: &Totals) -> String {
    let mut text = String::new();
    let mut current = None;
    for row in rows {
        if current != Some(row.workload) {
            current = Some(row.workload);
            text += &title(header, row);
        }
        text += &line(row);
    }
    let average = totals.average_busbw().map_or_else(|| "-".to_owned(), |busbw| format!("{busbw:.3} GB/s"));
    let _ = writeln!(text, "\nAverage bus bandwidth {average}; {} wrong elements.", totals.wrong);
    text
}

fn title(header: &Header, row: &Row) -> String {
    format!(
        "\n### {}: {} on {}, {}\n\nhcomm-bench {}, {}\n\n\
         | size (B) | count | type | redop | root | time (us) | algbw (GB/s) | busbw (GB/s) | wrong \
         | in-place time (us) | algbw (GB/s) | busbw (GB/s) | wrong | p50 (us) | p99 (us) | algorithm |\n\
         |---:|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        row.workload.name(),
        plural(header.ranks.len(), "rank"),
        plural(header.hosts(), "host"),
        header.transport,
        env!("CARGO_PKG_VERSION"),
        header.settings,
    )
}

fn line(row: &Row) -> String {
    let times = &row.out_of_place.times;
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} | {} |\n",
        row.bytes,
        row.count,
        row.dtype,
        row.op_name(),
        row.root_number(),
        columns(row, Some(&row.out_of_place)),
        columns(row, row.in_place.as_ref()),
        times.p50,
        times.p99,
        how(row),
    )
}

fn columns(row: &Row, cell: Option<&Cell>) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let time = number(cell.map(|cell| cell.times.mean));
    let algbw = number(cell.and_then(|cell| row.algbw(cell)));
    let busbw = number(cell.and_then(|cell| row.busbw(cell)));
    let wrong = cell.and_then(|cell| cell.wrong).map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
    format!("{time} | {algbw} | {busbw} | {wrong}")
}
