//! The table, in the layout of nccl-tests, so that eyes and parsers made for it read ours: the columns that both have come
//! first and are as wide, ours follow; all else begins with `#`.

use std::io::{self, Write};

use crate::results::{Cell, Header, Row, Totals};
use crate::workload::Workload;

/// Name, unit and width of a column.
type Column = (&'static str, &'static str, usize);

const FIRST: [Column; 5] =
    [("size", "(B)", 10), ("count", "(elements)", 12), ("type", "", 8), ("redop", "", 6), ("root", "", 6)];
const CELL: [Column; 4] = [("time", "(us)", 7), ("algbw", "(GB/s)", 6), ("busbw", "(GB/s)", 6), ("#wrong", "", 6)];
const PERCENTILES: [Column; 2] = [("p50", "(us)", 7), ("p99", "(us)", 7)];

/// Prints rows as they come, one table a workload.
pub struct Table<W: Write> {
    out: W,
    cpu: bool,
    per_rank: bool,
    current: Option<Workload>,
    totals: Totals,
    ranks_shown: bool,
}

impl<W: Write> Table<W> {
    /// A table without rows; `cpu` adds the CPU column, `per_rank` a comment line for each rank and row.
    pub fn new(out: W, cpu: bool, per_rank: bool) -> Self {
        Table { out, cpu, per_rank, current: None, totals: Totals::default(), ranks_shown: false }
    }

    /// Begins the table of a workload, unless it has begun: the sums of the one before, and the title.
    pub fn begin(&mut self, header: &Header, workload: Workload) -> io::Result<()> {
        if self.current != Some(workload) {
            self.finish()?;
            self.current = Some(workload);
            self.title(header, workload)?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Prints a row of the workload that has begun.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        self.totals.add(row);
        let line = self.line(row);
        writeln!(self.out, "{line}")?;
        if self.per_rank {
            self.rank_lines(row)?;
        }
        self.out.flush()
    }

    /// Ends the current table.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.current.take().is_none() {
            return Ok(());
        }
        let totals = std::mem::take(&mut self.totals);
        let verdict = if totals.out_of_bounds == 0 { "OK" } else { "FAILED" };
        writeln!(self.out, "# {:<20} : {} {verdict}", "Out of bounds values", totals.out_of_bounds)?;
        if totals.wrong > 0 {
            writeln!(self.out, "# {:<20} : {} FAILED", "Wrong elements", totals.wrong)?;
        }
        let average = totals.average_busbw().map_or_else(|| "-".to_owned(), |busbw| format!("{busbw:.3}"));
        writeln!(self.out, "# {:<20} : {average}", "Avg bus bandwidth")?;
        self.out.flush()
    }

    fn title(&mut self, header: &Header, workload: Workload) -> io::Result<()> {
        writeln!(
            self.out,
            "# hcomm-bench {}  {}  {} on {}  {}  {}",
            env!("CARGO_PKG_VERSION"),
            workload.name(),
            plural(header.ranks.len(), "rank"),
            plural(header.hosts(), "host"),
            header.transport,
            header.settings,
        )?;
        if !self.ranks_shown {
            self.ranks_shown = true;
            for info in &header.ranks {
                let place =
                    |name: &str, number: Option<usize>| number.map_or(String::new(), |n| format!(" {name} {n}"));
                let (cpu, numa) = (place("cpu", info.cpu), place("numa", info.numa));
                writeln!(self.out, "#  Rank {:>2} Pid {:>6} on {:>8}{cpu}{numa}", info.rank, info.pid, info.host)?;
            }
        }
        writeln!(self.out, "#{:62}out-of-place{:23}in-place", "", "")?;
        self.heading(|(name, _, _)| name)?;
        self.heading(|(_, unit, _)| unit)
    }

    fn heading(&mut self, text: impl Fn(Column) -> &'static str) -> io::Result<()> {
        let cpu = [("cpu", "(us)", 7)];
        let ours = CELL.into_iter().chain(CELL).chain(PERCENTILES).chain(cpu.into_iter().filter(|_| self.cpu));
        let columns = FIRST.into_iter().chain(ours).map(|column| format!("{:>1$}", text(column), column.2));
        let line = columns.chain([text(("algorithm", "", 0)).to_owned()]).collect::<Vec<_>>().join("  ");
        writeln!(self.out, "# {}", line.trim_end())
    }

    fn line(&self, row: &Row) -> String {
        let mut line = format!(
            "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}",
            row.bytes,
            row.count,
            row.dtype.nccl_name(),
            row.op_name(),
            row.root_number(),
        );
        line += &cell_columns(row, Some(&row.out_of_place));
        line += &cell_columns(row, row.in_place.as_ref());
        let times = &row.out_of_place.times;
        line += &format!("  {:>7}  {:>7}", fixed(times.p50, 7), fixed(times.p99, 7));
        if self.cpu {
            line += &format!("  {:>7}", fixed(row.out_of_place.cpu_us, 7));
        }
        line + "  " + &how(row)
    }

    fn rank_lines(&mut self, row: &Row) -> io::Result<()> {
        for (rank, time) in row.out_of_place.rank_us.iter().enumerate() {
            write!(self.out, "#  Rank {rank:>2}  out-of-place {:>7} us", fixed(*time, 7))?;
            if let Some(time) = row.in_place.as_ref().and_then(|cell| cell.rank_us.get(rank)) {
                write!(self.out, "  in-place {:>7} us", fixed(*time, 7))?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }
}

/// Time, bandwidths and wrong elements; `-` for what there is not.
fn cell_columns(row: &Row, cell: Option<&Cell>) -> String {
    let time = cell.map_or_else(|| "-".to_owned(), |cell| fixed(cell.times.mean, 7));
    let bandwidth = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| fixed(value, 6));
    let algbw = bandwidth(cell.and_then(|cell| row.algbw(cell)));
    let busbw = bandwidth(cell.and_then(|cell| row.busbw(cell)));
    let wrong = cell.and_then(|cell| cell.wrong).map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
    format!("  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}")
}

/// `1 host`, `2 hosts`.
pub fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// How it ran: `ring`, with chunk size and channels where a message was cut: `ring/256K/2`.
pub fn how(row: &Row) -> String {
    let run = &row.run;
    match (run.chunk_bytes, run.channels) {
        (0, 0 | 1) => run.algorithm.name().to_owned(),
        (0, channels) => format!("{}/-/{channels}", run.algorithm),
        (chunk, channels) => format!("{}/{}/{channels}", run.algorithm, short_size(chunk)),
    }
}

fn short_size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// As nccl-tests' getFloatStr: two digits after the point, fewer where they do not fit, at last an exponent.
fn fixed(value: f64, width: usize) -> String {
    let fitting = [2, 1, 0].map(|digits| format!("{value:.digits$}")).into_iter().find(|text| text.len() <= width);
    fitting.unwrap_or_else(|| {
        let digits = usize::from(width >= 7);
        let text = format!("{value:.digits$e}");
        // C writes at least two digits of the exponent and its sign: 1.5e+09.
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        format!("{mantissa}e+{exponent:0>2}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_column() {
        for (value, width, text) in [
            (0.314, 7, "0.31"),
            (9999.99, 7, "9999.99"),
            (12345.678, 7, "12345.7"),
            (1234567.8, 7, "1234568"),
            (12345678.9, 7, "1.2e+07"),
            (123.456, 6, "123.46"),
            (123456789.0, 6, "1e+08"),
        ] {
            assert_eq!(fixed(value, width), text);
            assert!(text.len() <= width);
        }
    }
}
