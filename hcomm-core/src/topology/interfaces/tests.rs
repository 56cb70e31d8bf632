use std::fs;

use proptest::prelude::*;

use super::*;

fn subnet(text: &str) -> Subnet {
    let (address, prefix) = text.split_once('/').unwrap();
    Subnet { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
}

fn interface(name: &str, kind: Kind, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| subnet(text)).collect();
    Interface { name: name.into(), up: true, kind, speed_mbit: None, default_route: false, near: false, addresses }
}

fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn chosen(interfaces: &[Interface], filter: Option<&str>, one_host: bool) -> Vec<String> {
    let filter = filter.map(|text| Filter::parse(text).unwrap());
    let choices = choose(interfaces, filter.as_ref(), one_host).unwrap();
    choices.iter().map(|choice| format!("{} {}", choice.interface, choice.subnet.address)).collect()
}

#[test]
fn names_are_matched_whole() {
    let table = [
        ("bond0", "bond0", true),
        ("bond0", "bond0.2093", false),
        ("=bond0", "bond0", true),
        ("=bond0", "bond0.2093", false),
        ("bond0*", "bond0.2093.1", true),
        ("eth0,ib*", "ib3", true),
        ("eth0, ib*", "eth0", true),
        ("eth0,ib*", "eth1", false),
        ("eth?", "eth10", false),
        ("*0*1", "eth0.101", true),
        ("^docker*,lo", "docker0", false),
        ("^docker*,lo", "lo", false),
        ("^docker*,lo", "lo2", true),
    ];
    for (filter, name, allowed) in table {
        assert_eq!(Filter::parse(filter).unwrap().allows(name), allowed, "{filter} on {name}");
    }
}

#[test]
fn a_filter_that_means_nothing_is_refused() {
    for text in ["", "^", "eth0,", ",eth0", "eth0,^eth1", "=", "==eth0", "^^lo"] {
        let error = Filter::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("HCOMM_SOCKET_IFNAME={text}: ")), "{error}");
    }
}

