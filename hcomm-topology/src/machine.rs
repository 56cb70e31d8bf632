//! What is known of a machine. `None` (or an empty list) is "the source does not tell".

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{CpuSet, PciAddress};

/// A machine: its processors, memory, devices and how they are attached.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Host name.
    pub hostname: Option<String>,
    /// Instruction set, as `uname -m` writes it.
    pub arch: Option<String>,
    /// Processors.
    pub cpus: Cpus,
    /// NUMA nodes, ascending by number. A machine without any is one node, and has an empty list.
    pub numa: Vec<NumaNode>,
    /// PCI functions, ascending by address; bridges too.
    pub pci: Vec<PciFunction>,
    /// GPUs, NPUs and other accelerators, in the order in which their vendor's tools number them, else by PCI address.
    pub accelerators: Vec<Accelerator>,
    /// Direct links between accelerators.
    pub links: Vec<AcceleratorLink>,
    /// Network interfaces, in natural order of their names.
    pub nics: Vec<Nic>,
    /// Ports of RDMA devices, in natural order of device and port.
    pub rdma: Vec<RdmaPort>,
    /// Sentences for people: what could not be read and why, where the source contradicts itself.
    pub notes: Vec<String>,
}

/// The processors of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// Model name.
    pub model: Option<String>,
    /// Maker, in its own word: `GenuineIntel`, `AuthenticAMD` (CPUID leaf 0; `vendor_id` in `/proc/cpuinfo`).
    pub vendor: Option<String>,
    /// Family number (CPUID leaf 1; `cpu family` in `/proc/cpuinfo`).
    pub family: Option<u32>,
    /// Model number (CPUID leaf 1; `model` in `/proc/cpuinfo`).
    pub model_number: Option<u32>,
    /// Hardware threads that the source knows (Linux: `present`), on line or not.
    pub present: CpuSet,
    /// Those on line.
    pub online: CpuSet,
    /// Those that control groups and affinity leave to this process; `None` where the source does not tell.
    pub allowed: Option<CpuSet>,
    /// Processors' worth of time that control groups grant, rounded up; `None` without a limit.
    pub quota: Option<u32>,
    /// Packages (sockets).
    pub packages: Vec<Package>,
    /// Cores.
    pub cores: Vec<Core>,
    /// Hardware threads.
    pub threads: Vec<Thread>,
    /// Caches.
    pub caches: Vec<Cache>,
}

/// A package (socket).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Package {
    /// The system's number (`physical_package_id`).
    pub id: Option<u32>,
    /// Its threads.
    pub cpus: CpuSet,
}

/// A core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Core {
    /// Its threads.
    pub cpus: CpuSet,
    /// Index into [`Cpus::packages`].
    pub package: Option<usize>,
}

/// A hardware thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// The system's number.
    pub id: u32,
    /// Whether it is on line.
    pub online: bool,
    /// Index into [`Cpus::cores`]; `None` for a thread that is off line.
    pub core: Option<usize>,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
}

/// A cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it keeps.
    pub kind: CacheKind,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Bytes of a line.
    pub line_bytes: Option<u32>,
    /// Threads that share it.
    pub cpus: CpuSet,
}

/// What a cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// The system's number; numbers may have gaps.
    pub id: u32,
    /// Its processors, also those off line where the source tells; empty for a node of memory alone, `None` where nothing tells.
    pub cpus: Option<CpuSet>,
    /// Bytes of memory; 0 for a node that is known to have none.
    pub memory_bytes: Option<u64>,
    /// Distance to each node by number (10 is itself, ACPI SLIT).
    pub distances: BTreeMap<u32, u32>,
    /// Whether control groups let this process use its memory.
    pub allowed: Option<bool>,
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// The bridge it is behind; `None` on a root bus, or where the source does not tell.
    pub parent: Option<PciAddress>,
    /// The root bus it is on, as `0000:00`; `None` where the source keeps no root buses (NCCL's XML).
    pub root_bus: Option<String>,
    /// Class, subclass and interface: `0x030200`.
    pub class: Option<u32>,
    /// Vendor.
    pub vendor: Option<u16>,
    /// Device.
    pub device: Option<u16>,
    /// Vendor of the card.
    pub subsystem_vendor: Option<u16>,
    /// The card.
    pub subsystem_device: Option<u16>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// NUMA node; `None` also where the system says -1.
    pub numa_node: Option<u32>,
    /// Processors next to it.
    pub local_cpus: Option<CpuSet>,
    /// The link to the bridge above.
    pub link: PciLink,
    /// The physical function that this virtual function belongs to.
    pub physical_function: Option<PciAddress>,
    /// Name of vendor and device, where a table of names has them.
    pub name: Option<String>,
    /// Whether it is a bridge.
    pub bridge: bool,
}

/// A PCI Express link: what it runs at, and what this end could do. Each is `None` when unknown; a width of 0 is unknown too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PciLink {
    /// GT/s per lane now.
    pub speed_gt_per_s: Option<f32>,
    /// Lanes now.
    pub width: Option<u8>,
    /// GT/s per lane that this end can do.
    pub max_speed_gt_per_s: Option<f32>,
    /// Lanes that this end has.
    pub max_width: Option<u8>,
    /// GB/s now, one direction, of all lanes together, where the source tells this and not speed and width (hwloc).
    pub gb_per_s: Option<f32>,
}

