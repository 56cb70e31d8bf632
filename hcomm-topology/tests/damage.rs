//! Trees damaged in a thousand ways: discovery ends, and never panics. What it finds is not looked at here.

#[allow(dead_code)]
#[path = "data/support.rs"]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use hcomm_topology::{Machine, Root};
use support::{machines, say};

/// So long no discovery takes that ends at all.
const FOR_EVER: Duration = Duration::from_secs(120);

/// A sequence of numbers that is the same for the same seed (SplitMix64; Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }
}

/// Texts that are at or beyond the ends of what some number holds.
const TEXTS: &[&str] = &[
    "-1",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999999",
    "0-4294967295",
    "0-1048575",
    "0-1048575:1/1048575",
    "ffffffff,ffffffff,ffffffff",
    "0xffffffffffffffff",
    "nan GT/s",
    "1e38 GT/s",
    "0:0:0:0",
    "\u{feff}\u{0}\u{0}",
    "Node 0 MemTotal: 18446744073709551615 kB",
    "4: ACTIVE\n4: ACTIVE",
    "0::/../../../..",
    "99999 Gb/sec (9999999X NDR)",
];

/// All below `folder`, links not followed.
fn entries(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        all.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            entries(&entry.path(), all);
        }
    }
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path).unwrap_or_default(),
        Ok(_) => fs::remove_file(path).unwrap_or_default(),
        Err(_) => {}
    }
}

/// One damage; says what it did. What the system refuses has not been done, which is as good.
fn damage(root: &Path, dice: &mut Dice) -> String {
    let mut all = Vec::new();
    entries(root, &mut all);
    all.sort();
    let path = all[dice.below(all.len())].clone();
    let is_file = fs::symlink_metadata(&path).is_ok_and(|about| about.is_file());
    let text = if is_file { fs::read(&path).unwrap_or_default() } else { Vec::new() };
    let what = match dice.below(if is_file { 14 } else { 8 }) {
        0 => {
            remove(&path);
            "removed"
        }
        1 => {
            remove(&path);
            let _ = symlink(path.file_name().unwrap(), &path);
            "a link to itself"
        }
        2 => {
            remove(&path);
            let _ = symlink("..", &path);
            "a link to its folder"
        }
        3 => {
            remove(&path);
            let _ = symlink("/nowhere/at/all", &path);
            "a link to nothing"
        }
        4 => {
            remove(&path);
            let _ = nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU);
            "a pipe"
        }
        5 => {
            let folder = !is_file;
            remove(&path);
            let _ = if folder { fs::write(&path, "1") } else { fs::create_dir(&path) };
            "file and folder changed"
        }
        6 => {
            let other = &all[dice.below(all.len())];
            remove(&path);
            let _ = symlink(other.strip_prefix(root).map(|inside| Path::new("/").join(inside)).unwrap(), &path);
            "a link to elsewhere"
        }
        7 if !is_file => {
            let names = ["cpu", "node", "index", "eth", "mlx5_", "0000:ff:1f.", "ports/", "card", ""];
            for _ in 0..40 {
                let name = names[dice.below(names.len())];
                let _ = fs::create_dir(path.join(format!("{name}{}", dice.roll() >> dice.below(64))));
            }
            "many more entries"
        }
        7 | 8 => {
            let _ = fs::write(&path, &text[..dice.below(text.len())]);
            "cut short"
        }
        9 => {
            let _ = fs::write(&path, "");
            "emptied"
        }
        10 => {
            let garbage: Vec<u8> = (0..dice.below(400)).map(|_| dice.roll() as u8).collect();
            let _ = fs::write(&path, garbage);
            "garbage"
        }
        11 => {
            let _ = fs::write(&path, TEXTS[dice.below(TEXTS.len())]);
            "a number beyond"
        }
        12 => {
            let _ = fs::write(
                &path,
                text.iter().copied().cycle().take(if text.is_empty() { 0 } else { 5 << 20 }).collect::<Vec<u8>>(),
            );
            "repeated for 5 MiB"
        }
        _ => {
            let _ = fs::File::options().write(true).open(&path).and_then(|file| file.set_len(8 << 30));
            "8 GiB long"
        }
    };
    format!("{}: {what}", path.strip_prefix(root).unwrap_or(&path).display())
}

/// Copies files, folders and links.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (kind, place) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &place);
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path()).unwrap(), &place).unwrap();
        } else {
            // Not its permissions: many attributes may only be read.
            fs::write(&place, fs::read(entry.path()).unwrap_or_default()).unwrap();
        }
    }
}

