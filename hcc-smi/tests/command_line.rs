//! Arguments, failures, formats, pipes.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use support::{data, good, shown, smi, tree};

/// Code and words of a run that fails; stdout is empty.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = smi(arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn bad_arguments_end_with_2_and_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.xml");
    fs::write(&file, "<system version=\"1\">\n  <cpu numaid=\"x\"/>\n</system>\n").unwrap();
    let file = file.to_str().unwrap();
    let cases: [(&[&str], &[&str]); 14] = [
        (&["--sysroot", "/no/such/folder"], &["/no/such/folder", "no such folder", "hint:"]),
        (&["--sysroot", file], &[file, "file and no folder", "hint:"]),
        (&["--from", "/no/such/file"], &["/no/such/file", "hint:"]),
        (&["--from", file], &["bad.xml:2:", "numaid", "hint:"]),
        (&["--from", file, "--sysroot", "/"], &["--from", "--sysroot"]),
        (&["--json", "--xml"], &["--json", "--xml"]),
        (&["topo", "--xml"], &["no XML of one view", "hint:"]),
        (&["--list", "--xml"], &["no XML of one view"]),
        (&["--xml", "--watch", "1s"], &["one document after the other"]),
        (&["--sysroot", "/proc/self/root/no"], &["no such folder"]),
        (&["--watch", "0s"], &["--watch"]),
        (&["--watch", "18446744073709551615s"], &["longer than a hundred years"]),
        (&["nonsense"], &["nonsense"]),
        (&["topo", "-l"], &["-l"]),
    ];
    for (arguments, words) in cases {
        let (code, text) = refused(arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{arguments:?}: {word} is not in {text}");
        }
    }
}

#[test]
fn an_empty_root_is_a_machine_of_which_nothing_is_known() {
    let folder = tempfile::tempdir().unwrap();
    for view in [&[][..], &["-l"], &["topo"], &["links"], &["rings"]] {
        let text = shown(folder.path(), view);
        assert!(text.contains("No ") && !text.contains("-1"), "{view:?}: {text}");
        let json: serde_json::Value =
            serde_json::from_str(&shown(folder.path(), &[view, &["--json"]].concat())).unwrap();
        assert_eq!(json["schema"], "hcc-smi/1");
        assert_eq!(json["host"], serde_json::Value::Null);
    }
}

#[test]
fn this_machine_is_shown() {
    for view in [&[][..], &["-l"], &["topo", "-m"], &["links"], &["rings"], &["--xml"]] {
        let output = smi(view).output().unwrap();
        assert!(!good(output).is_empty(), "{view:?}");
    }
}

#[test]
fn no_line_is_wider_than_the_screen() {
    for name in ["npu", "xgmi", "plain"] {
        let folder = tree(name);
        for view in [&[][..], &["topo"], &["links"], &["rings"]] {
            for width in [1, 7, 24, 40, 59, 80, 133] {
                let arguments = [view, &["--sysroot", folder.path().to_str().unwrap()]].concat();
                let text = good(smi(&arguments).env("COLUMNS", width.to_string()).output().unwrap());
                // A step of a ring is left whole, however narrow the screen is.
                let mut wide = text.lines().filter(|line| width >= 24 && line.chars().count() > width);
                assert_eq!(wide.next(), None, "{name} {view:?} {width}");
            }
        }
    }
}

#[test]
fn no_colour_but_on_a_terminal() {
    let folder = tree("npu");
    assert!(!shown(folder.path(), &[]).contains('\x1b'));
}

/// What a source tells of little is not told as if there were nothing.
#[test]
fn what_is_absent_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    for (node, file, text) in [(0, "cpulist", "0-1\n"), (1, "cpulist", "\n"), (2, "meminfo", "")] {
        let path = folder.path().join(format!("sys/devices/system/node/node{node}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(file), text).unwrap();
    }
    let text = shown(folder.path(), &[]);
    for line in
        ["node 0: processors 0-1, memory -", "node 1: no processors, memory -", "node 2: processors -, memory -"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&shown(folder.path(), &["--json"])).unwrap();
    let cpus: Vec<_> = json["numa_nodes"].as_array().unwrap().iter().map(|node| node["cpus"].clone()).collect();
    assert_eq!(cpus, [serde_json::json!("0-1"), serde_json::json!(""), serde_json::Value::Null]);
}

/// A run as somebody who may not read everything; `None` where we are not root and are somebody like that ourselves.
fn as_nobody(arguments: &[&str], path: &Path) -> Option<String> {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("hcc-smi"));
    command.args(arguments).env_clear().env("PATH", path).uid(65534).gid(65534);
    match command.output() {
        Ok(output) => Some(good(output)),
        Err(error) => {
            support::say(&format!("skipped: no run as another user: {error}"));
            None
        }
    }
}

