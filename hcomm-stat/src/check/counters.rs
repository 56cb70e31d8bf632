//! Counters: errors, drops, pause frames, packets sent again, packet processing.

use std::collections::BTreeMap;

use hcomm_cli::shell_word;
use hcomm_topology::NicKind;
use hcomm_topology::net::{Ethtool, softnet};

use super::Context;
use crate::links::Link;
use crate::sample::{DROPS, ERRORS, PACKETS, RETRANSMITS, Tcp};

/// Drops that are a smaller part of the packets are everybody's: frames of protocols that nobody listens to.
const DROPS_THAT_MATTER: f64 = 1e-4;
/// Packets sent again in percent of those sent: what is worth a look, and what costs much. TCP's rate halves already at 0.1 % on
/// long ways (Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997).
const AGAIN_WARN: f64 = 0.1;
const AGAIN_FAIL: f64 = 1.0;
/// RDMA goes back to the lost packet and sends all after it again, so that less of it costs as much.
const AGAIN_THAT_MATTERS: f64 = 1e-6;
/// With fewer segments a percentage says nothing.
const FEWEST_SEGMENTS: u64 = 1000;

pub fn run(context: &mut Context<'_>) {
    let names: Vec<String> = context.links.iter().map(|link| link.name.clone()).collect();
    for name in &names {
        errors(context, name);
        drops(context, name);
        sent_again(context, name);
    }
    pauses(context);
    tcp(context);
    packet_processing(context);
}

/// `rx_errors 12, symbol_error 3`: those that are not 0; with `+` where the counter has stopped.
fn named(context: &Context<'_>, link: &str, names: &[&str]) -> String {
    let counters = context.sample.links.get(link);
    let some = |name: &&str| {
        let counter = counters?.values.get(*name).filter(|counter| counter.value > 0)?;
        Some(format!("{name} {}{}", counter.value, if counter.at_ceiling { "+" } else { "" }))
    };
    names.iter().filter_map(some).collect::<Vec<_>>().join(", ")
}

fn grown(context: &Context<'_>, link: &str, names: &[&str]) -> u64 {
    context.growth.as_ref().and_then(|growth| growth.links.get(link)?.sum(names)).unwrap_or(0)
}

fn errors(context: &mut Context<'_>, name: &str) {
    let Some(sum) = context.sample.links.get(name).and_then(|counters| counters.sum(&ERRORS)) else {
        return context.unknown("errors", name, "no counters");
    };
    let (grown, each) = (grown(context, name, &ERRORS), named(context, name, &ERRORS));
    let fix = match name.split_once(':') {
        Some((device, port)) => {
            format!("look at the cable; then perfquery -x -R -C {device} -P {port} clears the counters")
        }
        None => format!("look at the cable and transceiver: ethtool -S {0}, ethtool -m {0}", shell_word(name)),
    };
    match (grown, sum) {
        (0, 0) => context.ok("errors", name, "none"),
        (0, _) => context.warn("errors", name, format!("since start-up: {each}"), fix),
        (grown, _) => context.fail("errors", name, format!("{grown} more while watched: {each}"), fix),
    }
}

fn drops(context: &mut Context<'_>, name: &str) {
    let Some(counters) = context.sample.links.get(name) else { return };
    let Some(sum) = counters.sum(&DROPS) else { return context.unknown("drops", name, "no counters") };
    let packets = counters.sum(&PACKETS).unwrap_or(0);
    let each = named(context, name, &DROPS);
    let many = sum as f64 > packets as f64 * DROPS_THAT_MATTER;
    if sum == 0 || !many {
        let reason = if sum == 0 { "none".to_owned() } else { format!("few of {packets} packets: {each}") };
        return context.ok("drops", name, reason);
    }
    let fix = match name.split_once(':') {
        Some(_) => "look at congestion, flow control and receive buffers of the program".to_owned(),
        None => format!("ethtool -G {} rx MAXIMUM; sysctl -w net.core.netdev_max_backlog=250000", shell_word(name)),
    };
    context.warn("drops", name, format!("of {packets} packets: {each}"), fix);
}

