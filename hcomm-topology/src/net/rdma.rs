//! RDMA ports and their address tables: `/sys/class/infiniband` (kernel documentation, `ABI/stable/sysfs-class-infiniband`).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{numa_of, pci_of, words};
use crate::{RdmaPort, RdmaPortState, Root};

/// As many entries of a GID table are read; the specification allows 65535, adapters have up to a few hundred.
const MOST_GIDS: u32 = 1024;

/// The permissive identifier, which a port has before a subnet manager gives it one (InfiniBand specification, 4.1.3).
const NO_LID: u32 = 0xffff;

/// The RDMA ports of a machine. A device without port folders (a tree copied in part) has its first port, of which nothing is known.
pub fn read_rdma(root: &Root) -> Vec<RdmaPort> {
    let class = Path::new("sys/class/infiniband");
    let devices = root.list(class).into_iter().filter(|name| root.is_folder(class.join(name)));
    devices.flat_map(|device| read_device(root, &class.join(&device), device)).collect()
}

fn read_device(root: &Root, folder: &Path, device: String) -> Vec<RdmaPort> {
    let mut ports: Vec<u32> =
        root.list(folder.join("ports")).iter().filter_map(|name| name.parse().ok()).filter(|port| *port > 0).collect();
    if ports.is_empty() {
        ports.push(1);
    }
    let several = ports.len() > 1;
    let lid = |path: PathBuf| root.hex(path).and_then(|lid| u32::try_from(lid).ok()).filter(|lid| *lid != NO_LID);
    let pci = pci_of(root, folder);
    let port = |port: u32| {
        let at = |file: &str| folder.join(format!("ports/{port}/{file}"));
        let link_layer = words(root, &at("link_layer")).filter(|layer| layer != "Unspecified");
        let ethernet = link_layer.as_deref() == Some("Ethernet");
        let rate = words(root, &at("rate")).and_then(|text| Rate::parse(&text)).unwrap_or_default();
        RdmaPort {
            device: device.clone(),
            port,
            pci,
            numa_node: numa_of(root, folder, pci),
            state: words(root, &at("state")).and_then(|text| state(&text)),
            physical_state: words(root, &at("phys_state")).map(|text| after_number(&text).to_owned()),
            rate_gbit_per_s: rate.gbit_per_s,
            width: rate.width,
            speed_name: rate.name,
            lid: lid(at("lid")).filter(|_| !ethernet),
            sm_lid: lid(at("sm_lid")).filter(|_| !ethernet),
            firmware: words(root, &folder.join("fw_ver")),
            board_id: words(root, &folder.join("board_id")),
            hca_type: words(root, &folder.join("hca_type")),
            node_guid: words(root, &folder.join("node_guid")).filter(|guid| guid.chars().any(|c| !"0:".contains(c))),
            interfaces: interfaces(root, &folder.join("device/net"), several.then_some(port)),
            link_layer,
            nccl: BTreeMap::new(),
        }
    };
    ports.into_iter().map(port).collect()
}

/// The interfaces of a device, or of one of its ports: `dev_port` counts them from 0.
fn interfaces(root: &Root, folder: &Path, port: Option<u32>) -> Vec<String> {
    let of_port = |name: &String| match (port, root.number::<u32>(folder.join(name).join("dev_port"))) {
        (Some(port), Some(number)) => number + 1 == port,
        _ => true,
    };
    root.list(folder).into_iter().filter(|name| root.is_folder(folder.join(name))).filter(of_port).collect()
}

/// What follows the number in `4: ACTIVE`.
fn after_number(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, word)| word).trim()
}

fn state(text: &str) -> Option<RdmaPortState> {
    match after_number(text).to_ascii_uppercase().as_str() {
        "DOWN" => Some(RdmaPortState::Down),
        "INIT" => Some(RdmaPortState::Init),
        "ARMED" => Some(RdmaPortState::Armed),
        "ACTIVE" => Some(RdmaPortState::Active),
        "ACTIVE_DEFER" => Some(RdmaPortState::ActiveDefer),
        _ => None,
    }
}

/// `400 Gb/sec (4X NDR)`.
#[derive(Debug, Default, PartialEq)]
struct Rate {
    gbit_per_s: Option<f64>,
    width: Option<u32>,
    name: Option<String>,
}

impl Rate {
    fn parse(text: &str) -> Option<Rate> {
        let (number, rest) = text.split_once(' ')?;
        let gbit_per_s = number.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
        let inside = rest.trim().strip_prefix("Gb/sec")?.trim().trim_start_matches('(').trim_end_matches(')');
        let mut words = inside.split_whitespace();
        let width = words.next().and_then(|word| word.strip_suffix('X')).and_then(|lanes| lanes.parse().ok());
        Some(Rate { gbit_per_s, width, name: words.next().map(str::to_owned) })
    }
}

/// Kinds of GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum GidKind {
    /// `IB/RoCE v1`: InfiniBand, or on Ethernet frames that no router forwards.
    #[serde(rename = "IB/RoCE v1")]
    InfiniBandOrRoceV1,
    /// `RoCE v2`: in UDP, so routable where the address is.
    #[serde(rename = "RoCE v2")]
    RoceV2,
}

