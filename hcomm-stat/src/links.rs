//! A link: an interface or an RDMA port, and whether it is well.

use hcomm_cli::shell_word;
use hcomm_topology::net::{Gid, best_gid, read_gids, read_nics, read_rdma};
use hcomm_topology::{Nic, NicKind, RdmaPort, RdmaPortState, Root};

/// `IFF_UP` (`linux/if.h`).
const SET_UP: u64 = 1;

/// What a link is.
#[derive(Debug)]
pub enum Device {
    /// A network interface.
    Interface(Nic),
    /// A port of an RDMA device, with its GID table.
    Port(RdmaPort, Vec<Gid>),
}

/// Whether a link is well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Usable.
    Well,
    /// Not in use, and not meant to be: a bridge without ports, a virtual interface that is set down.
    Idle(&'static str),
    /// Not usable: why, and what to do.
    Unwell { reason: String, fix: String },
    /// The system does not tell.
    Unknown,
}

/// A link of the machine.
#[derive(Debug)]
pub struct Link {
    /// `eth0`, `mlx5_0:1`.
    pub name: String,
    /// What it is.
    pub device: Device,
    /// Whether it is well.
    pub health: Health,
}

/// The links of a machine: interfaces other than loopback, then RDMA ports.
pub fn read(root: &Root) -> Vec<Link> {
    let nics = read_nics(root);
    let interface = |nic: &Nic| {
        let set_up = root.hex(format!("sys/class/net/{}/flags", nic.name)).map(|flags| flags & SET_UP != 0);
        let below = below(root, &nic.name, &nics);
        let health = interface_health(nic, set_up, below.as_deref());
        Link { name: nic.name.clone(), health, device: Device::Interface(nic.clone()) }
    };
    let port = |mut port: RdmaPort| {
        // A function with one port has one interface.
        let mut own = nics.iter().filter(|nic| nic.pci.is_some() && nic.pci == port.pci);
        if let (true, Some(only), None) = (port.interfaces.is_empty(), own.next(), own.next()) {
            port.interfaces.push(only.name.clone());
        }
        let gids = read_gids(root, &port.device, port.port);
        let health = port_health(&port);
        Link { name: format!("{}:{}", port.device, port.port), health, device: Device::Port(port, gids) }
    };
    let real = nics.iter().filter(|nic| nic.kind != NicKind::Loopback);
    real.map(interface).chain(read_rdma(root).into_iter().map(port)).collect()
}

/// What an interface runs on, or (of a pair) its other end, if that is here.
fn below(root: &Root, name: &str, nics: &[Nic]) -> Option<String> {
    let folder = |name: &str| format!("sys/class/net/{name}");
    let lower = root.list(folder(name)).iter().find_map(|entry| entry.strip_prefix("lower_").map(str::to_owned));
    let number = |name: &str, file: &str| root.number::<u32>(format!("{}/{file}", folder(name)));
    // Numbers of another namespace may be those of anybody here; but nobody else names us in turn.
    let ends = |other: &&Nic| {
        let there =
            number(&other.name, "ifindex").is_some() && number(&other.name, "ifindex") == number(name, "iflink");
        there && other.name != name && number(&other.name, "iflink") == number(name, "ifindex")
    };
    lower.or_else(|| nics.iter().find(ends).map(|other| other.name.clone()))
}

impl Link {
    /// The interface, if it is one.
    pub fn nic(&self) -> Option<&Nic> {
        match &self.device {
            Device::Interface(nic) => Some(nic),
            Device::Port(..) => None,
        }
    }

    /// The port, if it is one.
    pub fn port(&self) -> Option<&RdmaPort> {
        match &self.device {
            Device::Interface(_) => None,
            Device::Port(port, _) => Some(port),
        }
    }

    /// The GID that RoCE traffic should use.
    pub fn gid(&self) -> Option<&Gid> {
        match &self.device {
            Device::Port(port, gids) => best_gid(gids, port.link_layer.as_deref()),
            Device::Interface(_) => None,
        }
    }

    /// `up`, `down`, ...; `ACTIVE`, `INIT`, ...
    pub fn state(&self) -> Option<String> {
        match &self.device {
            Device::Interface(nic) => nic.state.clone(),
            Device::Port(port, _) => port.state.map(|state| state_word(state).to_owned()),
        }
    }

    /// Whether there is a signal: `carrier`, `no carrier`; the port's word.
    pub fn physical_state(&self) -> Option<String> {
        match &self.device {
            Device::Interface(nic) => nic.carrier.map(|on| if on { "carrier" } else { "no carrier" }.to_owned()),
            Device::Port(port, _) => port.physical_state.clone(),
        }
    }

