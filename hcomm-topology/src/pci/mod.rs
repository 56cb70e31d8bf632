//! The PCI tree, from `/sys/bus/pci/devices` (kernel: `Documentation/ABI/testing/sysfs-bus-pci`).

mod header;
mod link;
mod names;

use std::path::{Path, PathBuf};

use crate::root::Folder;
use crate::{CpuSet, PciAddress, PciFunction, Root};
use header::Header;
pub use link::{below_own_best, degraded, possible};
pub(crate) use link::{is_speed, width};

/// Folders below `sys/devices/pci*` are searched no deeper; PCI itself ends at 256 buses, real trees at about ten.
const DEEPEST: usize = 40;

/// All PCI functions, bridges too, ascending by address, with their names where a `pci.ids` is below the root or on this machine.
pub fn read_pci(root: &Root) -> Vec<PciFunction> {
    let mut functions: Vec<PciFunction> =
        places(root).into_iter().map(|(address, path)| read_function(root, address, path)).collect();
    functions.sort_by_key(|function| function.address);
    functions.dedup_by_key(|function| function.address);
    names::add_names(root, &mut functions);
    functions
}

/// Each function with a path to its folder: as the bus lists them, else (trees that lack the bus) as the device tree holds them.
fn places(root: &Root) -> Vec<(PciAddress, PathBuf)> {
    let bus = Path::new("sys/bus/pci/devices");
    let listed: Vec<_> =
        root.list(bus).into_iter().filter_map(|name| Some((name.parse().ok()?, bus.join(name)))).collect();
    if !listed.is_empty() {
        return listed;
    }
    let devices = Path::new("sys/devices");
    let mut found = Vec::new();
    for name in root.list(devices).iter().filter(|name| root_bus(name).is_some()) {
        search(root, &devices.join(name), DEEPEST, &mut found);
    }
    found
}

/// Adds the functions in `folder` and in those below it.
fn search(root: &Root, folder: &Path, deepest: usize, found: &mut Vec<(PciAddress, PathBuf)>) {
    if deepest == 0 {
        return;
    }
    for name in root.list(folder) {
        let path = folder.join(&name);
        let address = name.parse().ok();
        // A link leads back into the tree, or out of it.
        let real = || root.canonical(&path).is_some_and(|inside| inside == path) && root.is_folder(&path);
        if (address.is_some() || root_bus(&name).is_some()) && real() {
            found.extend(address.map(|address| (address, path.clone())));
            search(root, &path, deepest - 1, found);
        }
    }
}

/// `0000:3a` of a folder's name `pci0000:3a`.
fn root_bus(name: &str) -> Option<&str> {
    let bus = name.strip_prefix("pci")?;
    format!("{bus}:00.0").parse::<PciAddress>().is_ok().then_some(bus)
}

fn read_function(root: &Root, address: PciAddress, path: PathBuf) -> PciFunction {
    let mut function = PciFunction::unknown(address);
    if let Some(folder) = root.open_folder(path) {
        place(&mut function, folder.path());
        identify(&mut function, &folder);
        function.driver = folder.link_name("driver");
        function.numa_node = folder.number("numa_node");
        function.local_cpus = local_cpus(&folder);
        function.link = link::read(&folder);
        function.physical_function = folder.link_name("physfn").and_then(|name| name.parse().ok());
    }
    function
}

/// Bridge above and root bus, from the folders that the function's own folder lies in.
fn place(function: &mut PciFunction, path: &Path) {
    let mut above = path.iter().rev().skip(1).filter_map(|name| name.to_str()).peekable();
    function.parent = above.peek().and_then(|name| name.parse().ok());
    function.root_bus = above.find_map(root_bus).map(str::to_ascii_lowercase);
}

/// Class, vendor, device and card: what the kernel says (it knows of faulty devices), else the header itself.
fn identify(function: &mut PciFunction, folder: &Folder<'_>) {
    let header = folder.bytes("config").map(|bytes| Header::read(&bytes)).unwrap_or_default();
    let half = |name: &str| folder.hex(name).and_then(|value| u16::try_from(value).ok());
    function.class = folder.hex("class").and_then(|class| u32::try_from(class).ok()).or(header.class);
    function.vendor = half("vendor").or(header.vendor);
    function.device = half("device").or(header.device);
    function.subsystem_vendor = half("subsystem_vendor").or(header.subsystem_vendor);
    function.subsystem_device = half("subsystem_device").or(header.subsystem_device);
    let bridge_class = function.class.is_some_and(|class| matches!(class >> 8, 0x0604 | 0x0607 | 0x0609));
    function.bridge = bridge_class || header.bridge;
}

