//! Counters of the protocols and of packet processing, for the whole machine (or network namespace).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Root;

/// Counters by protocol and name: `Tcp`, `RetransSegs`.
pub type Protocols = BTreeMap<String, BTreeMap<String, i64>>;

/// `/proc/net/snmp` and `/proc/net/netstat` together (RFC 1213 names, and the kernel's `TcpExt`, `IpExt`).
pub fn protocol_counters(root: &Root) -> Protocols {
    let mut protocols = Protocols::new();
    for file in ["proc/net/snmp", "proc/net/netstat"] {
        protocols.extend(parse(&root.text(file).unwrap_or_default()));
    }
    protocols
}

/// Pairs of lines, names and values, each begun by the protocol.
fn parse(text: &str) -> Protocols {
    let mut protocols = Protocols::new();
    let mut names: Option<(&str, &str)> = None;
    for line in text.lines() {
        let Some((protocol, rest)) = line.split_once(':') else { continue };
        match names.take() {
            Some((title, names)) if title == protocol => {
                let values = names.split_whitespace().zip(rest.split_whitespace());
                let numbers = values.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
                protocols.entry(protocol.to_owned()).or_default().extend(numbers);
            }
            _ => names = Some((protocol, rest)),
        }
    }
    protocols
}

/// What a processor did with packets that came in: a line of `/proc/net/softnet_stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Softnet {
    /// The processor: told since Linux 5.10, before it is the place among those on line.
    pub cpu: u32,
    /// Packets.
    pub processed: u32,
    /// Dropped, as the backlog was full (`net.core.netdev_max_backlog`).
    pub dropped: u32,
    /// How often the budget was used up while packets were left (`net.core.netdev_budget`).
    pub squeezed: u32,
}

/// `/proc/net/softnet_stat`; empty if there is none.
pub fn softnet(root: &Root) -> Vec<Softnet> {
    let line = |(place, line): (usize, &str)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let cpu = hex(12).or_else(|| u32::try_from(place).ok())?;
        Some(Softnet { cpu, processed: hex(0)?, dropped: hex(1)?, squeezed: hex(2)? })
    };
    root.text("proc/net/softnet_stat").unwrap_or_default().lines().enumerate().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_of_lines() {
        let text = "Tcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 227\nodd\nUdp: InDatagrams\nUdpLite: InDatagrams\nUdpLite: 5\n";
        let protocols = parse(text);
        assert_eq!((protocols["Tcp"]["MaxConn"], protocols["Tcp"]["RetransSegs"]), (-1, 227));
        assert_eq!((protocols.get("Udp"), protocols["UdpLite"]["InDatagrams"]), (None, 5));
    }

    #[test]
    fn packet_processing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let text = "00049279 00000000 00000001 0 0 0 0 0 0 0 0\n000dfb82 00000029 0000000a 0 0 0 0 0 0 0 0 0 00000007\nbroken\n";
        std::fs::write(folder.path().join("proc/net/softnet_stat"), text).unwrap();
        let lines = softnet(&Root::at(folder.path()));
        assert_eq!(lines[0], Softnet { cpu: 0, processed: 0x49279, dropped: 0, squeezed: 1 });
        assert_eq!(lines[1], Softnet { cpu: 7, processed: 0xdfb82, dropped: 0x29, squeezed: 10 });
        assert_eq!(lines.len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[A-Z:0-9 \n-]{0,300}") {
            let _ = parse(&text);
        }
    }
}
