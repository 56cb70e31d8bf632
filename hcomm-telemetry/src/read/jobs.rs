//! The files of this user.

use std::path::{Path, PathBuf};

use super::reader::{Reader, Unreadable};
use crate::place::{Folder, candidates, pid_of};
use crate::process::{Liveness, ProcessState};

/// A telemetry file, open if it can be read.
#[derive(Debug)]
pub struct Found {
    /// Where it lies.
    pub path: PathBuf,
    /// The file, or what is wrong with it.
    pub reader: Result<Reader, Unreadable>,
}

/// The telemetry files of this user's living processes in the usual folders and in `more`. Removes those of dead ones. Files in
/// the making are left out; one that cannot be read is named.
pub fn find(more: &[PathBuf]) -> Vec<Found> {
    let usual = candidates().into_iter().filter_map(|path| Folder::open_own(&path).ok());
    let more = more.iter().filter_map(|path| Folder::existing(path).ok());
    let mut found: Vec<Found> = Vec::new();
    for folder in usual.chain(more) {
        if found.iter().any(|found| found.path.parent() == Some(folder.path())) {
            continue;
        }
        found.extend(sweep(&folder));
    }
    found
}

/// Removes the files that killed processes of this user have left in `folder`, or in the usual folders.
pub fn remove_left(folder: Option<&Path>) {
    match folder {
        Some(folder) => Folder::existing(folder).iter().for_each(remove_dead),
        None => {
            candidates().iter().filter_map(|path| Folder::open_own(path).ok()).for_each(|folder| remove_dead(&folder))
        }
    }
}

/// Removes the files of dead processes.
pub(crate) fn remove_dead(folder: &Folder) {
    // Those whose process id is in use need no look: this is done by every process that starts.
    for name in
        folder.names().into_iter().filter(|name| pid_of(name).is_some_and(|pid| ProcessState::of(pid).is_none()))
    {
        look(folder, Path::new(&name));
    }
}

fn sweep(folder: &Folder) -> Vec<Found> {
    folder.names().iter().filter_map(|name| look(folder, Path::new(name))).collect()
}

/// Opens a file, or removes it when its process is dead.
fn look(folder: &Folder, name: &Path) -> Option<Found> {
    let path = folder.path().join(name);
    let reader = match folder.open(name.as_os_str()) {
        // Its process ended just now, or it is a link or of another user.
        Err(_) => return None,
        Ok(file) => Reader::over(file, &path),
    };
    match &reader {
        Ok(open) if open.liveness() == Liveness::Dead => {
            folder.remove(name.as_os_str());
            return None;
        }
        Err(Unreadable::NotReady) => {
            if pid_of(name.as_os_str()).is_some_and(|pid| ProcessState::of(pid).is_none()) {
                folder.remove(name.as_os_str());
            }
            return None;
        }
        _ => {}
    }
    Some(Found { path, reader })
}
