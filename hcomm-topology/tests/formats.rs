//! Topology files that are wrong: an error that names file, line and what was expected, and never a panic.

#[allow(dead_code)]
#[path = "data/support.rs"]
mod support;

use std::fs;

use hcomm_topology::Machine;
use hcomm_topology::formats::{ascend::RankTable, nccl};
use hcomm_topology::graph::{Graph, Relation};
use support::{data, say};

fn problem(text: &str) -> String {
    Machine::from_xml("m.xml", text).unwrap_err().to_string()
}

#[test]
fn errors_name_file_line_and_what_was_expected() {
    let system = |inner: &str| format!("<system version=\"1\">\n<cpu numaid=\"0\">\n{inner}\n</cpu>\n</system>");
    let cases = [
        (String::new(), "m.xml:1: expected XML, found nothing"),
        ("<system".into(), "m.xml:1: expected well-formed XML"),
        ("<system version=\"1\">\n<cpu numaid=\"0\">\n</system>".into(), "m.xml:3: expected well-formed XML"),
        // What is missing at the end is missing there.
        ("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci\n\n".into(), "m.xml:3: expected well-formed XML"),
        ("<system version=\"1\">\n<cpu numaid=\"0\">\n</cpu>\n".into(), "m.xml:3: expected well-formed XML"),
        ("\n<!-- nothing -->\n".into(), "m.xml:2: expected well-formed XML"),
        ("<graphs version=\"1\"/>".into(), "m.xml:1: expected <system>"),
        ("<system/>".into(), "m.xml:1: expected version="),
        ("<system version=\"3\"/>".into(), "m.xml:1: expected version 1"),
        ("<system version=\"1\">\n<cpu/></system>".into(), "m.xml:2: expected numaid="),
        (system("<pci/>"), "m.xml:3: expected busid="),
        (system("<pci busid=\"0000:zz:00.0\"/>"), "m.xml:3: expected busid="),
        (system("<pci busid=\"0000:01:00.0\" class=\"gpu\"/>"), "m.xml:3: expected class="),
        (system("<pci busid=\"0000:01:00.0\">\n<pci busid=\"0000:01:00.0\"/></pci>"), "m.xml:4: expected a tree"),
        (
            system("<pci busid=\"0000:01:00.0\"><gpu>\n<nvlink target=\"x\" count=\"1\"/></gpu></pci>"),
            "m.xml:4: expected target=",
        ),
        (system("<pci busid=\"0000:01:00.0\"><gpu>\n<nvlink count=\"many\"/></gpu></pci>"), "m.xml:4: expected count="),
        (system("<nic><net/></nic>"), "m.xml:3: expected name="),
        ("<topology version=\"9\"/>".into(), "m.xml:1: expected version="),
        ("<topology version=\"2.0\"/>".into(), "m.xml:1: expected an <object>"),
        ("<topology>\n<object type=\"Machine\" cpuset=\"0xg\"/></topology>".into(), "m.xml:2: expected cpuset="),
        ("<!DOCTYPE a [\n<!ENTITY a \"b\">]><system/>".into(), "m.xml:2: expected a topology, found a declaration"),
    ];
    for (text, expected) in cases {
        let own = problem(&text);
        assert!(own.starts_with(expected), "{text}: {own}");
    }
}

