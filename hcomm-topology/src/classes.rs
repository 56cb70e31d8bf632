//! What a PCI class and vendor say that a function is (PCI Code and ID Assignment Specification 1.11).

use crate::{AcceleratorKind, PciFunction, Vendor};

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

/// What accelerator a function is, if it is one: a processing accelerator (class 0x12), or a display controller (0x03) of a maker of
/// GPUs that compute. Where the source does not name the maker, a display controller is taken as a GPU.
pub(crate) fn accelerator_of(function: &PciFunction) -> Option<(AcceleratorKind, Option<Vendor>)> {
    let vendor = function.vendor.map(|vendor| match vendor {
        0x10de => Vendor::Nvidia,
        0x1002 => Vendor::Amd,
        0x8086 => Vendor::Intel,
        0x19e5 => Vendor::Huawei,
        0x1da3 => Vendor::Habana,
        other => Vendor::Other(other),
    });
    let kind = match (function.class? >> 16, vendor) {
        (0x03 | 0x12, Some(Vendor::Nvidia | Vendor::Amd)) | (0x03, Some(Vendor::Intel) | None) => AcceleratorKind::Gpu,
        (0x12, Some(Vendor::Huawei | Vendor::Habana)) => AcceleratorKind::Npu,
        (0x12, _) => AcceleratorKind::Other,
        _ => return None,
    };
    Some((kind, vendor))
}
