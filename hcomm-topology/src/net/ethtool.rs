//! What a driver says of its interface when it is asked (`SIOCETHTOOL`, `linux/ethtool.h`; man page ethtool(8)). Only this machine can be
//! asked.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::ethtool_call::{Buffer, Socket};
use crate::Root;

const GET_DRIVER: u32 = 0x03;
const GET_PAUSE: u32 = 0x12;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const GET_LINK_SETTINGS: u32 = 0x4c;
/// `ETH_SS_STATS`: the set of names of the statistics.
const STATISTICS_SET: u32 = 1;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// More statistics than any driver has; answers of so many fit into a [`Buffer`].
const MOST_STATISTICS: u32 = 1 << 16;

/// Mbit/s by bits of `enum ethtool_link_mode_bit_indices`.
const LINK_MODES: [(RangeInclusive<usize>, u64); 29] = [
    (0..=1, 10),
    (2..=3, 100),
    (4..=5, 1_000),
    (12..=12, 10_000),
    (15..=15, 2_500),
    (17..=17, 1_000),
    (18..=20, 10_000),
    (21..=22, 20_000),
    (23..=26, 40_000),
    (27..=30, 56_000),
    (31..=33, 25_000),
    (34..=35, 50_000),
    (36..=39, 100_000),
    (40..=40, 50_000),
    (41..=41, 1_000),
    (42..=46, 10_000),
    (47..=47, 2_500),
    (48..=48, 5_000),
    (52..=56, 50_000),
    (57..=61, 100_000),
    (62..=66, 200_000),
    (67..=67, 100),
    (68..=68, 1_000),
    (69..=73, 400_000),
    (75..=79, 100_000),
    (80..=84, 200_000),
    (85..=89, 400_000),
    (90..=91, 100),
    (93..=98, 800_000),
];

/// How a link is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkSettings {
    /// Mbit/s now.
    pub speed_mbit_per_s: Option<u64>,
    /// The fastest that the card supports, Mbit/s.
    pub best_mbit_per_s: Option<u64>,
    /// The fastest that it offers to the other end, Mbit/s.
    pub offered_mbit_per_s: Option<u64>,
    /// `full` or `half`.
    pub duplex: Option<&'static str>,
    /// Whether speed and duplex are negotiated.
    pub autonegotiation: bool,
}

/// Ethernet flow control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// Whether it is negotiated.
    pub autonegotiation: bool,
    /// Stops sending when told to.
    pub receive: bool,
    /// Tells the other end to stop.
    pub transmit: bool,
}

/// A driver and its device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriverInfo {
    /// Name.
    pub driver: String,
    /// Version.
    pub version: String,
    /// Firmware of the card.
    pub firmware: String,
    /// Bus address.
    pub bus: String,
}

/// A way to ask this machine's drivers.
#[derive(Debug)]
pub struct Ethtool(Socket);

impl Ethtool {
    /// `None` for a root that is not this machine, and where sockets are not allowed.
    pub fn open(root: &Root) -> Option<Ethtool> {
        root.is_this_machine().then(Socket::open)?.map(Ethtool)
    }

    /// Settings of the link.
    pub fn link(&self, interface: &str) -> Option<LinkSettings> {
        let mut buffer = Buffer::new(GET_LINK_SETTINGS)?;
        // struct ethtool_link_settings: the kernel first answers with minus the number of words of a mask, then with the masks.
        const WORDS_AT: usize = 15;
        const MASKS_AT: usize = 48;
        self.0.ask(interface, &mut buffer)?;
        let words = buffer.byte(WORDS_AT) as i8;
        if words >= 0 {
            return None;
        }
        buffer.begin(GET_LINK_SETTINGS);
        buffer.set_byte(WORDS_AT, words.unsigned_abs());
        self.0.ask(interface, &mut buffer)?;
        let words = usize::from(words.unsigned_abs());
        let mask = |which: usize| -> Vec<u32> {
            (0..words).map(|word| buffer.u32(MASKS_AT + 4 * (which * words + word))).collect()
        };
        Some(LinkSettings {
            speed_mbit_per_s: Some(buffer.u32(4)).filter(|speed| *speed != 0 && *speed != u32::MAX).map(u64::from),
            best_mbit_per_s: fastest(&mask(0)),
            offered_mbit_per_s: fastest(&mask(1)),
            duplex: match buffer.byte(8) {
                0 => Some("half"),
                1 => Some("full"),
                _ => None,
            },
            autonegotiation: buffer.byte(11) == 1,
        })
    }

