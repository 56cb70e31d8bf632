//! A store in a shared directory, served by nobody: `file:///dir`.
//!
//! Each key is a file, replaced by rename; what must be atomic over several files is done under one lock (`flock`, which NFS
//! carries between hosts). Each lease is a file that its owner keeps locked: the kernel drops the lock when the process dies,
//! however it dies, so that whoever can take the lock knows, at once and without comparing clocks. A host that is gone is
//! seen by its lease's time of change standing still. Waiting is polling: directories of other hosts tell nobody anything.
//!
//! The last process to leave removes everything, and the first to come removes what a killed job left.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use super::{Changes, HEARTBEAT_INTERVAL, Item, MAX_VALUE_BYTES, NOTICE, Store, check_key, check_prefix, check_value};
use crate::error::{Error, Result};

/// How often a waiting call looks.
const POLL: Duration = Duration::from_millis(20);
/// How often a waiting call looks whether others have died.
const LEASE_POLL: Duration = Duration::from_millis(500);
/// How long to try for the lock, which nobody holds for more than some file operations, unless stopped.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// In front of each value: who wrote it, and the number of the write. Times of change are too coarse to tell two writes.
pub(super) const STAMP_BYTES: usize = 16;

type Stamp = [u8; STAMP_BYTES];
type Io<T> = std::io::Result<T>;

/// A store in a directory.
pub(super) struct FileStore {
    url: String,
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    directory: PathBuf,
    id: u64,
    writes: AtomicU64,
    /// Locked while this process takes part.
    presence: Flock<File>,
    leases: Mutex<HashMap<String, Flock<File>>>,
    view: Mutex<View>,
    stop: AtomicBool,
}

/// What this process has seen.
#[derive(Default)]
struct View {
    revision: u64,
    keys: HashMap<String, (Stamp, u64)>,
    /// Of others' leases: the time of change, and when it was first seen to be that.
    leases: HashMap<String, (SystemTime, Instant)>,
    leases_looked_at: Option<Instant>,
}

impl FileStore {
    /// Takes part in the job of this name under `parent`, which must exist.
    pub(super) fn open(parent: &Path, job_id: &str, timeout: Duration, tell: &mut dyn FnMut(&str)) -> Result<Self> {
        let url = format!("file://{}", parent.display());
        let start = Instant::now();
        let mut told = false;
        loop {
            match Inner::enter(&parent.join(format!("hcomm-{job_id}"))) {
                Ok(inner) => return Ok(FileStore { url, inner: Arc::new(inner), thread: Mutex::default() }),
                Err(cause) if start.elapsed() >= timeout => {
                    let waited = start.elapsed();
                    return Err(Error::Store { url, what: format!("not usable after {waited:.1?}: {cause}") });
                }
                Err(cause) => {
                    if !told && start.elapsed() >= NOTICE {
                        told = true;
                        tell(&format!("waiting for the store {url}, {} s at most: {cause}", timeout.as_secs()));
                    }
                    std::thread::sleep(POLL);
                }
            }
        }
    }

    fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::Store { url: self.url.clone(), what: what.to_string() }
    }

    fn checked(&self, key: &str, values: &[&[u8]]) -> Result<()> {
        check_key(key).and_then(|()| values.iter().try_for_each(|value| check_value(value))).map_err(|e| self.error(e))
    }

    fn locked<T>(&self, work: impl FnOnce() -> Io<T>) -> Result<T> {
        let lock = lock_directory(&self.inner.directory).map_err(|e| self.error(format!("cannot lock it: {e}")))?;
        let done = work().map_err(|e| self.error(e));
        drop(lock);
        done
    }

    /// Renews the leases while there are any.
    fn start_thread(&self, interval: Duration) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let inner = self.inner.clone();
            let renew = move || {
                while !inner.stop.load(Ordering::Acquire) {
                    inner.leases().values().for_each(|lease| _ = touch(lease)); // tried again soon
                    std::thread::park_timeout(interval);
                }
            };
            let started = std::thread::Builder::new().name("hcomm-store-lease".into()).spawn(renew);
            *thread = Some(started.map_err(|e| self.error(e))?);
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.checked(key, &[value])?;
        self.locked(|| self.inner.write(key, value))
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.checked(key, &[])?;
        Ok(self.inner.read(key).map_err(|e| self.error(e))?.map(|(_, value)| value))
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let start = Instant::now();
        loop {
            if let Some(value) = self.get(key)? {
                return Ok(value);
            }
            if start.elapsed() >= timeout {
                return Err(self.error(format!("key {key} has not been set within {timeout:.1?}")));
            }
            self.inner.look_at_leases().map_err(|e| self.error(e))?;
            std::thread::sleep(POLL.min(timeout));
        }
    }

    fn add(&self, key: &str, delta: i64) -> Result<i64> {
        self.checked(key, &[])?;
        self.locked(|| {
            let invalid = |what: String| std::io::Error::new(ErrorKind::InvalidData, what);
            let old = self.inner.read(key)?.map_or_else(|| b"0".to_vec(), |(_, value)| value);
            let old = std::str::from_utf8(&old).ok().and_then(|old| old.parse::<i64>().ok());
            let old = old.ok_or_else(|| invalid(format!("key {key} does not hold a number")))?;
            let new = old.checked_add(delta).ok_or_else(|| invalid(format!("key {key}: {old} + {delta} overflows")))?;
            self.inner.write(key, new.to_string().as_bytes())?;
            Ok(new)
        })
    }

    fn compare_and_swap(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        self.checked(key, &[value])?;
        self.locked(|| {
            let same = self.inner.read(key)?.as_ref().map(|(_, value)| value.as_slice()) == expected;
            if same {
                self.inner.write(key, value)?;
            }
            Ok(same)
        })
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.checked(key, &[])?;
        self.locked(|| {
            self.inner.leases().remove(key);
            remove(&self.inner.path('l', key))?;
            remove(&self.inner.path('k', key))
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Item>> {
        check_prefix(prefix).map_err(|e| self.error(e))?;
        let list = || {
            // The file system's own clock, which other hosts' may differ from.
            touch(&self.inner.presence)?;
            let now = self.inner.presence.metadata()?.modified()?;
            let mut items = Vec::new();
            for key in self.inner.names('k', prefix)? {
                let Ok(meta) = fs::metadata(self.inner.path('k', &key)) else { continue };
                let Some((_, value)) = self.inner.read(&key)? else { continue };
                items.push(Item { key, value, age: now.duration_since(meta.modified()?).unwrap_or_default() });
            }
            Ok(items)
        };
        list().map_err(|e: std::io::Error| self.error(e))
    }

    fn watch(&self, prefix: &str, revision: u64, timeout: Duration) -> Result<Changes> {
        check_prefix(prefix).map_err(|e| self.error(e))?;
        let start = Instant::now();
        loop {
            let (now, pairs) = self.inner.changes(prefix, revision).map_err(|e| self.error(e))?;
            if !pairs.is_empty() || start.elapsed() >= timeout {
                return Ok((now, pairs));
            }
            self.inner.look_at_leases().map_err(|e| self.error(e))?;
            std::thread::sleep(POLL.min(timeout.saturating_sub(start.elapsed())));
        }
    }

    fn lease(&self, key: &str, value: &[u8], lost: &[u8], ttl: Duration) -> Result<()> {
        self.checked(key, &[value, lost])?;
        self.locked(|| {
            let path = self.inner.path('l', key);
            if path.exists() && !self.inner.leases().contains_key(key) {
                return Err(std::io::Error::new(
                    ErrorKind::AlreadyExists,
                    format!("key {key} is leased by another process"),
                ));
            }
            // Locked before it has its name: nobody can find it unlocked.
            let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let temporary = self.inner.write_temporary(&[&ttl.to_le_bytes(), lost])?;
            let lock = try_lock(open(&temporary)?, FlockArg::LockExclusiveNonblock)?;
            let lock = lock.ok_or(ErrorKind::WouldBlock)?;
            fs::rename(temporary, path)?;
            self.inner.write(key, value)?;
            self.inner.leases().insert(key.to_owned(), lock);
            Ok(())
        })?;
        self.start_thread((ttl / 4).clamp(HEARTBEAT_INTERVAL, Duration::from_secs(2)))
    }

    fn release(&self, key: &str) -> Result<()> {
        self.checked(key, &[])?;
        self.locked(|| self.inner.release(key))
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        // What cannot be cleaned up here, the next job of this name cleans up.
        let _ = self.locked(|| self.inner.exit(std::thread::panicking()));
    }
}

impl Inner {
    /// Enters the job's directory, which is made, or cleaned of what a job without survivors left in it.
    fn enter(directory: &Path) -> Io<Inner> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let lock = lock_directory(directory)?;
        if !anyone_present(directory, None)? {
            clear(directory)?;
        }
        let id = new_id();
        let presence = create(&directory.join(format!("p%{id:016x}")))?;
        let presence = try_lock(presence, FlockArg::LockExclusiveNonblock)?.ok_or(ErrorKind::WouldBlock)?;
        drop(lock);
        Ok(Inner {
            directory: directory.to_owned(),
            id,
            writes: AtomicU64::new(0),
            presence,
            leases: Mutex::default(),
            view: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    fn exit(&self, panicking: bool) -> Io<()> {
        let leased: Vec<String> = self.leases().keys().cloned().collect();
        if !panicking {
            leased.iter().try_for_each(|key| self.release(key))?;
        }
        let mine = self.directory.join(format!("p%{:016x}", self.id));
        let others = anyone_present(&self.directory, Some(&mine))?;
        remove(&mine)?;
        if !others {
            clear(&self.directory)?;
            remove(&self.directory.join("lock"))?;
            fs::remove_dir(&self.directory)?;
        }
        Ok(())
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<String, Flock<File>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No key holds a percent sign.
    fn path(&self, kind: char, key: &str) -> PathBuf {
        self.directory.join(format!("{kind}%{}", key.replace('/', "%")))
    }

    /// Keys of the files of a kind, in order.
    fn names(&self, kind: char, prefix: &str) -> Io<Vec<String>> {
        let start = format!("{kind}%");
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let Some(key) = name.to_str().and_then(|name| name.strip_prefix(&start)) else { continue };
            let key = key.replace('%', "/");
            if key.starts_with(prefix) {
                keys.push(key);
            }
        }
        keys.sort();
        Ok(keys)
    }

    fn read(&self, key: &str) -> Io<Option<(Stamp, Vec<u8>)>> {
        let Some(mut bytes) = read_file(&self.path('k', key))? else { return Ok(None) };
        let Some(stamp) = bytes.first_chunk::<STAMP_BYTES>().copied() else {
            return Err(std::io::Error::new(ErrorKind::InvalidData, format!("the file of key {key} is damaged")));
        };
        bytes.drain(..STAMP_BYTES);
        Ok(Some((stamp, bytes)))
    }

    /// The caller holds the lock.
    fn write(&self, key: &str, value: &[u8]) -> Io<()> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let temporary = self.write_temporary(&[&self.id.to_le_bytes(), &number.to_le_bytes(), value])?;
        fs::rename(temporary, self.path('k', key))
    }

    fn write_temporary(&self, parts: &[&[u8]]) -> Io<PathBuf> {
        let path = self.directory.join(format!("t%{:016x}", self.id)); // one at a time, under the lock
        remove(&path)?;
        let mut file = create(&path)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        Ok(path)
    }

    fn changes(&self, prefix: &str, revision: u64) -> Io<Changes> {
        let mut view = self.view();
        let mut pairs = Vec::new();
        let next = view.revision + 1;
        for key in self.names('k', prefix)? {
            let Some((stamp, value)) = self.read(&key)? else { continue };
            let seen = view.keys.entry(key.clone()).or_insert(([0; STAMP_BYTES], 0));
            if seen.1 == 0 || seen.0 != stamp {
                *seen = (stamp, next);
            }
            if seen.1 > revision {
                pairs.push((key, value));
            }
        }
        view.revision = next;
        Ok((next, pairs))
    }

    fn release(&self, key: &str) -> Io<()> {
        let Some(lock) = self.leases().remove(key) else { return Ok(()) };
        let removed = remove(&self.path('l', key));
        drop(lock); // only now: unlocked under its name it would be lost
        removed
    }

    /// Turns the keys of dead and of long silent owners to what they left for that case.
    fn look_at_leases(&self) -> Io<()> {
        {
            let mut view = self.view();
            if view.leases_looked_at.is_some_and(|at| at.elapsed() < LEASE_POLL) {
                return Ok(());
            }
            view.leases_looked_at = Some(Instant::now());
        }
        for key in self.names('l', "")? {
            if !self.leases().contains_key(&key) && self.is_over(&key)? {
                self.lose(&key)?;
            }
        }
        Ok(())
    }

    fn is_over(&self, key: &str) -> Io<bool> {
        let path = self.path('l', key);
        let Some(file) = if_there(open(&path))? else { return Ok(false) };
        let changed = file.metadata()?.modified()?;
        if try_lock(file, FlockArg::LockSharedNonblock)?.is_some() {
            return Ok(true); // the owner's lock is gone
        }
        let Some(bytes) = read_file(&path)? else { return Ok(false) };
        let ttl = bytes.first_chunk::<8>().map_or(u64::MAX, |ttl| u64::from_le_bytes(*ttl));
        let mut view = self.view();
        let seen = view.leases.entry(key.to_owned()).or_insert((changed, Instant::now()));
        if seen.0 != changed {
            *seen = (changed, Instant::now());
        }
        Ok(seen.1.elapsed() >= Duration::from_millis(ttl))
    }

    fn lose(&self, key: &str) -> Io<()> {
        let lock = lock_directory(&self.directory)?;
        // Another may have been faster, or the owner may just have released it.
        if self.is_over(key)?
            && let Some(bytes) = read_file(&self.path('l', key))?
        {
            self.write(key, bytes.get(8..).unwrap_or_default())?;
            remove(&self.path('l', key))?;
        }
        drop(lock);
        Ok(())
    }
}

fn new_id() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's random keys are the random numbers that it has.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

fn create(path: &Path) -> Io<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// For writing too: NFS makes exclusive locks only on such.
fn open(path: &Path) -> Io<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn if_there<T>(result: Io<T>) -> Io<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn remove(path: &Path) -> Io<()> {
    if_there(fs::remove_file(path)).map(|_| ())
}

pub(super) fn read_file(path: &Path) -> Io<Option<Vec<u8>>> {
    let Some(file) = if_there(File::open(path))? else { return Ok(None) };
    let mut bytes = Vec::new();
    // Somebody may have put something else there: bounded.
    file.take((MAX_VALUE_BYTES + STAMP_BYTES) as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn touch(file: &File) -> Io<()> {
    Ok(futimens(file, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_NOW)?)
}

/// `None` when another holds it.
fn try_lock(file: File, how: FlockArg) -> Io<Option<Flock<File>>> {
    match Flock::lock(file, how) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// The lock of the whole directory.
fn lock_directory(directory: &Path) -> Io<Flock<File>> {
    let path = directory.join("lock");
    let start = Instant::now();
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if let Some(lock) = try_lock(file, FlockArg::LockExclusiveNonblock)? {
            // The last to leave removes the file: a lock on a file without a name is none.
            match if_there(fs::metadata(&path))? {
                Some(meta) if meta.ino() == lock.metadata()?.ino() => return Ok(lock),
                _ => continue,
            }
        }
        if start.elapsed() >= LOCK_TIMEOUT {
            return Err(std::io::Error::new(ErrorKind::TimedOut, "another process has held the lock for too long"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process other than `mine` takes part; the marks of dead ones are removed.
fn anyone_present(directory: &Path, mine: Option<&Path>) -> Io<bool> {
    let mut anyone = false;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("p%") || Some(entry.path().as_path()) == mine {
            continue;
        }
        let Some(file) = if_there(open(&entry.path()))? else { continue };
        match try_lock(file, FlockArg::LockSharedNonblock)? {
            Some(_) => remove(&entry.path())?,
            None => anyone = true,
        }
    }
    Ok(anyone)
}

/// Removes what is ours: a directory that is shared may hold other things.
fn clear(directory: &Path) -> Io<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if ["k%", "l%", "t%"].iter().any(|kind| name.to_string_lossy().starts_with(kind)) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn open_in(parent: &Path) -> FileStore {
        FileStore::open(parent, "job", LONG, &mut |_| ()).unwrap()
    }

    #[test]
    fn the_last_to_leave_removes_everything() {
        let parent = tempfile::tempdir().unwrap();
        let (a, b) = (open_in(parent.path()), open_in(parent.path()));
        a.set("k", b"v").unwrap();
        a.lease("l", b"v", b"lost", LONG).unwrap();
        drop(a);
        assert_eq!(b.get("k").unwrap().unwrap(), b"v");
        drop(b);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_job_left_is_gone_for_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let killed = open_in(parent.path());
        killed.set("k", b"old").unwrap();
        killed.lease("l", b"old", b"lost", LONG).unwrap();
        // As the kernel does for a process that is killed: the locks go, the files stay.
        let copy = tempfile::tempdir().unwrap();
        let directory = copy.path().join("hcomm-job");
        fs::create_dir(&directory).unwrap();
        for entry in fs::read_dir(&killed.inner.directory).unwrap().map(|entry| entry.unwrap()) {
            fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
        }
        fs::write(directory.join("README"), "not ours").unwrap();
        let next = open_in(copy.path());
        assert_eq!(next.list("").unwrap(), []);
        next.lease("l", b"new", b"lost", LONG).unwrap();
        drop(next);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "what is not ours stays");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let error = FileStore::open(Path::new("/nonexistent/dir"), "job", Duration::ZERO, &mut |_| ()).err().unwrap();
        assert!(error.to_string().contains("file:///nonexistent/dir"), "{error}");
    }

    #[test]
    fn a_lease_whose_owner_is_silent_is_lost_in_time() {
        let parent = tempfile::tempdir().unwrap();
        let (a, b) = (open_in(parent.path()), open_in(parent.path()));
        a.inner.stop.store(true, Ordering::Release); // its thread renews nothing, and its lock stays
        a.lease("alive", b"here", b"lost", Duration::from_millis(1)).unwrap();
        let (mut revision, mut last) = (0, Vec::new());
        while last != b"lost" {
            let (next, pairs) = b.watch("alive", revision, LONG).unwrap();
            revision = next;
            last = pairs.into_iter().next_back().expect("no change").1;
        }
    }
}
