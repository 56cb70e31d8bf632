//! Networks: interfaces ([`read_nics`]) and RDMA ports ([`read_rdma`]) as a [`crate::Machine`] has them, and what changes with time or needs
//! to be asked for: counters, GID tables, routes, settings of the card.

mod address;
mod ask_route;
mod counters;
mod ethtool;
mod ethtool_call;
mod nic;
mod protocol;
mod rdma;
mod route;

use std::path::{Path, PathBuf};

pub use ask_route::{RouteSocket, Way};
pub use counters::{Counter, Counters, Difference, difference, interface_counters, rdma_counters};
pub use ethtool::{DriverInfo, Ethtool, LinkSettings, Pause};
pub use nic::read_nics;
pub use protocol::{Protocols, Softnet, protocol_counters, softnet};
pub use rdma::{Gid, GidKind, best_gid, read_gids, read_rdma};
pub use route::{Route, Routes, SharedNetwork};

use crate::{PciAddress, Root};

/// The PCI function that carries the class device at `folder`: the nearest above it, unless a USB bus lies between.
fn pci_of(root: &Root, folder: &Path) -> Option<PciAddress> {
    let path = root.canonical(folder.join("device")).or_else(|| link_target(root, &folder.join("device")));
    let path = path.or_else(|| root.canonical(folder))?;
    let names = path.components().rev().filter_map(|component| component.as_os_str().to_str());
    names.take_while(|name| !name.starts_with("usb")).find_map(|name| name.parse().ok())
}

/// The target of a link as it is written, also where that leads nowhere (trees are often copied in part).
fn link_target(root: &Root, link: &Path) -> Option<PathBuf> {
    let folder = root.resolve(link.parent()?)?;
    std::fs::read_link(folder.join(link.file_name()?)).ok()
}

/// The last name of a link's target.
fn link_name(root: &Root, link: &Path) -> Option<String> {
    link_target(root, link)?.file_name()?.to_str().map(str::to_owned)
}

/// The NUMA node of a class device: its own word, else that of its PCI function.
fn numa_of(root: &Root, folder: &Path, pci: Option<PciAddress>) -> Option<u32> {
    let own = root.number(folder.join("device/numa_node"));
    own.or_else(|| root.number(format!("sys/bus/pci/devices/{}/numa_node", pci?)))
}

/// A file's text; `None` if there is none in it.
fn words(root: &Root, path: &Path) -> Option<String> {
    root.text(path).filter(|text| !text.is_empty())
}
