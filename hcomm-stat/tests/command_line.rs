//! The program as a user meets it, on trees that the test makes and on this machine.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// Exit code, stdout and stderr of a run.
fn run(name: &str, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin(name).unwrap().args(arguments).env_remove("COLUMNS").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

/// A tree of files; with links, `-> TARGET`.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text.strip_prefix("-> ") {
            Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            None => fs::write(path, text).unwrap(),
        }
    }
    folder
}

fn on(tree: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut all = vec!["--sysroot", tree.to_str().unwrap()];
    all.extend(arguments);
    run("hcomm-stat", &all)
}

fn json(tree: &Path, arguments: &[&str]) -> (i32, Value) {
    let mut all = vec!["--json"];
    all.extend(arguments);
    let (code, stdout, stderr) = on(tree, &all);
    (code, serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout} {stderr}")))
}

/// The verdicts of a check on a subject.
fn verdict(document: &Value, check: &str, subject: &str) -> Vec<String> {
    let checks = document["checks"].as_array().unwrap();
    let fits = |finding: &&Value| finding["check"] == check && finding["subject"] == subject;
    checks.iter().filter(fits).map(|finding| finding["verdict"].as_str().unwrap().to_owned()).collect()
}

/// Field reports F08, F11, F13 and F15, and a card in a slot with half the lanes.
fn sick() -> tempfile::TempDir {
    const HCA: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0";
    let at = |rest: &str| format!("{HCA}/{rest}");
    let port = "infiniband/mlx5_0/ports/1";
    let files: Vec<(String, &str)> = vec![
        ("sys/class/net/bonding_masters".into(), "bond0\n"),
        ("sys/class/net/eth0/operstate".into(), "up\n"),
        ("sys/class/net/eth0/carrier".into(), "1\n"),
        ("sys/class/net/eth0/speed".into(), "100000\n"),
        ("sys/class/net/eth0/duplex".into(), "half\n"),
        ("sys/class/net/eth0/mtu".into(), "1500\n"),
        ("sys/class/net/eth0/statistics/rx_bytes".into(), "5\n"),
        ("sys/class/net/eth1/operstate".into(), "down\n"),
        ("sys/class/net/eth1/speed".into(), "65535\n"),
        ("sys/class/net/eth1/carrier".into(), "0\n"),
        (
            "sys/class/infiniband/mlx5_0".into(),
            "-> ../../devices/pci0000:00/0000:00:01.0/0000:3b:00.0/infiniband/mlx5_0",
        ),
        ("sys/bus/pci/devices/0000:3b:00.0".into(), "-> ../../../devices/pci0000:00/0000:00:01.0/0000:3b:00.0"),
        ("sys/bus/pci/devices/0000:00:01.0".into(), "-> ../../../devices/pci0000:00/0000:00:01.0"),
        ("sys/devices/pci0000:00/0000:00:01.0/class".into(), "0x060400\n"),
        ("sys/devices/pci0000:00/0000:00:01.0/max_link_width".into(), "16\n"),
        ("sys/devices/pci0000:00/0000:00:01.0/max_link_speed".into(), "8.0 GT/s PCIe\n"),
        (at("class"), "0x020700\n"),
        (at("current_link_width"), "8\n"),
        (at("max_link_width"), "16\n"),
        (at("current_link_speed"), "8.0 GT/s PCIe\n"),
        (at("max_link_speed"), "8.0 GT/s PCIe\n"),
        (at("infiniband/mlx5_0/device"), "-> ../.."),
        (at(&format!("{port}/state")), "2: INIT\n"),
        (at(&format!("{port}/phys_state")), "5: LinkUp\n"),
        (at(&format!("{port}/rate")), "100 Gb/sec (4X EDR)\n"),
        (at(&format!("{port}/lid")), "0xffff\n"),
        (at(&format!("{port}/link_layer")), "InfiniBand\n\n"),
        (at(&format!("{port}/counters/port_rcv_data")), "1000\n"),
        (at(&format!("{port}/counters/port_xmit_data")), "4294967295\n"),
        (at(&format!("{port}/counters/link_downed")), "255\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/state".into(), "4: ACTIVE\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/link_layer".into(), "Ethernet\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/gids/1".into(), "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/1".into(), "RoCE v2\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/gids/3".into(), "0000:0000:0000:0000:0000:ffff:c800:d106\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/3".into(), "RoCE v2\n"),
        ("proc/sys/net/core/rmem_max".into(), "212992\n"),
        (
            "proc/net/route".into(),
            "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
            eth0 0000A8C0 00000000 0001 0 0 0 00F0FFFF 0 0 0\neth1 0000A8C0 00000000 0001 0 0 0 00F0FFFF 0 0 0\n",
        ),
    ];
    tree(&files.iter().map(|(path, text)| (path.as_str(), *text)).collect::<Vec<_>>())
}

