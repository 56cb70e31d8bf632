//! Traffic between ranks.

use super::super::grid::{Cell, Column, Grid};
use super::super::look::Tone;
use crate::model::{Job, LinkRow};
use crate::units;

pub const HELP: &[&str] = &[
    "RANK, PEER   who says so, and with whom",
    "SENT/S       bytes a second over the last interval; those of short calls are added up to 250 calls late",
    "RTT          shortest smoothed round trip of the sockets to the peer, as the kernel knows it",
    "RESENT       segments sent again; QUEUED: bytes that the peer has not acknowledged",
    "VIA          interfaces of these sockets",
    "Ranks that share memory have no round trip; the last three are read twice a second",
];

/// The table.
pub fn grid(job: &Job) -> Grid {
    let columns = vec![
        Column::number("RANK", "rank", 4),
        Column::number("PEER", "peer", 4),
        Column::text("TRANSPORT", "transport"),
        Column::number("SENT/S", "sent_bytes_per_s", 8),
        Column::number("RECEIVED/S", "received_bytes_per_s", 8),
        Column::number("SENT", "sent_bytes", 6).drop_rank(1),
        Column::number("RECEIVED", "received_bytes", 6).drop_rank(1),
        Column::number("RTT", "round_trip_ns", 6).drop_rank(2),
        Column::number("RESENT", "retransmits", 0).drop_rank(2),
        Column::number("QUEUED", "queued_bytes", 6).drop_rank(3),
        Column::text("VIA", "interfaces").shrink_to(6).drop_rank(4),
    ];
    let mut grid = Grid { columns, empty: "no bytes have gone between ranks yet", ..Grid::default() };
    job.links().for_each(|link| grid.row(row(&link)));
    grid
}

fn row(row: &LinkRow) -> Vec<Cell> {
    let link = &row.link;
    let resent = Cell::integer(link.retransmits, units::count);
    vec![
        Cell::integer(u64::from(row.rank), units::count),
        Cell::integer(u64::from(link.peer), units::count),
        link.transport.map_or_else(Cell::unknown, Cell::text),
        Cell::real(row.sent_per_s, units::bandwidth),
        Cell::real(row.received_per_s, units::bandwidth),
        Cell::integer(link.sent_bytes, units::size),
        Cell::integer(link.received_bytes, units::size),
        Cell::integer(link.round_trip_ns, units::duration),
        if link.retransmits > Some(0) { resent.tone(Tone::Warning) } else { resent },
        Cell::integer(link.queued_bytes, units::size),
        if row.interfaces.is_empty() { Cell::unknown() } else { Cell::text(row.interfaces.join(" ")) },
    ]
}