/// An entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gid {
    /// Its place in the table: `HCOMM_IB_GID_INDEX`.
    pub index: u32,
    /// The address; IPv4 ones are mapped (`::ffff:10.0.0.1`).
    pub address: Ipv6Addr,
    /// What packets with it look like; `None` where the kernel does not tell.
    pub kind: Option<GidKind>,
    /// The interface it belongs to.
    pub interface: Option<String>,
}

impl Gid {
    /// Whether packets to such an address leave the link: not link-local, not loopback.
    pub fn is_routable(&self) -> bool {
        match self.address.to_ipv4_mapped() {
            Some(address) => !address.is_link_local() && !address.is_loopback() && !address.is_unspecified(),
            None => !self.address.is_unicast_link_local() && !self.address.is_loopback(),
        }
    }
}

/// The GID table of a port. Empty slots are left out; reading their type fails.
pub fn read_gids(root: &Root, device: &str, port: u32) -> Vec<Gid> {
    let folder = PathBuf::from(format!("sys/class/infiniband/{device}/ports/{port}"));
    let entry = |name: String| {
        let index = name.parse().ok().filter(|index| *index < MOST_GIDS)?;
        let address: Ipv6Addr = root.text(folder.join("gids").join(&name))?.parse().ok()?;
        // An empty slot is all zeros, on InfiniBand after the prefix of the subnet.
        if u128::from(address) as u64 == 0 {
            return None;
        }
        let kind = match root.text(folder.join("gid_attrs/types").join(&name)).as_deref() {
            Some("IB/RoCE v1") => Some(GidKind::InfiniBandOrRoceV1),
            Some("RoCE v2") => Some(GidKind::RoceV2),
            _ => None,
        };
        let interface = words(root, &folder.join("gid_attrs/ndevs").join(&name));
        Some(Gid { index, address, kind, interface })
    };
    root.list(folder.join("gids")).into_iter().filter_map(entry).collect()
}

/// The entry to use on Ethernet: RoCE v2 with a routable address, of IPv4 before IPv6, else RoCE v2 on the link, else what there is. On InfiniBand
/// the first entry, which the specification keeps for the port itself.
pub fn best_gid<'a>(table: &'a [Gid], link_layer: Option<&str>) -> Option<&'a Gid> {
    let rank = |gid: &&Gid| {
        if link_layer == Some("InfiniBand") {
            return (0, gid.index);
        }
        let rank = match (gid.kind, gid.is_routable()) {
            (Some(GidKind::RoceV2), true) => u32::from(gid.address.to_ipv4_mapped().is_none()),
            (Some(GidKind::RoceV2), false) => 2,
            (None, true) => 3,
            (Some(GidKind::InfiniBandOrRoceV1), true) => 4,
            (_, false) => 5,
        };
        (rank, gid.index)
    };
    table.iter().min_by_key(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_the_kernel_writes_them() {
        let rate = |gbit_per_s, width, name: Option<&str>| Rate { gbit_per_s, width, name: name.map(str::to_owned) };
        for (text, expected) in [
            ("400 Gb/sec (4X NDR)", rate(Some(400.0), Some(4), Some("NDR"))),
            ("2.5 Gb/sec (1X SDR)", rate(Some(2.5), Some(1), Some("SDR"))),
            ("10 Gb/sec (4X)", rate(Some(10.0), Some(4), None)),
            ("0 Gb/sec (4X)", rate(None, Some(4), None)),
            ("40 Gb/sec", rate(Some(40.0), None, None)),
        ] {
            assert_eq!(Rate::parse(text), Some(expected), "{text}");
        }
        assert_eq!((Rate::parse(""), Rate::parse("fast"), Rate::parse("nan Gb/s")), (None, None, None));
    }

    #[test]
    fn states() {
        assert_eq!(state("4: ACTIVE"), Some(RdmaPortState::Active));
        assert_eq!(state("2: INIT"), Some(RdmaPortState::Init));
        assert_eq!(state("5: ACTIVE_DEFER"), Some(RdmaPortState::ActiveDefer));
        assert_eq!((state("0: NOP"), state("")), (None, None));
    }

    /// F15.
    #[test]
    fn the_best_gid_leaves_the_link() {
        let gid = |index, address: &str, kind| Gid { index, address: address.parse().unwrap(), kind, interface: None };
        let (v1, v2) = (Some(GidKind::InfiniBandOrRoceV1), Some(GidKind::RoceV2));
        let best = |table: &[Gid]| best_gid(table, Some("Ethernet")).map(|gid| gid.index);
        assert_eq!(best(&[gid(0, "fe80::1", v1), gid(1, "fe80::1", v2), gid(2, "::ffff:10.0.0.1", v1)]), Some(1));
        assert_eq!(
            best(&[gid(1, "fe80::1", v2), gid(4, "2001:db8::1", v1), gid(5, "2001:db8::1", v2)]),
            Some(5),
            "IPv6 only"
        );
        assert_eq!(best(&[gid(3, "2001:db8::1", v2), gid(5, "::ffff:10.0.0.1", v2)]), Some(5));
        assert_eq!(best(&[gid(2, "::ffff:169.254.0.1", v2), gid(3, "fd00::1", v2)]), Some(3));
        assert_eq!(best(&[]), None);
        let table = [gid(0, "fe80::1", v1), gid(1, "fd00::1", v1)];
        assert_eq!(best_gid(&table, Some("InfiniBand")).unwrap().index, 0);
    }
}
