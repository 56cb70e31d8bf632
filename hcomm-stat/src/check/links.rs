//! Interfaces: carrier, speed, duplex, MTU, networks that two of them share.

use hcomm_cli::shell_word;
use hcomm_topology::{Nic, NicKind};

use super::Context;
use crate::links::{Health, Link};
use crate::units;

/// `ARPHRD_INFINIBAND`: IP over InfiniBand has MTUs of its own.
const INFINIBAND: u32 = 32;
/// Jumbo frames pay from this speed on, Gbit/s.
const FAST: f64 = 10.0;
/// What switches and cards commonly carry.
const JUMBO: u32 = 9000;
/// Tables of routes that nobody uses by default (0, 253 to 255 are the system's).
const FIRST_TABLE: u32 = 101;

pub fn run(context: &mut Context<'_>) {
    state(context);
    speed_and_duplex(context);
    mtu(context);
    mtu_of_parts(context);
    shared_networks(context);
}

fn state(context: &mut Context<'_>) {
    let found: Vec<_> = context
        .links
        .iter()
        .filter(|link| link.nic().is_some())
        .map(|link| (link.name.clone(), link.health.clone(), link.state()))
        .collect();
    for (name, health, state) in found {
        match health {
            Health::Well => context.ok("carrier", &name, state.unwrap_or_default()),
            Health::Idle(reason) => context.ok("carrier", &name, format!("idle: {reason}")),
            // Nobody's mistake, maybe: an interface that nobody set up.
            Health::Unwell { reason, fix } if reason == "set down" => context.warn("carrier", &name, reason, fix),
            Health::Unwell { reason, fix } => context.fail("carrier", &name, reason, fix),
            Health::Unknown => context.unknown("carrier", &name, "neither state nor carrier is told"),
        }
    }
}

/// Interfaces that are up and carry traffic of their own.
fn in_use(context: &Context<'_>, also_virtual: bool) -> Vec<Nic> {
    let own = |nic: &&Nic| match nic.kind {
        NicKind::Physical | NicKind::Bond => true,
        NicKind::Virtual | NicKind::Vlan => {
            let leaves_the_link = |address: &String| !address.starts_with("fe80:");
            also_virtual && nic.master.is_none() && nic.addresses.iter().any(leaves_the_link)
        }
        _ => false,
    };
    let well = context.links.iter().filter(|link| link.health == Health::Well);
    well.filter_map(Link::nic).filter(own).cloned().collect()
}

fn speed_and_duplex(context: &mut Context<'_>) {
    for nic in in_use(context, false) {
        let name = &nic.name;
        let asked = context.ethtool.as_ref().and_then(|ethtool| ethtool.link(name));
        let now = nic.speed_mbit_per_s.or_else(|| asked.as_ref()?.speed_mbit_per_s);
        let text = |mbit: u64| units::speed(mbit as f64 / 1000.0);
        match (now, asked.as_ref().and_then(|link| link.best_mbit_per_s)) {
            (Some(now), Some(best)) if now < best => {
                let fix = format!(
                    "look at cable, transceiver and the switch's port; ethtool -s {} autoneg on",
                    shell_word(name)
                );
                context.warn("speed", name, format!("{} of {}", text(now), text(best)), fix);
            }
            (Some(now), Some(_)) => context.ok("speed", name, format!("{}, the card's best", text(now))),
            (Some(now), None) => context.unknown("speed", name, format!("{}; the card's best is not told", text(now))),
            (None, _) => context.unknown("speed", name, "not told"),
        }
        match nic.duplex.as_deref().or_else(|| asked.as_ref()?.duplex) {
            Some("half") => {
                let fix = format!("ethtool -s {} autoneg on, on both ends", shell_word(name));
                context.fail("duplex", name, "half: it cannot send and receive at once", fix);
            }
            Some(_) => context.ok("duplex", name, "full"),
            None => {}
        }
    }
}