    /// Gbit/s.
    pub fn speed(&self) -> Option<f64> {
        match &self.device {
            Device::Interface(nic) => nic.speed_mbit_per_s.map(|speed| speed as f64 / 1000.0),
            Device::Port(port, _) => port.rate_gbit_per_s,
        }
    }

    /// Addresses: of an interface with prefix; of a RoCE port that of its best GID.
    pub fn addresses(&self) -> Vec<String> {
        match &self.device {
            Device::Interface(nic) => nic.addresses.clone(),
            Device::Port(port, _) if port.link_layer.as_deref() == Some("InfiniBand") => Vec::new(),
            Device::Port(..) => self.gid().map(gid_address).into_iter().collect(),
        }
    }

    /// NUMA node.
    pub fn numa_node(&self) -> Option<u32> {
        match &self.device {
            Device::Interface(nic) => nic.numa_node,
            Device::Port(port, _) => port.numa_node,
        }
    }
}

/// The address in a GID, as people write it.
pub fn gid_address(gid: &Gid) -> String {
    gid.address.to_ipv4_mapped().map_or_else(|| gid.address.to_string(), |address| address.to_string())
}

/// As the kernel writes it.
pub fn state_word(state: RdmaPortState) -> &'static str {
    match state {
        RdmaPortState::Down => "DOWN",
        RdmaPortState::Init => "INIT",
        RdmaPortState::Armed => "ARMED",
        RdmaPortState::Active => "ACTIVE",
        RdmaPortState::ActiveDefer => "ACTIVE_DEFER",
    }
}

fn unwell(reason: impl Into<String>, fix: impl Into<String>) -> Health {
    Health::Unwell { reason: reason.into(), fix: fix.into() }
}

/// By operational state (RFC 2863, kernel documentation `networking/operstates`), carrier, and whether it is set up at all.
fn interface_health(nic: &Nic, set_up: Option<bool>, below: Option<&str>) -> Health {
    let name = &shell_word(&nic.name);
    let meant_to_run = matches!(nic.kind, NicKind::Physical | NicKind::Bond | NicKind::Vlan);
    if set_up == Some(false) {
        return match meant_to_run {
            true => unwell("set down", format!("ip link set {name} up, if it should be in use")),
            false => Health::Idle("set down"),
        };
    }
    if nic.kind == NicKind::Bridge && nic.carrier != Some(true) {
        return Health::Idle("none of its ports is up");
    }
    let cable = || format!("look at cable, transceiver and the switch's port: ethtool {name}");
    match nic.state.as_deref() {
        Some("down") if nic.carrier.is_none() => unwell("down", format!("ip link set {name} up")),
        Some("down") => unwell("no carrier", cable()),
        Some("lowerlayerdown") => unwell(
            "what it runs on, or its other end, is down",
            match below {
                Some(below) => format!("ip link set {} up", shell_word(below)),
                None => format!("ip -d link show {name} says what that is: set it up"),
            },
        ),
        Some("dormant") => {
            unwell("waits for an event, such as 802.1X authentication", format!("ip -d link show {name}"))
        }
        Some("notpresent") => unwell("its device is gone", "look at the kernel's log: dmesg"),
        Some("testing") => unwell("in a test", "wait for its end"),
        _ if nic.carrier == Some(false) => unwell("no carrier", cable()),
        Some("up") => Health::Well,
        _ if nic.carrier == Some(true) => Health::Well,
        _ => Health::Unknown,
    }
}

