use super::*;

/// Each setting: values that are taken, values that are refused.
const VALUES: &[(&str, &[&str], &[&str])] = &[
    ("HCOMM_ALGORITHM", &["auto", "ring", "Recursive-Doubling", "hierarchical"], &["nosuch", "", "ring,tree"]),
    ("HCOMM_CHUNK_SIZE", &["auto", "64K", "1MiB", "64"], &["0", "1.5M", "-1", "16E", "2G", "K"]),
    ("HCOMM_CHANNELS", &["auto", "1", "4"], &["0", "5", "two", "-1"]),
    ("HCOMM_STREAM_PRIORITY", &["0", "1"], &["2", "-1", "high"]),
    ("HCOMM_BUFFER_SIZE", &["192MB", "256MB", "1M"], &["0", "1K", "16E", "lots"]),
    ("HCOMM_BUFFER_POOL_SIZE", &["0", "0K", "64MB"], &["-1", "1.5G"]),
    ("HCOMM_SOCKET_IFNAME", &["eth0", "eth0,ib*", "^docker*,virbr0", "=eth0"], &["", ",", "eth0,", "eth0, eth1", "^"]),
    ("HC_COMM_THREADS", &["auto", "1", "96"], &["0", "75%", "1025"]),
    ("HCOMM_TIMEOUT", &["300", "300s", "0.5s", "100ms", "1h"], &["0", "-5s", "soon", "", "nan"]),
    ("HCOMM_PRECISION", &["f32", "F32"], &["f16", "double"]),
    ("HCOMM_DETERMINISTIC", &["0", "1", "yes", "Off", "TRUE"], &["2", "maybe"]),
    ("HCOMM_HEARTBEAT_INTERVAL", &["200ms", "1"], &["0", "200 parsecs"]),
    ("HCOMM_RETRY_TIMEOUT", &["50ms"], &["0s"]),
    ("HCOMM_TX_QUEUE_SIZE", &["1", "8192"], &["0", "8K", "2000000"]),
    ("HCOMM_RX_BUFFER_SIZE", &["auto", "2MB", "4K"], &["1", "2G"]),
    (
        "HCOMM_STORE",
        &["tcp://head:29500", "tcp://[::1]:1", "file:///shared/job"],
        &["head:29500", "tcp://head", "tcp://:1", "file://rel", "etcd://a:1/job"],
    ),
    ("HCOMM_HOST_ID", &["node-7", "10.0.0.1:3"], &["", "a b", "é"]),
    ("HCOMM_TRANSPORT", &["auto", "shm", "tcp", "shm,TCP"], &["", "rdma", "shm,", "udp"]),
    ("HCOMM_SINGLE_COPY", &["auto", "on", "OFF"], &["1", "yes", "readv"]),
    ("HCOMM_DEBUG", &["off", "warn", "INFO", "trace"], &["2", "loud"]),
    ("HCOMM_IB_HCA", &["mlx5_0", "^mlx5_1"], &[""]),
    ("HCOMM_IB_GID_INDEX", &["auto", "3"], &["-1", "256"]),
    ("HCOMM_ROUTE_INTERVAL", &["5s"], &["0"]),
    ("HCOMM_LOSS_THRESHOLD", &["1%", "0.1%", "3%"], &["1", "-1%", "101%", "nan%"]),
    ("HCOMM_SECRET", &["s3cret"], &[]),
    ("HCOMM_TUNING_FILE", &["/etc/hcomm/tuning"], &[]),
    ("HCOMM_TOPO_FILE", &["topo.xml"], &[]),
    ("HCOMM_TELEMETRY", &["0", "1", "on", "/run/here"], &["some", "a/b", ""]),
    ("HCOMM_SUMMARY_INTERVAL", &["auto", "off", "no", "0", "100ms", "1", "5s"], &["on", "99ms", "", "often"]),
];

fn from_env(variables: &[(&str, &str)]) -> (Result<Config>, Vec<String>) {
    load(None, variables)
}

fn load(file: Option<&Path>, variables: &[(&str, &str)]) -> (Result<Config>, Vec<String>) {
    let mut warnings = Vec::new();
    let env = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let config = Config::load(file, env, &mut |warning| warnings.push(warning));
    (config, warnings)
}

