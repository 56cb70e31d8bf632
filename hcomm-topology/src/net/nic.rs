//! Network interfaces: `/sys/class/net` (kernel documentation, `ABI/testing/sysfs-class-net`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{address, link_name, numa_of, pci_of, words};
use crate::{Nic, NicKind, Root};

/// `SPEED_UNKNOWN` (-1) as drivers and old kernels write it in 16 and 32 bits without a sign (`linux/ethtool.h`).
const UNKNOWN_SPEEDS: [u64; 3] = [0, 0xffff, 0xffff_ffff];
/// `ARPHRD_LOOPBACK` (`linux/if_arp.h`).
const LOOPBACK: u32 = 772;
/// Tunnels by hardware type: IPIP, IPv6 in IPv6, SIT, GRE, GRE over IPv6 (`linux/if_arp.h`).
const TUNNELS: [u32; 5] = [768, 769, 776, 778, 823];

/// The interfaces of a machine, in natural order of their names. Files among them (`bonding_masters`) and links that lead nowhere
/// are no interfaces.
pub fn read_nics(root: &Root) -> Vec<Nic> {
    let folder = Path::new("sys/class/net");
    let names: Vec<String> = root.list(folder).into_iter().filter(|name| root.is_folder(folder.join(name))).collect();
    let mut addresses = address::read(root);
    names.into_iter().map(|name| read_nic(root, folder.join(&name), name, &mut addresses)).collect()
}

/// All that the kernel writes (`networking/operstates` of its documentation; the names are in `net/core/net-sysfs.c`).
const STATES: [&str; 7] = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];

fn read_nic(root: &Root, folder: PathBuf, name: String, addresses: &mut BTreeMap<String, Vec<String>>) -> Nic {
    let at = |file: &str| folder.join(file);
    let hardware_type = root.number(at("type"));
    let pci = pci_of(root, &folder);
    let duplex = words(root, &at("duplex"));
    Nic {
        kind: kind(root, &folder, hardware_type),
        driver: link_name(root, &at("device/driver")),
        pci,
        hardware_type,
        mac: words(root, &at("address")),
        mtu: root.number(at("mtu")),
        speed_mbit_per_s: root.number(at("speed")).filter(|speed| !UNKNOWN_SPEEDS.contains(speed)),
        duplex: duplex.filter(|duplex| ["full", "half"].contains(&duplex.as_str())),
        state: words(root, &at("operstate")).filter(|state| STATES.contains(&state.as_str())),
        carrier: root.number::<u8>(at("carrier")).map(|carrier| carrier == 1),
        addresses: addresses.remove(&name).unwrap_or_default(),
        numa_node: numa_of(root, &folder, pci),
        master: link_name(root, &at("master")),
        nccl: BTreeMap::new(),
        name,
    }
}