/// Processors next to the function; `None` where the file is empty, as nothing is next to no processor.
fn local_cpus(folder: &Folder<'_>) -> Option<CpuSet> {
    let list = || CpuSet::parse_list(&folder.text("local_cpulist")?).filter(|set| !set.is_empty());
    let mask = || CpuSet::parse_mask(&folder.text("local_cpus")?).filter(|set| !set.is_empty());
    list().or_else(mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Files of a function by name; `name@` is a link.
    type Files<'a> = &'a [(&'a str, &'a [u8])];

    /// A tree with the functions at `paths` (below `sys/devices`), each with `files`.
    fn tree(functions: &[(&str, Files<'_>)], bus: bool) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sys/bus/pci/devices")).unwrap();
        for (path, files) in functions {
            let inside = folder.path().join("sys/devices").join(path);
            fs::create_dir_all(&inside).unwrap();
            for (name, bytes) in *files {
                match name.strip_suffix('@') {
                    Some(link) => symlink(std::str::from_utf8(bytes).unwrap(), inside.join(link)).unwrap(),
                    None => fs::write(inside.join(name), bytes).unwrap(),
                }
            }
            let name = Path::new(path).file_name().unwrap();
            if bus && name.to_str().unwrap().parse::<PciAddress>().is_ok() {
                let target = Path::new("../../../devices").join(path);
                symlink(target, folder.path().join("sys/bus/pci/devices").join(name)).unwrap();
            }
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    const CARD: Files<'_> = &[
        ("class", b"0x120000\n"),
        ("vendor", b"0x19e5\n"),
        ("device", b"0xd802\n"),
        ("subsystem_vendor", b"0x19e5\n"),
        ("subsystem_device", b"0x0100\n"),
        ("numa_node", b"-1\n"),
        ("local_cpulist", b"0-3\n"),
        ("current_link_speed", b"16.0 GT/s PCIe\n"),
        ("current_link_width", b"255\n"),
        ("max_link_speed", b"Unknown speed\n"),
        ("max_link_width", b"16\n"),
        ("driver@", b"../../../../bus/pci/drivers/devdrv_device_driver"),
    ];

    #[test]
    fn a_card_behind_a_bridge() {
        let bridge: Files<'_> = &[("class", b"0x060400\n"), ("local_cpulist", b"\n"), ("local_cpus", b"f\n")];
        let virtual_one: Files<'_> = &[("physfn@", b"../0000:01:00.0")];
        let functions = [
            ("pci0000:00/0000:00:01.0", bridge),
            ("pci0000:00/0000:00:01.0/0000:01:00.0", CARD),
            ("pci0000:00/0000:00:01.0/0000:01:00.1", virtual_one),
            ("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0", &[]),
        ];
        let ids = b"# table\n1000  Other\n\td802  Wrong\n19e5  Huawei\n\td802  Ascend 910B\n\t\t19e5 0100  Card\nC 12  Accelerators\n";
        for bus in [true, false] {
            let (folder, root) = tree(&functions, bus);
            fs::create_dir_all(folder.path().join("usr/share/misc")).unwrap();
            fs::write(folder.path().join("usr/share/misc/pci.ids"), ids).unwrap();
            let mut read = read_pci(&root);
            read.retain(|function| function.address.to_string() != "0000:00:0e.0");
            let [bridge, card, virtual_one, far] = &read[..] else { panic!("{read:?}") };
            assert_eq!((bridge.bridge, bridge.parent, bridge.class), (true, None, Some(0x060400)));
            assert_eq!(bridge.local_cpus, CpuSet::parse_list("0-3"), "the mask, where the list is empty");
            assert_eq!(card.parent, Some(bridge.address));
            assert_eq!(card.root_bus.as_deref(), Some("0000:00"));
            assert_eq!((card.vendor, card.device), (Some(0x19e5), Some(0xd802)));
            assert_eq!((card.subsystem_vendor, card.subsystem_device), (Some(0x19e5), Some(0x0100)));
            assert_eq!((card.numa_node, card.bridge), (None, false));
            assert_eq!(card.driver.as_deref(), Some("devdrv_device_driver"));
            assert_eq!(card.name.as_deref(), Some("Huawei Ascend 910B"));
            let link = crate::PciLink { speed_gt_per_s: Some(16.0), max_width: Some(16), ..Default::default() };
            assert_eq!(card.link, link);
            assert_eq!(virtual_one.physical_function, Some(card.address));
            assert_eq!((far.address.domain, far.parent, far.root_bus.as_deref()), (0x10000, None, Some("10000:e0")));
        }
    }

    #[test]
    fn headers_stand_in_for_files() {
        let mut config = [0; 64];
        config[..4].copy_from_slice(&[0xde, 0x10, 0x30, 0x23]);
        config[0x09..0x0c].copy_from_slice(&[0x00, 0x02, 0x03]);
        let (_folder, root) = tree(&[("pci0000:00/0000:00:02.0", &[("config", &config), ("vendor", b"")])], true);
        let read = read_pci(&root);
        assert_eq!((read[0].vendor, read[0].device, read[0].class), (Some(0x10de), Some(0x2330), Some(0x030200)));
    }

    #[test]
    fn damaged_trees() {
        let (folder, root) =
            tree(&[("pci0000:00/0000:00:02.0", &[("class@", b"class"), ("vendor@", b"/etc/passwd")])], true);
        let bus = folder.path().join("sys/bus/pci/devices");
        symlink("nowhere", bus.join("0000:00:03.0")).unwrap();
        fs::write(bus.join("0000:00:04.0"), "a file").unwrap();
        fs::write(bus.join("no address"), "").unwrap();
        let read = read_pci(&root);
        assert_eq!(read.len(), 3, "the bus lists them; nothing else is known");
        assert!(read.iter().all(|f| f.class.is_none() && f.vendor.is_none() && f.device.is_none()));
        assert_eq!(read_pci(&Root::at(folder.path().join("none"))), []);
    }
}
