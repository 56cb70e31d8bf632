//! Slurm's lists of hosts: `n[01-03,7],login2`.

/// The first host of a list, without expanding the rest: a list can stand for a hundred thousand.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let at = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..at]);
        if !rest[at..].starts_with('[') {
            break;
        }
        let (inside, after) = rest[at + 1..].split_once(']')?;
        let first = inside.split([',', '-']).next()?;
        if first.is_empty() || !first.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        host.push_str(first);
        rest = after;
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (!host.is_empty() && host.chars().all(fits)).then_some(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_hosts() {
        let cases = [
            ("n[01-03,7]", Some("n01")),
            ("gnode[10,20,25,37]", Some("gnode10")),
            ("login2,n[1-3]", Some("login2")),
            ("alpha", Some("alpha")),
            ("rack[3-4]n[07-09],x", Some("rack3n07")),
            ("n[5].cluster.example", Some("n5.cluster.example")),
            ("", None),
            ("n[", None),
            ("n[]", None),
            ("n[a-b]", None),
            ("(null)", None),
        ];
        for (list, host) in cases {
            assert_eq!(first_host(list).as_deref(), host, "{list}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_host_or_none(list in "[\\[\\],n0-9. -]{0,20}") {
            if let Some(host) = first_host(&list) {
                prop_assert!(!host.contains(['[', ']', ',']));
            }
        }
    }
}
