//! Tables on the screen and in files: rows that can be sorted and searched, in as many columns as fit.

use std::cmp::Ordering;

use ratatui::text::Span;

use super::look::{Look, Tone};
use super::pen::Pen;

/// Space between columns.
const GAP: u16 = 1;
/// Columns that a graph needs at least, and gets at most.
const GRAPH: (u16, u16) = (8, 60);

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Title on the screen.
    pub title: &'static str,
    /// Title in a file, with the unit.
    pub key: &'static str,
    right: bool,
    rank: u8,
    least: u16,
    /// At least so wide, whatever is in it: numbers that change do not move the columns.
    usual: u16,
}

impl Column {
    /// Text, begun at the left.
    pub fn text(title: &'static str, key: &'static str) -> Self {
        Self { title, key, right: false, rank: 0, least: u16::MAX, usual: 0 }
    }

    /// Numbers, ended at the right, of usually so many characters.
    pub fn number(title: &'static str, key: &'static str, usual: u16) -> Self {
        Self { right: true, usual, ..Self::text(title, key) }
    }

    /// Of usually so many characters.
    #[must_use]
    pub fn usual(self, usual: u16) -> Self {
        Self { usual, ..self }
    }

    /// May be left out where space is short, those of the highest rank first.
    #[must_use]
    pub fn drop_rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// May be cut to so many characters.
    #[must_use]
    pub fn shrink_to(self, least: u16) -> Self {
        Self { least, ..self }
    }
}

/// What a cell is worth, for sorting and files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Its text.
    Text,
    /// A whole number.
    Integer(u64),
    /// Another number.
    Real(f64),
    /// Not known.
    Unknown,
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    text: String,
    value: Value,
    tone: Tone,
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Value::Text, tone: Tone::Plain }
    }

    /// A whole number, shown as `show` does.
    pub fn integer(value: impl Into<Option<u64>>, show: impl Fn(u64) -> String) -> Self {
        value.into().map_or_else(Self::unknown, |value| Self {
            text: show(value),
            value: Value::Integer(value),
            tone: Tone::Plain,
        })
    }

    /// Another number.
    pub fn real(value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        value.filter(|value| value.is_finite()).map_or_else(Self::unknown, |value| Self {
            text: show(value),
            value: Value::Real(value),
            tone: Tone::Plain,
        })
    }

    /// Not known.
    pub fn unknown() -> Self {
        Self { text: crate::units::UNKNOWN.into(), value: Value::Unknown, tone: Tone::Faint }
    }

    /// With a tone.
    #[must_use]
    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// With words behind the number.
    #[must_use]
    pub fn and(mut self, words: &str) -> Self {
        self.text += words;
        self
    }

    /// Those that are not known come last, whichever way the others go.
    fn compare(&self, other: &Self, descending: bool) -> Ordering {
        let number = |cell: &Self| match cell.value {
            Value::Integer(value) => Some(value as f64),
            Value::Real(value) => Some(value),
            Value::Text | Value::Unknown => None,
        };
        let unknown = |cell: &Self| cell.value == Value::Unknown;
        let way = |order: Ordering| if descending { order.reverse() } else { order };
        unknown(self).cmp(&unknown(other)).then_with(|| match (number(self), number(other)) {
            (Some(a), Some(b)) => way(a.total_cmp(&b)),
            _ => way(self.text.cmp(&other.text)),
        })
    }

    /// As a field of a CSV file (RFC 4180).
    fn field(&self) -> String {
        match self.value {
            Value::Integer(value) => value.to_string(),
            Value::Real(value) => value.to_string(),
            Value::Unknown => String::new(),
            Value::Text if self.text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", self.text.replace('"', "\"\""))
            }
            Value::Text => self.text.clone(),
        }
    }
}

/// What is drawn behind the last column.
#[derive(Debug, Clone, PartialEq)]
pub enum Graph {
    /// Nothing.
    None,
    /// The latest values.
    Trend(Vec<Option<f64>>),
    /// A share, 0 to 1.
    Bar(f64),
}

/// A row.
#[derive(Debug, Clone)]
pub struct Row {
    /// A cell each column.
    pub cells: Vec<Cell>,
    /// What is drawn behind them.
    pub graph: Graph,
}

