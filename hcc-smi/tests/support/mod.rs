//! Small trees, written out from the lists in `tests/trees`; and the program.
#![allow(dead_code)] // not every test file uses all of it

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

/// Writes the tree `name`: lines `path: text`, and `pci path: properties`, which stand for the files of a PCI function.
pub fn tree(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(format!("{name}.tree"));
    let text = fs::read_to_string(&list).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, value) = line.rsplit_once(": ").unwrap_or_else(|| panic!("{name}: {line}"));
        // `meminfo` has the sign too.
        let (path, value) = match path.split_once(": ") {
            Some((first, rest)) => (first, format!("{rest}: {value}")),
            None => (path, value.to_owned()),
        };
        match path.strip_prefix("pci ") {
            Some(path) => function(folder.path(), path, &value),
            None => write(&folder.path().join(path), &value.replace("\\n", "\n").replace("\\t", "\t")),
        }
    }
    folder
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// `class=… vendor=… device=… max=16x8 now=8x8 node=0`: speeds in GT/s and lanes; `?` is what the kernel does not know.
fn function(root: &Path, path: &str, properties: &str) {
    let inside = root.join("sys/devices").join(path);
    for property in properties.split(' ') {
        let (key, value) = property.split_once('=').unwrap();
        let link = |which: &str| {
            let (speed, width) = value.split_once('x').unwrap_or(("Unknown", "255"));
            write(&inside.join(format!("{which}_link_speed")), &format!("{speed} GT/s PCIe"));
            write(&inside.join(format!("{which}_link_width")), width);
        };
        match key {
            "max" => link("max"),
            "now" => link("current"),
            "node" => write(&inside.join("numa_node"), value),
            file => write(&inside.join(file), value),
        }
    }
    let bus = root.join("sys/bus/pci/devices");
    fs::create_dir_all(&bus).unwrap();
    let target = Path::new("../../../devices").join(path);
    std::os::unix::fs::symlink(&target, bus.join(target.file_name().unwrap())).unwrap();
}

/// The program, at a width of 80 columns and without anything of the surroundings.
pub fn smi(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("hcc-smi").unwrap();
    command.env_clear().env("COLUMNS", "80").args(arguments);
    command
}

/// What it prints for a tree; the tree's place is called `TREE`.
pub fn shown(folder: &Path, arguments: &[&str]) -> String {
    let place = folder.to_str().unwrap();
    let mut command = smi(arguments);
    let output = good(command.args(["--sysroot", place]).output().unwrap());
    output.replace(place, "TREE")
}

/// Stdout of a run that ended well and said nothing on stderr.
pub fn good(output: Output) -> String {
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A folder of the data of real machines; `None`, with a line that says so, if it is missing.
pub fn data(path: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")).join(path);
    if !path.exists() {
        say(&format!("skipped: {} is missing", path.display()));
        return None;
    }
    Some(path)
}

/// Past the test harness, which keeps the output of tests that pass to itself.
pub fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