#[test]
fn what_may_not_be_read_is_not_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("sys");
    fs::create_dir(&closed).unwrap();
    for path in [folder.path(), &closed] {
        let mode = if path == closed { 0o000 } else { 0o755 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let place = folder.path().to_str().unwrap();
    for view in [&[][..], &["-l"], &["topo"], &["rings"]] {
        let Some(text) = as_nobody(&[&["--sysroot", place], view].concat(), Path::new("/nowhere")) else { return };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("sys cannot be read: Permission denied"), "{view:?}: {text}");
    }
    // A folder in PATH that may not be looked into has no npu-smi in it, and none that fails.
    let Some(text) = as_nobody(&[], &closed) else { return };
    assert!(!text.contains("npu-smi info"), "{text}");
}

#[test]
fn a_full_disk_is_a_failure() {
    for arguments in [&["--help"][..], &["--version"], &["-l"], &["man"], &["topo", "--help"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("hcc-smi"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("cannot write"), "{errors}");
    }
}

#[test]
fn one_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.xml");
    let pci = "<pci busid=\"0000:01:00.0\" class=\"0x010802\" link_speed=\"\" link_width=\"0\"/>";
    fs::write(&file, format!("<system version=\"1\"><cpu numaid=\"0\">{pci}</cpu></system>")).unwrap();
    let text = good(smi(&["-l", "--from", file.to_str().unwrap()]).output().unwrap());
    assert!(text.contains("one.xml names 1 PCI function."), "{text}");
}

/// Tools of a vendor, as scripts: what they print is taken over, and one that fails takes nothing else with it.
#[test]
fn npus_and_their_ports() {
    let folder = tempfile::tempdir().unwrap();
    let tool = |name: &str, script: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    tool(
        "npu-smi",
        r#"[ "$3" = topo ] && exit 1
echo '| NPU   Name     | Health | Power(W)  Temp(C)    Hugepages-Usage(page) |'
echo '| Chip  Phy-ID   | Bus-Id | AICore(%) Memory-Usage(MB) HBM-Usage(MB) |'
for n in 0 1; do
    echo "| $n  910B3     | OK            | 91.3  33   0 / 0            |"
    echo "| 0  $n         | FFFF:C$n:00.0 | 0     0 / 0  3197 / 65536   |"
done"#,
    );
    tool(
        "hccn_tool",
        r#"case "$2 $3" in
    "0 -link") echo "link status: UP" ;;
    "1 -link") echo "link status: DOWN" ;;
    "0 -speed") echo "Speed: 200000 Mb/s" ;;
    "0 -ip") echo "ipaddr:10.20.0.10"; echo "netmask:255.255.255.0" ;;
    "0 -net_health") echo "net health status: Success" ;;
    "0 -optical") printf 'optical info:\npresent : present\ntemperature : 46 C\n' ;;
    "0 -stat") printf 'packet statistics:\nmac_rx_bad_pkt_num:3\nmac_tx_bad_pkt_num:0\n' ;;
    *) exit 1 ;;
esac"#,
    );
    let run = |arguments: &[&str]| {
        let mut command = smi(arguments);
        good(command.env("PATH", folder.path()).output().unwrap())
    };
    let json: serde_json::Value = serde_json::from_str(&run(&["links", "--json"])).unwrap();
    let ports = json["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 2, "{json}");
    let first = &ports[0]["port"];
    assert_eq!((&first["up"], &first["speed_mbit_per_s"]), (&true.into(), &200_000.into()));
    assert_eq!((&first["address"], &first["health"]), (&"10.20.0.10/24".into(), &"Success".into()));
    assert_eq!((&first["module_temperature_c"], &first["counters"]["mac_rx_bad_pkt_num"]), (&46.0.into(), &3.into()));
    let second = &ports[1]["port"];
    assert_eq!(
        (&second["up"], &second["speed_mbit_per_s"], &second["address"]),
        (&false.into(), &json!(null), &json!(null))
    );
    let notes = json["notes"].to_string();
    assert!(
        notes.contains("hccn_tool -i 1 -speed -g failed") && notes.contains("npu-smi info -t topo failed"),
        "{notes}"
    );
    let text = run(&["links"]);
    for word in ["up", "200 Gb/s", "10.20.0.10/24", "Success", "46C", "mac_rx_bad_pkt_num 3", "down"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let devices = run(&["-l"]);
    assert!(devices.contains("Ascend 910B3, Memory 64GB"), "{devices}");
}

/// Matrix of a machine's XML read back, and that of the machine.
fn matrices(source: &[&str]) -> (serde_json::Value, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("topo.xml");
    fs::write(&file, good(smi(&[source, &["--xml"]].concat()).output().unwrap())).unwrap();
    let matrix = |arguments: &[&str]| {
        let text = good(smi(&[arguments, &["topo", "--json"]].concat()).output().unwrap());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let next_to = |device: &serde_json::Value| json!([device["pci_address"], device["cpu_affinity"]]);
        let affinity: Vec<_> = json["devices"].as_array().unwrap().iter().map(next_to).collect();
        json!([json["matrix"], affinity])
    };
    (matrix(&["--from", file.to_str().unwrap()]), matrix(source))
}

#[test]
fn xml_read_back_gives_the_same_matrix() {
    for name in ["npu", "xgmi"] {
        let folder = tree(name);
        let (back, own) = matrices(&["--sysroot", folder.path().to_str().unwrap()]);
        assert!(own[0].as_array().is_some_and(|rows| !rows.is_empty()), "{name}");
        assert_eq!(back, own, "{name}");
    }
}

#[test]
fn xml_of_real_machines_read_back_gives_the_same_matrix() {
    for folder in ["nccl-topo", "hwloc-xml"] {
        let Some(place) = data(folder) else { continue };
        let mut machines = 0;
        for entry in fs::read_dir(place).unwrap().flatten() {
            let path = entry.path();
            // There is also a file of NCCL's graphs, which are no topology.
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".xml") && !name.ends_with("-graph.xml") {
                let (back, own) = matrices(&["--from", path.to_str().unwrap()]);
                assert_eq!(back, own, "{}", path.display());
                machines += 1;
            }
        }
        assert!(machines > 10, "{folder}: {machines}");
    }
}

