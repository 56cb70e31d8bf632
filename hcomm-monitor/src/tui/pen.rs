//! Writes into a part of the screen and never beyond it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::look::{Look, Tone};

/// A part of the screen; positions count from its upper left corner.
pub struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    /// How things are drawn.
    pub look: Look,
}

impl<'a> Pen<'a> {
    /// The whole screen.
    pub fn new(buffer: &'a mut Buffer, look: Look) -> Self {
        let area = buffer.area;
        Self { buffer, area, look }
    }

    /// The lines from `top` on, `height` at most.
    pub fn lines(&mut self, top: u16, height: u16) -> Pen<'_> {
        let top = top.min(self.area.height);
        let area = Rect { y: self.area.y + top, height: height.min(self.area.height - top), ..self.area };
        Pen { buffer: self.buffer, area, look: self.look }
    }

    /// Columns.
    pub fn width(&self) -> u16 {
        self.area.width
    }

    /// Lines.
    pub fn height(&self) -> u16 {
        self.area.height
    }

    /// A text at a place, at most `width` columns of it, with a sign where it was cut. Returns how many it took.
    pub fn put(&mut self, x: u16, y: u16, width: u16, text: &str, tone: Tone) -> u16 {
        let width = width.min(self.area.width.saturating_sub(x));
        if width == 0 || y >= self.area.height {
            return 0;
        }
        let (x, y) = (self.area.x + x, self.area.y + y);
        let style = self.look.style(tone);
        let (end, _) = self.buffer.set_stringn(x, y, text, width.into(), style);
        if Span::raw(text).width() > width.into() {
            self.buffer.set_stringn(x + width - 1, y, "~", 1, style);
            return width;
        }
        end - x
    }

    /// A text in a cell of so many columns.
    pub fn cell(&mut self, x: u16, y: u16, width: u16, text: &str, right: bool, tone: Tone) {
        let length = u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX);
        let space = if right { width.saturating_sub(length) } else { 0 };
        self.put(x.saturating_add(space), y, width - space, text, tone);
    }

    /// A line.
    pub fn line(&mut self, y: u16, text: &str, tone: Tone) {
        self.put(0, y, u16::MAX, text, tone);
    }

    /// Marks a whole line.
    pub fn mark(&mut self, y: u16, tone: Tone) {
        if y < self.area.height {
            let area = Rect { y: self.area.y + y, height: 1, ..self.area };
            self.buffer.set_style(area, self.look.style(tone));
        }
    }
}

/// `text` in lines of at most `width` columns, broken between words where that is possible; at most `most` lines, the last one
/// whole: whoever draws it cuts it.
pub fn wrap(text: &str, width: u16, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let full = lines.len() >= most;
        match lines.last_mut() {
            Some(line) if full || Span::raw(&*line).width() + 1 + Span::raw(word).width() <= width.into() => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("ab cd efg h", 5, 9), ["ab cd", "efg h"]);
        assert_eq!(wrap("ab cd efg h", 2, 2), ["ab", "cd efg h"]);
        assert_eq!(wrap("abcdef", 2, 3), ["abcdef"]);
    }

    #[test]
    fn what_does_not_fit_is_cut_with_a_sign() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 2));
        let mut pen = Pen::new(&mut buffer, Look { color: false, unicode: true });
        pen.cell(1, 0, 3, "abcdef", false, Tone::Plain);
        pen.cell(1, 1, 4, "ab", true, Tone::Plain);
        pen.put(5, 1, 9, "xyz", Tone::Plain);
        pen.put(9, 9, 9, "xyz", Tone::Plain);
        assert_eq!(buffer, Buffer::with_lines([" ab~  ", "   ab~"]));
    }
}
