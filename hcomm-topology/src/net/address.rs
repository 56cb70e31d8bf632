//! Addresses of interfaces. This machine is asked; a tree tells them in `/proc/net` as far as it can.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::route::{Route, Routes};
use crate::Root;

/// The addresses of each interface, with their prefix lengths: `10.0.0.1/24`. IPv4 first.
pub fn read(root: &Root) -> BTreeMap<String, Vec<String>> {
    let found = if root.is_this_machine() { of_this_machine() } else { of_tree(root) };
    let mut addresses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (interface, address, prefix) in found {
        addresses.entry(interface).or_default().push(format!("{address}/{prefix}"));
    }
    addresses
}

/// Interface, address and prefix length, in this order without doubles.
type Found = BTreeSet<(String, IpAddr, u32)>;

fn of_this_machine() -> Found {
    let entry = |entry: nix::ifaddrs::InterfaceAddress| {
        let (address, mask) = (entry.address?, entry.netmask?);
        let found = match (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            (Some(address), Some(mask)) => (IpAddr::from(address.ip()), u32::from(mask.ip()).leading_ones()),
            _ => {
                let (address, mask) = (address.as_sockaddr_in6()?, mask.as_sockaddr_in6()?);
                (IpAddr::from(address.ip()), u128::from(mask.ip()).leading_ones())
            }
        };
        Some((entry.interface_name, found.0, found.1))
    };
    nix::ifaddrs::getifaddrs().map(|entries| entries.filter_map(entry).collect()).unwrap_or_default()
}

fn of_tree(root: &Root) -> Found {
    let mut found = Found::new();
    found.extend(root.text("proc/net/if_inet6").unwrap_or_default().lines().filter_map(inet6));
    let routes = Routes::read(root);
    for address in local_ipv4(&root.text("proc/net/fib_trie").unwrap_or_default()) {
        if let Some((interface, prefix)) = home(address, &routes) {
            found.insert((interface.to_owned(), address.into(), prefix));
        }
    }
    found
}

/// A line of `/proc/net/if_inet6`: address, index, prefix length, scope, flags (hexadecimal), name.
fn inet6(line: &str) -> Option<(String, IpAddr, u32)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [address, _, prefix, _, _, name] = words[..] else { return None };
    let address = Ipv6Addr::from(u128::from_str_radix(address, 16).ok().filter(|_| address.len() == 32)?);
    let prefix = u32::from_str_radix(prefix, 16).ok().filter(|prefix| *prefix <= 128)?;
    Some((name.to_owned(), address.into(), prefix))
}

/// The machine's own IPv4 addresses, by `/proc/net/fib_trie`: a leaf `|-- 10.0.0.1` with `/32 host LOCAL` below it.
fn local_ipv4(text: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => leaf = address.parse().ok(),
            None if line == "/32 host LOCAL" => found.extend(leaf),
            None => {}
        }
    }
    found
}

/// The interface that has `address`, and its prefix length: that of the longest connected route to it, if only one interface has
/// such a route. The tree does not tell it otherwise.
fn home(address: Ipv4Addr, routes: &Routes) -> Option<(&str, u32)> {
    let connected = |route: &&Route| route.gateway.is_none() && !route.reject && route.prefix > 0;
    let mut around: Vec<&Route> = routes.all.iter().filter(connected).filter(|r| r.covers(address.into())).collect();
    let longest = around.iter().map(|route| route.prefix).max()?;
    around.retain(|route| route.prefix == longest);
    let first = around.first()?;
    around.iter().all(|route| route.interface == first.interface).then_some((first.interface.as_str(), longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_tells_by_its_routes() {
        let folder = tempfile::tempdir().unwrap();
        let net = folder.path().join("proc/net");
        std::fs::create_dir_all(&net).unwrap();
        let trie = "Main:\n  |-- 0.0.0.0\n     /0 universe UNICAST\n  |-- 192.0.2.2\n     /32 host LOCAL\n  |-- 10.1.0.1\n     /32 host LOCAL\n\
                    |-- 192.0.2.255\n /32 link BROADCAST\n |-- 127.0.0.1\n /32 host LOCAL\n";
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\neth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
                     eth1 0000010A 00000000 0001 0 0 0 0000FFFF 0 0 0\neth2 0000010A 00000000 0001 0 0 0 0000FFFF 0 0 0\n";
        let inet6 = "fd000000000000000000000000000002 02 40 00 80     eth0\n00000000000000000000000000000001 01 80 10 80 lo\nodd\n";
        for (name, text) in [("fib_trie", trie), ("route", route), ("if_inet6", inet6)] {
            std::fs::write(net.join(name), text).unwrap();
        }
        let addresses = read(&Root::at(folder.path()));
        assert_eq!(addresses["eth0"], ["192.0.2.2/24", "fd00::2/64"]);
        assert_eq!(addresses["lo"], ["::1/128"]);
        assert_eq!(addresses.get("eth1"), None, "eth1 or eth2: not told");
    }

    #[test]
    fn this_machine_knows_its_loopback() {
        let addresses = read(&Root::this_machine());
        assert!(addresses["lo"].contains(&"127.0.0.1/8".to_owned()), "{addresses:?}");
    }
}
