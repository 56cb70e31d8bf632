//! `--hosts a:8,b:8` and host files.

use crate::error::{Error, Result};

/// Most hosts of a job, and most ranks of a host: what is beyond is a slip of the keyboard.
const MAX_HOSTS: usize = 65536;
const MAX_RANKS: usize = 4096;

/// A host and how many ranks it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// Name or address, without brackets.
    pub name: String,
    /// Ranks, at least 1.
    pub ranks: usize,
}

/// Reads `a:2,b:2`; without a number a host gets one rank. An IPv6 address stands in brackets.
///
/// # Errors
/// [`Error::Setting`] that names the part at fault.
pub fn parse_hosts(text: &str) -> Result<Vec<HostSpec>> {
    let hosts: Result<Vec<_>> = text.split(',').map(|part| host("--hosts", part.trim())).collect();
    checked("--hosts", text, hosts?)
}

/// Reads a host file: a line for each host, `name slots=N`, `name:N` or `name`; `#` begins a comment.
///
/// # Errors
/// [`Error::Setting`] that names the line at fault.
pub fn parse_hostfile(text: &str) -> Result<Vec<HostSpec>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let hosts: Result<Vec<_>> = lines.filter(|line| !line.is_empty()).map(hostfile_line).collect();
    checked("--hostfile", "", hosts?)
}

fn hostfile_line(line: &str) -> Result<HostSpec> {
    let mut words = line.split_whitespace();
    let mut spec = host("--hostfile", words.next().unwrap_or_default())?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", number)) => spec.ranks = ranks("--hostfile", line, number)?,
            Some(("max_slots" | "max-slots", _)) => {} // Open MPI's: we never start more than `slots`
            _ => return Err(bad("--hostfile", line, "a line `name`, `name:N` or `name slots=N`")),
        }
    }
    Ok(spec)
}

fn host(setting: &str, part: &str) -> Result<HostSpec> {
    let allowed = "names or addresses, each with :N for N ranks, such as a:8,b:8 or [fd00::1]:8";
    let (name, number) = match part.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or_else(|| bad(setting, part, allowed))?;
            let number = if after.is_empty() { None } else { Some(after.strip_prefix(':').unwrap_or("")) };
            (name, number)
        }
        None => part.split_once(':').map_or((part, None), |(name, number)| (name, Some(number))),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@%".contains(c) || (part.starts_with('[') && c == ':');
    // A name that begins with a dash would be an option of ssh.
    if name.is_empty() || name.starts_with('-') || !name.chars().all(fits) {
        return Err(bad(setting, part, allowed));
    }
    let ranks = number.map_or(Ok(1), |number| ranks(setting, part, number))?;
    Ok(HostSpec { name: name.into(), ranks })
}

fn ranks(setting: &str, part: &str, number: &str) -> Result<usize> {
    let ranks = number.parse().ok().filter(|ranks| (1..=MAX_RANKS).contains(ranks));
    ranks.ok_or_else(|| bad(setting, part, &format!("1 to {MAX_RANKS} ranks a host")))
}

fn checked(setting: &str, text: &str, hosts: Vec<HostSpec>) -> Result<Vec<HostSpec>> {
    if hosts.is_empty() || hosts.len() > MAX_HOSTS {
        return Err(bad(setting, text, &format!("1 to {MAX_HOSTS} hosts")));
    }
    let mut names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(bad(setting, twice[0], "each host once, with all its ranks"));
    }
    Ok(hosts)
}

fn bad(setting: &str, value: &str, allowed: &str) -> Error {
    Error::Setting { name: setting.into(), value: value.into(), allowed: allowed.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(hosts: Result<Vec<HostSpec>>) -> Vec<(String, usize)> {
        hosts.unwrap().into_iter().map(|host| (host.name, host.ranks)).collect()
    }

    #[test]
    fn lists_of_hosts() {
        assert_eq!(pairs(parse_hosts("a:2, b,user@c:8")), [("a".into(), 2), ("b".into(), 1), ("user@c".into(), 8)]);
        assert_eq!(pairs(parse_hosts("[fd00::1]:2,[fd00::2]")), [("fd00::1".into(), 2), ("fd00::2".into(), 1)]);
        for wrong in [
            "",
            "a:",
            "a:0",
            "a:x",
            "a:-1",
            "a:99999",
            "a,,b",
            "a:2,a:2",
            "-oProxyCommand=x",
            "a b",
            "a;b",
            "[a",
            "[a]2",
        ] {
            assert_eq!(parse_hosts(wrong).unwrap_err().code(), "HC-E0001", "{wrong}");
        }
    }

    #[test]
    fn host_files() {
        let text = "# the rack\nn1 slots=4 max_slots=8 # good\n\n  n2:2\nn3\n";
        assert_eq!(pairs(parse_hostfile(text)), [("n1".into(), 4), ("n2".into(), 2), ("n3".into(), 1)]);
        for wrong in ["", "# nothing", "n1 slots=x", "n1 slots", "n1 4", "n1\nn1"] {
            assert!(parse_hostfile(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_hosts_or_an_error(text in "[a-z:,\\[\\]0-9 =#\n-]{0,30}") {
            let _ = parse_hosts(&text);
            let _ = parse_hostfile(&text);
        }
    }
}