fn sent_again(context: &mut Context<'_>, name: &str) {
    let Some(counters) = context.sample.links.get(name) else { return };
    let Some(sum) = counters.sum(&RETRANSMITS) else { return };
    let packets = counters.sum(&PACKETS).unwrap_or(0);
    let each = named(context, name, &RETRANSMITS);
    let fix = "look for loss and congestion on the way: counters of the switch, PFC and ECN";
    let many = sum as f64 > packets as f64 * AGAIN_THAT_MATTERS;
    match (grown(context, name, &RETRANSMITS), sum) {
        (0, 0) => context.ok("retransmits", name, "none"),
        (0, _) if !many => context.ok("retransmits", name, format!("few of {packets} packets: {each}")),
        (0, _) => context.warn("retransmits", name, format!("of {packets} packets: {each}"), fix),
        (grown, _) => context.warn("retransmits", name, format!("{grown} more while watched: {each}"), fix),
    }
}

/// The statistics of drivers whose names speak of pause frames.
pub fn pause_frames(ethtool: Option<&Ethtool>, links: &[Link]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let physical = links.iter().filter_map(Link::nic).filter(|nic| nic.kind == NicKind::Physical);
    let of = |name: &str| {
        let all = ethtool?.statistics(name);
        let speaks = |name: &str| name.contains("pause") || name.contains("xoff") || name.contains("xon");
        let pauses: BTreeMap<String, u64> = all.into_iter().filter(|(name, _)| speaks(&name.to_lowercase())).collect();
        (!pauses.is_empty()).then(|| (name.to_owned(), pauses))
    };
    physical.filter_map(|nic| of(&nic.name)).collect()
}

fn pauses(context: &mut Context<'_>) {
    for (name, [before, after]) in std::mem::take(&mut context.pauses) {
        let received = |name: &str| name.contains("rx");
        let grown: u64 = after
            .iter()
            .filter(|(name, _)| received(name))
            .map(|(name, now)| before.get(name).map_or(0, |then| now.saturating_sub(*then)))
            .sum();
        let all: Vec<String> = after
            .iter()
            .filter(|(_, count)| **count > 0)
            .take(4)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let link = shell_word(&name);
        let fix = format!("the other end cannot keep up: look at its receivers and at the switch; ethtool -a {link}");
        match (grown, all.is_empty()) {
            (0, true) => context.ok("pause", &name, "no pause frames"),
            (0, false) => context.ok("pause", &name, format!("none while watched; since start-up: {}", all.join(", "))),
            (grown, _) => context.warn("pause", &name, format!("told to wait {grown} times while watched"), fix),
        }
    }
}

fn tcp(context: &mut Context<'_>) {
    if context.sample.tcp().is_none() {
        return context.unknown("tcp", "system", "not told");
    }
    let watched = context.growth.as_ref().and_then(|growth| growth.tcp).filter(|tcp| tcp.sent >= FEWEST_SEGMENTS);
    let all = context.sample.tcp().filter(|tcp| tcp.sent >= FEWEST_SEGMENTS);
    let Some((tcp, when)) = watched.map(|tcp| (tcp, "while watched")).or(all.map(|tcp| (tcp, "since start-up"))) else {
        return context.unknown("tcp", "system", format!("fewer than {FEWEST_SEGMENTS} segments were sent"));
    };
    let Tcp { sent, again } = tcp;
    let percent = tcp.percent().unwrap_or(0.0);
    let reason = format!("{again} of {sent} segments sent again {when} ({percent:.2} %)");
    let fix = "look for loss on the way: ss -ti shows which peers, ethtool -S and the switch's counters where";
    if percent >= AGAIN_FAIL {
        context.fail("tcp", "system", reason, fix);
    } else if percent >= AGAIN_WARN {
        context.warn("tcp", "system", reason, fix);
    } else {
        context.ok("tcp", "system", reason);
    }
}

fn packet_processing(context: &mut Context<'_>) {
    let lines = softnet(context.root);
    if lines.is_empty() {
        return context.unknown("backlog", "system", "proc/net/softnet_stat is not told");
    }
    let sum = |of: fn(&hcomm_topology::net::Softnet) -> u32| lines.iter().map(|line| u64::from(of(line))).sum::<u64>();
    let (processed, dropped, squeezed) = (sum(|l| l.processed), sum(|l| l.dropped), sum(|l| l.squeezed));
    if dropped > 0 {
        let fix = "sysctl -w net.core.netdev_max_backlog=250000; spread interrupts over more processors";
        context.warn(
            "backlog",
            "system",
            format!("{dropped} of {processed} packets dropped, the backlog was full"),
            fix,
        );
    } else if squeezed as f64 > processed as f64 * DROPS_THAT_MATTER {
        let fix = "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000";
        context.warn("backlog", "system", format!("out of budget {squeezed} times for {processed} packets"), fix);
    } else {
        context.ok("backlog", "system", format!("{processed} packets, none dropped"));
    }
}
