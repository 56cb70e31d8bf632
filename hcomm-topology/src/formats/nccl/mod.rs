//! NCCL's topology file (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`) and RCCL's, which differs in its version and in `xgmi` elements.
//!
//! Below `<system>` there is a `<cpu>` for each NUMA node, below that a `<pci>` for each switch and device, below those `<gpu>` with its
//! `<nvlink>` or `<xgmi>`, and `<nic>` with its `<net>`. What NCCL accepts is in its `src/graph/xml.cc` and `topo.cc`: no XML declaration, one
//! space between attributes, values shorter than 255 bytes, at most 16 attributes of an element and 256 elements; attributes that it does not
//! know are ignored. It keeps one element for a switch (its upstream port). The other ports and the root bus are kept in attributes of
//! ours, `hcomm_via` and `hcomm_root_bus`, so that a file that we wrote gives the same relations.

mod read;
mod write;

use crate::LinkKind;

pub(super) use read::read;
pub use write::write;

/// The root bus that a top `<pci>` element is on.
const ROOT_BUS: &str = "hcomm_root_bus";
/// The bridges between an element and the one around it, top first.
const VIA: &str = "hcomm_via";
/// Processors next to an element where they are not those of its NUMA node; below it the same unless it says otherwise, empty for those
/// of the node again. On `<cpu>` the processors of the node where a mask of them would be longer than NCCL reads. A list, or a mask
/// with `0x` where that is shorter.
const LOCAL_CPUS: &str = "hcomm_local_cpus";
/// On `<gpu>`: which accelerator it is in the order of the machine's own tools; its model; bytes of its memory.
const INDEX: &str = "hcomm_index";
const MODEL: &str = "hcomm_model";
const MEMORY: &str = "hcomm_memory_bytes";
/// On links: hops; MB/s, one direction, all lanes together.
const HOPS: &str = "hcomm_hops";
const RATE: &str = "hcomm_mb_per_s";
/// An element for a link that NCCL has no word for, with `kind`, `to` (an index, `switch` or `cpu`) and perhaps `count`.
const LINK: &str = "hcomm_link";
/// Bytes of a value that NCCL reads (`MAX_STR_LEN` less its end).
const MOST_VALUE: usize = 254;
/// What NCCL writes for a target that has no PCI address.
const NO_ADDRESS: &str = "fffffff:ffff:ff";
/// PCI class of an NVSwitch, and of the NVLink bridge of a POWER9 processor.
const SWITCH_CLASS: &str = "0x068000";
const CPU_CLASS: &str = "0x068001";

const KINDS: [(LinkKind, &str); 7] = [
    (LinkKind::NvLink, "nvlink"),
    (LinkKind::NvLinkC2c, "c2c"),
    (LinkKind::Xgmi, "xgmi"),
    (LinkKind::Hccs, "hccs"),
    (LinkKind::HccsSwitch, "hccs-switch"),
    (LinkKind::Sio, "sio"),
    (LinkKind::XeLink, "xelink"),
];

fn kind_name(kind: LinkKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("", |(_, name)| name)
}

fn kind_of(name: &str) -> Option<LinkKind> {
    KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}
