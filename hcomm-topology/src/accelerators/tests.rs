//! Small trees and texts of our own making, after what drivers and tools are documented to write.

use std::fs;
use std::path::Path;

use super::*;
use crate::{Health, LinkKind, read_pci};

/// A tree of files, `path: text`.
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

/// The files of a function, given below its folder on the bus.
fn function<'a>(address: &'a str, files: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (String, &'a str)> {
    files.iter().map(move |(name, text)| (format!("sys/bus/pci/devices/{address}/{name}"), *text))
}

fn found(files: &[(String, &str)]) -> Found {
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_folder, root) = tree(&files);
    find(&root, &read_pci(&root))
}

const MI300: &[(&str, &str)] = &[
    ("class", "0x120000"),
    ("vendor", "0x1002"),
    ("device", "0x74a0"),
    ("numa_node", "1"),
    ("mem_info_vram_total", "137438953472\n"),
    ("mem_info_vram_used", "1073741824\n"),
    ("gpu_busy_percent", "37\n"),
    ("unique_id", "4cef1a2b3c4d5e6f\n"),
    ("drm/card1/dev", "226:1"),
    ("drm/renderD129/dev", "226:129"),
    ("hwmon/hwmon7/temp1_input", "41000\n"),
    ("hwmon/hwmon7/power1_average", "152000000\n"),
];

#[test]
fn what_amdgpu_writes() {
    let found = found(&function("0000:02:00.0", MI300).collect::<Vec<_>>());
    let [gpu] = &found.accelerators[..] else { panic!("{found:?}") };
    assert_eq!((gpu.kind, gpu.vendor, gpu.numa_node), (AcceleratorKind::Gpu, Some(Vendor::Amd), Some(1)));
    assert_eq!(gpu.model.as_deref(), Some("Instinct MI300A"));
    assert_eq!((gpu.memory_bytes, gpu.memory_used_bytes), (Some(128 << 30), Some(1 << 30)));
    assert_eq!((gpu.utilisation_percent, gpu.temperature_c, gpu.power_w), (Some(37.0), Some(41.0), Some(152.0)));
    assert_eq!(gpu.uuid.as_deref(), Some("4cef1a2b3c4d5e6f"));
    assert_eq!(gpu.id.name.as_deref(), Some("renderD129"));
}

#[test]
fn sensors_that_fail_leave_the_rest() {
    let files: Vec<_> = function("0000:02:00.0", MI300)
        .map(|(path, text)| {
            let broken = path.ends_with("temp1_input") || path.ends_with("mem_info_vram_used");
            (path, if broken { "" } else { text })
        })
        .collect();
    let gpu = &found(&files).accelerators[0];
    assert_eq!((gpu.temperature_c, gpu.memory_used_bytes), (None, None));
    assert_eq!((gpu.power_w, gpu.memory_bytes), (Some(152.0), Some(128 << 30)));
}

#[test]
fn tiles_of_xe() {
    let files: &[(&str, &str)] = &[
        ("class", "0x038000"),
        ("vendor", "0x8086"),
        ("device", "0x0bd5"),
        ("tile0/physical_vram_size_bytes", "68719476736"),
        ("tile1/physical_vram_size_bytes", "68719476736"),
    ];
    let gpu = &found(&function("0000:3a:00.0", files).collect::<Vec<_>>()).accelerators[0];
    assert_eq!((gpu.model.as_deref(), gpu.memory_bytes), (Some("Data Center GPU Max 1550"), Some(128 << 30)));
}

/// A compute topology: processor 0, GPUs at `locations`, links `(from, to, type, weight, MB/s)`.
fn compute_topology(locations: &[u32], links: &[(usize, usize, u32, u32, u32)]) -> Vec<(String, String)> {
    let nodes = "sys/class/kfd/kfd/topology/nodes";
    let mut files = vec![(format!("{nodes}/0/properties"), "cpu_cores_count 8\nsimd_count 0\n".to_owned())];
    for (at, location) in locations.iter().enumerate() {
        let node = at + 1;
        files.push((
            format!("{nodes}/{node}/properties"),
            format!("cpu_cores_count 0\nsimd_count 304\nlocation_id {location}\ndomain 0\n"),
        ));
        files.push((format!("{nodes}/{node}/mem_banks/0/properties"), "heap_type 1\nsize_in_bytes 1000\n".to_owned()));
    }
    for (number, (from, to, kind, weight, speed)) in links.iter().enumerate() {
        files.push((
            format!("{nodes}/{from}/io_links/{number}/properties"),
            format!("type {kind}\nnode_from {from}\nnode_to {to}\nweight {weight}\nmax_bandwidth {speed}\n"),
        ));
    }
    files
}

