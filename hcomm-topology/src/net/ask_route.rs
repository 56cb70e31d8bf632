//! The way that the kernel itself takes to an address: its answer to `RTM_GETROUTE` (rtnetlink(7)), in which the rules of `ip rule` and all
//! their tables count, as they do not in the files of `/proc/net`.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::net::if_::if_indextoname;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::Serialize;

use crate::Root;

/// `linux/rtnetlink.h` and `linux/netlink.h`.
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
/// `struct nlmsghdr` and `struct rtmsg`.
const HEAD: usize = 16;
const ROUTE: usize = 12;
/// More than any answer to one address.
const ROOM: usize = 16 << 10;

/// The way to an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The interface that packets leave by.
    pub interface: String,
    /// The next router; `None` for an address on a network of the interface.
    pub gateway: Option<IpAddr>,
    /// The address that packets are sent from where the program has not bound one.
    pub source: Option<IpAddr>,
    /// Number of the table that the way was found in (254 is the main one).
    pub table: Option<u32>,
}

/// A socket that the kernel of this machine is asked through.
#[derive(Debug)]
pub struct RouteSocket(OwnedFd);

impl RouteSocket {
    /// `None` for a root that is not this machine, and where such sockets are not allowed.
    pub fn open(root: &Root) -> Option<RouteSocket> {
        if !root.is_this_machine() {
            return None;
        }
        let protocol = SockProtocol::NetlinkRoute;
        let own = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).ok()?;
        // The kernel answers within the call that asks; should it not, nobody waits.
        setsockopt(&own, ReceiveTimeout, &TimeVal::milliseconds(500)).ok()?;
        Some(RouteSocket(own))
    }

    /// The way to `to`, of packets that are sent from `from` where that is given. `None` where the kernel has no way, or does not answer.
    pub fn way(&self, to: IpAddr, from: Option<IpAddr>) -> Option<Way> {
        if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
            return None;
        }
        send(self.0.as_raw_fd(), &question(to, from), MsgFlags::empty()).ok()?;
        let mut answer = vec![0; ROOM];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
        let answer = answer_of(answer.get(..length)?)?;
        let interface = if_indextoname(answer.interface?).ok()?.into_string().ok()?;
        Some(Way { interface, gateway: answer.gateway, source: answer.source, table: answer.table })
    }
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn question(to: IpAddr, from: Option<IpAddr>) -> Vec<u8> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 } as i32 as u8;
    let bits = if to.is_ipv4() { 32 } else { 128 };
    let mut route = vec![family, bits, if from.is_some() { bits } else { 0 }];
    route.resize(ROUTE, 0);
    for (kind, address) in [(RTA_DST, Some(to)), (RTA_SRC, from)] {
        if let Some(bytes) = address.map(bytes_of) {
            route.extend((4 + bytes.len() as u16).to_ne_bytes());
            route.extend(kind.to_ne_bytes());
            route.extend(bytes); // a multiple of four bytes, as attributes are aligned
        }
    }
    let mut message = ((HEAD + route.len()) as u32).to_ne_bytes().to_vec();
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.resize(HEAD, 0); // number and sender: there is but one question at a time
    message.extend(route);
    message
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    interface: Option<u32>,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    table: Option<u32>,
}

/// A route in the first message; `None` for an error, and for what is no such message.
fn answer_of(message: &[u8]) -> Option<Answer> {
    let short = |at: usize| Some(u16::from_ne_bytes(message.get(at..)?.first_chunk().copied()?));
    let length = u32::from_ne_bytes(message.first_chunk().copied()?) as usize;
    let message_end = length.min(message.len());
    if short(4)? != RTM_NEWROUTE {
        return None;
    }
    let mut answer = Answer::default();
    let mut at = HEAD + ROUTE;
    while at + 4 <= message_end {
        let (size, kind) = (usize::from(short(at)?), short(at + 2)?);
        let value = message.get(at + 4..at.checked_add(size)?)?;
        let number = || value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        match kind {
            RTA_OIF => answer.interface = number(),
            RTA_GATEWAY => answer.gateway = address(value),
            RTA_PREFSRC => answer.source = address(value),
            RTA_TABLE => answer.table = number(),
            // A family, and an address of it: an IPv4 network behind an IPv6 router.
            RTA_VIA => answer.gateway = value.get(2..).and_then(address),
            _ => {}
        }
        at += size.max(4).next_multiple_of(4);
    }
    Some(answer)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_answers() {
        assert!(RouteSocket::open(&Root::at("/tmp")).is_none());
        let Some(socket) = RouteSocket::open(&Root::this_machine()) else { return };
        // Without a loopback interface that is up there is no way to it.
        if let Some(way) = socket.way("127.0.0.1".parse().unwrap(), None) {
            assert_eq!((way.interface.as_str(), way.gateway), ("lo", None));
            assert_eq!(way.source, Some("127.0.0.1".parse().unwrap()));
        }
        assert_eq!(
            socket.way("127.0.0.1".parse().unwrap(), Some("192.0.2.77".parse().unwrap())),
            None,
            "not our address"
        );
        assert_eq!(socket.way("0.0.0.1".parse().unwrap(), Some("::1".parse().unwrap())), None);
    }

    #[test]
    fn what_is_asked() {
        let asked = question("10.1.2.3".parse().unwrap(), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(asked.len(), HEAD + ROUTE + 8 + 8);
        assert_eq!(asked[..4], (asked.len() as u32).to_ne_bytes());
        assert_eq!(asked[HEAD..HEAD + 3], [2, 32, 32]);
        assert!(asked.ends_with(&[10, 0, 0, 1]));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_panics(head in proptest::bool::ANY, bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let mut message = if head { question("10.0.0.1".parse().unwrap(), None) } else { Vec::new() };
            if head {
                message[4..6].copy_from_slice(&RTM_NEWROUTE.to_ne_bytes());
                message[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
            }
            message.extend(bytes);
            let _ = answer_of(&message);
        }
    }
}