fn file_with(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn every_setting_is_tried() {
    let tried: Vec<&str> = VALUES.iter().map(|(name, ..)| *name).collect();
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(tried, known);
}

#[test]
fn good_values_are_taken() {
    for (name, good, _) in VALUES {
        for value in *good {
            Config::default().set(name, value).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn bad_values_name_the_setting_the_value_and_what_is_allowed() {
    for (name, _, bad) in VALUES {
        let setting = SETTINGS.iter().find(|setting| setting.name == *name).unwrap();
        for value in *bad {
            let error = Config::default().set(name, value).expect_err(&format!("{name}={value} was taken"));
            let text = error.to_string();
            assert!(text.starts_with(&format!("{name}={value}: ")) && text.contains(setting.allowed), "{text}");
            assert_eq!(error.code(), "HC-E0001");
        }
    }
}

#[test]
fn the_defaults_shown_are_the_defaults() {
    let mut config = Config::default();
    for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
        config.set(setting.name, setting.default).unwrap();
    }
    assert_eq!(config, Config::default());
}

#[test]
fn values_reach_their_fields() {
    let mut config = Config::default();
    for (name, value) in [
        ("--algorithm", "tree"),
        ("--chunk-size", "256K"),
        ("channels", "4"),
        ("HCOMM_STREAM_PRIORITY", "1"),
        ("buffer_size", "192MB"),
        ("buffer_pool_size", "1M"),
        ("socket_ifname", "eth0"),
        ("topo_file", "/etc/topo.xml"),
        ("threads", "5"),
        ("timeout", "0.5s"),
        ("deterministic", "yes"),
        ("heartbeat_interval", "1s"),
        ("retry_timeout", "2s"),
        ("tx_queue_size", "6"),
        ("rx_buffer_size", "4K"),
        ("store", "tcp://a:1"),
        ("host_id", "h"),
        ("transport", "tcp"),
        ("single_copy", "off"),
        ("debug", "info"),
        ("telemetry", "/run/here"),
        ("summary_interval", "3s"),
    ] {
        config.set(name, value).unwrap();
    }
    let expected = Config {
        algorithm: Some(Algorithm::Tree),
        chunk_size: Some(256 << 10),
        channels: Some(4),
        stream_priority: 1,
        buffer_size: 192 << 20,
        buffer_pool_size: 1 << 20,
        socket_ifname: Some("eth0".into()),
        topo_file: Some("/etc/topo.xml".into()),
        threads: Some(5),
        timeout: Duration::from_millis(500),
        precision: Precision::F32,
        deterministic: true,
        heartbeat_interval: Duration::from_secs(1),
        retry_timeout: Duration::from_secs(2),
        tx_queue_size: 6,
        rx_buffer_size: Some(4096),
        store: Some("tcp://a:1".into()),
        host_id: Some("h".into()),
        transport: Transports { shm: false, tcp: true },
        single_copy: SingleCopy::Off,
        debug: Debug::Info,
        telemetry: Telemetry::Folder("/run/here".into()),
        summaries: Summaries::Every(Duration::from_secs(3)),
    };
    assert_eq!(config, expected);
}

#[test]
fn the_later_layer_wins() {
    let file =
        file_with("channels = 2\ntimeout = \"10s\"\ndeterministic = true\nsocket_ifname = [\"eth0\", \"ib*\"]\n");
    let (config, warnings) = load(Some(file.path()), &[("HCOMM_CHANNELS", "3"), ("HCOMM_TIMEOUT", "")]);
    let mut config = config.unwrap();
    assert_eq!(warnings, [""; 0]);
    assert_eq!((config.channels, config.timeout), (Some(3), Duration::from_secs(10)));
    assert_eq!((config.deterministic, config.socket_ifname.as_deref()), (true, Some("eth0,ib*")));
    config.set("--channels", "4").unwrap();
    assert_eq!(config.channels, Some(4));
}

#[test]
fn the_file_may_be_named_by_a_variable() {
    let named = file_with("channels = 2");
    let given = file_with("channels = 3");
    let variables = [("HCOMM_CONFIG", named.path().to_str().unwrap())];
    assert_eq!(from_env(&variables).0.unwrap().channels, Some(2));
    assert_eq!(load(Some(given.path()), &variables).0.unwrap().channels, Some(3));
}

#[test]
fn bad_files_are_errors_that_name_them() {
    let cases = [
        ("channels = ", "HC-E0001", "TOML"),
        (&"[".repeat(60_000), "HC-E0001", "TOML"),
        (&"#".repeat(70_000), "HC-E0002", "longer than"),
        ("channels = 0", "HC-E0001", "from 1 to 4"),
        ("[channels]\nx = 1", "HC-E0001", "from 1 to 4"),
        ("timeout = 2020-01-01", "HC-E0001", "duration"),
    ];
    for (text, code, reason) in cases {
        let file = file_with(text);
        let error = load(Some(file.path()), &[]).0.unwrap_err();
        let shown = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(shown.contains(file.path().to_str().unwrap()) && shown.contains(reason), "{shown}");
        assert!(shown.len() < 2000, "{} bytes of error", shown.len());
    }
    let error = load(Some(Path::new("/nonexistent/hcomm.toml")), &[]).0.unwrap_err();
    assert_eq!(error.code(), "HC-E0002");
    assert!(error.to_string().contains("/nonexistent/hcomm.toml"));
}

#[test]
fn unknown_names_are_warned_about_with_the_nearest() {
    let file = file_with("chunksize = 1\n");
    let (config, warnings) = load(
        Some(file.path()),
        &[("HCOMM_TIME_OUT", "1s"), ("HC_COMM_THREAD", "1"), ("HCOMM_THREADS", "1"), ("OTHER_TIMEOUT", "x")],
    );
    assert_eq!(config.unwrap(), Config::default());
    let meant: Vec<_> = warnings.iter().map(|warning| warning.rsplit_once("did you mean ").unwrap().1).collect();
    assert_eq!(meant, ["chunk_size?", "HC_COMM_THREADS?", "HCOMM_TIMEOUT?", "HC_COMM_THREADS?"]);
    let error = Config::default().set("--chunksize", "1").unwrap_err();
    assert!(error.to_string().contains("did you mean chunk_size"), "{error}");
}

#[test]
fn settings_of_later_versions_are_checked_and_warned_about() {
    let (config, warnings) = from_env(&[("HCOMM_LOSS_THRESHOLD", "0.1%")]);
    assert_eq!(config.unwrap(), Config::default());
    assert_eq!(warnings, ["HCOMM_LOSS_THRESHOLD has no effect in this version"]);
    assert!(from_env(&[("HCOMM_LOSS_THRESHOLD", "much")]).0.is_err());
}

#[test]
fn the_launchers_variables_are_no_settings() {
    let (config, warnings) = from_env(&[
        ("HCOMM_RANK", "0"),
        ("HCOMM_WORLD_SIZE", "2"),
        ("HCOMM_LOCAL_RANK", "0"),
        ("HCOMM_LOCAL_SIZE", "2"),
        ("HCOMM_JOB_ID", "x"),
        ("HCOMM_LAUNCH_FD", "3"),
    ]);
    assert_eq!((config.unwrap(), warnings), (Config::default(), vec![]));
}

#[test]
fn three_quarters_of_the_cores_drive_requests() {
    let config = Config::default();
    assert_eq!([0, 1, 2, 4, 96].map(|cores| config.threads_of(cores)), [1, 1, 1, 3, 72]);
}

/// The table in the user guide, row by row and in this order.
#[test]
fn the_user_guide_tells_of_every_setting() {
    let rows = SETTINGS.iter().map(|setting| {
        let default = if setting.default.is_empty() { "none".into() } else { format!("`{}`", setting.default) };
        let effect = if setting.effective { "" } else { "no effect in this version: " };
        let row = format!("| `{}` | {default} | {} | {effect}{} |", setting.name, setting.allowed, setting.meaning);
        row.replace('*', "\\*")
    });
    let expected = rows.collect::<Vec<_>>().join("\n");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let written: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `HC")).collect();
    assert_eq!(written.join("\n"), expected, "docs/guide.md should hold these rows:\n{expected}\n");
}