/// F13: usable only when active; each other state has a cause of its own.
fn port_health(port: &RdmaPort) -> Health {
    let infiniband = port.link_layer.as_deref() == Some("InfiniBand");
    let (device, number) = (&port.device, port.port);
    let set_up = match port.interfaces.first() {
        Some(name) => format!("ip link set {} up", shell_word(name)),
        None => format!("set its interface up, which rdma link show {device}/{number} names"),
    };
    match port.state {
        None => Health::Unknown,
        Some(RdmaPortState::Active) if infiniband && port.lid == Some(0) => {
            unwell("active without a local identifier", "look at the subnet manager: sminfo")
        }
        Some(RdmaPortState::Active) => Health::Well,
        Some(RdmaPortState::ActiveDefer) => unwell(
            "the link is being retrained",
            format!("look at cable and error counters: perfquery -x -C {device} -P {number}"),
        ),
        Some(RdmaPortState::Init) if infiniband => unwell(
            "the cable is up, but no subnet manager has set up the port",
            "start one (systemctl start opensm), or look why the fabric's does not reach it: sminfo",
        ),
        Some(RdmaPortState::Init) => unwell("the cable is up, the port is not set up yet", set_up),
        Some(RdmaPortState::Armed) => unwell(
            "set up by the subnet manager, but not made active",
            "look at the subnet manager (sminfo); one packet from the other end makes it active",
        ),
        Some(RdmaPortState::Down) => match port.physical_state.as_deref() {
            Some("Polling") => {
                unwell("nobody at the other end", "look at the cable and at the switch's port: iblinkinfo, mlxlink")
            }
            Some("Disabled") if infiniband => {
                unwell("disabled", format!("ibportstate -C {device} -P {number} -D 0 {number} enable"))
            }
            Some("Disabled") => unwell("disabled", set_up),
            Some("Sleep") => unwell("asleep, to save power", format!("rdma link show {device}/{number}")),
            Some("LinkErrorRecovery") => unwell("recovering from errors", "look at the cable: mlxlink"),
            _ => unwell("down", "look at cable, transceiver and the switch's port"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(kind: NicKind, state: &str, carrier: Option<bool>) -> Nic {
        Nic { state: Some(state.to_owned()), carrier, ..Nic::unknown("eth0", kind) }
    }

    fn is_unwell(health: &Health) -> bool {
        matches!(health, Health::Unwell { .. })
    }

    #[test]
    fn what_is_down_by_design_makes_no_noise() {
        let health = |kind, state, carrier, set_up| interface_health(&nic(kind, state, carrier), set_up, None);
        assert_eq!(health(NicKind::Physical, "up", Some(true), Some(true)), Health::Well);
        assert_eq!(health(NicKind::Virtual, "unknown", Some(true), Some(true)), Health::Well);
        assert!(matches!(health(NicKind::Bridge, "down", Some(false), Some(true)), Health::Idle(_)), "docker0");
        assert!(matches!(health(NicKind::Virtual, "down", None, Some(false)), Health::Idle(_)), "dummy0");
        assert!(is_unwell(&health(NicKind::Physical, "down", None, None)));
        assert!(is_unwell(&health(NicKind::Physical, "down", Some(false), Some(true))));
        assert!(is_unwell(&health(NicKind::Physical, "down", None, Some(false))));
        assert!(
            is_unwell(&health(NicKind::Virtual, "lowerlayerdown", Some(false), Some(true))),
            "the other end of a veth"
        );
        assert_eq!(health(NicKind::Physical, "unknown", None, None), Health::Unknown);
        let lower = nic(NicKind::Vlan, "lowerlayerdown", Some(false));
        let Health::Unwell { fix, .. } = interface_health(&lower, Some(true), Some("eth 1")) else { panic!() };
        assert_eq!(fix, "ip link set 'eth 1' up", "what is known is named");
    }

    /// F13: INIT, ARMED, DOWN each with its own hint.
    #[test]
    fn each_state_of_a_port_has_its_own_hint() {
        let port = |state, physical: &str, layer: &str| RdmaPort {
            state: Some(state),
            physical_state: Some(physical.to_owned()),
            link_layer: Some(layer.to_owned()),
            lid: Some(5),
            ..RdmaPort::unknown("mlx5_0", 1)
        };
        let states = [
            port(RdmaPortState::Init, "LinkUp", "InfiniBand"),
            port(RdmaPortState::Init, "LinkUp", "Ethernet"),
            port(RdmaPortState::Armed, "LinkUp", "InfiniBand"),
            port(RdmaPortState::Down, "Polling", "InfiniBand"),
            port(RdmaPortState::Down, "Disabled", "InfiniBand"),
            port(RdmaPortState::Down, "Disabled", "Ethernet"),
        ];
        let mut hints = std::collections::BTreeSet::new();
        for port in &states {
            let Health::Unwell { reason, fix } = port_health(port) else { panic!("{port:?} is taken for well") };
            assert!(hints.insert((reason, fix)), "{port:?} has another's hint");
        }
        assert_eq!(port_health(&port(RdmaPortState::Active, "LinkUp", "InfiniBand")), Health::Well);
        let no_lid = RdmaPort { lid: Some(0), ..port(RdmaPortState::Active, "LinkUp", "InfiniBand") };
        assert!(is_unwell(&port_health(&no_lid)));
        assert_eq!(port_health(&RdmaPort::unknown("mlx5_0", 1)), Health::Unknown);
    }
}
