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
        &["--pid", "x"],
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
