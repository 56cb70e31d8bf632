//! Reads a job's store from outside of the job, for tools: takes no part, changes nothing, and is not waited for.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::file::{STAMP_BYTES, read_file};
use super::protocol::{MAX_RESPONSE_BYTES, Request, Response, decode_response, encode_request, next_frame};
use super::{MAX_VALUE_BYTES, bad_url, embedded, split_address};
use crate::error::{Error, Result};

/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pair of a store, new or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Tells the stores of several jobs apart: the folder of the job in a shared folder, else the URL.
    pub place: String,
    /// Key.
    pub key: String,
    /// Value.
    pub value: Vec<u8>,
}

/// A view of a store. A `tcp://` store is that of one job; below `file:///dir` those of all jobs are read that lie there.
pub struct Observer {
    url: String,
    store: Seen,
}

enum Seen {
    Served(Served),
    Folder(PathBuf, HashMap<PathBuf, (SystemTime, u64)>),
}

impl Observer {
    /// Opens the store at `url` (`tcp://host:port` or `file:///dir`).
    ///
    /// # Errors
    /// [`Error::Setting`] for a URL that names no store, [`Error::Store`] when it does not answer within `timeout`.
    pub fn open(url: &str, timeout: Duration) -> Result<Observer> {
        let failed = |what: String| Error::Store { url: url.to_owned(), what };
        let store = if let Some(address) = url.strip_prefix("tcp://") {
            let (host, port) = split_address(url, address)?;
            Seen::Served(Served::over(embedded::observe(&host, port, timeout).map_err(failed)?).map_err(failed)?)
        } else if let Some(path) = url.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            let path = PathBuf::from(path);
            fs::read_dir(&path).map_err(|cause| failed(cause.to_string()))?;
            Seen::Folder(path, HashMap::new())
        } else {
            return Err(bad_url(url));
        };
        Ok(Observer { url: url.to_owned(), store })
    }

    /// The pairs whose key begins with one of `prefixes` that changed since the last call; the first time all.
    ///
    /// # Errors
    /// [`Error::Store`] when the store is gone: who served it has ended, or the folder was removed.
    pub fn changes(&mut self, prefixes: &[&str]) -> Result<Vec<Change>> {
        let changes = match &mut self.store {
            Seen::Served(store) => store.changes(prefixes).map(|pairs| {
                let change = |(key, value)| Change { place: self.url.clone(), key, value };
                pairs.into_iter().map(change).collect()
            }),
            Seen::Folder(folder, seen) => folder_changes(folder, seen, prefixes).map_err(|cause| cause.to_string()),
        };
        changes.map_err(|what| Error::Store { url: self.url.clone(), what })
    }

    /// The store's URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A connection to a store that a process serves.
struct Served {
    stream: TcpStream,
    input: Vec<u8>,
    next_id: u32,
    /// By prefix: up to where changes are known.
    revisions: HashMap<String, u64>,
}

impl Served {
    fn over(stream: TcpStream) -> std::result::Result<Self, String> {
        let set = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        set.map_err(|cause| cause.to_string())?;
        Ok(Self { stream, input: Vec::new(), next_id: 0, revisions: HashMap::new() })
    }

    fn changes(&mut self, prefixes: &[&str]) -> std::result::Result<Vec<(String, Vec<u8>)>, String> {
        let mut all = Vec::new();
        for &prefix in prefixes {
            let revision = self.revisions.get(prefix).copied().unwrap_or(0);
            match self.ask(&Request::Watch { prefix: prefix.into(), revision, timeout: Duration::ZERO })? {
                Response::Changes { revision, pairs } => {
                    self.revisions.insert(prefix.into(), revision);
                    all.extend(pairs);
                }
                Response::TimedOut => {}
                Response::Failed(what) => return Err(what),
                other => return Err(format!("an answer that does not fit the question ({other:?})")),
            }
        }
        Ok(all)
    }

    fn ask(&mut self, request: &Request) -> std::result::Result<Response, String> {
        let mut frame = Vec::new();
        self.next_id = self.next_id.wrapping_add(1);
        encode_request(self.next_id, request, &mut frame);
        let broke = |cause: std::io::Error| match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {PATIENCE:.0?}"),
            _ => cause.to_string(),
        };
        self.stream.write_all(&frame).map_err(broke)?;
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some(body) = next_frame(&self.input, 0, MAX_RESPONSE_BYTES)? {
                let (id, response) = decode_response(&self.input[body.clone()])?;
                self.input.drain(..body.end);
                if id == self.next_id {
                    return Ok(response);
                }
                continue;
            }
            match self.stream.read(&mut piece).map_err(broke)? {
                0 => return Err("the store has ended".into()),
                length => self.input.extend_from_slice(&piece[..length]),
            }
        }
    }
}