#[test]
fn a_watch_ends_when_nobody_reads() {
    let folder = tree("plain");
    let place = folder.path().to_str().unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("hcc-smi"))
        .args(["--json", "--watch", "20ms", "--sysroot", place])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["host"], "gamma");
    }
    drop(lines);
    assert!(child.wait().unwrap().success());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[test]
fn texts_about_itself() {
    for (arguments, word) in [
        (&["--version"][..], env!("CARGO_PKG_VERSION")),
        (&["completions", "bash"], "hcc-smi"),
        (&["man"], ".TH hcc-smi"),
        (&["topo", "--help"], "--matrix"),
    ] {
        let text = good(smi(arguments).output().unwrap());
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
}

#[test]
fn the_h100_tree_as_expected() {
    let Some(archive) = data("rebuilt-sysfs/h100-8gpu-10nic-lspci.tar.gz") else { return };
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder.path()).status();
    if !done.is_ok_and(|status| status.success()) {
        support::say(&format!("skipped: tar cannot unpack {}", archive.display()));
        return;
    }
    let expected = fs::read_to_string(archive.with_file_name("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    compare_matrix(folder.path(), &expected["h100-8gpu-10nic-lspci"]);
}

/// Among them one whose GPUs are next to fewer processors than their NUMA node has.
#[test]
fn xml_of_real_trees_read_back_gives_the_same_matrix_and_processors() {
    let Some(place) = data("rebuilt-sysfs") else { return };
    let mut machines = 0;
    for archive in fs::read_dir(place).unwrap().flatten().map(|entry| entry.path()) {
        if archive.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let done = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder.path()).status();
        if done.is_ok_and(|status| status.success()) {
            let (back, own) = matrices(&["--sysroot", folder.path().to_str().unwrap()]);
            assert_eq!(back, own, "{}", archive.display());
            machines += 1;
        }
    }
    support::say(&format!("trees written as XML and read back: {machines}"));
}

/// Relations and nearest network devices of a tree, by address.
fn compare_matrix(folder: &Path, expected: &serde_json::Value) {
    let json: serde_json::Value = serde_json::from_str(&shown(folder, &["topo", "--json"])).unwrap();
    let devices = json["devices"].as_array().unwrap();
    let mut compared = 0;
    for (a, row) in devices.iter().zip(json["matrix"].as_array().unwrap()) {
        for (b, relation) in devices.iter().zip(row.as_array().unwrap()) {
            let (a, b) = (a["pci_address"].as_str().unwrap(), b["pci_address"].as_str().unwrap());
            assert_eq!(*relation, expected["relation_matrix"][a][b], "{a} {b}");
            compared += 1;
        }
    }
    assert_eq!(compared, 22 * 22);
    let address = |label: &str| devices.iter().find(|device| device["label"] == label).unwrap()["pci_address"].clone();
    for (gpu, nearest) in json["nearest_nics"].as_object().unwrap() {
        let nics: Vec<_> =
            nearest["nics"].as_array().unwrap().iter().map(|nic| address(nic.as_str().unwrap())).collect();
        let expected = &expected["nearest_nic_of_gpu"][address(gpu).as_str().unwrap()];
        assert_eq!(
            (&nearest["relation"], nics),
            (&expected["class"], expected["nics"].as_array().unwrap().clone()),
            "{gpu}"
        );
    }
}
