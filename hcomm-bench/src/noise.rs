//! Says when a run was noisy, how that shows, and what would help: after the table, on stderr.

use crate::results::{Cell, Row};

/// A cell is noisy when its iterations spread by more than half their mean, or many took thrice the median.
const SPREAD: f64 = 0.5;
const OUTLIERS: f64 = 0.02;

/// The words, or `None` for a quiet run.
pub fn advice(rows: &[Row], ranks_here: usize, processors: usize, load: Option<f64>) -> Option<String> {
    let cells = || rows.iter().flat_map(|row| row.cells().map(move |cell| (row, cell)));
    let noisy = |cell: &Cell| cell.times.cv > SPREAD || cell.times.outliers > OUTLIERS;
    let count = cells().filter(|(_, cell)| noisy(cell)).count();
    let total = cells().count();
    // Small messages always have a few interrupted iterations: a tenth of the cells says nothing.
    if count * 10 <= total {
        return None;
    }
    let (row, worst) = cells().max_by(|a, b| a.1.times.cv.total_cmp(&b.1.times.cv))?;
    let mut text = format!(
        "note: {count} of {total} cells are noisy; the worst is {} of {} B: coefficient of variation {:.1}, {:.0} % of \
         iterations over 3 x the median",
        row.workload.name(),
        row.bytes,
        worst.times.cv,
        worst.times.outliers * 100.0,
    );
    if ranks_here > processors {
        text += &format!("\n  {ranks_here} ranks share {processors} processors: -g {processors} would not");
    }
    if let Some(load) = load.filter(|load| *load > (ranks_here + 1) as f64) {
        text += &format!("\n  the load average is {load:.1}: other programs run on this host");
    }
    text += "\n  p50 is the figure least disturbed; more iterations (-n 1000, --time 2s) steady the mean";
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::example_rows;

    #[test]
    fn only_noisy_runs_are_spoken_of() {
        let mut rows = example_rows();
        assert_eq!(advice(&rows, 2, 2, Some(2.0)), None);
        for row in &mut rows {
            row.out_of_place.times.cv = 1.25;
        }
        let text = advice(&rows, 4, 2, Some(9.0)).unwrap();
        for words in ["coefficient of variation 1.2", "4 ranks share 2 processors", "load average is 9.0", "--time"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