/// By which column, and whether the largest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// Number of the column.
    pub column: usize,
    /// Whether the largest comes first.
    pub descending: bool,
}

impl Sort {
    /// The way that a column is sorted at first: the largest number, or the alphabet's first.
    pub fn first(columns: &[Column], column: usize) -> Self {
        Self { column, descending: columns.get(column).is_some_and(|column| column.right) }
    }
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// Lines above it, with their tones.
    pub heading: Vec<(Tone, String)>,
    /// Columns.
    pub columns: Vec<Column>,
    /// Title of the graph, if there is one.
    pub graph: Option<&'static str>,
    /// Rows.
    pub rows: Vec<Row>,
    /// What is said where there are no rows.
    pub empty: &'static str,
}

impl Grid {
    /// Adds a row without a graph.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), graph: Graph::None });
    }

    /// The numbers of the rows in which `filter` stands, whatever its case, in their order.
    pub fn order(&self, filter: &str, sort: Option<Sort>) -> Vec<usize> {
        let wanted = filter.to_lowercase();
        let holds = |row: &Row| row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&wanted));
        let mut order: Vec<usize> =
            (0..self.rows.len()).filter(|&number| filter.is_empty() || holds(&self.rows[number])).collect();
        if let Some(Sort { column, descending }) = sort {
            order.sort_by(|&a, &b| match (self.rows[a].cells.get(column), self.rows[b].cells.get(column)) {
                (Some(a), Some(b)) => a.compare(b, descending),
                _ => Ordering::Equal,
            });
        }
        order
    }

    /// Keeps the rows of [`Grid::order`].
    pub fn arrange(&mut self, filter: &str, sort: Option<Sort>) {
        if filter.is_empty() && sort.is_none() {
            return;
        }
        let order = self.order(filter, sort);
        let mut rows: Vec<Option<Row>> = std::mem::take(&mut self.rows).into_iter().map(Some).collect();
        self.rows = order.into_iter().filter_map(|number| rows[number].take()).collect();
    }

    /// As CSV (RFC 4180, but lines end as here).
    pub fn csv(&self) -> String {
        let titles: Vec<String> = self.columns.iter().map(|column| column.key.into()).collect();
        let rows = self.rows.iter().map(|row| row.cells.iter().map(Cell::field).collect());
        std::iter::once(titles).chain(rows).map(|fields: Vec<String>| fields.join(",") + "\n").collect()
    }

    /// Draws titles and rows from number `first` on; `chosen` is marked.
    pub fn draw(&self, pen: &mut Pen<'_>, first: usize, chosen: Option<usize>, sort: Option<Sort>) {
        let look = pen.look;
        let titles: Vec<String> =
            self.columns.iter().enumerate().map(|(at, column)| title(column, at, sort, look)).collect();
        let fit = self.fit(&titles, pen.width());
        let widths: Vec<(usize, u16)> = fit.columns;
        let mut x = 0;
        for &(at, width) in &widths {
            pen.cell(x, 0, width, &titles[at], self.columns[at].right, Tone::Strong);
            x += width + GAP;
        }
        if fit.graph > 0 {
            pen.cell(x, 0, fit.graph, self.graph.unwrap_or_default(), false, Tone::Strong);
        }
        let room = usize::from(pen.height().saturating_sub(1));
        if self.rows.is_empty() && room > 0 {
            pen.line(1, self.empty, Tone::Faint);
        }
        for (y, (number, row)) in (1..).zip(self.rows.iter().enumerate().skip(first).take(room)) {
            let mut x = 0;
            for &(at, width) in &widths {
                let Some(cell) = row.cells.get(at) else { continue };
                pen.cell(x, y, width, &look.text(&cell.text), self.columns[at].right, cell.tone);
                x += width + GAP;
            }
            let graph = match &row.graph {
                Graph::None => String::new(),
                Graph::Trend(values) => look.trend(values, fit.graph.into()),
                Graph::Bar(share) => look.bar(*share, fit.graph.into()),
            };
            pen.cell(x, y, fit.graph, &graph, false, Tone::Plain);
            if chosen == Some(number) {
                pen.mark(y, Tone::Chosen);
            }
        }
    }

    /// Which columns are shown and how wide.
    fn fit(&self, titles: &[String], width: u16) -> Fit {
        let natural: Vec<u16> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let cells = self.rows.iter().filter_map(|row| row.cells.get(at)).map(|cell| width_of(&cell.text));
                cells.max().unwrap_or(0).max(width_of(&titles[at])).max(column.usual)
            })
            .collect();
        let least = |at: usize| self.columns[at].least.max(width_of(&titles[at])).min(natural[at]);
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let graph = if self.graph.is_some() { GRAPH.0 + GAP } else { 0 };
        let sum = |shown: &[usize], of: &dyn Fn(usize) -> u16| {
            let gaps = GAP.saturating_mul(shown.len().saturating_sub(1) as u16);
            shown.iter().fold(gaps, |sum, &at| sum.saturating_add(of(at)))
        };
        while sum(&shown, &least).saturating_add(graph) > width {
            let last = (0..shown.len()).rev().max_by_key(|&at| self.columns[shown[at]].rank);
            match last.filter(|&at| self.columns[shown[at]].rank > 0) {
                Some(at) => _ = shown.remove(at),
                None => break,
            }
        }
        let mut widths: Vec<(usize, u16)> = shown.iter().map(|&at| (at, natural[at])).collect();
        let used = |widths: &[(usize, u16)]| {
            let gaps = GAP.saturating_mul(widths.len().saturating_sub(1) as u16);
            widths.iter().fold(gaps, |sum, (_, width)| sum.saturating_add(*width))
        };
        while used(&widths).saturating_add(graph) > width {
            let can = |place: &usize| widths[*place].1 > least(widths[*place].0);
            let Some(place) = (0..widths.len()).filter(can).max_by_key(|&place| widths[place].1) else { break };
            widths[place].1 -= 1;
        }
        let left = width.saturating_sub(used(&widths).saturating_add(GAP));
        let graph = if graph > 0 && left >= GRAPH.0 { left.min(GRAPH.1) } else { 0 };
        Fit { columns: widths, graph }
    }
}