/// Damages copies of a tree `times` times, each copy `depth` times over, and discovers after each.
fn damaged(name: &str, tree: &Path, times: usize, depth: usize) {
    for copies in 0..times.div_ceil(depth) {
        let folder = tempfile::tempdir().unwrap();
        copy(tree, folder.path());
        let mut dice = Dice(copies as u64);
        let mut done = Vec::new();
        for _ in 0..depth {
            done.push(damage(folder.path(), &mut dice));
            let root = Root::at(folder.path());
            let (ended, end) = mpsc::channel();
            std::thread::spawn(move || ended.send(catch_unwind(|| drop(Machine::discover(&root)))));
            match end.recv_timeout(FOR_EVER) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => panic!("{name}, copy {copies}: panics after {done:#?}"),
                Err(_) => panic!("{name}, copy {copies}: does not end after {done:#?}"),
            }
        }
    }
    say(&format!("{name}: damaged in {times} ways"));
}

/// A little of everything.
fn synthetic(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (name, list) in [("present", "0-3"), ("online", "0-3"), ("possible", "0-7")] {
        write(&format!("sys/devices/system/cpu/{name}"), list);
    }
    for cpu in 0..4 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        let core = format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1);
        for (file, text) in [("core_cpus_list", core.as_str()), ("core_siblings", "f"), ("physical_package_id", "0")] {
            write(&format!("{folder}/topology/{file}"), text);
        }
        for (file, text) in [("level", "1"), ("type", "Data"), ("size", "32K"), ("shared_cpu_list", core.as_str())] {
            write(&format!("{folder}/cache/index0/{file}"), text);
        }
    }
    for node in 0..2 {
        let folder = format!("sys/devices/system/node/node{node}");
        write(&format!("{folder}/cpulist"), ["0-1", "2-3"][node]);
        write(&format!("{folder}/distance"), ["10 21", "21 10"][node]);
        write(&format!("{folder}/meminfo"), "Node 0 MemTotal: 1024 kB\n");
    }
    write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: X\nmodel name\t: Y\n");
    write("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n");
    write("proc/self/cgroup", "1:cpu,cpuset:/a\n0::/a/b\n");
    write("proc/self/mounts", "none /sys/fs/cgroup cgroup2 rw 0 0\nnone /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n");
    write("sys/fs/cgroup/a/b/cpu.max", "150000 100000");
    write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-3");
    fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
    for (place, class) in
        [("0000:00:01.0", "0x060400"), ("0000:00:01.0/0000:01:00.0", "0x030200"), ("0000:00:02.0", "0x020000")]
    {
        let folder = format!("sys/devices/pci0000:00/{place}");
        let files = [
            ("class", class),
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("numa_node", "1"),
            ("local_cpulist", "2-3"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "8"),
            ("max_link_width", "16"),
            ("config", "\u{0}\u{0}"),
        ];
        for (file, text) in files {
            write(&format!("{folder}/{file}"), text);
        }
        let address = place.rsplit('/').next().unwrap();
        symlink(format!("../../../devices/pci0000:00/{place}"), root.join("sys/bus/pci/devices").join(address))
            .unwrap();
    }
    let nic = "sys/devices/pci0000:00/0000:00:02.0";
    for (file, text) in
        [("mtu", "1500"), ("speed", "100000"), ("carrier", "1"), ("operstate", "up"), ("address", "00:11:22:33:44:55")]
    {
        write(&format!("{nic}/net/eth0/{file}"), text);
    }
    write(&format!("{nic}/net/eth0/statistics/rx_bytes"), "123");
    let port = format!("{nic}/infiniband/mlx5_0/ports/1");
    for (file, text) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "400 Gb/sec (4X NDR)"),
        ("link_layer", "InfiniBand"),
    ] {
        write(&format!("{port}/{file}"), text);
    }
    write(&format!("{port}/counters/link_downed"), "255");
    for (class, device) in [("net", "eth0"), ("infiniband", "mlx5_0")] {
        symlink("../../../0000:00:02.0", root.join(format!("{nic}/{class}/{device}/device"))).unwrap();
        fs::create_dir_all(root.join(format!("sys/class/{class}"))).unwrap();
        let target = format!("../../devices/pci0000:00/0000:00:02.0/{class}/{device}");
        symlink(target, root.join(format!("sys/class/{class}/{device}"))).unwrap();
    }
}

#[test]
fn a_tree_of_our_own() {
    let folder = tempfile::tempdir().unwrap();
    synthetic(folder.path());
    let machine = Machine::discover(&Root::at(folder.path()));
    assert_eq!((machine.cpus.cores.len(), machine.numa.len(), machine.pci.len()), (2, 2, 3), "whole, it is found");
    damaged("a tree of our own", folder.path(), 800, 8);
}

#[test]
fn trees_of_real_machines() {
    let small = ["2arm-2c", "2pa-pcidomain32bits", "20s390-2g6s4c", "4fake-4gr1nu1pu", "16amd64-8n2c-cpusets"];
    for machine in machines("hwloc-sysfs") {
        if small.iter().any(|name| machine.name.ends_with(name)) {
            damaged(&machine.name, machine.root.folder(), 60, 20);
        }
    }
}
