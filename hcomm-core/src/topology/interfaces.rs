//! Network interfaces: which there are, which to use, and which path leads to a peer.
//!
//! Without a filter every interface that could carry traffic between hosts is offered, best first; never loopback,
//! link-local addresses, bridges and tunnels, which mostly are the insides of a container runtime. An address that several
//! hosts offer (`docker0` is 172.17.0.1 everywhere) leads nowhere and is dropped ([`drop_shared`]). Of what is left,
//! an address in a subnet of our own goes before one that has to be routed ([`routes`]).
//!
//! The kernel's routing table is not asked for each peer: a rank knows its own table and not the peer's, and both must agree.
//! Trying the offered addresses in a good order finds every path that works.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::error::{Error, Result};

/// An address with the length of its network prefix in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    /// The address itself, not the network's.
    pub address: IpAddr,
    /// Leading bits that the whole subnet has in common.
    pub prefix: u8,
}

/// What is known of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name, as in `ip link`.
    pub name: String,
    /// Up, and with carrier.
    pub up: bool,
    /// What it is, as far as choosing needs it.
    pub kind: Kind,
    /// Link speed in Mbit/s, if it is known.
    pub speed_mbit: Option<u64>,
    /// A default route leaves by it.
    pub default_route: bool,
    /// It is known to be next to the memory of this rank.
    pub near: bool,
    /// IPv4 and IPv6 addresses, without link-local ones.
    pub addresses: Vec<Subnet>,
}

/// Kinds of interface, most useful first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Has a device behind it.
    Physical,
    /// A bond, VLAN, veth: no device of its own, but it can lead to another host.
    Virtual,
    /// A bridge.
    Bridge,
    /// A tunnel to a process.
    Tunnel,
    /// The loopback interface.
    Loopback,
}

/// An address that was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Name of its interface.
    pub interface: String,
    /// The address.
    pub subnet: Subnet,
    /// The interface is as good as the best one chosen, of its kind and speed.
    pub best: bool,
    /// Why it was taken, for people.
    pub reason: String,
}

/// `HCOMM_SOCKET_IFNAME`: names or patterns, by commas. A name is matched whole; only `*` and `?` make a pattern. A list
/// that begins with `^` names what not to use; `=` before a name changes nothing (names are exact anyhow).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    excludes: bool,
    patterns: Vec<String>,
}

/// A way to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Address to bind, where the peer is in the same subnet; else the kernel's routing decides.
    pub local: Option<IpAddr>,
    /// Where to connect.
    pub remote: SocketAddr,
}

impl Subnet {
    /// Whether `other` is in this subnet.
    pub fn contains(&self, other: IpAddr) -> bool {
        fn same(a: u128, b: u128, bits: u32, prefix: u8) -> bool {
            let host_bits = bits.saturating_sub(u32::from(prefix));
            // Shifting by the whole width is no shift to the processor, so it is asked for apart.
            (a ^ b).checked_shr(host_bits).unwrap_or(0) == 0
        }
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32, self.prefix),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128, self.prefix),
            _ => false,
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.interface, self.subnet, self.reason)
    }
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// An empty entry, or `^` anywhere but at the beginning of the list.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |allowed: &str| Error::Setting {
            name: "HCOMM_SOCKET_IFNAME".into(),
            value: text.into(),
            allowed: allowed.into(),
        };
        let (excludes, list) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let mut patterns = Vec::new();
        for entry in list.split(',').map(str::trim) {
            let name = entry.strip_prefix('=').unwrap_or(entry);
            if name.is_empty() {
                return Err(refuse("names or patterns separated by commas, as eth0,ib* or ^docker*,lo"));
            }
            if name.contains(['^', '=']) {
                return Err(refuse("^ stands once, before the whole list: ^docker*,lo excludes both"));
            }
            patterns.push(name.to_owned());
        }
        Ok(Filter { text: text.to_owned(), excludes, patterns })
    }

    /// Whether an interface of this name may be used.
    pub fn allows(&self, name: &str) -> bool {
        let named = self.patterns.iter().any(|pattern| glob(pattern.as_bytes(), name.as_bytes()));
        named != self.excludes
    }
}

/// Whether `name` as a whole fits `pattern`, in which `*` is any run of characters and `?` any one.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on if the run of the latest `*` must be longer.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (p, n) = (star + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// The interfaces of this machine.
///
/// # Errors
/// The system does not list its interfaces or addresses.
pub fn list() -> Result<Vec<Interface>> {
    let mut addresses = Vec::new();
    for entry in nix::ifaddrs::getifaddrs().map_err(|error| Error::system("getifaddrs", error))? {
        let (Some(address), Some(mask)) = (entry.address, entry.netmask) else { continue };
        let subnet = if let (Some(address), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            Subnet { address: address.ip().into(), prefix: mask.ip().to_bits().count_ones() as u8 }
        } else if let (Some(address), Some(mask)) = (address.as_sockaddr_in6(), mask.as_sockaddr_in6()) {
            Subnet { address: address.ip().into(), prefix: mask.ip().to_bits().count_ones() as u8 }
        } else {
            continue;
        };
        addresses.push((entry.interface_name, subnet));
    }
    list_under(Path::new("/"), &addresses)
}