struct Fit {
    columns: Vec<(usize, u16)>,
    graph: u16,
}

fn title(column: &Column, at: usize, sort: Option<Sort>, look: Look) -> String {
    let mut title = column.title.to_owned();
    if let Some(sort) = sort.filter(|sort| sort.column == at) {
        title.push(look.arrow(sort.descending));
    }
    title
}

/// Columns of the terminal that a text takes.
fn width_of(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let columns = vec![Column::text("NAME", "name"), Column::number("BYTES", "bytes", 0).drop_rank(1)];
        let mut grid = Grid { columns, ..Grid::default() };
        grid.row([Cell::text("b, \"x\""), Cell::integer(9, |n| format!("{n}B"))]);
        grid.row([Cell::text("a"), Cell::unknown()]);
        grid.row([Cell::text("C"), Cell::integer(10, |n| format!("{n}B"))]);
        grid
    }

    fn names(grid: &Grid) -> Vec<&str> {
        grid.rows.iter().map(|row| row.cells[0].text.as_str()).collect()
    }

    #[test]
    fn sorted_by_value_with_the_unknown_last() {
        let mut grid = grid();
        let first = Sort::first(&grid.columns, 1);
        grid.arrange("", Some(first));
        assert_eq!(names(&grid), ["C", "b, \"x\"", "a"]);
        grid.arrange("", Some(Sort { descending: !first.descending, ..first }));
        assert_eq!(names(&grid), ["b, \"x\"", "C", "a"]);
        grid.arrange("", Some(Sort { column: 7, descending: true }));
    }

    #[test]
    fn filtered_whatever_the_case() {
        let mut grid = grid();
        grid.arrange("c", None);
        assert_eq!(names(&grid), ["C"]);
    }

    #[test]
    fn csv_has_numbers_and_quotes() {
        assert_eq!(grid().csv(), "name,bytes\n\"b, \"\"x\"\"\",9\na,\nC,10\n");
    }
}
