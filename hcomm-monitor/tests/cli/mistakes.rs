//! Mistakes have an exit code and a sentence on stderr.

use super::{monitor, run};

#[test]
fn bad_arguments_exit_2() {
    for arguments in [
        &["--log", "--json"][..],
        &["--csv", "--json"],
        &["--once", "--log"],
        &["--once", "--duration", "1s"],
        &["--interval", "0"],
        &["--replay", "a", "--record", "b"],
        &["--replay", "a", "--pid", "1"],
        &["--replay", "a", "--prometheus", "127.0.0.1:0"],
        &["--prometheus", "127.0.0.1:0", "--once"],
        &["--max-size", "-1"],
        &["--pid", "x"],
        &["--store", "tcp://a:1", "--pid", "1"],
        &["--duration", "never"],
        &["nosuch"],
        &["--nosuch"],
    ] {
        let (code, stdout, stderr) = run(monitor(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_version_completions_and_manual_are_data() {
    for (arguments, words) in [
        (&["--help"][..], "Examples:"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["completions", "bash"], "hcomm-monitor"),
        (&["man"], ".TH"),
    ] {
        let (code, stdout, stderr) = run(monitor(arguments));
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(stdout.contains(words), "{arguments:?}: {stdout}");
    }
}

#[test]
fn with_nothing_to_attach_to_it_says_where_it_looked() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    for arguments in
        [&["--once"][..], &["--once", "--json"], &["--log", "--duration", "50ms"], &["--csv", "--duration", "50ms"]]
    {
        let mut command = monitor(&["--job", "no-job-has-this-name"]);
        command.args(arguments).env("HCOMM_TELEMETRY", place);
        let (code, stdout, stderr) = run(command);
        assert_eq!(code, 1, "{arguments:?}: {stderr}");
        assert!(stderr.contains("no job") && stderr.contains(place) && stderr.contains("hint"), "{stderr}");
        assert!(stdout.lines().count() <= 1, "{stdout}");
    }
}

#[test]
fn files_that_cannot_be_replayed_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    for (path, words) in [
        (file("empty", ""), "empty or cut short"),
        (file("cut", "{\"schema\":\"hcomm-rec"), "empty or cut short"),
        (file("text", "words\n"), "no recording"),
        (file("other", "{\"schema\":\"hcomm-monitor/1\"}\n"), "no recording"),
        (file("later", "{\"schema\":\"hcomm-recording/2\"}\n"), "version 2"),
        (file("damaged", "{\"schema\":\"hcomm-recording/1\"}\n{\"at_ns\":1}\n"), "line 2"),
        (folder.path().display().to_string(), "cannot read"),
        (folder.path().join("missing").display().to_string(), "cannot open"),
    ] {
        let (code, stdout, stderr) = run(monitor(&["--json", "--replay", &path]));
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains(&path) && stderr.contains(words), "{words:?} is not in {stderr}");
    }
}

#[test]
fn addresses_that_cannot_be_listened_at_are_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for address in [taken.as_str(), "127.0.0.1", "127.0.0.1:99999", "192.0.2.1:0"] {
        let (code, _, stderr) = run(monitor(&["--prometheus", address]));
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains(&format!("cannot listen at {address}: ")) && stderr.contains("hint"), "{stderr}");
    }
}