proptest! {
    /// Against the obvious exponential definition.
    #[test]
    fn globs_match_as_defined(pattern in "[ab*?]{0,6}", name in "[ab]{0,7}") {
        fn obvious(pattern: &[u8], name: &[u8]) -> bool {
            match pattern {
                [] => name.is_empty(),
                [b'*', rest @ ..] => (0..=name.len()).any(|skip| obvious(rest, &name[skip..])),
                [c, rest @ ..] => {
                    name.first().is_some_and(|first| *c == b'?' || c == first) && obvious(rest, &name[1..])
                }
            }
        }
        prop_assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), obvious(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn subnets_hold_what_shares_their_prefix(a: u32, b: u32, prefix in 0..=32_u8) {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let subnet = Subnet { address: IpAddr::V4(a.into()), prefix };
        prop_assert_eq!(subnet.contains(IpAddr::V4(b.into())), a & mask == b & mask);
        prop_assert!(subnet.contains(IpAddr::V4((a & mask | b & !mask).into())));
    }
}

#[test]
fn subnets_of_version_6() {
    assert!(subnet("fd00:1::1/64").contains("fd00:1::ffff".parse().unwrap()));
    assert!(!subnet("fd00:1::1/64").contains("fd00:2::1".parse().unwrap()));
    assert!(subnet("fd00::/0").contains("2001:db8::1".parse().unwrap()));
    assert!(!subnet("10.0.0.1/0").contains("fd00::1".parse().unwrap()));
}

#[test]
fn the_useful_interfaces_are_chosen_in_order() {
    let mut slow = interface("eth0", Kind::Physical, &["fd00::5/64", "10.0.0.5/24"]);
    (slow.speed_mbit, slow.default_route) = (Some(1000), true);
    let mut fast = interface("eth1", Kind::Physical, &["10.1.0.5/24"]);
    fast.speed_mbit = Some(100_000);
    let mut down = interface("eth2", Kind::Physical, &["10.2.0.5/24"]);
    down.up = false;
    let all = [
        interface("docker0", Kind::Bridge, &["172.17.0.1/16"]),
        slow,
        fast,
        down,
        interface("lo", Kind::Loopback, &["127.0.0.1/8"]),
        interface("tun0", Kind::Tunnel, &["10.8.0.1/24"]),
        interface("veth0", Kind::Virtual, &["10.9.0.1/24"]),
    ];
    let default = ["eth1 10.1.0.5", "eth0 10.0.0.5", "veth0 10.9.0.1", "eth0 fd00::5"];
    assert_eq!(chosen(&all, None, false), default);
    assert_eq!(chosen(&all, Some("^eth*"), false), ["veth0 10.9.0.1"]);
    assert_eq!(chosen(&all, None, true), ["lo 127.0.0.1"]);
    assert_eq!(chosen(&all, Some("veth0"), true), ["veth0 10.9.0.1"], "a named one is obeyed on one host too");
    assert_eq!(chosen(&all, Some("docker0"), false), ["docker0 172.17.0.1"], "and so is a bridge");

    let reasons = choose(&all, None, false).unwrap();
    assert_eq!(reasons[1].to_string(), "eth0 10.0.0.5/24: physical, 1000 Mbit/s, default route");
    let none = choose(&all, Some(&Filter::parse("ib0,eth2").unwrap()), false).unwrap_err().to_string();
    assert_eq!(
        none,
        "no usable network interface: none fits HCOMM_SOCKET_IFNAME=ib0,eth2; there are: docker0 (bridge), eth0 (up), \
         eth1 (up), eth2 (down), lo (loopback), tun0 (tunnel), veth0 (up)"
    );
}

#[test]
fn f01_an_address_of_several_hosts_is_dropped() {
    let offer =
        |last: u8| sockets(&[&format!("172.17.0.1:{}", 4000 + u16::from(last)), &format!("10.9.0.{last}:5000")]);
    // Ranks 0 and 1 share a host and its addresses.
    let mut offers = [offer(1), offer(1), offer(2)];
    drop_shared(&mut offers, &[0, 0, 1]).unwrap();
    assert_eq!(offers[0], sockets(&["10.9.0.1:5000"]));
    assert_eq!(offers[1], offers[0]);
    assert_eq!(offers[2], sockets(&["10.9.0.2:5000"]));

    let mut same_host = [offer(1), offer(1)];
    drop_shared(&mut same_host, &[0, 0]).unwrap();
    assert_eq!(same_host[0].len(), 2);

    let mut nothing = [sockets(&["172.17.0.1:1"]), sockets(&["172.17.0.1:2"])];
    let error = drop_shared(&mut nothing, &[0, 1]).unwrap_err().to_string();
    assert!(error.contains("rank 0 offers 172.17.0.1 only"), "{error}");
}

#[test]
fn a_common_subnet_goes_first() {
    let local = [subnet("10.0.0.1/24"), subnet("10.1.0.1/24")];
    let found = routes(&local, &sockets(&["192.168.0.2:1", "10.1.0.2:2", "10.0.0.2:3"]));
    let expected: Vec<(Option<&str>, &str)> =
        vec![(Some("10.0.0.1"), "10.0.0.2:3"), (Some("10.1.0.1"), "10.1.0.2:2"), (None, "192.168.0.2:1")];
    assert_eq!(found, expected.into_iter().map(route).collect::<Vec<_>>());
}

#[test]
fn f06_two_interfaces_in_one_subnet_make_two_bound_paths() {
    let local = [subnet("192.168.3.1/20"), subnet("192.168.5.1/20")];
    let found = routes(&local, &sockets(&["192.168.3.2:1", "192.168.5.2:1"]));
    let expected = vec![(Some("192.168.3.1"), "192.168.3.2:1"), (Some("192.168.5.1"), "192.168.5.2:1")];
    assert_eq!(found, expected.into_iter().map(route).collect::<Vec<_>>());
}

fn route((local, remote): (Option<&str>, &str)) -> Route {
    Route { local: local.map(|text| text.parse().unwrap()), remote: remote.parse().unwrap() }
}

#[test]
fn another_machines_tree_is_read() {
    let root = tempfile::tempdir().unwrap();
    let class = root.path().join("sys/class/net");
    let write = |path: &str, text: &str| {
        let path = class.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (name, flags, carrier, speed) in [
        ("eth0", "0x1003", "1", "25000"),
        ("eth1", "0x1003", "1", "-1"),
        ("eth2", "0x1003", "0", "4294967295"),
        ("bond0", "0x1403", "1", "65535"),
        ("virbr0", "0x1003", "1", ""),
        ("hcbr", "0x1003", "1", ""),
        ("tap0", "0x1003", "1", "10"),
        ("lo", "0x9", "1", ""),
    ] {
        write(&format!("{name}/flags"), flags);
        write(&format!("{name}/carrier"), carrier);
        write(&format!("{name}/speed"), speed);
    }
    write("bonding_masters", "bond0"); // a file (F09)
    write("eth0/device/vendor", "0x8086");
    write("hcbr/bridge/stp_state", "0");
    write("tap0/tun_flags", "0x1002");
    fs::create_dir_all(root.path().join("proc/net")).unwrap();
    let table = "Iface Destination Gateway Flags RefCnt Use Metric Mask\neth1 00000000 0102A8C0 0003 0 0 0 00000000\neth0 0000A8C0 00000000 0001 0 0 0 00FFFFFF\n";
    fs::write(root.path().join("proc/net/route"), table).unwrap();
    let addresses = [("eth0".to_owned(), subnet("10.0.0.1/24")), ("eth0".to_owned(), subnet("fe80::1/64"))];
    let found = list_under(root.path(), &addresses).unwrap();
    let seen: Vec<_> = found.iter().map(|i| (i.name.as_str(), i.kind, i.up, i.speed_mbit, i.default_route)).collect();
    assert_eq!(
        seen,
        [
            ("bond0", Kind::Virtual, true, None, false),
            ("eth0", Kind::Physical, true, Some(25000), false),
            ("eth1", Kind::Virtual, true, None, true),
            ("eth2", Kind::Virtual, false, None, false),
            ("hcbr", Kind::Bridge, true, None, false),
            ("lo", Kind::Loopback, true, None, false),
            ("tap0", Kind::Tunnel, true, Some(10), false),
            ("virbr0", Kind::Bridge, true, None, false),
        ]
    );
    assert_eq!(found[1].addresses, [subnet("10.0.0.1/24")], "no link-local address");
}

#[test]
fn this_machine_has_a_loopback() {
    let interfaces = list().unwrap();
    let loopback = interfaces.iter().find(|interface| interface.kind == Kind::Loopback).unwrap();
    assert!(loopback.addresses.contains(&LOOPBACK[0]));
}

#[test]
fn traffic_is_spread_over_interfaces_as_good_as_the_best() {
    let nic = |name: &str, speed: u64, addresses: &[&str]| Interface {
        speed_mbit: Some(speed),
        ..interface(name, Kind::Physical, addresses)
    };
    let found = [
        nic("eno1", 1000, &["10.0.0.1/24"]),
        nic("fast1", 100_000, &["fd00:1::1/64", "10.1.0.1/24"]),
        nic("fast2", 100_000, &["10.2.0.1/24", "10.2.1.1/24"]),
        nic("fast3", 100_000, &[]),
        interface("veth0", Kind::Virtual, &["10.3.0.1/24"]),
    ];
    let choices = choose(&found, None, false).unwrap();
    assert_eq!(rails(&choices), 2, "two of the fastest have addresses");
    let order: Vec<String> = choices.iter().map(|choice| choice.subnet.address.to_string()).collect();
    let first = ["10.1.0.1", "10.2.0.1", "10.0.0.1", "10.3.0.1"];
    assert_eq!(order[..4], first, "each interface's first address before the second of any");
    assert_eq!(order[4..], ["fd00:1::1", "10.2.1.1"]);
    let named = Filter::parse("eno1,veth0").unwrap();
    assert_eq!(rails(&choose(&found, Some(&named), false).unwrap()), 1);
}

#[test]
fn of_equal_interfaces_the_one_next_to_memory_goes_first() {
    let far = interface("a0", Kind::Physical, &["10.0.0.1/24"]);
    let near = Interface { near: true, ..interface("b0", Kind::Physical, &["10.0.1.1/24"]) };
    let routed = Interface { default_route: true, ..interface("c0", Kind::Physical, &["10.0.2.1/24"]) };
    let fast = Interface { speed_mbit: Some(10_000), ..interface("d0", Kind::Physical, &["10.0.3.1/24"]) };
    let all = [far.clone(), near.clone(), routed, fast];
    assert_eq!(chosen(&all, None, false), ["d0 10.0.3.1", "c0 10.0.2.1", "b0 10.0.1.1", "a0 10.0.0.1"]);
    let choices = choose(&[far, near], None, false).unwrap();
    assert!(choices[0].reason.contains("next to this rank's memory") && !choices[1].reason.contains("memory"));
    assert_eq!(rails(&choices), 2, "both carry traffic still");
}
