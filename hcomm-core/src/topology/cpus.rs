//! How many processors this process may really use.
//!
//! The smaller of two limits: the affinity mask, and the quota of its control group and of every group above it. A container
//! with two processors' worth of quota on a machine of 96 shows 96 to whoever asks the mask alone, starts as many spinning
//! threads, and is throttled for it. Reads `/proc` and `/sys` below a root path, so that other machines' trees are tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The processors that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Numbers of the processors in the affinity mask, ascending; never empty.
    pub allowed: Vec<usize>,
    /// Processors' worth of time that the control groups grant, rounded up; `None` without a limit.
    pub quota: Option<usize>,
}

impl Cpus {
    /// Of this process, now.
    pub fn of_this_process() -> Cpus {
        Cpus { allowed: affinity(), quota: quota_under(Path::new("/")) }
    }

    /// How many may run at the same time, at least 1.
    pub fn usable(&self) -> usize {
        self.allowed.len().min(self.quota.unwrap_or(usize::MAX)).max(1)
    }

    /// The one processor that this process is bound to, if it is bound to one.
    pub fn bound_to(&self) -> Option<usize> {
        match self.allowed[..] {
            [one] => Some(one),
            _ => None,
        }
    }
}

/// NUMA node of a processor; `None` where the system names none.
pub fn numa_node_of(root: &Path, cpu: usize) -> Option<usize> {
    let entries = fs::read_dir(root.join(format!("sys/devices/system/cpu/cpu{cpu}"))).ok()?;
    entries.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

/// The mask of this process. A system that does not tell counts as one processor more than none.
fn affinity() -> Vec<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).map(|set| {
        let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
        (0..nix::sched::CpuSet::count()).filter(is_set).collect::<Vec<_>>()
    });
    match allowed {
        Ok(allowed) if !allowed.is_empty() => allowed,
        // A machine with more processors than the fixed set holds.
        _ => (0..std::thread::available_parallelism().map_or(1, |n| n.get())).collect(),
    }
}

/// The tightest quota of the groups that this process is in, in processors, rounded up.
pub fn quota_under(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut quotas = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if id == "0" && controllers.is_empty() {
            quotas.extend(walk_up(&root.join("sys/fs/cgroup"), path, read_v2));
            quotas.extend(walk_up(&root.join("sys/fs/cgroup/unified"), path, read_v2));
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            for mount in [controllers, "cpu", "cpu,cpuacct"] {
                quotas.extend(walk_up(&root.join("sys/fs/cgroup").join(mount), path, read_v1));
            }
        }
    }
    if groups.is_empty() {
        quotas.extend(walk_up(&root.join("sys/fs/cgroup"), "/", read_v2));
    }
    quotas.into_iter().min()
}

/// The tightest quota from `path` up to the mount. In a container the path may be the host's and not exist here: the
/// walk then finds the mount itself, which is the container's own group.
fn walk_up(mount: &Path, path: &str, read: fn(&Path) -> Option<usize>) -> Option<usize> {
    let mut group: PathBuf = mount.join(path.trim_start_matches('/'));
    let mut tightest = None;
    while group.starts_with(mount) {
        tightest = tightest.into_iter().chain(read(&group)).min();
        if !group.pop() {
            break;
        }
    }
    tightest
}

/// `cpu.max`: `150000 100000`, or `max 100000` for no limit.
fn read_v2(group: &Path) -> Option<usize> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    processors(words.next()?, words.next().unwrap_or("100000"))
}

/// `cpu.cfs_quota_us`, -1 for no limit, and `cpu.cfs_period_us`.
fn read_v1(group: &Path) -> Option<usize> {
    let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(group.join("cpu.cfs_period_us")).unwrap_or_else(|_| "100000".into());
    processors(quota.trim(), period.trim())
}

/// Quota by period, rounded up; anything that is no positive number is no limit.
fn processors(quota: &str, period: &str) -> Option<usize> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    if quota == 0 || period == 0 {
        return None;
    }
    usize::try_from(quota.div_ceil(period)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn quota(files: &[(&str, &str)]) -> Option<usize> {
        quota_under(tree(files).path())
    }

    const V2: (&str, &str) = ("proc/self/cgroup", "0::/a/b\n");

    /// Field report F23: a quota of 1.5 processors on a machine of 96.
    #[test]
    fn quota_instead_of_cpuset() {
        let at_root = |text| quota(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", text)]);
        assert_eq!(at_root("150000 100000\n"), Some(2));
        assert_eq!(at_root("200000 100000\n"), Some(2));
        assert_eq!(at_root("1000 100000"), Some(1));
        assert_eq!(at_root("max 100000\n"), None);
        assert_eq!(at_root("max\n"), None);
        assert_eq!(at_root(""), None);
        assert_eq!(at_root("0 0"), None);
        assert_eq!(at_root("-1 100000"), None);
        assert_eq!(quota(&[]), None);
        assert_eq!(quota(&[("sys/fs/cgroup/cpu.max", "300000 100000")]), Some(3), "no /proc/self/cgroup");
    }

    #[test]
    fn groups_above_count_too() {
        let max = "max 100000";
        assert_eq!(
            quota(&[V2, ("sys/fs/cgroup/a/cpu.max", "300000 100000"), ("sys/fs/cgroup/a/b/cpu.max", max)]),
            Some(3)
        );
        let nested = [V2, ("sys/fs/cgroup/a/cpu.max", "300000 100000"), ("sys/fs/cgroup/a/b/cpu.max", "100000 100000")];
        assert_eq!(quota(&nested), Some(1));
        // In a container: the path of the host, the mount of the container.
        assert_eq!(quota(&[V2, ("sys/fs/cgroup/cpu.max", "250000 100000")]), Some(3));
    }

    #[test]
    fn version_1_with_minus_one_for_no_limit() {
        let groups = ("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/job\n0::/\n");
        let file = |name: &'static str| format!("sys/fs/cgroup/cpu,cpuacct/job/{name}");
        let (quota_file, period_file) = (file("cpu.cfs_quota_us"), file("cpu.cfs_period_us"));
        assert_eq!(quota(&[groups, (&quota_file, "-1\n"), (&period_file, "100000\n")]), None);
        assert_eq!(quota(&[groups, (&quota_file, "250000\n"), (&period_file, "100000\n")]), Some(3));
        assert_eq!(quota(&[groups, ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000")]), Some(1));
    }

    #[test]
    fn usable_is_the_smaller_and_bound_is_one() {
        let cpus = |allowed: &[usize], quota| Cpus { allowed: allowed.to_vec(), quota };
        assert_eq!(cpus(&[0, 1, 2, 3], Some(2)).usable(), 2);
        assert_eq!(cpus(&[0, 1], Some(64)).usable(), 2);
        assert_eq!(cpus(&[0, 1], None).usable(), 2);
        assert_eq!((cpus(&[5], None).bound_to(), cpus(&[5, 6], Some(1)).bound_to()), (Some(5), None));
        assert!(Cpus::of_this_process().usable() >= 1);
    }

    #[test]
    fn numa_nodes_as_the_system_names_them() {
        let root = tree(&[("sys/devices/system/cpu/cpu3/node1/x", ""), ("sys/devices/system/cpu/cpu4/topology/x", "")]);
        assert_eq!(numa_node_of(root.path(), 3), Some(1));
        assert_eq!(numa_node_of(root.path(), 4), None);
        assert_eq!(numa_node_of(root.path(), 5), None);
    }
}
