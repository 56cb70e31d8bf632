//! The routes of the main table: `/proc/net/route` and `/proc/net/ipv6_route`. Other tables and the rules of `ip rule` are not in them: for
//! these, this machine's kernel is asked ([`super::RouteSocket`]).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::Root;

/// `RTF_*` of `linux/route.h` and `linux/ipv6_route.h`.
const UP: u32 = 0x1;
const GATEWAY: u32 = 0x2;
const REJECT: u32 = 0x200;
const ANYCAST: u32 = 0x0010_0000;
const LOCAL: u32 = 0x8000_0000;

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Network.
    pub destination: IpAddr,
    /// Bits of it that count.
    pub prefix: u32,
    /// The next router; `None` for a network that the interface is on.
    pub gateway: Option<IpAddr>,
    /// Lower goes first.
    pub metric: u32,
    /// Interface.
    pub interface: String,
    /// The kernel refuses to send there.
    pub reject: bool,
}

impl Route {
    /// Whether `address` is in its network.
    pub fn covers(&self, address: IpAddr) -> bool {
        network(address, self.prefix) == network(self.destination, self.prefix)
    }

    /// The network: `192.168.0.0/20`.
    pub fn network(&self) -> String {
        format!("{}/{}", self.destination, self.prefix)
    }
}

/// The first `prefix` bits of an address, and which family it is of.
fn network(address: IpAddr, prefix: u32) -> (bool, u128) {
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let mask = u128::MAX.checked_shl(128 - prefix.min(width)).unwrap_or(0);
    (address.is_ipv4(), bits & mask)
}

/// Two or more interfaces on one network: what is sent there leaves by one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedNetwork {
    /// The network.
    pub network: String,
    /// The interfaces on it, the one that is used first.
    pub interfaces: Vec<String>,
}

/// The routes of a machine, in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// All of them.
    pub all: Vec<Route>,
}

impl Routes {
    /// Reads both files; one that is missing has no routes.
    pub fn read(root: &Root) -> Routes {
        let mut all = ipv4(&root.text("proc/net/route").unwrap_or_default());
        all.extend(root.text("proc/net/ipv6_route").unwrap_or_default().lines().filter_map(ipv6));
        Routes { all }
    }

    /// The route to `address`: the longest prefix, then the lowest metric, then the first.
    pub fn to(&self, address: IpAddr) -> Option<&Route> {
        let fitting = self.all.iter().filter(|route| route.covers(address));
        // min_by_key gives the first of equals.
        fitting.min_by_key(|route| (u32::MAX - route.prefix, route.metric))
    }

    /// Networks that several interfaces are on. Link-local ones are on every interface and are left out.
    pub fn shared(&self) -> Vec<SharedNetwork> {
        let mut networks: BTreeMap<(IpAddr, u32), Vec<&Route>> = BTreeMap::new();
        for route in self.all.iter().filter(|route| route.gateway.is_none() && !route.reject && route.prefix > 0) {
            if !is_local_to_links(route.destination) && route.interface != "lo" {
                networks.entry((route.destination, route.prefix)).or_default().push(route);
            }
        }
        let shared = |mut routes: Vec<&Route>| {
            routes.sort_by_key(|route| route.metric); // stable: equals stay in the kernel's order
            let mut interfaces: Vec<String> = Vec::new();
            for route in &routes {
                if !interfaces.contains(&route.interface) {
                    interfaces.push(route.interface.clone());
                }
            }
            (interfaces.len() > 1).then(|| SharedNetwork { network: routes[0].network(), interfaces })
        };
        networks.into_values().filter_map(shared).collect()
    }
}

