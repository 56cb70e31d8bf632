//! What machine this is, and how much memory a run may take.

use std::fs;

use hcomm_cli::{Failure, Result};
use serde_json::{Map, Value, json};

/// Operating system, processor and memory of this host, for the JSON output.
pub fn describe() -> Map<String, Value> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned());
    let mut map = Map::new();
    map.insert("os".to_owned(), json!(std::env::consts::OS));
    map.insert("arch".to_owned(), json!(std::env::consts::ARCH));
    map.insert("kernel".to_owned(), json!(kernel));
    map.insert("cpu_model".to_owned(), json!(cpu_model()));
    map.insert("cpus".to_owned(), json!(processors()));
    map.insert("memory_bytes".to_owned(), json!(meminfo("MemTotal")));
    map
}

/// Refuses buffers that this host's free memory cannot hold, before any is touched: the system would rather kill the
/// process than say so.
pub fn check_memory(needed: u128, ranks_here: usize) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    if needed <= u128::from(available) {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "buffers of {ranks_here} ranks on this host need {}, and {} are available",
            readable(needed),
            readable(u128::from(available)),
        ),
        "lower -e/--max-bytes, or start fewer ranks (-g)",
    ))
}

/// Processors of this host. Not those this process may use: a rank may be bound to one of them.
pub fn processors() -> Option<usize> {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok()??;
    usize::try_from(online).ok()
}

/// The load average of the last minute.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Bytes that can still be had: the kernel's estimate, and what the control group leaves.
fn available_memory() -> Option<u64> {
    let group = control_group_room();
    match (meminfo("MemAvailable"), group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

fn control_group_room() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok(); // "max" is no limit
    let limit = number("/sys/fs/cgroup/memory.max")?;
    let used = number("/sys/fs/cgroup/memory.current")?;
    Some(limit.saturating_sub(used))
}

fn meminfo(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// A size with a unit that suits it: `21.3 GiB`.
fn readable(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = bytes as f64 / 1024f64.powi(unit as i32);
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(readable(0), "0 B");
        assert_eq!(readable(1536), "1.5 KiB");
        assert_eq!(readable(32 << 60), "32.0 EiB");
        assert_eq!(readable(1 << 80), "1048576.0 EiB");
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let failure = check_memory(1 << 70, 2).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.text.contains("1024.0 EiB"), "{failure}");
        assert!(check_memory(1 << 20, 1).is_ok());
    }
}
