//! What the terminal can show: colours or none, Unicode or ASCII.

use hcomm_cli::{printable, screen};
use ratatui::style::{Color, Modifier, Style};

/// What a text says of its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// To be looked at.
    Warning,
    /// Wrong.
    Bad,
    /// Of little weight.
    Faint,
    /// A title.
    Strong,
    /// The one that is chosen.
    Chosen,
}

/// How things are drawn. What colours say is always said in words too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether there are colours.
    pub color: bool,
    /// Whether characters beyond ASCII can be shown.
    pub unicode: bool,
}

impl Look {
    /// By the environment: `NO_COLOR`, `TERM`, and the locale.
    pub fn of_environment(no_color: bool) -> Self {
        // The first that is set and not empty counts (POSIX.1-2017, Base Definitions, 8.2).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_string_lossy().to_lowercase();
        Self { color: !screen::is_plain(no_color), unicode: locale.contains("utf-8") || locale.contains("utf8") }
    }

    /// The style of a tone.
    pub fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        match (tone, self.color) {
            (Tone::Plain, _) | (Tone::Good, false) => style,
            (Tone::Good, true) => style.fg(Color::Green),
            (Tone::Warning, true) => style.fg(Color::Yellow),
            (Tone::Bad, true) => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Tone::Warning | Tone::Bad | Tone::Strong, _) => style.add_modifier(Modifier::BOLD),
            (Tone::Faint, _) => style.add_modifier(Modifier::DIM),
            (Tone::Chosen, _) => style.add_modifier(Modifier::REVERSED),
        }
    }

    /// A name out of the system as it can be shown.
    pub fn text(self, text: &str) -> String {
        let text = printable(text);
        if self.unicode { text } else { text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect() }
    }

    /// The sign of a sorted column.
    pub fn arrow(self, descending: bool) -> char {
        match (self.unicode, descending) {
            (true, true) => '▼',
            (true, false) => '▲',
            (false, true) => 'v',
            (false, false) => '^',
        }
    }

    /// A bar of a share (0 to 1) of `width` columns; what is not nothing is seen.
    pub fn bar(self, share: f64, width: usize) -> String {
        let steps = if self.unicode { 8 } else { 1 };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let eighths = (share * (width * steps) as f64).round() as usize;
        let eighths = if share > 0.0 && width > 0 { eighths.max(1) } else { eighths };
        if !self.unicode {
            return "#".repeat(eighths);
        }
        let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        "█".repeat(eighths / 8) + rest
    }

    /// The latest `width` values, the last one at the right; what is not known is left blank.
    pub fn trend(self, values: &[Option<f64>], width: usize) -> String {
        let heights: &[char] = if self.unicode {
            &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        } else {
            &['_', '.', '-', '=', '+', '*', '#']
        };
        let shown = &values[values.len().saturating_sub(width)..];
        let most = shown.iter().flatten().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let height = |value: f64| {
            let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
            heights[((share * heights.len() as f64) as usize).min(heights.len() - 1)]
        };
        let blank = " ".repeat(width - shown.len());
        blank + &shown.iter().map(|value| value.map_or(' ', height)).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICODE: Look = Look { color: false, unicode: true };
    const ASCII: Look = Look { color: false, unicode: false };

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(
            (UNICODE.bar(0.5, 4), UNICODE.bar(1.0, 2), UNICODE.bar(0.0, 4)),
            ("██".into(), "██".into(), "".into())
        );
        assert_eq!((UNICODE.bar(1e-9, 4), ASCII.bar(1e-9, 4)), ("▏".into(), "#".into()));
        assert_eq!(
            (ASCII.bar(0.75, 4), ASCII.bar(f64::NAN, 4), ASCII.bar(7.0, 2)),
            ("###".into(), "".into(), "##".into())
        );
        assert_eq!(ASCII.bar(0.5, 0), "");
    }

    #[test]
    fn trends_end_at_the_right() {
        let values = [Some(9.0), Some(0.0), None, Some(4.0), Some(8.0)];
        assert_eq!(UNICODE.trend(&values, 4), "▁ ▅█");
        assert_eq!(ASCII.trend(&values[1..], 6), "  _ =#");
        assert_eq!(ASCII.trend(&[], 3), "   ");
        assert_eq!(ASCII.trend(&[Some(f64::INFINITY), Some(f64::NAN), Some(0.0)], 3), "___");
    }

    #[test]
    fn names_are_made_safe() {
        assert_eq!((UNICODE.text("é\x1b[2J"), ASCII.text("é\x1b[2J")), ("é?[2J".into(), "??[2J".into()));
    }
}