/// Kinds of accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorKind {
    /// A graphics processor that computes.
    Gpu,
    /// A processor for neural networks.
    Npu,
    /// Another accelerator.
    Other,
}

/// Makers of accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Huawei (Ascend).
    Huawei,
    /// Habana.
    Habana,
    /// Any other, by its PCI vendor number.
    #[serde(untagged)]
    Other(u16),
}

/// An accelerator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accelerator {
    /// Which.
    pub id: DeviceId,
    /// What it is.
    pub kind: AcceleratorKind,
    /// Who made it; `None` where the source names neither vendor nor model.
    pub vendor: Option<Vendor>,
    /// Model: `Ascend 910B`, `H100 SXM5 80GB`.
    pub model: Option<String>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory in use.
    pub memory_used_bytes: Option<u64>,
    /// How busy, in percent.
    pub utilisation_percent: Option<f32>,
    /// Degrees Celsius.
    pub temperature_c: Option<f32>,
    /// Watts.
    pub power_w: Option<f32>,
    /// The vendor's word on its health.
    pub health: Option<Health>,
    /// The vendor's unique name of it.
    pub uuid: Option<String>,
    /// Its own network port, where it has one and that is told of (Ascend).
    pub port: Option<AcceleratorPort>,
    /// The PCI link is no data path of it (Ascend dies show 2.5 GT/s x1; their path is HCCS or SIO), so it says nothing of speed.
    pub pci_link_is_not_the_data_path: bool,
    /// What NCCL's file says of it beyond the above, by attribute (`sm`, `rank`, `gdr`): kept for writing such a file again.
    pub nccl: BTreeMap<String, String>,
}

/// A network port on an accelerator itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AcceleratorPort {
    /// Whether its link is up.
    pub up: Option<bool>,
    /// Mbit/s.
    pub speed_mbit_per_s: Option<u64>,
    /// IPv4 address with prefix, where the mask is told.
    pub address: Option<String>,
    /// The vendor's word on whether its network can be reached: `Success`, `Fault`, `Init`.
    pub health: Option<String>,
    /// Whether an optical module is plugged in.
    pub module_present: Option<bool>,
    /// Degrees Celsius of the optical module.
    pub module_temperature_c: Option<f32>,
    /// Counters since start-up, by the vendor's names.
    pub counters: BTreeMap<String, u64>,
}

/// Identity of an accelerator: an address, and which part of it when one PCI function shows as several devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct DeviceId {
    /// The PCI function; `None` where the source has no PCI part.
    pub pci: Option<PciAddress>,
    /// Which partition of the function (MI300 TPX, MIG), from 0; `None` if it is not divided.
    pub partition: Option<u32>,
    /// The system's or vendor's name or number: `nvml0`, `renderD128`, `phy 5`.
    pub name: Option<String>,
}

/// A vendor's word on the health of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Well.
    Good,
    /// What is wrong, in the vendor's words.
    Bad(String),
}

/// Kinds of direct link between accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum LinkKind {
    /// NVIDIA NVLink.
    NvLink,
    /// NVIDIA NVLink-C2C, between a processor and a GPU of one module.
    NvLinkC2c,
    /// AMD Infinity Fabric.
    Xgmi,
    /// Huawei HCCS, point to point.
    Hccs,
    /// Huawei HCCS through a switch.
    HccsSwitch,
    /// Huawei SIO, between the dies of one card.
    Sio,
    /// Intel Xe Link.
    XeLink,
}

/// A direct link of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceleratorLink {
    /// Index into [`Machine::accelerators`].
    pub from: usize,
    /// The other end.
    pub to: LinkTarget,
    /// What it is.
    pub kind: LinkKind,
    /// How many lanes of this kind run side by side (NV12 has 12).
    pub count: Option<u32>,
    /// Hops, 1 for neighbours.
    pub hops: Option<u32>,
    /// MB/s, one direction, all together.
    pub mb_per_s: Option<u64>,
}

/// The other end of an [`AcceleratorLink`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkTarget {
    /// Index into [`Machine::accelerators`].
    Accelerator(usize),
    /// A switch that all its devices reach (NVSwitch).
    Switch,
    /// A processor (POWER9).
    Cpu,
}

