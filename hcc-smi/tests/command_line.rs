//! Arguments, failures, formats, pipes.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

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
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--sysroot", "/no/such/folder"], &["/no/such/folder", "no such folder", "hint:"]),
        (&["--sysroot", file], &[file, "file and no folder", "hint:"]),
        (&["--from", "/no/such/file"], &["/no/such/file", "hint:"]),
        (&["--from", file], &["bad.xml:2:", "numaid", "hint:"]),
        (&["--from", file, "--sysroot", "/"], &["--from", "--sysroot"]),
        (&["--json", "--xml"], &["--json", "--xml"]),
        (&["--watch", "0s"], &["--watch"]),
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
            let text = shown(folder.path(), view);
            let title = |line: &&str| !line.starts_with("hcc-smi ");
            for line in text.lines().filter(title) {
                assert!(line.chars().count() <= 80, "{name} {view:?}: {line}");
            }
        }
    }
}

#[test]
fn no_colour_but_on_a_terminal() {
    let folder = tree("npu");
    assert!(!shown(folder.path(), &[]).contains('\x1b'));
}

/// Matrix of a machine's XML read back, and that of the machine.
fn matrices(source: &[&str]) -> (serde_json::Value, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("topo.xml");
    fs::write(&file, good(smi(&[source, &["--xml"]].concat()).output().unwrap())).unwrap();
    let matrix = |arguments: &[&str]| {
        let text = good(smi(&[arguments, &["topo", "--json"]].concat()).output().unwrap());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["matrix"].clone()
    };
    (matrix(&["--from", file.to_str().unwrap()]), matrix(source))
}

#[test]
fn xml_read_back_gives_the_same_matrix() {
    for name in ["npu", "xgmi"] {
        let folder = tree(name);
        let (back, own) = matrices(&["--sysroot", folder.path().to_str().unwrap()]);
        assert!(own.as_array().is_some_and(|rows| !rows.is_empty()), "{name}");
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
