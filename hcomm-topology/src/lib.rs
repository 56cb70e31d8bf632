//! What hardware a machine has, and how it hangs together.
//!
//! A [`Machine`] is read from `/sys` and `/proc` under any root, or from a topology file of another tool. Whatever the source does not
//! tell is `None`: never 0, never -1, never a guess.

mod accelerators;
mod classes;
mod cpus;
mod cpuset;
mod discover;
pub mod formats;
pub mod graph;
mod limits;
mod machine;
pub mod net;
mod numa;
mod pci;
mod pci_address;
mod placement;
mod root;

pub use accelerators::{Npu, NpuTopology, accelerator_kind, parse_npus, parse_topology, vendor_of};
pub use cpus::read_cpus;
pub use cpuset::CpuSet;
pub use limits::{Limits, read_limits};
pub use machine::{
    Accelerator, AcceleratorKind, AcceleratorLink, AcceleratorPort, Cache, CacheKind, Core, Cpus, DeviceId, Health,
    LinkKind, LinkTarget, Machine, Nic, NicKind, NumaNode, Package, PciFunction, PciLink, RdmaPort, RdmaPortState,
    Thread, Vendor,
};
pub use numa::{numa_node_of, read_numa};
pub use pci::{below_own_best, degraded, possible, read_pci};
pub use pci_address::PciAddress;
pub use placement::place_ranks;
pub use root::{Folder, Root};