fn kind(root: &Root, folder: &Path, hardware_type: Option<u32>) -> NicKind {
    let has = |name: &str| root.resolve(folder.join(name)).is_some();
    let uevent = root.text(folder.join("uevent")).unwrap_or_default();
    let device_type = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).unwrap_or_default();
    match (hardware_type, device_type) {
        (Some(LOOPBACK), _) => NicKind::Loopback,
        (_, "bond") => NicKind::Bond,
        (_, "bridge") => NicKind::Bridge,
        (_, "vlan") => NicKind::Vlan,
        (_, "vxlan" | "geneve" | "wireguard" | "ppp") => NicKind::Tunnel,
        _ if has("bonding") => NicKind::Bond,
        _ if has("bridge") => NicKind::Bridge,
        _ if has("tun_flags") => NicKind::Tunnel,
        (Some(hardware), _) if TUNNELS.contains(&hardware) => NicKind::Tunnel,
        _ if has("device") => NicKind::Physical,
        _ if root.canonical(folder).is_some_and(|path| path.starts_with("sys/devices/virtual")) => NicKind::Virtual,
        _ => NicKind::Physical,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    /// F09: `bonding_masters` is a file.
    #[test]
    fn only_folders_are_interfaces() {
        let (folder, root) = tree(&[
            ("sys/class/net/bonding_masters", "bond0\n"),
            ("sys/devices/virtual/net/bond0/bonding/mode", "802.3ad 4\n"),
            ("sys/devices/pci0000:00/0000:00:03.0/net/eth0/mtu", "9000\n"),
            ("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/net/usb0/mtu", "1500\n"),
            ("sys/devices/pci0000:00/0000:00:05.0/virtio1/net/ens5/mtu", "1500\n"),
            ("sys/devices/pci0000:00/0000:00:05.0/numa_node", "1\n"),
        ]);
        let link = |target: &str, at: &str| symlink(target, folder.path().join(at)).unwrap();
        link("../../devices/virtual/net/bond0", "sys/class/net/bond0");
        link("../../devices/virtual/net/lo", "sys/class/net/lo");
        for (device, name) in [
            ("pci0000:00/0000:00:03.0", "eth0"),
            ("pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0", "usb0"),
            ("pci0000:00/0000:00:05.0/virtio1", "ens5"),
        ] {
            link(&format!("../../devices/{device}/net/{name}"), &format!("sys/class/net/{name}"));
            link("../..", &format!("sys/devices/{device}/net/{name}/device"));
        }
        fs::create_dir_all(folder.path().join("sys/bus/pci/devices")).unwrap();
        link("../../../devices/pci0000:00/0000:00:05.0", "sys/bus/pci/devices/0000:00:05.0");
        link("../../../../virtual/net/bond0", "sys/devices/pci0000:00/0000:00:03.0/net/eth0/master");
        let nics = read_nics(&root);
        let seen: Vec<_> = nics
            .iter()
            .map(|nic| (nic.name.as_str(), nic.kind, nic.pci.map(|pci| pci.to_string()), nic.numa_node))
            .collect();
        assert_eq!(
            seen,
            [
                ("bond0", NicKind::Bond, None, None),
                ("ens5", NicKind::Physical, Some("0000:00:05.0".to_owned()), Some(1)),
                ("eth0", NicKind::Physical, Some("0000:00:03.0".to_owned()), None),
                ("usb0", NicKind::Physical, None, None),
            ]
        );
        assert_eq!(nics[2].master.as_deref(), Some("bond0"));
        assert_eq!((nics[2].mtu, nics[2].carrier, nics[2].speed_mbit_per_s), (Some(9000), None, None));
    }

    /// F08: no speed is no number.
    #[test]
    fn unknown_speeds() {
        for (text, speed) in [
            ("-1", None),
            ("0", None),
            ("65535", None),
            ("4294967295", None),
            ("", None),
            ("1000\n", Some(1000)),
            ("800000", Some(800_000)),
        ] {
            let (_folder, root) = tree(&[("sys/class/net/eth0/speed", text)]);
            assert_eq!(read_nics(&root)[0].speed_mbit_per_s, speed, "{text:?}");
        }
    }

    #[test]
    fn kinds() {
        for (file, text, kind) in [
            ("type", "772\n", NicKind::Loopback),
            ("uevent", "DEVTYPE=vlan\nINTERFACE=a\n", NicKind::Vlan),
            ("bridge/bridge_id", "8000", NicKind::Bridge),
            ("tun_flags", "0x1002", NicKind::Tunnel),
            ("type", "778\n", NicKind::Tunnel),
            ("type", "1\n", NicKind::Virtual),
        ] {
            let (folder, root) = tree(&[(&format!("sys/devices/virtual/net/a/{file}"), text)]);
            fs::create_dir_all(folder.path().join("sys/class/net")).unwrap();
            symlink("../../devices/virtual/net/a", folder.path().join("sys/class/net/a")).unwrap();
            assert_eq!(read_nics(&root)[0].kind, kind, "{file}");
        }
    }
}
