//! Links as a table.

use hcomm_cli::{Cell, Column, Screen, Table, lines, printable};
use hcomm_topology::net::{Counters, Way};

use crate::View;
use crate::links::{Device, Health, Link};
use crate::sample::{DROPS, ERRORS, Growth, RECEIVED, RETRANSMITS, SENT, Tcp};
use crate::show_jobs;
use crate::units;
use crate::ways::Shared;

/// All links with totals, and what there is to say of them.
pub fn listing(view: &View<'_>, down: bool, screen: Screen) -> String {
    let mut text = if view.links.is_empty() { no_links(view, down, screen) } else { table(view, false, screen) };
    text += &causes(view, screen);
    if !down {
        text += &shared_networks(view, screen);
        text += &default_routes(view, screen);
        text += &view.sample.tcp().map(|tcp| tcp_line(tcp, "since start-up", screen)).unwrap_or_default();
        text += &paths(view, screen);
    }
    text
}

/// What changed in an interval.
pub fn changes(view: &View<'_>, first: bool, screen: Screen) -> String {
    let none = || no_links(view, view.left_out > 0, screen);
    let mut text = if view.links.is_empty() { none() } else { table(view, true, screen) };
    if first {
        text += &causes(view, screen);
        text += &shared_networks(view, screen);
    }
    if let Some(growth) = &view.growth {
        let when = format!("in {:.1} s", growth.seconds);
        text += &growth.tcp.map(|tcp| tcp_line(tcp, &when, screen)).unwrap_or_default();
    }
    if view.left_out == 0 {
        text += &paths(view, screen);
    }
    text + "\n"
}