/// What an interface is, as far as the system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NicKind {
    /// A device is behind it.
    Physical,
    /// A bond.
    Bond,
    /// A VLAN.
    Vlan,
    /// A bridge.
    Bridge,
    /// A tunnel, or a tun or tap device.
    Tunnel,
    /// Loopback.
    Loopback,
    /// Another without a device: veth, dummy, macvlan.
    Virtual,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Nic {
    /// Name, as in `ip link`.
    pub name: String,
    /// What it is.
    pub kind: NicKind,
    /// PCI function behind it.
    pub pci: Option<PciAddress>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// ARP hardware type: 1 Ethernet, 32 InfiniBand (`linux/if_arp.h`).
    pub hardware_type: Option<u32>,
    /// Hardware address.
    pub mac: Option<String>,
    /// Bytes of the largest packet.
    pub mtu: Option<u32>,
    /// Mbit/s.
    pub speed_mbit_per_s: Option<u64>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// `up`, `down`, `unknown`, ... as `operstate` says.
    pub state: Option<String>,
    /// Whether there is a signal on the wire.
    pub carrier: Option<bool>,
    /// IPv4 and IPv6 addresses with prefix: `10.0.0.1/24`.
    pub addresses: Vec<String>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// The bond or bridge that it is a part of.
    pub master: Option<String>,
    /// What NCCL's file says of it beyond the above, by attribute (`guid`, `maxconn`): kept for writing such a file again.
    pub nccl: BTreeMap<String, String>,
}

/// State of an RDMA port (InfiniBand specification, PortState).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RdmaPortState {
    /// No link.
    Down,
    /// Link, but no subnet manager has set it up.
    Init,
    /// Set up, not yet active.
    Armed,
    /// Usable.
    Active,
    /// Active, and the link is being retrained.
    ActiveDefer,
}

/// A port of an RDMA device (InfiniBand, RoCE, iWARP, Omni-Path).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RdmaPort {
    /// Device: `mlx5_0`.
    pub device: String,
    /// Port, from 1.
    pub port: u32,
    /// PCI function.
    pub pci: Option<PciAddress>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// `InfiniBand` or `Ethernet` (RoCE), by `link_layer`.
    pub link_layer: Option<String>,
    /// State.
    pub state: Option<RdmaPortState>,
    /// State of the cable, in the kernel's word: `LinkUp`, `Polling`, `Disabled`.
    pub physical_state: Option<String>,
    /// Gbit/s, all lanes.
    pub rate_gbit_per_s: Option<f64>,
    /// Lanes.
    pub width: Option<u32>,
    /// Generation: `EDR`, `NDR`.
    pub speed_name: Option<String>,
    /// Local identifier; `None` for RoCE, where it is always 0.
    pub lid: Option<u32>,
    /// Local identifier of the subnet manager.
    pub sm_lid: Option<u32>,
    /// Firmware.
    pub firmware: Option<String>,
    /// Board.
    pub board_id: Option<String>,
    /// Model: `MT4129`.
    pub hca_type: Option<String>,
    /// Globally unique identifier of the device, as the kernel writes it: `506b:4b03:003c:eee8`.
    pub node_guid: Option<String>,
    /// Interfaces on top of it.
    pub interfaces: Vec<String>,
    /// What NCCL's file says of it beyond the above, by attribute (`maxconn`, `gdr`): kept for writing such a file again.
    pub nccl: BTreeMap<String, String>,
}

impl NumaNode {
    /// Whether all of `cpus` are known to be on this node; of none that is not known.
    pub fn holds(&self, cpus: &CpuSet) -> bool {
        !cpus.is_empty() && self.cpus.as_ref().is_some_and(|own| cpus.is_subset(own))
    }
}

impl PciFunction {
    /// A function of which nothing is known but where it is.
    pub fn unknown(address: PciAddress) -> PciFunction {
        PciFunction {
            address,
            parent: None,
            root_bus: None,
            class: None,
            vendor: None,
            device: None,
            subsystem_vendor: None,
            subsystem_device: None,
            driver: None,
            numa_node: None,
            local_cpus: None,
            link: PciLink::default(),
            physical_function: None,
            name: None,
            bridge: false,
        }
    }
}

impl Accelerator {
    /// An accelerator of which nothing is known but which it is.
    pub fn unknown(id: DeviceId) -> Accelerator {
        Accelerator {
            id,
            kind: AcceleratorKind::Other,
            vendor: None,
            model: None,
            numa_node: None,
            memory_bytes: None,
            memory_used_bytes: None,
            utilisation_percent: None,
            temperature_c: None,
            power_w: None,
            health: None,
            uuid: None,
            port: None,
            pci_link_is_not_the_data_path: false,
            nccl: BTreeMap::new(),
        }
    }
}

impl Nic {
    /// An interface of which nothing is known but its name.
    pub fn unknown(name: impl Into<String>, kind: NicKind) -> Nic {
        Nic {
            name: name.into(),
            kind,
            pci: None,
            driver: None,
            hardware_type: None,
            mac: None,
            mtu: None,
            speed_mbit_per_s: None,
            duplex: None,
            state: None,
            carrier: None,
            addresses: Vec::new(),
            numa_node: None,
            master: None,
            nccl: BTreeMap::new(),
        }
    }
}

impl RdmaPort {
    /// A port of which nothing is known but which it is.
    pub fn unknown(device: impl Into<String>, port: u32) -> RdmaPort {
        RdmaPort {
            device: device.into(),
            port,
            pci: None,
            numa_node: None,
            link_layer: None,
            state: None,
            physical_state: None,
            rate_gbit_per_s: None,
            width: None,
            speed_name: None,
            lid: None,
            sm_lid: None,
            firmware: None,
            board_id: None,
            hca_type: None,
            node_guid: None,
            interfaces: Vec::new(),
            nccl: BTreeMap::new(),
        }
    }
}