fn mtu(context: &mut Context<'_>) {
    let nics = in_use(context, true);
    for nic in nics.iter().filter(|nic| nic.hardware_type != Some(INFINIBAND)) {
        let name = &nic.name;
        let fast = nic.speed_mbit_per_s.map(|speed| speed as f64 / 1000.0 >= FAST);
        match nic.mtu {
            None => context.unknown("mtu", name, "not told"),
            Some(mtu) if mtu < JUMBO && fast == Some(true) => {
                let link = shell_word(name);
                let fix = format!("ip link set {link} mtu {JUMBO}, on all hosts and switches of the network");
                context.warn("mtu", name, format!("{mtu}: large frames cost less processor time"), fix);
            }
            Some(mtu) => context.ok("mtu", name, mtu.to_string()),
        }
    }
    let networks = context.ways.shared.clone();
    for shared in &networks {
        let of: Vec<String> = nics
            .iter()
            .filter(|nic| shared.interfaces.contains(&nic.name))
            .filter_map(|nic| Some(format!("{} {}", nic.name, nic.mtu?)))
            .collect();
        let mtus: std::collections::BTreeSet<u32> =
            nics.iter().filter(|nic| shared.interfaces.contains(&nic.name)).filter_map(|nic| nic.mtu).collect();
        if let (Some(least), true) = (mtus.first(), mtus.len() > 1) {
            let reason = format!("differs on {}: {}", shared.network, of.join(", "));
            context.fail(
                "mtu",
                &shared.interfaces.join(" "),
                reason,
                format!("{}, or the larger on all", set_mtu(&shared.interfaces, *least)),
            );
        }
    }
    // Rails of one speed are expected to be alike.
    let mut by_speed = std::collections::BTreeMap::<Option<u64>, Vec<&Nic>>::new();
    for nic in nics.iter().filter(|nic| nic.mtu.is_some() && nic.hardware_type != Some(INFINIBAND)) {
        by_speed.entry(nic.speed_mbit_per_s).or_default().push(nic);
    }
    for alike in by_speed.into_values() {
        let told_above = networks.iter().any(|one| alike.iter().all(|nic| one.interfaces.contains(&nic.name)));
        if !told_above && alike.iter().any(|nic| nic.mtu != alike[0].mtu) {
            let subject: Vec<&str> = alike.iter().map(|nic| nic.name.as_str()).collect();
            let each: Vec<String> =
                alike.iter().map(|nic| format!("{} {}", nic.name, nic.mtu.unwrap_or_default())).collect();
            let reason = format!("differs between links of one speed: {}", each.join(", "));
            let most = alike.iter().filter_map(|nic| nic.mtu).max().unwrap_or_default();
            let names: Vec<String> =
                alike.iter().filter(|nic| nic.mtu != Some(most)).map(|nic| nic.name.clone()).collect();
            let fix = format!("{}, if the switches carry it: the same on all rails", set_mtu(&names, most));
            context.warn("mtu", &subject.join(" "), reason, fix);
        }
    }
}

/// The commands that give all of these interfaces one MTU.
fn set_mtu(names: &[String], mtu: u32) -> String {
    let commands = names.iter().map(|name| format!("ip link set {} mtu {mtu}", shell_word(name)));
    commands.collect::<Vec<_>>().join("; ")
}

/// An interface on top of another cannot send more than that one carries.
fn mtu_of_parts(context: &mut Context<'_>) {
    let nics: Vec<Nic> = context.links.iter().filter_map(Link::nic).cloned().collect();
    let find = |name: &str| nics.iter().find(|nic| nic.name == name);
    for nic in &nics {
        if let Some((master, mtu)) = nic.master.as_deref().and_then(find).and_then(|m| Some((m, nic.mtu?)))
            && let Some(above) = master.mtu.filter(|above| *above > mtu)
        {
            let reason = format!("{mtu}, and {} that it is a part of {above}", master.name);
            context.fail("mtu", &nic.name, reason, format!("ip link set {} mtu {above}", shell_word(&nic.name)));
        }
        for entry in context.root.list(format!("sys/class/net/{}", nic.name)) {
            let lower = entry.strip_prefix("lower_").and_then(find);
            if let (NicKind::Vlan, Some(lower)) = (nic.kind, lower)
                && let (Some(own), Some(below)) = (nic.mtu, lower.mtu.filter(|below| Some(*below) < nic.mtu))
            {
                let reason = format!("{own}, and {} that carries it {below}", lower.name);
                context.fail("mtu", &nic.name, reason, format!("ip link set {} mtu {own}", shell_word(&lower.name)));
            }
        }
    }
    if let Some(failed) = context.sample.protocol("Ip", "FragFails").filter(|failed| *failed > 0) {
        let reason = format!("{failed} packets were larger than a network on their way carries");
        context.warn("mtu", "system", reason, "compare the MTU of both ends: ping -M do -s 8972 ADDRESS");
    }
}

fn shared_networks(context: &mut Context<'_>) {
    let shared = context.ways.shared.clone();
    if shared.is_empty() && !context.ways.tables.all.is_empty() {
        context.ok("subnets", "system", "each network is on one link");
    } else if context.ways.tables.all.is_empty() {
        context.unknown("subnets", "system", "no routes are told");
    }
    for network in shared {
        let Some((used, others)) = network.interfaces.split_first() else { continue };
        let subject = network.interfaces.join(" ");
        let others = others.join(", ");
        if network.is_sorted_out() {
            let reason = format!("{} is also on {others}; rules keep apart what comes from each", network.network);
            context.ok("subnets", &subject, reason);
            continue;
        }
        let reason = format!("{} is also on {others}; packets leave by {used}", network.network);
        let rules: Vec<String> = network
            .from
            .iter()
            .zip(FIRST_TABLE..)
            .map(|(own, table)| {
                let (address, link, network) = (own.address, shell_word(&own.interface), &network.network);
                format!(
                    "ip route add {network} dev {link} src {address} table {table}; ip rule add from {address} table {table}"
                )
            })
            .collect();
        let rules =
            if rules.is_empty() { "ip rule add from ADDRESS table N for each".to_owned() } else { rules.join("; ") };
        let fix = format!(
            "give each link a network of its own, or rules: {rules}; \
             sysctl -w net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.arp_ignore=1"
        );
        context.warn("subnets", &subject, reason, fix);
    }
}
