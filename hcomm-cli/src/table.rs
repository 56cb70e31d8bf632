//! Tables that fit: into a narrow terminal by leaving out what matters least, and by breaking the lines of sentences inside their column.

use crate::screen::Screen;
use crate::words::{printable, wrap};

/// Space between columns.
const GAP: usize = 2;

/// A column of a [`Table`].
#[derive(Debug, Clone)]
pub struct Column {
    title: &'static str,
    right: bool,
    rank: u8,
    least: Option<usize>,
    wraps: bool,
}

impl Column {
    /// Text, with its begin at the left.
    pub fn text(title: &'static str) -> Column {
        Column { title, right: false, rank: 0, least: None, wraps: false }
    }

    /// Numbers, with their ends at the right.
    pub fn number(title: &'static str) -> Column {
        Column { right: true, ..Column::text(title) }
    }

    /// May be left out where space is short, those of the highest rank first.
    #[must_use]
    pub fn drop_rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    /// May be shortened to so many characters where space is short.
    #[must_use]
    pub fn shrink_to(self, least: usize) -> Column {
        Column { least: Some(least.max(1)), ..self }
    }

    /// Holds sentences, which take several lines where space is short; the column is made no narrower than so many characters.
    #[must_use]
    pub fn wrap_to(self, least: usize) -> Column {
        Column { wraps: true, ..self.shrink_to(least) }
    }
}

/// What a cell says of its value, shown as colour where there is any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
    Faint,
}

/// A cell of a [`Table`]: one line of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// `-`: not known.
    pub fn unknown() -> Cell {
        Cell::from("-").faint()
    }

    /// The value as text, or [`Cell::unknown`].
    pub fn of<T: ToString>(value: Option<T>) -> Cell {
        value.map_or_else(Cell::unknown, |value| Cell::from(value.to_string()))
    }

    /// Green.
    #[must_use]
    pub fn good(self) -> Cell {
        Cell { tone: Tone::Good, ..self }
    }

    /// Yellow.
    #[must_use]
    pub fn warning(self) -> Cell {
        Cell { tone: Tone::Warning, ..self }
    }

    /// Red.
    #[must_use]
    pub fn bad(self) -> Cell {
        Cell { tone: Tone::Bad, ..self }
    }

    /// Dim.
    #[must_use]
    pub fn faint(self) -> Cell {
        Cell { tone: Tone::Faint, ..self }
    }

    /// One line for each that a sentence takes in `width` characters.
    fn wrapped(&self, width: usize) -> Vec<Cell> {
        let text = wrap(&self.text, Screen { color: false, width: Some(width) });
        text.lines().map(|line| Cell { text: line.to_owned(), tone: self.tone }).collect()
    }

    /// The text in `width` characters; escape sequences are not counted.
    fn fit(&self, width: usize, right: bool, color: bool) -> String {
        let length = self.text.chars().count();
        let text = if length > width { shorten(&self.text, width) } else { self.text.clone() };
        let space = " ".repeat(width.saturating_sub(length));
        // SGR codes of ECMA-48, 8.3.117.
        let code = match self.tone {
            Tone::Plain => "",
            _ if !color => "",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        let text = if code.is_empty() { text } else { format!("\x1b[{code}m{text}\x1b[0m") };
        if right { space + &text } else { text + &space }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: printable(&text.into()), tone: Tone::Plain }
    }
}

/// `text` cut to `width` characters, with a sign that it was.
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { kept } else { kept + "~" }
}

