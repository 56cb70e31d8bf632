//! What control groups and affinity leave to this process (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/cpusets.rst`).
//!
//! A container with two processors' worth of quota on a machine of 96 shows 96 to whoever asks the affinity mask alone, starts as
//! many spinning threads, and is throttled for it: so the quota is read as well, of the process's group and of those above it.

mod groups;

use groups::Groups;

use crate::{CpuSet, Root};

/// What a process may use; `None` where the source does not tell or sets no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processors.
    pub cpus: Option<CpuSet>,
    /// NUMA nodes whose memory may be used.
    pub memory_nodes: Option<CpuSet>,
    /// Processors' worth of time, rounded up, at least 1.
    pub quota: Option<u32>,
}

/// The limits of the process that `/proc/self` below `root` shows; on this machine, of the calling thread.
pub fn read_limits(root: &Root) -> Limits {
    let groups = Groups::read(root);
    let status = root.text("proc/self/status").unwrap_or_default();
    let affinity = if root.is_this_machine() { affinity() } else { None };
    Limits {
        cpus: both(affinity.or_else(|| listed(&status, "Cpus_allowed_list:")), cpuset(&groups, "cpus")),
        memory_nodes: both(listed(&status, "Mems_allowed_list:"), cpuset(&groups, "mems")),
        quota: quota(&groups),
    }
}

/// What the process itself is told, within its group. The first is the kernel's answer and stands where they contradict.
fn both(own: Option<CpuSet>, group: Option<CpuSet>) -> Option<CpuSet> {
    match (own, group) {
        (Some(own), Some(group)) => Some(own.and(&group)).filter(|both| !both.is_empty()).or(Some(own)),
        (own, group) => own.or(group),
    }
}

/// A list in `/proc/self/status` (proc_pid_status(5)).
fn listed(status: &str, name: &str) -> Option<CpuSet> {
    let list = status.lines().find_map(|line| line.strip_prefix(name))?;
    CpuSet::parse_list(list).filter(|set| !set.is_empty())
}

/// The affinity mask of the calling thread; `None` on a machine with more processors than the fixed set of the C library holds.
fn affinity() -> Option<CpuSet> {
    let mask = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    let is_set = |cpu: &usize| mask.is_set(*cpu).unwrap_or(false);
    let numbers = (0..nix::sched::CpuSet::count()).filter(is_set).filter_map(|cpu| u32::try_from(cpu).ok());
    Some(numbers.collect::<CpuSet>()).filter(|set| !set.is_empty())
}

/// The processors (`cpus`) or memory nodes (`mems`) of the process's group, or of the nearest above it that has a set.
fn cpuset(groups: &Groups<'_>, what: &str) -> Option<CpuSet> {
    let v2 = groups.folders("").into_iter().map(|folder| folder.join(format!("cpuset.{what}.effective")));
    // The last are of a mount with `noprefix`, or of the file system `cpuset` that was before control groups.
    let v1 = groups.folders("cpuset").into_iter().flat_map(|folder| {
        [format!("cpuset.effective_{what}"), format!("cpuset.{what}"), what.to_owned()].map(|name| folder.join(name))
    });
    v1.chain(v2).find_map(|file| {
        let text = groups.root.text(file)?;
        CpuSet::parse_list(&text).filter(|set| !set.is_empty())
    })
}

/// The tightest quota of the groups that the process is in, and of those above them.
fn quota(groups: &Groups<'_>) -> Option<u32> {
    let text = |folder: &std::path::Path, name: &str| groups.root.text(folder.join(name));
    let v2 = groups.folders("").into_iter().filter_map(|folder| {
        // `150000 100000`, or `max 100000` for no limit.
        let text = text(&folder, "cpu.max")?;
        let mut words = text.split_whitespace();
        processors(words.next()?, words.next().unwrap_or("100000"))
    });
    let v1 = groups.folders("cpu").into_iter().filter_map(|folder| {
        let period = text(&folder, "cpu.cfs_period_us").unwrap_or("100000".into());
        processors(&text(&folder, "cpu.cfs_quota_us")?, &period)
    });
    v2.chain(v1).min()
}

/// Quota by period, rounded up; anything that is no positive number (`max`, `-1`) is no limit.
fn processors(quota: &str, period: &str) -> Option<u32> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    if quota == 0 || period == 0 {
        return None;
    }
    u32::try_from(quota.div_ceil(period)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(files: &[(&str, &str)]) -> Limits {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        read_limits(&Root::at(folder.path()))
    }

    fn quota(files: &[(&str, &str)]) -> Option<u32> {
        limits(files).quota
    }

    fn cpus(files: &[(&str, &str)]) -> Option<String> {
        limits(files).cpus.map(|set| set.to_string())
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
        let mounted = ("proc/self/mounts", "none /my\\040groups cgroup rw,cpuacct,cpu 0 0\n");
        assert_eq!(quota(&[groups, mounted, ("my groups/job/cpu.cfs_quota_us", "350000")]), Some(4));
    }

    #[test]
    fn processors_of_the_group() {
        let v2 =
            [V2, ("sys/fs/cgroup/a/b/cpuset.cpus.effective", "2-3\n"), ("sys/fs/cgroup/cpuset.cpus.effective", "0-7")];
        assert_eq!(cpus(&v2).unwrap(), "2-3");
        assert_eq!(cpus(&[V2, v2[2]]).unwrap(), "0-7", "the leaf has no such controller");
        let v1 = ("proc/self/cgroup", "7:cpuset:/job\n0::/\n");
        assert_eq!(cpus(&[v1, ("sys/fs/cgroup/cpuset/job/cpuset.cpus", "1,3")]).unwrap(), "1,3");
        let old = [("proc/self/cpuset", "/job\n"), ("proc/mounts", "none /dev/cpuset cpuset rw 0 0\n")];
        assert_eq!(cpus(&[old[0], old[1], ("dev/cpuset/job/cpus", "4")]).unwrap(), "4");
        let outside = ("proc/self/cgroup", "0::/../../other\n");
        assert_eq!(cpus(&[outside, ("sys/fs/cgroup/cpuset.cpus.effective", "0-1")]).unwrap(), "0-1");
    }

    #[test]
    fn affinity_within_the_group() {
        let status = |list| ("proc/self/status", list);
        let group = ("sys/fs/cgroup/a/b/cpuset.cpus.effective", "2-5\n");
        assert_eq!(cpus(&[V2, group, status("Name:\tx\nCpus_allowed_list:\t0-3\n")]).unwrap(), "2-3");
        assert_eq!(cpus(&[V2, group, status("Cpus_allowed_list:\t8\n")]).unwrap(), "8", "the process knows better");
        assert_eq!(cpus(&[status("Cpus_allowed_list:\t8\n")]).unwrap(), "8");
        assert_eq!(cpus(&[status("Cpus_allowed_list:\t\n")]), None);
        assert_eq!(cpus(&[]), None);
        let nodes = limits(&[status("Mems_allowed_list:\t0,8\n")]).memory_nodes;
        assert_eq!(nodes.unwrap().to_string(), "0,8");
    }
}