/// Every address of this machine with the name of the interface that has it, loopback and link-local ones too; none if the system
/// does not tell.
pub fn names() -> Vec<(IpAddr, String)> {
    let entries = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let named = entries.filter_map(|entry| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let address = v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))?;
        Some((address, entry.interface_name))
    });
    named.collect()
}

/// The interfaces under a root that holds `sys` and `proc`, with the given addresses.
///
/// # Errors
/// `sys/class/net` cannot be read.
pub fn list_under(root: &Path, addresses: &[(String, Subnet)]) -> Result<Vec<Interface>> {
    let class = root.join("sys/class/net");
    let entries = fs::read_dir(&class).map_err(|error| Error::system(class.display().to_string(), error))?;
    // Only directories, or links to them, are interfaces: `bonding_masters` is a file.
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| class.join(name).is_dir())
        .collect();
    names.sort();
    let defaults = default_routes(root);
    let interfaces = names.into_iter().map(|name| {
        let path = class.join(&name);
        let read = |file: &str| fs::read_to_string(path.join(file)).ok().map(|text| text.trim().to_owned());
        let flags = read("flags").and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        let set = |flag: libc::c_int| flags.is_some_and(|flags| flags & flag as u32 != 0);
        Interface {
            // `carrier` cannot be read while the interface is down.
            up: set(libc::IFF_UP) && read("carrier").as_deref() == Some("1"),
            kind: kind(&name, &path, set(libc::IFF_LOOPBACK)),
            // -1 and its unsigned forms mean unknown.
            speed_mbit: read("speed")
                .and_then(|text| text.parse().ok())
                .filter(|speed| ![0, u64::from(u16::MAX), u64::from(u32::MAX)].contains(speed)),
            default_route: defaults.contains(&name),
            near: false,
            addresses: addresses
                .iter()
                .filter(|(interface, subnet)| *interface == name && !link_local(subnet.address))
                .map(|(_, subnet)| *subnet)
                .collect(),
            name,
        }
    });
    Ok(interfaces.collect())
}

fn kind(name: &str, path: &Path, loopback: bool) -> Kind {
    if loopback {
        Kind::Loopback
    } else if path.join("bridge").is_dir() || ["docker", "virbr", "br-"].iter().any(|start| name.starts_with(start)) {
        // By name as well: a stand-in made with another driver serves the same end.
        Kind::Bridge
    } else if path.join("tun_flags").exists() {
        Kind::Tunnel
    } else if path.join("device").exists() {
        Kind::Physical
    } else {
        Kind::Virtual
    }
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Names of interfaces with a default route: destination and mask zero in `route`, `::/0` in `ipv6_route` (where the
/// kernel lists an unreachable one on `lo`, which does no harm here).
fn default_routes(root: &Path) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join("proc/net").join(file)).unwrap_or_default();
    let mut names = Vec::new();
    for line in read("route").lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [name, "00000000", _, _, _, _, _, "00000000", ..] = fields[..] {
            names.push(name.to_owned());
        }
    }
    for line in read("ipv6_route").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [to, "00", .., name] = fields[..]
            && to.bytes().all(|digit| digit == b'0')
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// The addresses to listen on, most useful first: physical before virtual interfaces, then the faster, then those with
/// a default route, then those next to this rank's memory, IPv4 before IPv6. Loopback is taken only when `one_host` says that no rank is elsewhere, and
/// then alone, unless the filter names something else. A filter that names interfaces is obeyed, bridges included.
///
/// # Errors
/// Nothing fits; the text names the filter and what there is.
pub fn choose(interfaces: &[Interface], filter: Option<&Filter>, one_host: bool) -> Result<Vec<Choice>> {
    let named = filter.filter(|filter| !filter.excludes);
    let fits = |interface: &&Interface| {
        let allowed = filter.is_none_or(|filter| filter.allows(&interface.name));
        let useful = match interface.kind {
            Kind::Physical | Kind::Virtual => !one_host || named.is_some(),
            Kind::Bridge | Kind::Tunnel => named.is_some(),
            Kind::Loopback => one_host,
        };
        interface.up_or_loopback() && allowed && useful
    };
    let mut found: Vec<&Interface> = interfaces.iter().filter(fits).collect();
    found.sort_by_key(|interface| {
        (
            interface.kind,
            Reverse(interface.speed_mbit.unwrap_or(0)),
            !interface.default_route,
            !interface.near,
            &interface.name,
        )
    });
    let class = |interface: &Interface| (interface.kind, interface.speed_mbit);
    let best = found.iter().find(|interface| !interface.addresses.is_empty()).map(|interface| class(interface));
    // The first address of each interface before the second of any: paths over different interfaces come first.
    let mut choices: Vec<(usize, Choice)> = Vec::new();
    for interface in found {
        let mut addresses = interface.addresses.clone();
        addresses.sort_by_key(|subnet| subnet.address.is_ipv6());
        choices.extend(addresses.into_iter().enumerate().map(|(place, subnet)| {
            let best = best == Some(class(interface));
            (place, Choice { interface: interface.name.clone(), subnet, best, reason: interface.reason(named) })
        }));
    }
    choices.sort_by_key(|(place, _)| *place);
    let choices: Vec<Choice> = choices.into_iter().map(|(_, choice)| choice).collect();
    if choices.is_empty() {
        return Err(Error::Interface(nothing(interfaces, filter, one_host)));
    }
    Ok(choices)
}