#[test]
fn a_sick_machine_is_listed_without_wrong_numbers() {
    let tree = sick();
    let (code, text, _) = on(tree.path(), &[]);
    assert_eq!(code, 0, "{text}");
    for word in
        ["eth0", "eth1", "mlx5_0:1", "mlx5_1:1", "100 Gb/s", "INIT", "subnet manager", "200.0.209.6 gid 3", "255+"]
    {
        assert!(text.contains(word), "no {word}: {text}");
    }
    assert!(text.contains("192.168.0.0/20 is on eth1 and eth0: packets to it leave by eth0"), "{text}");
    for wrong in ["bonding_masters", "65535", "65.5", "4294967295", "17179869180 B"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    let (_, document) = json(tree.path(), &[]);
    let link = |name: &str| document["links"].as_array().unwrap().iter().find(|link| link["name"] == name).unwrap();
    assert_eq!(document["schema"], "hcomm-stat/1");
    assert_eq!(document["jobs"], serde_json::json!([]));
    assert!(link("eth1")["speed_gbit_per_s"].is_null() && link("eth1")["rx_bytes_per_s"].is_null());
    assert_eq!(link("mlx5_0:1")["total"]["rx_bytes"], 4000);
    assert_eq!(link("mlx5_0:1")["counters_at_ceiling"], serde_json::json!(["link_downed", "port_xmit_data_bytes"]));
    assert_eq!(link("mlx5_1:1")["rdma"]["gid_index"], 3);
}

#[test]
fn down_says_what_is_not_well_and_exits_1() {
    let tree = sick();
    let (code, text, _) = on(tree.path(), &["--down"]);
    assert_eq!(code, 1);
    assert!(text.contains("eth1") && text.contains("mlx5_0:1") && !text.contains("mlx5_1:1"), "{text}");
    let well = self::tree(&[("sys/class/net/eth0/operstate", "up\n")]);
    assert_eq!(on(well.path(), &["--down"]), (0, "all links are well\n".to_owned(), String::new()));
    let silent = self::tree(&[("sys/class/net/eth9/mtu", "1500\n")]);
    let (code, text, _) = on(silent.path(), &["--down"]);
    assert!(code == 0 && text.contains("of 1 the system tells no state"), "{text}");
    let (_, text, _) = on(self::tree(&[]).path(), &["--down"]);
    assert!(text.starts_with("no links"), "{text}");
}

/// The kernel lets a name hold anything but a slash and space.
#[test]
fn a_name_is_neither_obeyed_by_the_terminal_nor_by_the_shell() {
    let tree = tree(&[("sys/class/net/x\u{1b}[31m;id/operstate", "lowerlayerdown\n")]);
    for arguments in [&[][..], &["--down"], &["check"]] {
        let (_, text, _) = on(tree.path(), arguments);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    let (_, text, _) = on(tree.path(), &["--down"]);
    assert!(text.contains("ip -d link show 'x?[31m;id'"), "{text}");
}

#[test]
fn check_judges_each() {
    let (code, document) = json(sick().path(), &["check"]);
    assert_eq!(code, 3);
    for (check, subject, expected) in [
        ("carrier", "eth0", "ok"),
        ("carrier", "eth1", "fail"),
        ("duplex", "eth0", "fail"),
        ("mtu", "eth0", "warn"),
        ("subnets", "eth0 eth1", "warn"),
        ("rdma-state", "mlx5_0:1", "fail"),
        ("rdma-state", "mlx5_1:1", "ok"),
        ("rdma-gid", "mlx5_1:1", "ok"),
        ("pcie", "mlx5_0:1", "fail"),
        ("errors", "mlx5_0:1", "warn"),
        ("buffers", "system", "warn"),
        // Nothing of the machine that the test runs on.
        ("memlock", "system", "unknown"),
        ("open-files", "system", "unknown"),
        ("clock", "system", "unknown"),
        ("huge-pages", "system", "unknown"),
        ("tcp", "system", "unknown"),
        ("speed", "eth0", "unknown"),
    ] {
        assert_eq!(verdict(&document, check, subject), [expected], "{check} {subject}: {document:#}");
    }
    for finding in document["checks"].as_array().unwrap() {
        let needs = ["warn", "fail"].contains(&finding["verdict"].as_str().unwrap());
        assert_eq!(!finding["fix"].as_str().unwrap().is_empty(), needs, "{finding}");
    }
    let (code, text, _) = on(sick().path(), &["check"]);
    assert!(code == 3 && text.contains("What to do:") && text.contains("8 GT/s x8, both ends can do more"), "{text}");
}

#[test]
fn an_empty_root_has_no_links_and_no_failures() {
    let empty = tempfile::tempdir().unwrap();
    let (code, text, _) = on(empty.path(), &[]);
    assert!(code == 0 && text.starts_with("no links: there is no "), "{text}");
    assert_eq!(on(empty.path(), &["--down"]).0, 0);
    fs::create_dir_all(empty.path().join("sys/class/net")).unwrap();
    assert!(on(empty.path(), &[]).1.contains("but loopback"));
    let (code, document) = json(empty.path(), &["check"]);
    assert_eq!(code, 0);
    assert_eq!((&document["counts"]["fail"], &document["counts"]["ok"]), (&0.into(), &0.into()), "{document:#}");
}

/// A tree that lives (a container that sees its host's): a counter that fell is no traffic.
#[test]
fn intervals_have_one_document_a_line() {
    let tree = tree(&[("sys/class/net/eth0/operstate", "up\n"), ("sys/class/net/eth0/statistics/rx_bytes", "5\n")]);
    let (code, text, _) = on(tree.path(), &["-i", "10ms", "--count", "2", "--json"]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, lines.len()), (0, 2));
    assert_eq!(lines[1]["links"][0]["interval"]["rx_bytes"], 0);
    assert_eq!(lines[1]["links"][0]["rx_bytes_per_s"], 0.0);
}

#[test]
fn this_machine_is_listed_and_checked() {
    let (code, text, stderr) = run("hcomm-stat", &["--json"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(code == 0 && document["sysroot"].is_null(), "{text} {stderr}");
    assert!(document["interval_s"].as_f64().unwrap() > 0.0);
    let (code, text, stderr) = run("hcomm-stat", &["check", "--json"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!([0, 3].contains(&code), "{stderr}");
    assert_ne!(verdict(&document, "open-files", "system"), ["unknown"]);
}

#[test]
fn mistakes_exit_2_and_say_what_is_allowed() {
    for (arguments, words) in [
        (&["--sysroot", "/no/such/folder"][..], "/no/such/folder: there is no such folder"),
        (&["--sysroot", "/proc/version"], "this is a file and no folder"),
        (&["-i", "1s", "--count", "99999999999999999999"], "leave it out to go on"),
        (&["-i", "1s", "--count=-1"], "such as 10"),
        (&["-i", "0"], "no time at all"),
        (&["-i", "soon"], "such as 100ms"),
        (&["--count", "3"], "--interval"),
        (&["-i", "584542046090years"], "longer than a hundred years"),
        (&["--down", "check"], "not for it"),
        (&["--links", "check"], "not for it"),
        (&["-i", "1s", "--count", "2", "check"], "not for it"),
        (&["--nosuch"], "--nosuch"),
        (&["chekc"], "chekc"),
    ] {
        let (code, stdout, stderr) = run("hcomm-stat", arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_version_completions_and_manual() {
    for (arguments, words) in [
        (&["--help"][..], "Examples:"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["completions", "bash"], "hcomm-stat"),
        (&["man"], ".TH"),
    ] {
        let (code, stdout, stderr) = run("hcomm-stat", arguments);
        assert!(code == 0 && stdout.contains(words), "{arguments:?}: {stdout} {stderr}");
    }
    assert_eq!(run("hcomm-stat", &["--help"]), run("hcomm_stat", &["--help"]), "the second name is the same program");
}

#[test]
fn a_screen_of_any_width_is_kept() {
    let tree = sick();
    for arguments in [&[][..], &["--down"], &["check"], &["-i", "1ms", "--count", "1"]] {
        for width in [1, 2, 9, 30, 47, 60, 80, 99, 132, 200] {
            let mut command = Command::cargo_bin("hcomm-stat").unwrap();
            command.arg("--sysroot").arg(tree.path()).args(arguments).env("COLUMNS", width.to_string());
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            for line in text.lines().filter(|line| line.chars().count() > width) {
                // A word that is longer than a line is left whole.
                assert!(!line.trim().contains(' '), "{arguments:?} {width}: {line}");
            }
            if width >= 60 && arguments.is_empty() {
                assert!(text.starts_with("NAME") && text.lines().next().unwrap().contains("ERRORS"), "{text}");
            }
            if width >= 80 && arguments.contains(&"check") {
                assert!(!text.contains('~'), "nothing of what was found is cut: {text}");
            }
        }
    }
}

/// The commands that mend name what is known, so that they can be pasted.
#[test]
fn commands_name_the_links() {
    let (_, document) = json(sick().path(), &["check"]);
    let fixes: Vec<&str> =
        document["checks"].as_array().unwrap().iter().map(|finding| finding["fix"].as_str().unwrap()).collect();
    for fix in &fixes {
        assert!(!fix.contains("INTERFACE") && !fix.contains("NAME") && !fix.contains("OTHER"), "{fix}");
    }
    let net = |name: &str, file: &str| format!("sys/class/net/{name}/{file}");
    let files = [
        (net("eth0", "operstate"), "up\n"),
        (net("eth0", "mtu"), "9000\n"),
        (net("eth0", "device/uevent"), ""),
        (net("eth1", "operstate"), "up\n"),
        (net("eth1", "mtu"), "1500\n"),
        (net("eth1", "device/uevent"), ""),
        (net("one", "operstate"), "lowerlayerdown\n"),
        (net("one", "ifindex"), "7\n"),
        (net("one", "iflink"), "8\n"),
        (net("two", "ifindex"), "8\n"),
        (net("two", "iflink"), "7\n"),
        (net("stray", "operstate"), "lowerlayerdown\n"),
        (net("stray", "ifindex"), "9\n"),
        (net("stray", "iflink"), "8\n"),
    ];
    let tree = tree(&files.iter().map(|(path, text)| (path.as_str(), *text)).collect::<Vec<_>>());
    let (_, document) = json(tree.path(), &["check"]);
    let fix = |check: &str, subject: &str| {
        let found = document["checks"].as_array().unwrap().iter();
        let found = found.filter(|finding| finding["check"] == check && finding["subject"] == subject);
        found.map(|finding| finding["fix"].as_str().unwrap().to_owned()).next().unwrap_or_default()
    };
    assert!(fix("mtu", "eth0 eth1").starts_with("ip link set eth1 mtu 9000,"), "{document:#}");
    assert_eq!(fix("carrier", "one"), "ip link set two up", "{document:#}");
    assert!(fix("carrier", "stray").contains("ip -d link show stray"), "an index of another namespace: {document:#}");
}

/// F06, for programs: which way is in use.
#[test]
fn json_tells_the_route_in_use() {
    const HEAD: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
    let routes = |one: u32, two: u32| {
        let text = format!(
            "{HEAD}eth0 00000000 0100A8C0 0003 0 0 5 00000000 0 0 0\n\
             eth0 0000A8C0 00000000 0001 0 0 {one} 00F0FFFF 0 0 0\neth1 0000A8C0 00000000 0001 0 0 {two} 00F0FFFF 0 0 0\n"
        );
        tree(&[("sys/class/net/eth0/mtu", "1500\n"), ("sys/class/net/eth1/mtu", "1500\n"), ("proc/net/route", &text)])
    };
    for (one, two, used) in [(0, 0, "eth0"), (100, 0, "eth1"), (1, 2, "eth0")] {
        let (_, document) = json(routes(one, two).path(), &[]);
        let all = document["routes"].as_array().unwrap();
        let in_use = all.iter().filter(|route| route["network"] == "192.168.0.0/20" && route["in_use"] == true);
        let in_use: Vec<&str> = in_use.map(|route| route["interface"].as_str().unwrap()).collect();
        assert_eq!(in_use, [used], "{document:#}");
        assert_eq!(document["default_routes"][0]["interface"], "eth0");
        assert_eq!(document["default_routes"][0]["gateway"], "192.168.0.1");
        assert_eq!(document["shared_networks"][0]["interfaces"][0], used);
    }
    let (_, text, _) = on(routes(0, 0).path(), &[]);
    assert!(text.contains("other IPv4 networks: packets leave by eth0 through 192.168.0.1"), "{text}");
}

#[test]
fn what_may_not_be_read_is_not_what_is_not_there() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("sys/class");
    fs::create_dir_all(&closed).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("hcomm-stat"));
    let Ok(output) = command.arg("--sysroot").arg(folder.path()).uid(65534).gid(65534).output() else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("no links:") && text.contains("sys/class cannot be read: Permission denied"), "{text}");
}

#[test]
fn a_full_disk_is_a_failure() {
    for arguments in [&["--help"][..], &["--version"], &["--down"], &["check", "--help"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("hcomm-stat"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && errors.contains("cannot write"), "{arguments:?}: {errors}");
    }
}