/// Link-local and multicast networks.
fn is_local_to_links(network: IpAddr) -> bool {
    match network {
        IpAddr::V4(address) => address.is_link_local() || address.is_multicast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

/// `/proc/net/route`: name, destination, gateway, flags, references, use, metric, mask, ...; addresses are the kernel's 32-bit words in
/// network order, printed as numbers of its own order.
fn ipv4(text: &str) -> Vec<Route> {
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let masks = || lines.iter().filter_map(|words| hex(words.get(7)?));
    let is_mask = |mask: u32| mask.leading_ones() + mask.trailing_zeros() >= 32;
    // A copy from a machine of the other order shows by its masks.
    let big_endian = masks().any(|mask| !is_mask(mask.swap_bytes())) && masks().all(is_mask);
    let order = |word: u32| if big_endian { word } else { word.swap_bytes() };
    let route = |words: &Vec<&str>| {
        let address = |at: usize| Some(Ipv4Addr::from(order(hex(words.get(at)?)?)));
        let (flags, mask) = (hex(words.get(3)?)?, order(hex(words.get(7)?)?));
        (flags & UP != 0 && is_mask(mask)).then_some(Route {
            destination: address(1)?.into(),
            prefix: mask.leading_ones(),
            gateway: address(2).filter(|_| flags & GATEWAY != 0).map(IpAddr::from),
            metric: words.get(6)?.parse().ok()?,
            interface: (*words.first()?).to_owned(),
            reject: flags & REJECT != 0,
        })
    };
    lines.iter().filter_map(route).collect()
}

/// A line of `/proc/net/ipv6_route`: destination, prefix, source, prefix, next hop, metric, references, use, flags, name (hexadecimal). The
/// machine's own addresses are left out.
fn ipv6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [destination, prefix, _, source_prefix, gateway, metric, _, _, flags, interface] = words[..] else {
        return None;
    };
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let address = |text: &str| Some(Ipv6Addr::from(u128::from_str_radix(text, 16).ok()?));
    let flags = hex(flags)?;
    // Routes for one source network are for traffic that we know nothing of.
    if flags & UP == 0 && flags & REJECT == 0 || flags & (LOCAL | ANYCAST) != 0 || hex(source_prefix)? != 0 {
        return None;
    }
    Some(Route {
        destination: address(destination)?.into(),
        prefix: hex(prefix).filter(|prefix| *prefix <= 128)?,
        gateway: address(gateway).filter(|_| flags & GATEWAY != 0).map(IpAddr::from),
        metric: hex(metric)?,
        interface: interface.to_owned(),
        reject: flags & REJECT != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    fn table(lines: &[&str]) -> Routes {
        Routes { all: ipv4(&(HEAD.to_owned() + &lines.join("\n"))) }
    }

    /// F06: 192.168.5.1/20 on eno1 and 192.168.3.1/20 on enp37s0f0.
    #[test]
    fn two_interfaces_on_one_network() {
        let line =
            |name: &str, metric: u32| format!("{name}\t0000A8C0\t00000000\t0001\t0\t0\t{metric}\t00F0FFFF\t0\t0\t0");
        let routes = |one: u32, two: u32| table(&[&line("eno1", one), &line("enp37s0f0", two)]);
        let used = |routes: &Routes| routes.to("192.168.4.9".parse().unwrap()).unwrap().interface.clone();
        assert_eq!(used(&routes(0, 0)), "eno1", "equal metrics: the first");
        assert_eq!(used(&routes(100, 101)), "eno1");
        assert_eq!(used(&routes(101, 100)), "enp37s0f0");
        let shared = routes(101, 100).shared();
        assert_eq!(shared[0].network, "192.168.0.0/20");
        assert_eq!(shared[0].interfaces, ["enp37s0f0", "eno1"], "the one that is used first");
    }

    #[test]
    fn the_longest_prefix_goes_before_the_metric() {
        let routes = table(&[
            "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
            "eth1\t0000000A\t00000000\t0001\t0\t0\t5\t000000FF\t0\t0\t0",
            "eth2\t0000010A\t00000000\t0001\t0\t0\t900\t0000FFFF\t0\t0\t0",
            "eth3\t0000010A\t00000000\t0000\t0\t0\t1\t0000FFFF\t0\t0\t0",
        ]);
        let to = |text: &str| routes.to(text.parse().unwrap()).map(|route| route.interface.as_str());
        assert_eq!((to("10.1.2.3"), to("10.2.2.3"), to("8.8.8.8")), (Some("eth2"), Some("eth1"), Some("eth0")));
        assert_eq!(to("fd00::1"), None);
        assert_eq!(routes.all[0].gateway, Some("192.0.2.1".parse().unwrap()));
        assert_eq!(routes.shared(), []);
    }

    #[test]
    fn copies_of_big_endian_machines() {
        let routes = table(&["enc1\tC0A80000\t00000000\t0001\t0\t0\t0\tFFFFF000\t0\t0\t0"]);
        assert_eq!(routes.all[0].network(), "192.168.0.0/20");
    }

    #[test]
    fn ipv6_as_the_kernel_writes_it() {
        let zero = "00000000000000000000000000000000 00 00000000000000000000000000000000";
        let lines = [
            format!("fd000000000000000000000000000000 40 {zero} 00000100 1 0 00000001     eth0"),
            format!("fe800000000000000000000000000000 40 {zero} 00000100 1 0 00000001     eth0"),
            format!("fe800000000000000000000000000000 40 {zero} 00000100 1 0 00000001     eth1"),
            "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 2 0 00000003 eth0".to_owned(),
            format!("fd000000000000000000000000000002 80 {zero} 00000000 3 0 80200001     eth0"),
            format!("00000000000000000000000000000000 00 {zero} ffffffff 1 0 00200200       lo"),
        ];
        let routes = Routes { all: lines.iter().filter_map(|line| ipv6(line)).collect() };
        assert_eq!(routes.all.len(), 5);
        assert_eq!(routes.to("fd00::2".parse().unwrap()).unwrap().prefix, 64);
        let default = routes.to("2001:db8::1".parse().unwrap()).unwrap();
        assert_eq!((default.gateway, default.metric), (Some("fd00::1".parse().unwrap()), 0x400));
        assert_eq!(routes.shared(), [], "link-local networks are on every interface");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", line in "[0-9a-f \t]{0,200}") {
            let _ = (ipv4(&text), ipv4(&format!("head\n{line}")), ipv6(&text), ipv6(&line));
        }
    }
}