impl Interface {
    fn up_or_loopback(&self) -> bool {
        // Loopback has no carrier to speak of where it is the only interface and nobody set it up; asking is no use.
        self.up || self.kind == Kind::Loopback
    }

    fn reason(&self, named: Option<&Filter>) -> String {
        let mut words = vec![
            match self.kind {
                Kind::Physical => "physical",
                Kind::Virtual => "virtual",
                Kind::Bridge => "bridge",
                Kind::Tunnel => "tunnel",
                Kind::Loopback => "loopback, as all ranks are on one host",
            }
            .to_owned(),
        ];
        if let Some(filter) = named {
            words.insert(0, format!("named by {}", filter.text));
        }
        words.extend(self.speed_mbit.map(|speed| format!("{speed} Mbit/s")));
        if self.default_route {
            words.push("default route".into());
        }
        if self.near {
            words.push("next to this rank's memory".into());
        }
        words.join(", ")
    }

    fn state(&self) -> String {
        let state = match (self.up_or_loopback(), self.addresses.is_empty(), self.kind) {
            (false, ..) => "down",
            (_, true, _) => "no address",
            (_, _, Kind::Bridge) => "bridge",
            (_, _, Kind::Tunnel) => "tunnel",
            (_, _, Kind::Loopback) => "loopback",
            _ => "up",
        };
        format!("{} ({state})", self.name)
    }
}

fn nothing(interfaces: &[Interface], filter: Option<&Filter>, one_host: bool) -> String {
    let states: Vec<String> = interfaces.iter().map(Interface::state).collect();
    let asked = match filter {
        Some(filter) => format!("none fits HCOMM_SOCKET_IFNAME={}", filter.text),
        None if one_host => "loopback has no address".into(),
        None => "none leads to other hosts".into(),
    };
    format!("{asked}; there are: {}", states.join(", "))
}

/// On how many interfaces traffic is to be spread: those as good as the best. A slow interface beside a fast one would only
/// keep the others waiting for its last bytes.
pub fn rails(choices: &[Choice]) -> usize {
    let mut names: Vec<&str> =
        choices.iter().filter(|choice| choice.best).map(|choice| choice.interface.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

/// Takes out of each rank's offer the addresses that a rank of another host offers as well. `hosts[i]` tells the host
/// of rank i; ranks of one host may offer the same.
///
/// # Errors
/// A rank is left with none; the text names it and the address.
pub fn drop_shared(offers: &mut [Vec<SocketAddr>], hosts: &[usize]) -> Result<()> {
    // The host that offers an address, or `None` when several do.
    let mut owners: HashMap<IpAddr, Option<usize>> = HashMap::new();
    for (offer, &host) in offers.iter().zip(hosts) {
        for address in offer {
            let owner = owners.entry(address.ip()).or_insert(Some(host));
            if *owner != Some(host) {
                *owner = None;
            }
        }
    }
    for (rank, offer) in offers.iter_mut().enumerate() {
        let first = offer.first().copied();
        offer.retain(|address| owners.get(&address.ip()).is_some_and(Option::is_some));
        if let (Some(first), true) = (first, offer.is_empty()) {
            let what = format!("rank {rank} offers {} only, which other hosts offer too", first.ip());
            return Err(Error::Interface(format!("{what}; set HCOMM_SOCKET_IFNAME to one that differs")));
        }
    }
    Ok(())
}

/// The ways to a peer, in the order to try them: pairs in a common subnet first, in our order of preference and bound
/// to our address there, so that of two interfaces in one subnet the chosen one is used; then the rest in the peer's order.
pub fn routes(local: &[Subnet], peer: &[SocketAddr]) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for subnet in local {
        for &remote in peer.iter().filter(|remote| subnet.contains(remote.ip())) {
            let route = Route { local: Some(subnet.address), remote };
            // One of our addresses for one of the peer's: with two each in one subnet that makes two paths, not four.
            let taken = routes.iter().any(|other| other.remote == remote || other.local == route.local);
            if !taken {
                routes.push(route);
            }
        }
    }
    for &remote in peer {
        let common = local.iter().find(|subnet| subnet.contains(remote.ip()));
        if !routes.iter().any(|route| route.remote == remote) {
            routes.push(Route { local: common.map(|subnet| subnet.address), remote });
        }
    }
    routes
}

/// The loopback addresses, for ranks that are known to share a host.
pub const LOOPBACK: [Subnet; 2] = [
    Subnet { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix: 8 },
    Subnet { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
];

#[cfg(test)]
mod tests;
