//! What a PCI class and vendor say that a function is (PCI Code and ID Assignment Specification 1.11).

use crate::{AcceleratorKind, PciFunction, Vendor, accelerator_kind, vendor_of};

/// A bridge between PCI buses.
pub(crate) const PCI_BRIDGE: u32 = 0x06_0400;

/// Whether a class is that of a bridge between PCI buses (also semi-transparent ones).
pub(crate) fn is_bridge(class: u32) -> bool {
    matches!(class >> 8, 0x0604 | 0x0609)
}

/// Whether a class is that of a network function that carries data of jobs: Ethernet, InfiniBand, fabrics. Subclass 0x80 is wireless
/// for the most part; an RDMA device of that class is known by its RDMA ports. 0x0c06 is the older class of InfiniBand.
pub(crate) fn is_network(class: u32) -> bool {
    matches!(class >> 8, 0x0200 | 0x0207 | 0x0208 | 0x0c06)
}

/// What accelerator a function is, if it is one, and who made it. Where the source does not name the maker (NCCL's files), a display
/// controller is taken as a GPU.
pub(crate) fn accelerator_of(function: &PciFunction) -> Option<(AcceleratorKind, Option<Vendor>)> {
    let class = function.class?;
    let kind = match (class >> 16, function.vendor) {
        (0x03, None) => AcceleratorKind::Gpu,
        (_, vendor) => accelerator_kind(class, vendor, function.device)?,
    };
    Some((kind, function.vendor.map(vendor_of)))
}
