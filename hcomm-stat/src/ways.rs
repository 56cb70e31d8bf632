//! The ways that packets take (field report F06): what the tables say and, on this machine, what the kernel itself answers, so that the rules
//! of `ip rule` count.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hcomm_topology::Root;
use hcomm_topology::net::{RouteSocket, Routes, Way};
use serde::Serialize;

use crate::links::{Health, Link};

/// Addresses of networks that only documents use (RFC 5737, RFC 3849): on the way to them is whoever is not known better.
const ELSEWHERE: [&[IpAddr]; 2] = [
    &[v4([192, 0, 2, 1]), v4([198, 51, 100, 1]), v4([203, 0, 113, 1])],
    &[v6([0x2001, 0xdb8, 0, 1]), v6([0x2001, 0xdb8, 0xffff, 1])],
];

const fn v4([a, b, c, d]: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, h]: [u16; 4]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, h))
}

/// All that is known of the ways of a machine.
#[derive(Debug)]
pub struct Ways {
    pub tables: Routes,
    pub shared: Vec<Shared>,
    /// To where no route of its own leads, one a family at the most.
    pub default: Vec<Way>,
}

/// Two or more links on one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shared {
    pub network: String,
    /// The one that is used first.
    pub interfaces: Vec<String>,
    /// What is sent from the links' own addresses; empty where nobody could be asked.
    pub from: Vec<Own>,
}

/// What is sent from an address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Own {
    pub address: IpAddr,
    pub interface: String,
    pub leaves_by: Option<String>,
}

impl Ways {
    pub fn read(root: &Root, links: &[Link]) -> Ways {
        let (tables, socket) = (Routes::read(root), RouteSocket::open(root));
        let shared = tables.shared().into_iter().map(|network| {
            let mut shared = Shared { network: network.network, interfaces: network.interfaces, from: Vec::new() };
            if let Some(socket) = &socket {
                shared.ask(socket, links);
            }
            shared
        });
        let shared = shared.collect();
        let asked = |to: &IpAddr| socket.as_ref().and_then(|socket| socket.way(*to, None));
        let told = |to: &IpAddr| {
            let route = tables.to(*to).filter(|route| !route.reject)?;
            Some(Way { interface: route.interface.clone(), gateway: route.gateway, source: None, table: None })
        };
        // Laboratories use these networks too.
        let has_own = |to: &IpAddr| tables.to(*to).is_some_and(|route| route.prefix > 0);
        let free = ELSEWHERE.iter().filter_map(|family| family.iter().find(|to| !has_own(to)));
        let default = free.filter_map(|to| if socket.is_some() { asked(to) } else { told(to) }).collect();
        Ways { tables, shared, default }
    }

    /// The interface that packets to each network leave by.
    pub fn used(&self) -> BTreeMap<String, &str> {
        let mut used: BTreeMap<String, (u32, &str)> = BTreeMap::new();
        for route in self.tables.all.iter().filter(|route| !route.reject) {
            let best = used.entry(route.network()).or_insert((route.metric, &route.interface));
            // The first of equals.
            if route.metric < best.0 {
                *best = (route.metric, &route.interface);
            }
        }
        let mut used: BTreeMap<String, &str> = used.into_iter().map(|(network, (_, name))| (network, name)).collect();
        for shared in &self.shared {
            if let Some(first) = shared.interfaces.first() {
                used.insert(shared.network.clone(), first);
            }
        }
        used
    }
}

impl Shared {
    /// Puts the interface first that the kernel takes, and learns what it does with each link's own packets.
    fn ask(&mut self, socket: &RouteSocket, links: &[Link]) {
        let mine: Vec<(IpAddr, String)> = links
            .iter()
            .filter(|link| link.health == Health::Well && self.interfaces.contains(&link.name))
            .flat_map(|link| link.addresses().into_iter().map(|address| (address, link.name.clone())))
            .filter_map(|(address, name)| Some((address.split('/').next()?.parse().ok()?, name)))
            .collect();
        let Some(neighbour) = neighbour(&self.network, &mine) else { return };
        if let Some(way) = socket.way(neighbour, None) {
            self.interfaces.retain(|name| *name != way.interface);
            self.interfaces.insert(0, way.interface);
        }
        let own = |(address, interface): (IpAddr, String)| {
            let leaves_by = socket.way(neighbour, Some(address)).map(|way| way.interface);
            Own { address, interface, leaves_by }
        };
        let here = mine.into_iter().filter(|(address, _)| is_in(&self.network, *address));
        self.from = here.map(own).collect();
    }

