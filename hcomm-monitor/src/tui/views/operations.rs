//! Operations by kind and size.

use super::{View, size};
use crate::model::{Job, Key, Model, Row, Size};
use crate::tui::grid::{self, Cell, Column, Graph, Grid};
use crate::tui::look::Tone;
use crate::tui::state::State;
use crate::units;

pub const HELP: &[&str] = &[
    "OP_TYPE, SIZE  kind, and bytes of each as nccl-tests counts them (1KB.. is 1KB to below 2KB)",
    "RATE, OPS/S    bytes and operations a second of one rank, over the last interval",
    "P50 P99 MAX    durations since the job began, or since r",
    "BUSBW          bus bandwidth within these operations, by nccl-tests' factors",
    "ALGORITHM      of the latest; TREND: bytes a second of the latest intervals",
    "CALLS, TOTAL   operations and bytes of one rank; enter shows the durations",
];

/// The table.
pub fn grid(job: &Job) -> Grid {
    let columns = vec![
        Column::text("OP_TYPE", "op_type"),
        Column::number("SIZE", "size_bytes", 6),
        Column::number("RANKS", "ranks", 0).drop_rank(7),
        Column::number("RATE", "bytes_per_s", 8),
        Column::number("OPS/S", "calls_per_s", 6).drop_rank(4),
        Column::number("P50", "p50_ns", 6),
        Column::number("P99", "p99_ns", 6).drop_rank(2),
        Column::number("MAX", "max_ns", 6).drop_rank(3),
        Column::number("BUSBW", "bus_bytes_per_s", 8).drop_rank(1),
        Column::text("ALGORITHM", "algorithm").shrink_to(6).drop_rank(2),
        Column::text("TRANSPORT", "transport").drop_rank(8),
        Column::number("CALLS", "calls", 6).drop_rank(5),
        Column::number("TOTAL", "bytes", 6).drop_rank(6),
        Column::number("ERRORS", "errors", 0).drop_rank(9),
    ];
    let rows = job.operations().iter().map(row).collect();
    Grid { columns, rows, graph: Some("TREND"), empty: "no operation yet", ..Grid::default() }
}

fn row(row: &Row) -> grid::Row {
    let total = &row.total;
    let quantile = |q| Cell::integer(total.durations.quantile(q), units::duration);
    let bytes = match row.size() {
        Size::Each(bytes) | Size::From(bytes) => bytes,
    };
    let text = |name: Option<&str>| name.map_or_else(Cell::unknown, Cell::text);
    let errors = Cell::integer(total.errors, units::count);
    let cells = vec![
        Cell::text(total.kind.title()),
        Cell::integer(bytes, |_| size(row.size())),
        Cell::integer(u64::from(total.ranks), units::count),
        Cell::real(row.bytes_per_s, units::bandwidth),
        Cell::real(row.calls_per_s, units::rate),
        quantile(0.5),
        quantile(0.99),
        Cell::integer(total.max_ns, units::duration),
        Cell::real(total.bus_bandwidth().filter(|_| total.bytes > 0), units::bandwidth),
        text(total.algorithm),
        text(total.transport),
        Cell::integer(row.calls(), units::count),
        Cell::integer(row.bytes(), units::size),
        if total.errors > 0 { errors.tone(Tone::Bad) } else { errors },
    ];
    grid::Row { cells, graph: Graph::Trend(row.history.iter().copied().collect()) }
}

/// The operations in the order in which they stand on the screen.
pub fn keys(state: &State, model: &Model) -> Vec<Key> {
    let Some(job) = state.job(model) else { return Vec::new() };
    let order = grid(job).order(&state.filter, state.sort(View::Operations));
    order.into_iter().filter_map(|number| job.operations().get(number).map(Row::key)).collect()
}
