//! What hardware a machine has, and how it hangs together.
//!
//! A [`Machine`] is read from `/sys` and `/proc` under any root, or from a topology file of another tool. Whatever the source does not
//! tell is `None`: never 0, never -1, never a guess.

mod cpuset;
mod machine;
pub mod net;
mod pci_address;
mod root;

pub use cpuset::CpuSet;
pub use machine::{
    Accelerator, AcceleratorKind, AcceleratorLink, Cache, CacheKind, Core, Cpus, DeviceId, Health, LinkKind,
    LinkTarget, Machine, Nic, NicKind, NumaNode, Package, PciFunction, PciLink, RdmaPort, RdmaPortState, Thread,
    Vendor,
};
pub use pci_address::PciAddress;
pub use root::Root;
