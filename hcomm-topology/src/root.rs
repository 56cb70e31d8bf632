//! Reading files below a root that stands for another machine's `/`.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// The most that is read of one file; no attribute in `/sys` or `/proc` that we want is longer.
const MOST_BYTES: u64 = 4 << 20;
/// As many symbolic links as Linux follows in one path (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// The folder that holds `sys` and `proc`: `/` for this machine, another one for a copy of another machine's tree. Links are
/// followed inside it, absolute ones from it, and never out of it; what cannot be read is `None`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// This machine.
    pub fn this_machine() -> Root {
        Root(PathBuf::from("/"))
    }

    /// The tree below `folder`.
    pub fn at(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Whether this is the machine that the program runs on, so that system calls may be asked as well.
    pub fn is_this_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The path on this machine of `path` (relative to the root), its links followed inside the root. `None` if it does not exist.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        self.canonical(path).map(|inside| self.0.join(inside))
    }

    /// `path` with all links followed, relative to the root: `sys/class/net/eth0` gives `sys/devices/pci0000:00/.../net/eth0`.
    pub fn canonical(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let mut inside = PathBuf::new();
        let mut ahead: Vec<std::ffi::OsString> = names(path.as_ref());
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                inside.pop();
                continue;
            }
            inside.push(&name);
            let here = self.0.join(&inside);
            if !fs::symlink_metadata(&here).ok()?.file_type().is_symlink() {
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            let target = fs::read_link(&here).ok()?;
            inside.pop();
            if target.is_absolute() {
                inside = PathBuf::new();
            }
            ahead.extend(names(&target));
        }
        Some(inside)
    }

    /// The text of a file without space and NUL bytes around it; bytes that are no UTF-8 are replaced. `None` if it cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.bytes(path).map(|bytes| clean(&bytes))
    }

    /// The bytes of a plain file, at most 4 MiB.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        read_plain(&self.resolve(path)?)
    }

    /// The folder at `path`, its links followed once. `None` if there is no such folder.
    pub fn open_folder(&self, path: impl AsRef<Path>) -> Option<Folder<'_>> {
        let inside = self.canonical(path)?;
        self.0.join(&inside).is_dir().then_some(Folder { root: self, inside })
    }

    /// A file that holds one decimal number. Empty, unreadable or other text is `None`, and so is a negative number: the kernel
    /// writes -1 for "unknown".
    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// A file that holds one hexadecimal number, with or without `0x`.
    pub fn hex(&self, path: impl AsRef<Path>) -> Option<u64> {
        hex(&self.text(path)?)
    }

    /// The names in a folder, in natural order (`eth2` before `eth10`); empty if there is no such folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = self.resolve(path).and_then(|path| fs::read_dir(path).ok());
        let mut names: Vec<String> =
            entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_cached_key(|name| natural(name));
        names
    }

    /// Why the folder at `path` cannot be listed, if it is there: `Permission denied`. `None` where it can be, and where there is none.
    pub fn unreadable(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut ways: Vec<&Path> = path.as_ref().ancestors().collect();
        ways.reverse();
        // The first on the way that may not be looked into hides whether there is more.
        for way in ways {
            let here = self.resolve(way)?;
            // To list a folder, and to go into it, are two permissions.
            if let Err(error) = fs::read_dir(&here).and_then(|_| fs::metadata(here.join("."))) {
                return Some(format!("{} cannot be read: {error}", self.0.join(way).display()));
            }
        }
        None
    }

    /// Whether `path` is a folder, or a link to one.
    pub fn is_folder(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).is_some_and(|path| path.is_dir())
    }
}

/// A folder below a [`Root`] whose links have been followed: its files are read without walking the whole path for each.
#[derive(Debug, Clone)]
pub struct Folder<'a> {
    root: &'a Root,
    inside: PathBuf,
}

impl Folder<'_> {
    /// Its path without links, relative to the root.
    pub fn path(&self) -> &Path {
        &self.inside
    }

    /// As [`Root::bytes`], for a file in this folder.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.root.0.join(&self.inside).join(name);
        // One call where others would ask first: a machine has thousands of these files. A pipe does not block an open like this.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
            Ok(file) => read_file(file),
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => self.root.bytes(self.inside.join(name)),
            Err(_) => None,
        }
    }

    /// As [`Root::text`].
    pub fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|bytes| clean(&bytes))
    }

    /// As [`Root::number`].
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// As [`Root::hex`].
    pub fn hex(&self, name: &str) -> Option<u64> {
        hex(&self.text(name)?)
    }

    /// The last name of what the link `name` points to (drivers and devices are linked so), whether or not that exists.
    pub fn link_name(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.root.0.join(&self.inside).join(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }
}