/// What changed below the folders of jobs. Values are replaced by renaming, so that each is read whole, without a lock.
fn folder_changes(
    parent: &Path,
    seen: &mut HashMap<PathBuf, (SystemTime, u64)>,
    prefixes: &[&str],
) -> std::io::Result<Vec<Change>> {
    use std::os::unix::fs::MetadataExt;
    let mut changes = Vec::new();
    let mut there = HashMap::new();
    for job in fs::read_dir(parent)?.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("hcomm-"))
    {
        // A job that ended meanwhile.
        let Ok(entries) = fs::read_dir(job.path()) else { continue };
        for entry in entries.flatten() {
            let Some(key) =
                entry.file_name().to_str().and_then(|name| Some(name.strip_prefix("k%")?.replace('%', "/")))
            else {
                continue;
            };
            if !prefixes.iter().any(|prefix| key.starts_with(prefix)) {
                continue;
            }
            let Ok(data) = entry.metadata() else { continue };
            let Ok(changed) = data.modified() else { continue };
            let state = (changed, data.ino());
            there.insert(entry.path(), state);
            if seen.get(&entry.path()) == Some(&state) {
                continue;
            }
            if let Ok(Some(mut bytes)) = read_file(&entry.path())
                && bytes.len() >= STAMP_BYTES
            {
                bytes.drain(..STAMP_BYTES);
                bytes.truncate(MAX_VALUE_BYTES);
                changes.push(Change { place: job.path().display().to_string(), key, value: bytes });
            }
        }
    }
    *seen = there;
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::control::{Store, StoreServer, connect};

    const LONG: Duration = Duration::from_secs(20);

    fn keys(changes: &[Change]) -> Vec<(&str, &[u8])> {
        let mut keys: Vec<_> = changes.iter().map(|change| (change.key.as_str(), change.value.as_slice())).collect();
        keys.sort();
        keys
    }

    /// What is seen of a store of either kind.
    fn follows(url: &str, store: &dyn Store) {
        let mut observer = Observer::open(url, LONG).unwrap();
        let mut look = || observer.changes(&["summary/", "lives/"]).unwrap();
        assert_eq!(look(), []);
        store.set("summary/0", b"a").unwrap();
        store.set("summary/1", b"b").unwrap();
        store.set("other/1", b"x").unwrap();
        store.lease("lives/1", b"here", b"lost", LONG).unwrap();
        assert_eq!(keys(&look()), [("lives/1", &b"here"[..]), ("summary/0", b"a"), ("summary/1", b"b")]);
        assert_eq!(look(), [], "nothing changed");
        store.set("summary/1", b"c").unwrap();
        assert_eq!(keys(&look()), [("summary/1", &b"c"[..])]);
    }

    #[test]
    fn a_served_store_is_read_without_its_job_and_is_not_kept_up() {
        let server = StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), "job").unwrap();
        let url = format!("tcp://{}", server.address());
        let store = connect(&url, "job", LONG).unwrap();
        follows(&url, &*store);
        let mut observer = Observer::open(&url, LONG).unwrap();
        let Seen::Served(served) = &mut observer.store else { panic!("served") };
        for request in [
            Request::Set { key: "summary/0".into(), value: b"forged".to_vec() },
            Request::Delete { key: "summary/0".into() },
            Request::Lease { key: "k".into(), value: vec![], lost: vec![], ttl: LONG },
        ] {
            assert!(matches!(served.ask(&request), Ok(Response::Failed(_))), "{request:?}");
        }
        assert_eq!(store.get("summary/0").unwrap().unwrap(), b"a");
        drop(store);
        assert!(server.wait_for_clients_to_leave(0, LONG), "an observer is no client");
        assert_eq!((server.served(), server.refused()), (1, 0));
        drop(server);
        assert!(observer.changes(&["summary/"]).is_err(), "the store is gone");
    }

    #[test]
    fn a_shared_folder_is_read_without_a_trace() {
        let parent = tempfile::tempdir().unwrap();
        let url = format!("file://{}", parent.path().display());
        let store = connect(&url, "job", LONG).unwrap();
        follows(&url, &*store);
        let other = connect(&url, "other", LONG).unwrap();
        other.set("summary/0", b"of the other").unwrap();
        let mut observer = Observer::open(&url, LONG).unwrap();
        let changes = observer.changes(&["summary/"]).unwrap();
        let mut places: Vec<&str> = changes.iter().map(|change| change.place.as_str()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((changes.len(), places.len()), (3, 2));
        drop((store, other));
        assert_eq!(observer.changes(&["summary/"]).unwrap(), []);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_store_is_refused() {
        for url in ["tcp://nowhere", "http://a:1", "file://relative", "file:///no/such/folder", "tcp://127.0.0.1:1"] {
            assert!(Observer::open(url, Duration::from_millis(100)).is_err(), "{url}");
        }
    }
}
