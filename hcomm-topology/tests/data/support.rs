//! The machines, unpacked, with what is expected of them; and the count of what was compared.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use hcomm_topology::Root;
use serde_json::Value;

/// A machine's tree, and what is expected of it.
pub struct Machine {
    /// `hwloc-sysfs/2arm-2c`.
    pub name: String,
    /// Its entry in `expected.json`.
    pub expected: Value,
    /// Its tree.
    pub root: Root,
}

/// The machines of one folder of the data, by their names in its `expected.json`. Empty, with a line that says why, where the
/// data or a program to unpack it is missing.
pub fn machines(folder: &str) -> Vec<Machine> {
    let Some(Value::Object(entries)) = expected(folder) else { return Vec::new() };
    let machine = |(name, expected): (String, Value)| {
        let name = name.split(".tar.").next().unwrap_or(&name).to_owned();
        let archive = ["tar.bz2", "tar.gz", "tar.xz"]
            .iter()
            .map(|ending| data(&format!("{folder}/{name}.{ending}")))
            .find(|archive| archive.is_file())?;
        let root = Root::at(root_in(&unpack(&archive)?)?);
        Some(Machine { name: format!("{folder}/{name}"), expected, root })
    };
    entries.into_iter().filter_map(machine).collect()
}

/// The path of something in the data.
pub fn data(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")).join(path)
}

/// The `expected.json` of a folder of the data; `None`, with a line that says so, if there is none.
pub fn expected(folder: &str) -> Option<Value> {
    let path = data(folder).join("expected.json");
    match fs::read(&path) {
        Ok(text) => Some(serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
        Err(e) => {
            say(&format!("skipped: {}: {e}", path.display()));
            None
        }
    }
}

/// The folder where an archive is unpacked; `None`, with a line that says why, if it cannot be. It stays in the target folder for
/// the next run.
pub fn unpack(archive: &Path) -> Option<PathBuf> {
    let size = fs::metadata(archive).ok()?.len();
    let parent = archive.parent()?.file_name()?.to_str()?;
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machines").join(parent);
    let place = cache.join(format!("{}.{size}", archive.file_name()?.to_str()?));
    if place.is_dir() {
        return Some(place);
    }
    fs::create_dir_all(&cache).ok()?;
    // Into a folder of its own first: other tests and other runs may unpack the same.
    let fresh = tempfile::tempdir_in(&cache).ok()?;
    let output = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(fresh.path()).output();
    match output {
        Ok(output) if output.status.success() => {
            let _ = fs::rename(fresh.path(), &place);
            place.is_dir().then_some(place)
        }
        Ok(output) => {
            say(&format!("skipped: {}: tar: {}", archive.display(), String::from_utf8_lossy(&output.stderr).trim()));
            None
        }
        Err(e) => {
            say(&format!("skipped: {}: cannot run tar: {e}", archive.display()));
            None
        }
    }
}

/// The folder that holds `sys`, at most three levels down.
pub fn root_in(folder: &Path) -> Option<PathBuf> {
    let mut level = vec![folder.to_owned()];
    for _ in 0..4 {
        if let Some(found) = level.iter().find(|folder| folder.join("sys").is_dir()) {
            return Some(found.clone());
        }
        let below = level.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        level = below.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())).map(|entry| entry.path()).collect();
    }
    None
}

/// Counts what is compared, and keeps what differs, so that one run shows all of it. Its end prints the count and fails on
/// differences.
pub struct Tally {
    kind: &'static str,
    machines: BTreeSet<String>,
    values: usize,
    differences: Vec<String>,
}

/// Machines and values of all tallies that ended.
static TOGETHER: Mutex<(BTreeSet<String>, usize)> = Mutex::new((BTreeSet::new(), 0));

impl Tally {
    /// Of one kind of value, as `cpus`.
    pub fn new(kind: &'static str) -> Tally {
        Tally { kind, machines: BTreeSet::new(), values: 0, differences: Vec::new() }
    }

    /// Compares one value of a machine.
    pub fn equal<A: PartialEq<B> + Debug, B: Debug>(&mut self, machine: &str, what: &str, got: A, expected: B) {
        self.machines.insert(machine.to_owned());
        self.values += 1;
        if got != expected {
            self.differences.push(format!("{machine}: {what}: got {got:?}, expected {expected:?}"));
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let (machines, values) = {
            let mut together = TOGETHER.lock().unwrap();
            together.0.extend(self.machines.iter().cloned());
            together.1 += self.values;
            (together.0.len(), together.1)
        };
        let (own, kind) = (self.machines.len(), self.kind);
        say(&format!(
            "{kind}: {own} machines, {} values compared (together {machines} machines, {values} values)",
            self.values
        ));
        assert!(self.differences.is_empty(), "{}", self.differences.join("\n"));
    }
}

/// Past the test harness, which keeps the output of tests that pass to itself.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