#[test]
fn deep_wide_and_huge_files_end() {
    let deep = |levels: usize| {
        let open: String =
            (0..levels).map(|at| format!("<pci busid=\"{:04x}:{:02x}:00.0\">\n", at / 256, at % 256)).collect();
        format!("<system version=\"1\"><cpu numaid=\"0\">{open}{}</cpu></system>", "</pci>".repeat(levels))
    };
    assert!(Machine::from_xml("m.xml", &deep(150)).is_ok());
    assert!(problem(&deep(500)).contains("levels of elements"));
    assert!(problem(&deep(100_000)).contains("m.xml:"));
    let attributes: String = (0..100_000).map(|at| format!(" a{at}=\"\"")).collect();
    assert!(problem(&format!("<system version=\"1\"{attributes}/>")).contains("thousands of attributes"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.xml");
    fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    let own = Machine::from_file(&path).unwrap_err().to_string();
    assert!(own.contains("huge.xml: expected a topology file, found more than 16 MiB"), "{own}");
    fs::write(&path, b"<system>\n\xff").unwrap();
    assert!(Machine::from_file(&path).unwrap_err().to_string().contains("huge.xml:2: expected text in UTF-8"));
    assert!(Machine::from_file(folder.path()).unwrap_err().to_string().contains("found a folder"));
    assert!(Machine::from_file(folder.path().join("none")).unwrap_err().to_string().contains("cannot be opened"));
}

/// A flat tree in a virtual machine (field report F17): nothing says that one pair is nearer than another.
#[test]
fn unknown_is_not_near() {
    let function = |address: &str, class: &str| {
        format!(
            "<pci busid=\"{address}\" class=\"{class}\" vendor=\"0x10de\" link_speed=\"Unknown\" link_width=\"0\"/>"
        )
    };
    let functions = [
        function("0001:00:00.0", "0x030200"),
        function("0002:00:00.0", "0x030200"),
        function("0003:00:00.0", "0x020000"),
    ];
    let text = format!("<system version=\"1\"><cpu numaid=\"-1\">{}</cpu></system>", functions.concat());
    let graph = Graph::of(&Machine::from_xml("vm.xml", &text).unwrap());
    assert_eq!(graph.devices().len(), 3);
    assert_eq!(graph.relation(0, 1), Relation::Unknown);
    assert_eq!(graph.estimate(0, 1).gb_per_s, None);
    let nearest = graph.nearest_nics(0).unwrap();
    assert_eq!((nearest.relation, nearest.nics), (Relation::Unknown, vec![2]));
    let ring = &graph.rings(&[0, 1])[0];
    assert_eq!((ring.weakest, ring.lanes, ring.gb_per_s), (Relation::Unknown, None, None));
}

/// What a device is next to, and what cannot be: written and read again, all stays as it was.
#[test]
fn processors_next_to_a_device_are_kept_and_impossible_links_are_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (node, cpus) in [(0, "0-7"), (1, "8-15"), (2, "")] {
        write(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
    }
    // Narrower than the node; no node at all; the node's own; below a bridge that is narrower, with and without a word of its own.
    let bridge = "sys/devices/pci0000:00/0000:00:05.0";
    let functions = [
        ("sys/devices/pci0000:00/0000:00:01.0", "0x030200", "0", "2-3"),
        ("sys/devices/pci0000:00/0000:00:02.0", "0x030200", "-1", "0-3,8"),
        ("sys/devices/pci0000:00/0000:00:03.0", "0x020000", "1", "8-15"),
        (bridge, "0x060400", "1", "9"),
        (&format!("{bridge}/0000:01:00.0"), "0x060400", "1", "9"),
        (&format!("{bridge}/0000:01:00.0/0000:02:00.0"), "0x030200", "1", "8-15"),
        (&format!("{bridge}/0000:01:00.0/0000:02:01.0"), "0x020000", "1", "9"),
    ];
    for (path, class, node, cpus) in functions {
        write(&format!("{path}/class"), class);
        write(&format!("{path}/vendor"), "0x1002");
        write(&format!("{path}/numa_node"), node);
        write(&format!("{path}/local_cpulist"), cpus);
    }
    let machine = Machine::discover(&hcomm_topology::Root::at(folder.path()));
    assert_eq!(machine.pci.len(), 7, "{machine:?}");
    let back = Machine::from_xml("written", &nccl::write(&machine)).unwrap();
    assert_eq!(back.numa.iter().map(|node| &node.cpus).collect::<Vec<_>>(), {
        machine.numa.iter().map(|node| &node.cpus).collect::<Vec<_>>()
    });
    // Of the node, where the function has no other.
    let next_to = |machine: &Machine| -> Vec<(String, String)> {
        let devices = machine.pci.iter().filter(|function| !function.bridge);
        let cpus = |function: &hcomm_topology::PciFunction| {
            let node = machine.numa.iter().find(|node| Some(node.id) == function.numa_node);
            function.local_cpus.clone().or_else(|| node?.cpus.clone()).map(|cpus| cpus.to_string()).unwrap_or_default()
        };
        devices.map(|function| (function.address.to_string(), cpus(function))).collect()
    };
    assert_eq!(next_to(&back), next_to(&machine));
    // Numbers that alternate between nodes, on a machine so large that neither list nor mask of all would fit.
    let odd = |most: u32| (0..most).filter(|cpu| cpu % 2 == 1).collect::<hcomm_topology::CpuSet>();
    for (node_cpus, local) in [(odd(512), odd(256)), (odd(832), odd(512)), ((0..2000).collect(), (500..1500).collect())]
    {
        let mut large = machine.clone();
        large.numa[0].cpus = Some(node_cpus);
        large.pci[0].local_cpus = Some(local);
        let back = Machine::from_xml("large", &nccl::write(&large)).unwrap();
        assert_eq!((&back.numa[0].cpus, &back.pci[0].local_cpus), (&large.numa[0].cpus, &large.pci[0].local_cpus));
    }
    let mut huge = machine.clone();
    huge.numa[0].cpus = Some(odd(4096));
    let back = Machine::from_xml("huge", &nccl::write(&huge)).unwrap();
    assert_eq!(back.numa[0].cpus, None, "unknown, not a part of it");
    let speed = |text: &str| {
        let pci = format!("<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"{text}\" link_width=\"16\"/>");
        let text = format!("<system version=\"1\"><cpu numaid=\"0\">{pci}</cpu></system>");
        Machine::from_xml("speed.xml", &text).unwrap().pci[0].link.max_speed_gt_per_s
    };
    let speeds = ["16 GT/s PCIe", "128.0 GT/s PCIe", "99999999999", "-1", "inf"].map(speed);
    assert_eq!(speeds, [Some(16.0), Some(128.0), None, None, None]);
}

/// The same for the same seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end.max(1) as u64) as usize
    }
}