/// Rows under titles.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the columns are left out, missing ones are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::default());
        self.rows.push(cells);
    }

    /// The text, each line with its end. Where columns are left out, a last line names them.
    pub fn render(&self, screen: Screen) -> String {
        let natural: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let width = screen.width.unwrap_or(usize::MAX);
        let shown = self.shown(&natural, width);
        let widths = self.shares(&shown, &natural, width);
        let titles: Vec<Cell> = self.columns.iter().map(|column| Cell::from(column.title)).collect();
        let mut text = String::new();
        for cells in std::iter::once(&titles).chain(&self.rows) {
            let lines: Vec<Vec<Cell>> = shown
                .iter()
                .zip(&widths)
                .map(|(&column, &width)| {
                    let cell = &cells[column];
                    if self.columns[column].wraps { cell.wrapped(width) } else { vec![cell.clone()] }
                })
                .collect();
            for line in 0..lines.iter().map(Vec::len).max().unwrap_or(1).max(1) {
                let fitted = shown.iter().zip(&widths).zip(&lines).map(|((&column, &width), cells)| {
                    let cell = cells.get(line).cloned().unwrap_or_default();
                    cell.fit(width, self.columns[column].right, screen.color)
                });
                text += fitted.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end();
                text.push('\n');
            }
        }
        let gone = |column: &usize| !shown.contains(column);
        let left_out: Vec<&str> =
            (0..self.columns.len()).filter(gone).map(|column| self.columns[column].title).collect();
        if !left_out.is_empty() {
            text += &shorten(&format!("(too narrow for: {})", left_out.join(", ")), width);
            text.push('\n');
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].text.chars().count());
        cells.max().unwrap_or(0).max(self.columns[column].title.chars().count())
    }

    fn least(&self, column: usize, natural: &[usize]) -> usize {
        self.columns[column].least.map_or(natural[column], |least| least.min(natural[column]))
    }

    /// The columns that stay: where all that may go are gone and it is still too wide, the last go too, but for one.
    fn shown(&self, natural: &[usize], width: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| {
            shown.iter().map(|&column| self.least(column, natural)).sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        while shown.len() > 1 && needed(&shown) > width {
            // max_by_key gives the last of equals.
            let last = (0..shown.len()).max_by_key(|&at| self.columns[shown[at]].rank);
            shown.remove(last.unwrap_or(0));
        }
        shown
    }

    /// How wide each shown column is: as it needs, the widest of those that may be shortened cut until all fit.
    fn shares(&self, shown: &[usize], natural: &[usize], width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = shown.iter().map(|&column| natural[column]).collect();
        let gaps = GAP * shown.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let can = |at: &usize| widths[*at] > if shown.len() > 1 { self.least(shown[*at], natural) } else { 1 };
            let Some(at) = (0..widths.len()).filter(can).max_by_key(|&at| widths[at]) else { break };
            widths[at] -= 1;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [
            Column::text("NAME"),
            Column::number("MTU").drop_rank(1),
            Column::text("ADDRESS").shrink_to(8),
            Column::text("NUMA").drop_rank(2),
        ];
        let mut table = Table::new(columns);
        table.row([
            Cell::from("eth0").good(),
            Cell::of(Some(1500)),
            Cell::from("192.168.100.1/24"),
            Cell::of::<u8>(None),
        ]);
        table.row([Cell::from("ib0").bad(), Cell::of(Some(65520)), Cell::from("10.0.0.1/8"), Cell::of(Some(1))]);
        table
    }

    fn at(width: usize) -> String {
        table().render(Screen { color: false, width: Some(width) })
    }

    #[test]
    fn whole_without_a_limit_and_plain() {
        let text =
            "NAME    MTU  ADDRESS           NUMA\neth0   1500  192.168.100.1/24  -\nib0   65520  10.0.0.1/8        1\n";
        assert_eq!(table().render(Screen::plain()), text);
        assert_eq!(at(35), text);
    }

    #[test]
    fn shortened_first_then_left_out_by_rank() {
        assert!(at(30).starts_with("NAME    MTU  ADDRESS      NUMA\neth0   1500  192.168.10~  -\n"), "{}", at(30));
        let narrow = at(26);
        assert!(narrow.starts_with("NAME    MTU  ADDRESS\neth0   1500  192.168.100.~\n"), "{narrow}");
        assert!(narrow.ends_with("(too narrow for: NUMA)\n"), "{narrow}");
        let narrower = at(14);
        assert!(narrower.starts_with("NAME  ADDRESS\neth0  192.168~\n"), "{narrower}");
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        for width in 1..60 {
            for line in at(width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
            }
        }
        assert_eq!(at(5), "NAME\neth0\nib0\n(too~\n");
        assert!(!at(0).is_empty(), "no room at all, and no panic");
    }

    #[test]
    fn sentences_take_several_lines() {
        let mut table = Table::new([Column::text("CHECK"), Column::text("FOUND").wrap_to(10), Column::number("N")]);
        table.row([Cell::from("mtu"), Cell::from("differs on two of the links").bad(), Cell::from("7")]);
        let text = table.render(Screen { color: false, width: Some(20) });
        assert_eq!(text, "CHECK  FOUND       N\nmtu    differs on  7\n       two of the\n       links\n");
        assert_eq!(table.render(Screen::plain()).lines().count(), 2);
        let colored = table.render(Screen { color: true, width: Some(20) });
        assert_eq!(colored.matches("\x1b[31m").count(), 3, "each line has its colour: {colored:?}");
    }

    #[test]
    fn colours_change_no_width_and_control_characters_are_shown() {
        let text = table().render(Screen { color: true, width: None });
        assert!(text.contains("\x1b[32meth0\x1b[0m"), "{text:?}");
        let plain = text.replace("\x1b[32m", "").replace("\x1b[31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
        assert_eq!(plain, table().render(Screen::plain()));
        assert_eq!(Cell::from("a\x1b[2Jb\n").text, "a?[2Jb?");
    }
}
