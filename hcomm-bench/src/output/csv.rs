//! CSV: a line for each row and place, units in the column names, empty where there is no value.

use super::rounded;
use crate::results::{Cell, Row};

const COLUMNS: &str = "collective,dtype,redop,root,ranks,bytes,count,algorithm,chunk_bytes,channels,transport,place,\
    iterations,time_us_mean,time_us_min,time_us_p50,time_us_p99,time_us_max,time_cv,algbw_gb_per_s,busbw_gb_per_s,cpu_us,wrong";

/// All rows, header first. No field holds a comma or a quote, so none is quoted.
pub fn render(rows: &[Row], per_rank: bool) -> String {
    let ranks = if per_rank { rows.iter().map(|row| row.ranks).max().unwrap_or(0) } else { 0 };
    let mut text = COLUMNS.to_owned();
    for rank in 0..ranks {
        text += &format!(",rank_{rank}_time_us");
    }
    text.push('\n');
    for row in rows {
        text += &line(row, "out_of_place", &row.out_of_place, ranks);
        if let Some(cell) = &row.in_place {
            text += &line(row, "in_place", cell, ranks);
        }
    }
    text
}

fn line(row: &Row, place: &str, cell: &Cell, ranks: usize) -> String {
    let optional = |value: Option<f64>| value.map_or(String::new(), |value| rounded(value, 6).to_string());
    let times = &cell.times;
    let mut fields = vec![
        row.workload.name().to_owned(),
        row.dtype.name().to_owned(),
        row.op_name().to_owned(),
        row.root_number().to_string(),
        row.ranks.to_string(),
        row.bytes.to_string(),
        row.count.to_string(),
        row.run.algorithm.name().to_owned(),
        row.run.chunk_bytes.to_string(),
        row.run.channels.to_string(),
        row.run.transport.to_owned(),
        place.to_owned(),
        cell.iterations.to_string(),
    ];
    let figures = [times.mean, times.min, times.p50, times.p99, times.max, times.cv];
    fields.extend(figures.map(|value| rounded(value, 4).to_string()));
    fields.extend([optional(row.algbw(cell)), optional(row.busbw(cell)), rounded(cell.cpu_us, 4).to_string()]);
    fields.push(cell.wrong.map_or(String::new(), |wrong| wrong.to_string()));
    fields.extend((0..ranks).map(|rank| optional(cell.rank_us.get(rank).copied())));
    fields.join(",") + "\n"
}