const PIECES: &[&str] = &[
    "",
    "\"",
    "<",
    ">",
    "</pci>",
    "<pci busid=\"0000:01:00.0\">",
    "-1",
    "4294967296",
    "0x",
    "ffffffff,",
    "{",
    "]",
    "null",
    "\0",
    "<!--",
    "18446744073709551616",
    "<object type=\"PU\"/>",
    "gp_index=\"1\"",
    "0xf...f",
];

#[test]
fn damaged_files_are_errors_or_machines() {
    let mut files = Vec::new();
    for folder in ["nccl-topo", "hwloc-xml", "ascend"] {
        let Ok(entries) = fs::read_dir(data(folder)) else { continue };
        let paths = entries.flatten().map(|entry| entry.path());
        files.extend(
            paths.filter(|path| !path.ends_with("expected.json")).filter_map(|path| fs::read_to_string(path).ok()),
        );
    }
    files.sort();
    if files.is_empty() {
        say("skipped: no data");
        return;
    }
    let mut dice = Dice(7);
    let (mut machines, mut tables) = (0, 0);
    for _ in 0..1000 {
        let mut text = files[dice.below(files.len())].clone();
        for _ in 0..=dice.below(4) {
            let at = dice.below(text.len());
            let at = (at..).find(|at| text.is_char_boundary(*at)).unwrap();
            if dice.below(4) > 0 {
                // A digit more or another: the most harm is done where the text is well formed.
                let digits: Vec<usize> =
                    text.char_indices().filter(|(_, c)| c.is_ascii_hexdigit()).map(|(at, _)| at).collect();
                let Some(at) = digits.get(dice.below(digits.len())) else { continue };
                text.replace_range(at..&(at + 1), ["0", "1", "7", "ff", "", "2", "99"][dice.below(7)]);
            } else if dice.below(4) == 0 {
                text.truncate(at);
            } else {
                let end = (at + dice.below(12)).min(text.len());
                let end = (end..).find(|end| text.is_char_boundary(*end)).unwrap();
                text.replace_range(at..end, PIECES[dice.below(PIECES.len())]);
            }
        }
        if let Ok(machine) = Machine::from_xml("damaged", &text) {
            machines += 1;
            let graph = Graph::of(&machine);
            let written = nccl::write(&machine);
            Machine::from_xml("written", &written).unwrap_or_else(|e| panic!("{e}\n{written}"));
            let some: Vec<usize> = graph.accelerators().into_iter().take(8).collect();
            let _ = (graph.rings(&some), graph.trees(&some), graph.assign_nics(&some));
        }
        tables += usize::from(RankTable::from_json("damaged", &text).is_ok());
    }
    say(&format!("damaged files: {machines} were machines all the same, {tables} rank tables"));
}