    /// Whether rules send what comes from each link's address by that link: then nothing is mixed up.
    pub fn is_sorted_out(&self) -> bool {
        !self.from.is_empty() && self.from.iter().all(|own| own.leaves_by.as_ref() == Some(&own.interface))
    }
}

/// Bits of a network's address, how many of them count, and how many there are.
fn parts(network: &str) -> Option<(u128, u32, u32)> {
    let (address, prefix) = network.split_once('/')?;
    let prefix: u32 = prefix.parse().ok()?;
    let (bits, width) = match address.parse().ok()? {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    (prefix <= width).then_some((bits, prefix, width))
}

fn is_in(network: &str, address: IpAddr) -> bool {
    let single = |address: IpAddr| parts(&format!("{address}/0"));
    let both = parts(network).zip(single(address));
    both.is_some_and(|((bits, prefix, width), (own, _, own_width))| {
        width == own_width && (bits ^ own).checked_shr(width - prefix).unwrap_or(0) == 0
    })
}

/// An address of the network that is not our own: the first of them.
fn neighbour(network: &str, mine: &[(IpAddr, String)]) -> Option<IpAddr> {
    let (bits, prefix, width) = parts(network)?;
    let room = width - prefix;
    // The first names the network and the last reaches all in it.
    let last = 1_u128.checked_shl(room).map_or(u128::MAX, |count| count - 1);
    let address = |number: u128| match width {
        32 => IpAddr::V4(Ipv4Addr::from(number as u32)),
        _ => IpAddr::V6(Ipv6Addr::from(number)),
    };
    let own = |address: &IpAddr| mine.iter().any(|(mine, _)| mine == address);
    (1..last).take(mine.len() + 1).map(|offset| address(bits | offset)).find(|address| !own(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_ours() {
        let mine = |addresses: &[&str]| -> Vec<(IpAddr, String)> {
            addresses.iter().map(|address| (address.parse().unwrap(), "eth0".to_owned())).collect()
        };
        let found =
            |network, addresses: &[&str]| neighbour(network, &mine(addresses)).map(|address| address.to_string());
        assert_eq!(found("192.168.0.0/20", &["192.168.5.1"]).as_deref(), Some("192.168.0.1"));
        assert_eq!(found("192.168.0.0/20", &["192.168.0.1", "192.168.0.2"]).as_deref(), Some("192.168.0.3"));
        assert_eq!(found("10.0.0.0/30", &["10.0.0.1", "10.0.0.2"]), None, "none is left");
        assert_eq!(found("10.0.0.7/32", &[]), None);
        assert_eq!(found("fd00::/64", &["fd00::1"]).as_deref(), Some("fd00::2"));
        assert_eq!(found("::/0", &[]).as_deref(), Some("::1"));
        assert_eq!((found("nonsense", &[]), found("10.0.0.0/33", &[])), (None, None));
    }

    #[test]
    fn members_of_a_network() {
        let is = |network, address: &str| is_in(network, address.parse().unwrap());
        assert!(is("192.168.0.0/20", "192.168.15.255") && !is("192.168.0.0/20", "192.168.16.0"));
        assert!(is("0.0.0.0/0", "8.8.8.8") && !is("0.0.0.0/0", "::1") && is("::/0", "::1"));
        assert!(is("10.0.0.7/32", "10.0.0.7") && !is("10.0.0.7/32", "10.0.0.6"));
    }

    #[test]
    fn rules_sort_it_out_where_each_keeps_its_own() {
        let own = |interface: &str, leaves_by: Option<&str>| Own {
            address: "10.0.0.1".parse().unwrap(),
            interface: interface.to_owned(),
            leaves_by: leaves_by.map(str::to_owned),
        };
        let is = |from: Vec<Own>| Shared { network: String::new(), interfaces: Vec::new(), from }.is_sorted_out();
        assert!(is(vec![own("a", Some("a")), own("b", Some("b"))]));
        assert!(!is(vec![own("a", Some("a")), own("b", Some("a"))]) && !is(vec![own("a", None)]) && !is(Vec::new()));
    }
}