    /// Flow control.
    pub fn pause(&self, interface: &str) -> Option<Pause> {
        let mut buffer = Buffer::new(GET_PAUSE)?;
        self.0.ask(interface, &mut buffer)?;
        let set = |at| buffer.u32(at) != 0;
        Some(Pause { autonegotiation: set(4), receive: set(8), transmit: set(12) })
    }

    /// The driver.
    pub fn driver(&self, interface: &str) -> Option<DriverInfo> {
        let mut buffer = Buffer::new(GET_DRIVER)?;
        self.0.ask(interface, &mut buffer)?;
        let field = |at| buffer.text(at, NAME_BYTES);
        Some(DriverInfo { driver: field(4), version: field(36), firmware: field(68), bus: field(100) })
    }

    /// The driver's own statistics, by its names for them; of equal names the last.
    pub fn statistics(&self, interface: &str) -> BTreeMap<String, u64> {
        self.read_statistics(interface).unwrap_or_default()
    }

    fn read_statistics(&self, interface: &str) -> Option<BTreeMap<String, u64>> {
        let count = self.count_statistics(interface)?;
        let mut names = Buffer::new(GET_STRINGS)?;
        names.set_u32(4, STATISTICS_SET);
        names.set_u32(8, count);
        self.0.ask(interface, &mut names)?;
        let mut values = Buffer::new(GET_STATISTICS)?;
        values.set_u32(4, count);
        self.0.ask(interface, &mut values)?;
        // A driver that changed its statistics in between has names that are not of these values.
        if names.u32(8) != count || values.u32(4) != count {
            return None;
        }
        let entry = |at: usize| (names.text(12 + NAME_BYTES * at, NAME_BYTES), values.u64(8 + 8 * at));
        Some((0..count as usize).map(entry).filter(|(name, _)| !name.is_empty()).collect())
    }

    /// struct ethtool_sset_info: a mask of the sets asked for, then a count for each that there is.
    fn count_statistics(&self, interface: &str) -> Option<u32> {
        let mut buffer = Buffer::new(GET_SET_INFO)?;
        buffer.set_u64(8, 1 << STATISTICS_SET);
        self.0.ask(interface, &mut buffer)?;
        let there = buffer.u64(8) & (1 << STATISTICS_SET) != 0;
        Some(buffer.u32(16)).filter(|count| there && (1..=MOST_STATISTICS).contains(count))
    }
}

/// The fastest mode of a mask.
fn fastest(mask: &[u32]) -> Option<u64> {
    let set = |bit: usize| mask.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1);
    LINK_MODES.iter().filter(|(bits, _)| bits.clone().any(set)).map(|(_, speed)| *speed).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_mode() {
        assert_eq!(fastest(&[0b10_1111]), Some(1000));
        assert_eq!(fastest(&[1 << 6 | 1 << 13]), None, "negotiation and pause are no speeds");
        assert_eq!(fastest(&[0, 0, 1 << (85 - 64)]), Some(400_000));
        assert_eq!(fastest(&[0b10_1111, 1 << (62 - 32)]), Some(200_000));
        assert_eq!(fastest(&[]), None);
    }

    #[test]
    fn only_this_machine_is_asked() {
        assert!(Ethtool::open(&Root::at("/tmp")).is_none());
        let Some(ethtool) = Ethtool::open(&Root::this_machine()) else { return };
        assert_eq!(ethtool.link("no such interface, and a long name"), None);
        assert_eq!(ethtool.statistics("nosuch0"), BTreeMap::new());
        // Loopback answers some, by kernel; none may do harm.
        let _ = (ethtool.link("lo"), ethtool.pause("lo"), ethtool.driver("lo"), ethtool.statistics("lo"));
    }
}
