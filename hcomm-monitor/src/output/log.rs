//! `--log`: a line each operation.

use crate::model::Call;
use crate::units;

/// The first line.
pub const HEADER: &str = "TIME          OP_TYPE    BYTES   DURATION\n";

/// A call.
pub fn line(call: &Call) -> String {
    let more = if call.late_start { "+" } else { "" };
    let failed = if call.failed { " failed" } else { "" };
    format!(
        "{}  {:<9}  {:<6}  {}{more}{failed}\n",
        units::time_of_day(call.wall_ns),
        call.kind.title(),
        units::size(call.bytes),
        units::duration(call.duration_ns),
    )
}
