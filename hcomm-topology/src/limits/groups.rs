//! Where the control groups of a process are (cgroups(7)).

use std::path::{Path, PathBuf};

use crate::Root;

/// A path or list longer than these is no kernel's: `PATH_MAX`, and far more than there are controllers.
const LONGEST_PATH: usize = 4096;
const MOST_LINES: usize = 64;

/// The groups that the process is in, and where groups are mounted.
pub(super) struct Groups<'a> {
    pub(super) root: &'a Root,
    /// Controllers (of version 2: the empty text) and path.
    memberships: Vec<(String, String)>,
    /// Controllers and other mount options (of version 2: the empty text), and mount point.
    mounts: Vec<(String, PathBuf)>,
}

impl<'a> Groups<'a> {
    pub(super) fn read(root: &'a Root) -> Groups<'a> {
        let lines = root.text("proc/self/cgroup").unwrap_or_default();
        let mut memberships: Vec<_> = lines.lines().take(MOST_LINES).filter_map(membership).collect();
        if memberships.is_empty() {
            // Before control groups, and where only this was kept.
            let path = root.text("proc/self/cpuset").unwrap_or("/".into());
            memberships = vec![("cpuset".into(), path.clone()), (String::new(), path)];
        }
        let lines = root.text("proc/self/mounts").or_else(|| root.text("proc/mounts")).unwrap_or_default();
        let mounts = lines.lines().filter_map(mount).take(MOST_LINES).collect();
        Groups { root, memberships, mounts }
    }

    /// The folders of the process's group for `controller` (the empty text for version 2) and of all groups above it, nearest
    /// first. Not all of them exist: in a container the path may be the host's, and the mount is the container's own group.
    pub(super) fn folders(&self, controller: &str) -> Vec<PathBuf> {
        let has = |list: &str| list.split(',').any(|name| name == controller);
        let Some((controllers, path)) = self.memberships.iter().find(|(controllers, _)| has(controllers)) else {
            return Vec::new();
        };
        let mounted = self.mounts.iter().filter(|(options, _)| has(options)).map(|(_, point)| point.clone());
        // Where systemd mounts them, for trees without a list of mounts.
        let usual = match controller {
            "" => vec!["", "unified"],
            "cpu" => vec![controllers.as_str(), "cpu", "cpu,cpuacct"],
            _ => vec![controllers.as_str(), controller],
        };
        let mut folders = Vec::new();
        for mount in mounted.chain(usual.into_iter().map(|name| Path::new("sys/fs/cgroup").join(name))) {
            let group = mount.join(path.trim_start_matches('/'));
            folders.extend(group.ancestors().take_while(|group| group.starts_with(&mount)).map(Path::to_owned));
        }
        folders
    }
}

/// A line of `/proc/self/cgroup`: `4:cpu,cpuacct:/job`, `0::/a/b`.
pub(super) fn membership(line: &str) -> Option<(String, String)> {
    let mut fields = line.splitn(3, ':');
    let (_id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if path.len() > LONGEST_PATH || controllers.len() > LONGEST_PATH {
        return None;
    }
    // A group outside the process's own view (cgroup_namespaces(7)) is not below the mount.
    let path = if Path::new(path).components().any(|part| part.as_os_str() == "..") { "/" } else { path };
    Some((controllers.to_owned(), path.to_owned()))
}

/// A line of `/proc/self/mounts` (fstab(5)) that mounts groups.
pub(super) fn mount(line: &str) -> Option<(String, PathBuf)> {
    let mut words = line.split_whitespace();
    let (_device, point, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let controllers = match kind {
        "cgroup2" => "",
        "cgroup" => options,
        "cpuset" => "cpuset",
        _ => return None,
    };
    let point = point.replace("\\040", " ");
    (line.len() <= LONGEST_PATH).then(|| (controllers.to_owned(), PathBuf::from(point.trim_start_matches('/'))))
}