/// Of running jobs, below the links.
fn paths(view: &View<'_>, screen: Screen) -> String {
    let text = show_jobs::text(&view.jobs, screen);
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn no_links(view: &View<'_>, down: bool, screen: Screen) -> String {
    if down && view.left_out > 0 {
        let text = match view.unknown {
            0 => "all links are well".to_owned(),
            unknown => {
                format!("no link is known not to be well; of {unknown} the system tells no state: hcomm-stat -l")
            }
        };
        return sentence_lines(&text, screen);
    }
    let (net, rdma) = ("sys/class/net", "sys/class/infiniband");
    let unreadable: Vec<String> = [net, rdma].into_iter().filter_map(|folder| view.root.unreadable(folder)).collect();
    let place = |folder: &str| view.root.folder().join(folder).display().to_string();
    let why = match unreadable.first() {
        Some(why) => why.clone(),
        None if !view.root.is_folder(net) => format!("there is no {}", place(net)),
        None => format!("nothing in {} but loopback, nor in {}", place(net), place(rdma)),
    };
    sentence_lines(&format!("no links: {why}"), screen)
}

fn tcp_line(tcp: Tcp, when: &str, screen: Screen) -> String {
    let percent = tcp.percent().map_or_else(String::new, |percent| format!(" ({percent:.2} %)"));
    sentence_lines(&format!("TCP: {} of {} segments sent again{percent} {when}", tcp.again, tcp.sent), screen)
}

fn table(view: &View<'_>, changes: bool, screen: Screen) -> String {
    let titles = if changes { ["+ERRORS", "+DROPS", "+RETRANS"] } else { ["ERRORS", "DROPS", "RETRANS"] };
    let columns = [
        Column::text("NAME").shrink_to(8),
        Column::text("STATE").shrink_to(8),
        Column::text("PHYSICAL").drop_rank(7),
        Column::number("SPEED"),
        Column::number("MTU").drop_rank(3),
        Column::text("ADDRESS").shrink_to(15).drop_rank(2),
        Column::number("NUMA").drop_rank(5),
        Column::number("RX").drop_rank(1),
        Column::number("TX").drop_rank(1),
        Column::number(titles[0]),
        Column::number(titles[1]).drop_rank(4),
        Column::number(titles[2]).drop_rank(6),
    ];
    let mut table = Table::new(columns);
    for link in &view.links {
        table.row(row(view, link, changes));
    }
    table.render(screen)
}

fn row(view: &View<'_>, link: &Link, changes: bool) -> Vec<Cell> {
    let counters = view.sample.links.get(&link.name);
    let growth = view.growth.as_ref();
    let figure = |names: &[&str]| match (changes, growth) {
        (true, Some(growth)) => added(growth, counters, &link.name, names),
        _ => total(counters, names),
    };
    let state = Cell::of(link.state());
    let mtu = link.nic().and_then(|nic| nic.mtu);
    vec![
        Cell::from(link.name.as_str()),
        match &link.health {
            Health::Well => state.good(),
            Health::Unwell { .. } => state.bad(),
            Health::Idle(_) | Health::Unknown => state.faint(),
        },
        Cell::of(link.physical_state()),
        Cell::of(link.speed().map(units::speed)),
        Cell::of(mtu),
        address(link),
        Cell::of(link.numa_node()),
        rate(growth, counters, &link.name, &RECEIVED),
        rate(growth, counters, &link.name, &SENT),
        figure(&ERRORS),
        figure(&DROPS),
        figure(&RETRANSMITS),
    ]
}

/// The first address, and how many more there are; the local identifier of an InfiniBand port; the GID's place of a RoCE port.
fn address(link: &Link) -> Cell {
    if let Device::Port(port, _) = &link.device {
        if let Some(lid) = port.lid.filter(|lid| *lid > 0) {
            return Cell::from(format!("lid {lid}"));
        }
        let roce = link.gid().filter(|_| port.link_layer.as_deref() != Some("InfiniBand"));
        return Cell::of(roce.map(|gid| format!("{} gid {}", crate::links::gid_address(gid), gid.index)));
    }
    let addresses = link.addresses();
    match addresses.split_first() {
        None => Cell::unknown(),
        Some((first, [])) => Cell::from(first.as_str()),
        Some((first, more)) => Cell::from(format!("{first} +{}", more.len())),
    }
}

fn rate(growth: Option<&Growth>, counters: Option<&Counters>, link: &str, names: &[&str]) -> Cell {
    if has_stopped(counters, names) {
        return Cell::from("stopped").warning();
    }
    match growth.and_then(|growth| growth.links.get(link).map(|difference| (growth, difference))) {
        Some((_, difference)) if difference.reset => Cell::from("reset").warning(),
        Some((growth, _)) => Cell::of(growth.per_second(link, names).map(units::rate)),
        None => Cell::unknown(),
    }
}

/// A sum since start-up; with `+` where a counter of it has stopped.
fn total(counters: Option<&Counters>, names: &[&str]) -> Cell {
    let Some(sum) = counters.and_then(|counters| counters.sum(names)) else { return Cell::unknown() };
    match (has_stopped(counters, names), sum) {
        (true, sum) => Cell::from(format!("{sum}+")).warning(),
        (false, 0) => Cell::from("0"),
        (false, sum) => Cell::from(sum.to_string()).warning(),
    }
}

/// What was added in the interval; with `+` where a counter of it has stopped.
fn added(growth: &Growth, counters: Option<&Counters>, link: &str, names: &[&str]) -> Cell {
    let stopped = has_stopped(counters, names);
    match growth.links.get(link) {
        Some(difference) if difference.reset => Cell::from("reset").warning(),
        Some(difference) => match difference.sum(names) {
            None if stopped => Cell::from("stopped").warning(),
            None => Cell::unknown(),
            Some(sum) if stopped => Cell::from(format!("{sum}+")).warning(),
            Some(0) => Cell::from("0"),
            Some(sum) => Cell::from(sum.to_string()).bad(),
        },
        None => Cell::unknown(),
    }
}

fn has_stopped(counters: Option<&Counters>, names: &[&str]) -> bool {
    counters.is_some_and(|counters| counters.at_ceiling().any(|name| names.contains(&name)))
}

/// What is not well, why, and what to do.
fn causes(view: &View<'_>, screen: Screen) -> String {
    let cause = |link: &Link| match &link.health {
        Health::Unwell { reason, fix } => {
            sentence_lines(&format!("{}: {reason}; {fix}", printable(&link.name)), screen)
        }
        _ => String::new(),
    };
    view.links.iter().map(cause).collect()
}

/// F06: networks that two links share, and which of them is used.
fn shared_networks(view: &View<'_>, screen: Screen) -> String {
    let sentence = |shared: &Shared| {
        let (used, others) = shared.interfaces.split_first()?;
        let (network, others) = (&shared.network, others.join(", "));
        Some(if shared.is_sorted_out() {
            format!("{network} is on {others} and {used}; rules send what comes from the address of each by that link")
        } else {
            format!(
                "{network} is on {others} and {used}: packets to it leave by {used}; give each link a network of its own, or rules (ip rule)"
            )
        })
    };
    view.ways.shared.iter().filter_map(sentence).map(|text| sentence_lines(&text, screen)).collect()
}

/// The way to everywhere else.
fn default_routes(view: &View<'_>, screen: Screen) -> String {
    let way = |way: &Way| {
        let gateway = way.gateway.map(|gateway| format!(" through {gateway}")).unwrap_or_default();
        let family = match way.gateway.or(way.source) {
            Some(address) if address.is_ipv6() => "IPv6 ",
            Some(_) => "IPv4 ",
            None => "",
        };
        sentence_lines(&format!("other {family}networks: packets leave by {}{gateway}", way.interface), screen)
    };
    view.ways.default.iter().map(way).collect()
}

/// A sentence below the table.
fn sentence_lines(text: &str, screen: Screen) -> String {
    lines("", "  ", printable(text).split(' '), screen)
}