#[test]
fn xgmi_links() {
    let topology = compute_topology(
        &[0x0200, 0x0300],
        &[(1, 0, 2, 20, 0), (1, 2, 11, 15, 50000), (2, 1, 11, 30, 0), (2, 0, 11, 13, 36000), (2, 9, 11, 15, 50000)],
    );
    let mut files: Vec<(String, &str)> =
        function("0000:02:00.0", MI300).chain(function("0000:03:00.0", MI300)).collect();
    files.extend(topology.iter().map(|(path, text)| (path.clone(), text.as_str())));
    let link =
        |from, to, hops, mb_per_s| AcceleratorLink { from, to, kind: LinkKind::Xgmi, count: None, hops, mb_per_s };
    let expected = [
        link(0, LinkTarget::Accelerator(1), Some(1), Some(50000)),
        link(1, LinkTarget::Accelerator(0), Some(2), None),
        link(1, LinkTarget::Cpu, None, Some(36000)),
    ];
    assert_eq!(found(&files).links, expected);
}

#[test]
fn partitions() {
    // The part is in the upper four bits, or in place of the function.
    for locations in [[0x0200, 0x1000_0200, 0x2000_0200], [0x0200, 0x0201, 0x0202]] {
        let topology = compute_topology(&locations, &[(1, 3, 11, 15, 7)]);
        let mut files: Vec<(String, &str)> = function("0000:02:00.0", MI300).collect();
        files.extend(topology.iter().map(|(path, text)| (path.clone(), text.as_str())));
        let found = found(&files);
        let parts: Vec<_> = found.accelerators.iter().map(|gpu| (gpu.id.partition, gpu.memory_bytes)).collect();
        assert_eq!(parts, [(Some(0), Some(1000)), (Some(1), Some(1000)), (Some(2), Some(1000))]);
        assert!(found.accelerators.iter().all(|gpu| gpu.memory_used_bytes.is_none() && gpu.uuid.is_none()));
        assert_eq!((found.links[0].from, &found.links[0].to), (0, &LinkTarget::Accelerator(2)));
    }
}

#[test]
fn what_the_nvidia_driver_writes() {
    let card: &[(&str, &str)] = &[("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x20b5")];
    let text =
        "Model: \t\t NVIDIA A100 80GB PCIe\nIRQ:   \t\t 91\nGPU UUID: \t GPU-f2b8\nVideo BIOS: \t ??.??.??.??.??\n";
    let mut files: Vec<(String, &str)> = function("0000:3b:00.0", card).chain(function("0000:5e:00.0", card)).collect();
    files.push(("proc/driver/nvidia/gpus/0000:3b:00.0/information".to_owned(), text));
    let unopened = "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????\n";
    files.push(("proc/driver/nvidia/gpus/0000:5e:00.0/information".to_owned(), unopened));
    let found = found(&files);
    let [first, second] = &found.accelerators[..] else { panic!("{found:?}") };
    assert_eq!((first.model.as_deref(), first.uuid.as_deref()), (Some("A100 80GB PCIe"), Some("GPU-f2b8")));
    assert_eq!((second.model.as_deref(), second.uuid.as_deref()), (Some("A100 PCIe 80GB"), None));
}

