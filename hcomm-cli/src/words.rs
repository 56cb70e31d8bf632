//! Names that came out of files, in words that people read and in commands that they paste.

use crate::screen::Screen;

/// `text` with a `?` for each control character: a name must not move the cursor, nor begin a line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// `name` as one word of a shell's command line (POSIX.1-2017, Shell Command Language, 2.2), whatever is in it.
pub fn shell_word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:@%+/=,".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

/// A sentence in lines that fit, those after the first indented.
pub fn wrap(text: &str, screen: Screen) -> String {
    lines("", "", printable(text).split(' '), screen)
}

/// Words in lines that fit, the first after `first`, the others after `rest`. A word that is longer than a line is left whole, so that it
/// can be copied.
pub fn lines<W: AsRef<str>>(first: &str, rest: &str, words: impl IntoIterator<Item = W>, screen: Screen) -> String {
    let most = screen.width.unwrap_or(usize::MAX);
    let (mut text, mut line, mut empty) = (String::new(), first.to_owned(), true);
    for word in words {
        let word = word.as_ref();
        if !empty && line.chars().count() + 1 + word.chars().count() > most {
            text += line.trim_end();
            text.push('\n');
            (line, empty) = (rest.to_owned(), true);
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    if !empty {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Ranks (or other numbers), in rising order, as `0-3, 7`; those beyond a dozen ranges are counted only.
pub fn ranges(numbers: &[u32]) -> String {
    const MOST: usize = 12;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let left = ranges.iter().skip(MOST).map(|(first, last)| u64::from(last - first) + 1).sum::<u64>();
    let show = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    let shown: Vec<String> = ranges.iter().take(MOST).map(show).collect();
    let more = if left > 0 { format!(" and {left} more") } else { String::new() };
    shown.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_whatever_the_width() {
        let screen = |width| Screen { color: false, width: Some(width) };
        let text = "one three, and averyveryverylongword at the end";
        assert_eq!(wrap(text, screen(200)), format!("{text}\n"));
        assert_eq!(lines("- ", "  ", ["aa", "bb", "cc"], screen(7)), "- aa bb\n  cc\n");
        for width in 1..60 {
            for line in wrap(text, screen(width)).lines() {
                assert!(line.chars().count() <= width || !line.contains(' '), "{width}: {line}");
            }
        }
        assert_eq!(lines("", "", [""; 0], screen(9)), "");
    }

    #[test]
    fn numbers_are_folded_into_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 8]), "0-3, 7, 8");
        assert_eq!((ranges(&[]), ranges(&[5])), (String::new(), "5".to_owned()));
        let odd: Vec<u32> = (0..40).map(|n| 2 * n).collect();
        assert!(ranges(&odd).ends_with("20, 22 and 28 more"), "{}", ranges(&odd));
        let _ = ranges(&[u32::MAX, 0, u32::MAX]);
    }

    #[test]
    fn control_characters_are_shown_as_such() {
        assert_eq!(printable("a\x1b[2Jb\nc\té"), "a?[2Jb?c?é");
    }

    #[test]
    fn a_word_stays_one_for_the_shell() {
        let words = ["eth0.100@if7", "", "x;id", "$(id)", "it's", "a b", "--mtu", "*"];
        let listed: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
        assert_eq!(listed[0], words[0], "what needs no quotes has none");
        let script = format!("printf '%s\\n' {}", listed.join(" "));
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), words.join("\n") + "\n");
    }
}
