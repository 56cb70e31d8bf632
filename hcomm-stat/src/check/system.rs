//! Settings of the system: memory, processors, clock, limits, socket buffers.

use std::collections::BTreeMap;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::Context;

const SYSTEM: &str = "system";
/// The time that buffers must bridge, in seconds: a way through a cluster with queues in it.
const ROUND_TRIP_S: f64 = 0.001;
/// Enough for any link of up to 10 Gbit/s.
const LEAST_BUFFER: u64 = 4 << 20;
/// Clocks that are read without a system call or a slow device.
const FAST_CLOCKS: [&str; 9] = [
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "timebase",
    "tod",
    "stp",
    "riscv_clocksource",
    "xen",
];

pub fn run(context: &mut Context<'_>) {
    socket_buffers(context);
    numa_balancing(context);
    huge_pages(context);
    governor(context);
    clock(context);
    limits(context);
}

/// Buffers hold what is on its way: bandwidth times round trip (RFC 7323, section 1).
fn socket_buffers(context: &mut Context<'_>) {
    let fastest = context.fastest();
    let needed = fastest.map_or(LEAST_BUFFER, |gbit| ((gbit * 1e9 / 8.0 * ROUND_TRIP_S) as u64).max(LEAST_BUFFER));
    let mut small = Vec::new();
    let mut seen = false;
    for name in ["net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        // Of three numbers (least, first, most) the last is the limit.
        let limit = context.sysctl(name).and_then(|text| text.split_whitespace().last()?.parse::<u64>().ok());
        let Some(limit) = limit else { continue };
        seen = true;
        // The kernel doubles what a program asks for (socket(7)), so half of it is enough there.
        let enough = if name.starts_with("net.core") { needed / 2 } else { needed };
        if limit < enough {
            let value = enough.next_power_of_two();
            let setting =
                if name.starts_with("net.core") { value.to_string() } else { format!("\"4096 131072 {value}\"") };
            small.push((format!("{name} {limit}"), format!("{name}={setting}")));
        }
    }
    if !seen {
        return context.unknown("buffers", SYSTEM, "limits of socket buffers are not told");
    }
    if small.is_empty() {
        return context.ok("buffers", SYSTEM, format!("at least {needed} bytes"));
    }
    let (found, fixes): (Vec<_>, Vec<_>) = small.into_iter().unzip();
    let link = fastest.map_or_else(String::new, |gbit| format!(" for {}", crate::units::speed(gbit)));
    let reason = format!("smaller than {needed} bytes{link}: {}", found.join(", "));
    context.warn("buffers", SYSTEM, reason, format!("sysctl -w {}", fixes.join(" ")));
}

fn numa_balancing(context: &mut Context<'_>) {
    match context.sysctl("kernel.numa_balancing").as_deref() {
        Some("0") => context.ok("numa-balancing", SYSTEM, "off"),
        Some(_) if context.numa.len() < 2 => context.ok("numa-balancing", SYSTEM, "on, with one node"),
        Some(_) => {
            let reason = "on: pages move under running transfers";
            context.warn("numa-balancing", SYSTEM, reason, "sysctl -w kernel.numa_balancing=0");
        }
        None => context.unknown("numa-balancing", SYSTEM, "not told"),
    }
}

/// The chosen word of `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

fn huge_pages(context: &mut Context<'_>) {
    let folder = "sys/kernel/mm/transparent_hugepage";
    let read =
        |file: &str| context.root.text(format!("{folder}/{file}")).and_then(|text| chosen(&text).map(str::to_owned));
    let (enabled, defrag) = (read("enabled"), read("defrag"));
    match (enabled.as_deref(), defrag.as_deref()) {
        (Some("never"), _) => {
            let reason = "never: large buffers take many small pages";
            context.warn("huge-pages", SYSTEM, reason, format!("echo madvise > /{folder}/enabled"));
        }
        (Some(enabled), Some("always")) => {
            let reason = format!("{enabled}, and defrag always: a page fault may wait for memory to be moved");
            context.warn("huge-pages", SYSTEM, reason, format!("echo madvise > /{folder}/defrag"));
        }
        (Some(enabled), _) => context.ok("huge-pages", SYSTEM, enabled),
        (None, _) => context.unknown("huge-pages", SYSTEM, "not told"),
    }
}

