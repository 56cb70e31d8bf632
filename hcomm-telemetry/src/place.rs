//! Where the files are: the folders, who may use them, and how files are named.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

/// End of the name of a telemetry file.
const EXTENSION: &str = ".telemetry";
/// End of the name of a flight record.
pub(crate) const FLIGHT_EXTENSION: &str = ".flight.jsonl";
/// Bytes of a job's name that go into a file name.
const MAX_JOB: usize = 64;

/// The folders in which files of this user may lie, the first one first: `$XDG_RUNTIME_DIR/hcomm`, `/dev/shm/hcomm-UID`, and
/// `hcomm-UID` in the folder for temporary files.
pub fn candidates() -> Vec<PathBuf> {
    let own = format!("hcomm-{}", Uid::effective());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let mut all: Vec<PathBuf> = runtime.into_iter().map(|path| path.join("hcomm")).collect();
    for folder in [Path::new("/dev/shm").join(&own), std::env::temp_dir().join(&own)] {
        if !all.contains(&folder) {
            all.push(folder);
        }
    }
    all
}

/// An open folder; files in it are named relative to it, so that nobody can put another in its place.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder of this user alone. No symbolic link is followed to it, as others may write where it lies.
    ///
    /// # Errors
    /// There is none, or it belongs to another user.
    pub fn open_own(path: &Path) -> Result<Self, String> {
        let fail = |cause: Errno| format!("{}: {}", path.display(), cause.desc());
        let handle = open_folder(path, OFlag::O_NOFOLLOW).map_err(fail)?;
        let stat = fstat(&handle).map_err(fail)?;
        if stat.st_uid != Uid::effective().as_raw() {
            return Err(format!("{}: it belongs to user {}", path.display(), stat.st_uid));
        }
        if stat.st_mode & 0o077 != 0 {
            fchmod(&handle, Mode::S_IRWXU).map_err(fail)?;
        }
        Ok(Self { handle, path: path.to_owned() })
    }

    /// As [`Folder::open_own`], and makes it if there is none.
    ///
    /// # Errors
    /// It cannot be made, or belongs to another user.
    pub fn make_own(path: &Path) -> Result<Self, String> {
        make(path)?;
        Self::open_own(path)
    }

    /// Opens a folder that the user chose, wherever it lies and whoever owns it; makes it if there is none.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn chosen(path: &Path) -> Result<Self, String> {
        make(path)?;
        Self::existing(path)
    }

    /// As [`Folder::chosen`], but makes none.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn existing(path: &Path) -> Result<Self, String> {
        let handle =
            open_folder(path, OFlag::empty()).map_err(|cause| format!("{}: {}", path.display(), cause.desc()))?;
        Ok(Self { handle, path: path.to_owned() })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file for this user alone; there must be none of that name.
    pub(crate) fn create(&self, name: &OsStr) -> Result<File, Errno> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.handle, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    /// Opens a plain file of this user to read.
    pub(crate) fn open(&self, name: &OsStr) -> Result<File, Errno> {
        // O_NONBLOCK: a pipe in place of a file must not block.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.handle, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let plain = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
        if !plain || stat.st_uid != Uid::effective().as_raw() {
            return Err(Errno::EACCES);
        }
        Ok(file.into())
    }

    pub(crate) fn remove(&self, name: &OsStr) {
        // One that is gone already is what was wanted.
        let _ = unlinkat(&self.handle, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Names of the telemetry files in it, in order.
    pub(crate) fn names(&self) -> Vec<OsString> {
        let again = openat(&self.handle, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
        let Ok(mut dir) = again.and_then(Dir::from_fd) else { return Vec::new() };
        let names = dir.iter().filter_map(Result::ok);
        let names = names.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
        let mut names: Vec<OsString> = names.filter(|name| name.ends_with(EXTENSION)).map(OsString::from).collect();
        names.sort();
        names
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn open_folder(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | flags, Mode::empty())
}

fn make(path: &Path) -> Result<(), String> {
    match mkdirat(nix::fcntl::AT_FDCWD, path, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(cause) => Err(format!("{}: {}", path.display(), cause.desc())),
    }
}

/// Name of the file of a process: `JOB.RANK.PID.telemetry`; `number` tells the files of one process apart, the first being 0.
/// Characters of a job's name that are none for a file name are replaced.
pub(crate) fn file_stem(job: &str, rank: u32, pid: u32, number: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let job: String = job.chars().take(MAX_JOB).map(plain).collect();
    let more = if number == 0 { String::new() } else { format!("-{number}") };
    format!("{job}.{rank}.{pid}{more}")
}

pub(crate) fn file_name(stem: &str) -> OsString {
    format!("{stem}{EXTENSION}").into()
}

/// The process id in the name of a file.
pub(crate) fn pid_of(name: &OsStr) -> Option<u32> {
    let pid = name.to_str()?.strip_suffix(EXTENSION)?.rsplit('.').next()?;
    pid.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn names() {
        assert_eq!(file_name(&file_stem("job-7", 3, 42, 0)), "job-7.3.42.telemetry");
        assert_eq!(file_name(&file_stem("../x y", 0, 42, 2)), "___x_y.0.42-2.telemetry");
        assert_eq!(pid_of(OsStr::new("job-7.3.42.telemetry")), Some(42));
        assert_eq!(pid_of(OsStr::new("a.0.42-2.telemetry")), Some(42));
        assert_eq!(pid_of(OsStr::new("a.0.x.telemetry")), None);
        assert!(file_stem(&"é".repeat(1000), 0, 1, 0).len() < 100);
    }

    #[test]
    fn a_folder_is_the_users_own_or_not_used() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("hcomm");
        assert!(Folder::open_own(&path).is_err(), "there is none");
        let folder = Folder::make_own(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Folder::open_own(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let link = temporary.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Folder::make_own(&link).is_err(), "a link is not followed");
        assert!(Folder::chosen(&link).is_ok(), "but to where the user says");

        let name = file_name("a.0.1");
        let file = folder.create(&name).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.create(&name).unwrap_err(), Errno::EEXIST);
        std::fs::write(path.join("other"), "").unwrap();
        symlink("/etc/passwd", path.join("b.0.1.telemetry")).unwrap();
        assert_eq!(folder.names(), ["a.0.1.telemetry", "b.0.1.telemetry"]);
        assert!(folder.open(OsStr::new("b.0.1.telemetry")).is_err());
        folder.remove(&name);
        assert_eq!(folder.names(), ["b.0.1.telemetry"]);
    }
}