#[test]
fn virtual_functions_are_parts_of_the_physical_one() {
    let (folder, root) = tree(&[]);
    for address in ["0000:02:00.0", "0000:02:00.1"] {
        for (name, text) in MI300 {
            let path = folder.path().join("sys/bus/pci/devices").join(address).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let link = folder.path().join("sys/bus/pci/devices/0000:02:00.1/physfn");
    std::os::unix::fs::symlink(Path::new("../0000:02:00.0"), link).unwrap();
    assert_eq!(find(&root, &read_pci(&root)).accelerators.len(), 1);
}

/// Two cards of two dies, as an Atlas A3 prints them.
const DIES: &str = "\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc2                            Version: 26.0.rc2                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     Ascend910           | OK            | 162.6                34                      0    / 0                |
| 0     0                   | 0000:9D:00.0  | 12                   0    / 0                3419 / 65536            |
+------------------------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -                    35                      0    / 0                |
| 1     1                   | 0000:9F:00.0  | 0                    0    / 0                57784/ 65536            |
+===========================+===============+======================================================================+
| 1     Ascend910           | Warning       | 171.0                NA                      0    / 0                |
| 0     2                   | 0000:99:00.0  | NA                   0    / 0                2874 / 65536            |
+===========================+===============+======================================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)                        |
+===========================+===============+======================================================================+
| 0       0                 | 4711          | python                   | 3333                                      |
| 0       1                 | 4712          | python                   | 3333                                      |
";

#[test]
fn npu_smi_of_dies() {
    let npus = parse_npus(DIES);
    let [first, second, third] = &npus[..] else { panic!("{npus:#?}") };
    let expected = Npu {
        card: Some(0),
        chip: Some(0),
        physical: Some(0),
        pci: Some("0000:9d:00.0".parse().unwrap()),
        model: Some("Ascend 910".to_owned()),
        health: Some(Health::Good),
        power_w: Some(162.6),
        temperature_c: Some(34.0),
        utilisation_percent: Some(12.0),
        memory_used_bytes: Some(3419 << 20),
        memory_bytes: Some(65536 << 20),
    };
    assert_eq!(*first, expected);
    assert_eq!((second.chip, second.physical, second.power_w), (Some(1), Some(1), None), "the card has one meter");
    assert_eq!((second.memory_used_bytes, second.temperature_c), (Some(57784 << 20), Some(35.0)), "runs together");
    assert_eq!(third.health, Some(Health::Bad("Warning".to_owned())));
    assert_eq!((third.temperature_c, third.utilisation_percent), (None, None));
    assert_eq!(third.memory_bytes, Some(65536 << 20));
}

#[test]
fn npu_smi_of_other_shapes() {
    let rows = |heading: &str, first: &str, second: &str| {
        parse_npus(&format!(
            "| NPU     Name | Health | Power(W)  Temp(C)  Hugepages-Usage(page) |\n| {heading} |\n| {first} |\n| {second} |\n"
        ))
    };
    // One chip a card, no physical number.
    let b4 = &rows(
        "Chip | Bus-Id | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)",
        "3 910B4-1 | OK | 91.3 33 0 / 0",
        "0 | 0000:C1:00.0 | 0 0 / 0 3197 / 65536",
    )[0];
    assert_eq!((b4.card, b4.chip, b4.physical), (Some(3), Some(0), None));
    assert_eq!((b4.model.as_deref(), b4.memory_bytes), (Some("Ascend 910B4-1"), Some(65536 << 20)));
    // No HBM: the chip's memory is the only one.
    let p3 = &rows(
        "Chip    Device | Bus-Id | AICore(%)   Memory-Usage(MB)",
        "8 310P3 | OK | NA 42 0 / 0",
        "0 5 | 0000:01:00.0 | 0 1852 / 21527",
    )[0];
    assert_eq!((p3.physical, p3.power_w, p3.temperature_c), (Some(5), None, Some(42.0)));
    assert_eq!((p3.memory_used_bytes, p3.memory_bytes), (Some(1852 << 20), Some(21527 << 20)));
    // Nothing known.
    let none = &rows(
        "Chip | Bus-Id | AICore(%) Memory-Usage(MB) HBM-Usage(MB)",
        "0 910B3 | NA | - - - / -",
        "0 | NA | - - / - - / -",
    )[0];
    let expected = Npu { card: Some(0), chip: Some(0), model: Some("Ascend 910B3".to_owned()), ..Npu::default() };
    assert_eq!(*none, expected);
    // A total of 0 is not known either.
    let zero = &rows(
        "Chip | Bus-Id | AICore(%) Memory-Usage(MB) HBM-Usage(MB)",
        "0 910B3 | OK | 1 2 0 / 0",
        "0 | NA | 0 0 / 0 0 / 0",
    )[0];
    assert_eq!((zero.memory_used_bytes, zero.memory_bytes), (None, None));
    assert_eq!(parse_npus("DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi model initialized failed"), []);
}

const TOPOLOGY: &str = "\
\t   NPU0       NPU1       NPU2       CPU Affinity
NPU0       X          SIO        HCCS_SW    144-167
NPU1       SIO        X          HCCS_SW    144-167
NPU2       HCCS_SW    PHB        X          0-23

Legend:

  X    = Self
  SYS  = Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI.
  NPU0 is no row here
";

#[test]
fn npu_smi_topology() {
    let topology = parse_topology(TOPOLOGY);
    assert_eq!(topology.names, ["NPU0", "NPU1", "NPU2"]);
    let links = [
        (0, 1, LinkKind::Sio),
        (0, 2, LinkKind::HccsSwitch),
        (1, 0, LinkKind::Sio),
        (1, 2, LinkKind::HccsSwitch),
        (2, 0, LinkKind::HccsSwitch),
    ];
    assert_eq!(topology.links, links);
    let cpus: Vec<_> = topology.cpus.iter().map(|set| set.as_ref().unwrap().to_string()).collect();
    assert_eq!(cpus, ["144-167", "144-167", "0-23"]);
    for bad in ["", "NPU0", "Legend:\n X = Self", "\tNPU0 NPU1 CPU Affinity\nNPU0 X\nNPU9 X HCCS 0-3\n"] {
        assert_eq!(parse_topology(bad).links, [], "{bad:?}");
    }
}

#[test]
fn npus_are_numbered_as_their_tool_does() {
    let die: &[(&str, &str)] = &[
        ("class", "0x120000"),
        ("vendor", "0x19e5"),
        ("device", "0xd803"),
        ("numa_node", "-1"),
        ("current_link_speed", "2.5 GT/s PCIe"),
        ("current_link_width", "1"),
    ];
    let files: Vec<(String, &str)> =
        ["0000:99:00.0", "0000:9d:00.0", "0000:9f:00.0"].iter().flat_map(|address| function(address, die)).collect();
    let mut found = found(&files);
    assert!(found.accelerators.iter().all(|npu| npu.pci_link_is_not_the_data_path));
    add_ascend(&mut found, &parse_npus(DIES), &parse_topology(TOPOLOGY));
    let order: Vec<String> = found.accelerators.iter().map(|npu| npu.id.pci.unwrap().to_string()).collect();
    assert_eq!(order, ["0000:9d:00.0", "0000:9f:00.0", "0000:99:00.0"]);
    assert_eq!(found.accelerators[2].id.name.as_deref(), Some("phy 2"));
    assert_eq!(found.accelerators[0].model.as_deref(), Some("Ascend 910C"), "the tool says only 910");
    assert_eq!(found.accelerators[2].numa_node, None);
    let link = |from, to, kind| AcceleratorLink {
        from,
        to: LinkTarget::Accelerator(to),
        kind,
        count: None,
        hops: None,
        mb_per_s: None,
    };
    assert_eq!(found.links.len(), 5);
    assert_eq!((&found.links[0], &found.links[4]), (&link(0, 1, LinkKind::Sio), &link(2, 0, LinkKind::HccsSwitch)));
    let far: PciAddress = "0000:99:00.0".parse().unwrap();
    assert_eq!(found.cpus[&far].to_string(), "0-23");
}

#[test]
fn order_moves_links_along() {
    let mut found = Found { accelerators: functions(&[]), ..Found::default() };
    for name in ["a", "b", "c"] {
        let id = DeviceId { pci: None, partition: None, name: Some(name.to_owned()) };
        found.accelerators.push(Accelerator::unknown(id));
    }
    let to = LinkTarget::Accelerator(2);
    found.links.push(AcceleratorLink { from: 0, to, kind: LinkKind::Hccs, count: None, hops: None, mb_per_s: None });
    order(&mut found, |at| [Some(5), None, Some(3)][at]);
    let names: Vec<_> = found.accelerators.iter().map(|a| a.id.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["b", "c", "a"]);
    assert_eq!((found.links[0].from, &found.links[0].to), (2, &LinkTarget::Accelerator(1)));
}

#[test]
fn tools_have_a_limit() {
    let limit = Duration::from_millis(50);
    assert_eq!(command::output("hcomm-no-such-tool", &[], limit), Err(None));
    assert_eq!(command::output("etc", &[], limit), Err(None), "a folder is no program");
    let slow = command::output("sleep", &["30"], limit).unwrap_err().unwrap();
    assert!(slow.contains("sleep 30") && slow.contains("has not ended"), "{slow}");
    assert!(command::output("false", &[], Duration::from_secs(5)).unwrap_err().unwrap().contains("failed"));
    assert_eq!(command::output("echo", &["a", "b"], Duration::from_secs(5)).as_deref(), Ok("a b\n"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read(text in "([|]? ?(NPU|Chip|HBM-Usage|0|65536|/|-|X|HCCS|CPU|[0-9A-F:.]{0,12}|\\PC{0,5}) ?[|\n]?){0,60}") {
        let _ = parse_npus(&text);
        let topology = parse_topology(&text);
        proptest::prop_assert!(topology.links.iter().all(|(from, to, _)| from.max(to) < &topology.names.len()));
    }
}
