//! Names that came out of files, in words that people read and in commands that they paste.

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

#[cfg(test)]
mod tests {
    use super::*;

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
