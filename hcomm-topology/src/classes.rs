//! What a PCI class says that a function is (PCI Code and ID Assignment Specification 1.11).

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