/// The bytes of a plain file, at most [`MOST_BYTES`]. A pipe or device in a damaged tree would block or never end: refused.
fn read_plain(path: &Path) -> Option<Vec<u8>> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    read_file(File::open(path).ok()?)
}

fn read_file(file: File) -> Option<Vec<u8>> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn clean(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The names of a path, last first.
fn names(path: &Path) -> Vec<std::ffi::OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// A key that sorts numbers inside names by value.
pub(crate) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut key: Vec<(String, u64)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (letters, tail) = rest.split_at(word);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        key.push((letters.to_owned(), tail[..digits].parse().unwrap_or(u64::MAX)));
        rest = &tail[digits..];
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn links_stay_inside_the_root_and_loops_end() {
        let (folder, root) = tree();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("sys/devices/pci/net/eth0")).unwrap();
        fs::create_dir_all(at("sys/class/net")).unwrap();
        fs::write(at("sys/devices/pci/net/eth0/mtu"), "1500\n").unwrap();
        symlink("../../devices/pci/net/eth0", at("sys/class/net/eth0")).unwrap();
        symlink("/sys/devices/pci/net/eth0", at("sys/class/net/absolute")).unwrap();
        symlink("../../../../../../../../etc/hostname", at("sys/class/net/out")).unwrap();
        symlink("loop", at("sys/class/net/loop")).unwrap();
        symlink("nowhere", at("sys/class/net/lo")).unwrap();
        assert_eq!(root.number::<u32>("sys/class/net/eth0/mtu"), Some(1500));
        assert_eq!(root.number::<u32>("sys/class/net/absolute/mtu"), Some(1500));
        assert_eq!(root.canonical("sys/class/net/eth0").unwrap(), Path::new("sys/devices/pci/net/eth0"));
        for gone in ["out", "loop", "lo", "loop/mtu", "eth1"] {
            assert_eq!(root.text(Path::new("sys/class/net").join(gone)), None, "{gone}");
        }
        assert_eq!(root.list("sys/class/net"), ["absolute", "eth0", "lo", "loop", "out"]);
        assert!(root.is_folder("sys/class/net/eth0") && !root.is_folder("sys/class/net/lo"));
    }

    #[test]
    fn odd_files_are_unknown() {
        let (folder, root) = tree();
        let with = |text: &[u8]| fs::write(folder.path().join("f"), text).unwrap();
        with(b"-1\n");
        assert_eq!(root.number::<u32>("f"), None);
        with(b"");
        assert_eq!((root.number::<u32>("f"), root.text("f").as_deref()), (None, Some("")));
        with(b"0x15b3\n");
        assert_eq!(root.hex("f"), Some(0x15b3));
        with(b"\xff\xfe7\0");
        assert_eq!(root.text("f").unwrap(), "\u{fffd}\u{fffd}7");
        nix_fifo(&folder.path().join("pipe"));
        assert_eq!(root.bytes("pipe"), None, "reading would wait for ever");
        let opened = root.open_folder("").unwrap();
        assert_eq!((opened.bytes("pipe"), opened.bytes(""), opened.bytes("none")), (None, None, None));
        assert_eq!(opened.text("f").unwrap(), "\u{fffd}\u{fffd}7");
        symlink("f", folder.path().join("link")).unwrap();
        assert_eq!(opened.text("link"), opened.text("f"));
        assert_eq!(root.bytes(""), None);
    }

    #[test]
    fn what_may_not_be_read_is_not_what_is_not_there() {
        let (folder, root) = tree();
        fs::create_dir_all(folder.path().join("sys/class/net")).unwrap();
        fs::write(folder.path().join("sys/class/file"), "").unwrap();
        assert_eq!((root.unreadable("sys/class/net"), root.unreadable("proc/net")), (None, None));
        let file = root.unreadable("sys/class/file").unwrap();
        assert!(file.contains("sys/class/file cannot be read: Not a directory"), "{file}");
    }

    fn nix_fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn natural_order() {
        let mut names = ["eth10", "eth2", "card0-DP-1", "card0", "0000:0a:00.0"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["0000:0a:00.0", "card0", "card0-DP-1", "eth2", "eth10"]);
    }
}