fn governor(context: &mut Context<'_>) {
    let mut governors: BTreeMap<String, usize> = BTreeMap::new();
    if !context.root.is_folder("sys/devices/system/cpu") {
        return context.unknown("governor", SYSTEM, "not told");
    }
    for name in context.root.list("sys/devices/system/cpu") {
        if name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok()) {
            let path = format!("sys/devices/system/cpu/{name}/cpufreq/scaling_governor");
            if let Some(governor) = context.root.text(path).filter(|governor| !governor.is_empty()) {
                *governors.entry(governor).or_default() += 1;
            }
        }
    }
    let slow: Vec<String> = governors
        .iter()
        .filter(|(governor, _)| *governor != "performance")
        .map(|(governor, count)| format!("{governor} on {count} processors"))
        .collect();
    if governors.is_empty() {
        context.unknown(
            "governor",
            SYSTEM,
            "the system does not set the frequency (a virtual machine, or firmware does)",
        );
    } else if slow.is_empty() {
        context.ok("governor", SYSTEM, "performance");
    } else {
        context.warn("governor", SYSTEM, slow.join(", "), "cpupower frequency-set -g performance");
    }
}

fn clock(context: &mut Context<'_>) {
    let folder = "sys/devices/system/clocksource/clocksource0";
    match context.root.text(format!("{folder}/current_clocksource")).filter(|clock| !clock.is_empty()) {
        Some(clock) if FAST_CLOCKS.contains(&clock.as_str()) => context.ok("clock", SYSTEM, clock),
        Some(clock) => {
            let all = context.root.text(format!("{folder}/available_clocksource")).unwrap_or_default();
            let better = FAST_CLOCKS.iter().find(|fast| all.split_whitespace().any(|clock| clock == **fast));
            let fix = match better {
                Some(better) => format!("echo {better} > /{folder}/current_clocksource"),
                None => "look why the kernel gave up the processor's own: dmesg | grep -i clocksource".to_owned(),
            };
            context.warn("clock", SYSTEM, format!("{clock}: slow to read"), fix);
        }
        None => context.unknown("clock", SYSTEM, "not told"),
    }
}

/// Limits of this process, which those that are started from the same shell have too.
fn limits(context: &mut Context<'_>) {
    if !context.root.is_this_machine() {
        context.unknown("memlock", SYSTEM, "limits are those of a process, and a tree has none");
        context.unknown("open-files", SYSTEM, "limits are those of a process, and a tree has none");
        return;
    }
    let rdma = context.links.iter().any(|link| link.port().is_some());
    let fix =
        "ulimit -l unlimited; in /etc/security/limits.conf: * - memlock unlimited; systemd: LimitMEMLOCK=infinity";
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => context.ok("memlock", SYSTEM, "unlimited"),
        Ok((bytes, _)) if rdma => {
            context.fail("memlock", SYSTEM, format!("{bytes} bytes: RDMA cannot register more"), fix)
        }
        Ok((bytes, _)) => {
            context.ok("memlock", SYSTEM, format!("{bytes} bytes; it matters with RDMA, of which there is none"))
        }
        Err(e) => context.unknown("memlock", SYSTEM, format!("cannot be asked: {e}")),
    }
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((files, _)) if files < 4096 => {
            let fix = "ulimit -n 65536; in /etc/security/limits.conf: * - nofile 65536; systemd: LimitNOFILE=65536";
            context.warn("open-files", SYSTEM, format!("{files}: each peer takes some"), fix);
        }
        Ok((files, _)) => context.ok("open-files", SYSTEM, files.to_string()),
        Err(e) => context.unknown("open-files", SYSTEM, format!("cannot be asked: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!((chosen("always"), chosen("]["), chosen("")), (None, None, None));
    }
}
