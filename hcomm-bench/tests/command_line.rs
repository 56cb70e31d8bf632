//! The program as a user meets it, as far as no rank is started: help, mistakes, completions.

use assert_cmd::Command;

fn hcomm_bench(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("hcomm-bench").unwrap().args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn mistakes_exit_2_with_a_sentence_and_a_hint_on_stderr() {
    for (arguments, words) in [
        (&["-b", "1G", "-e", "1M"][..], &["first size is above the last", "hint"][..]),
        (&["-f", "1"], &["factor below 2", "hint"]),
        (&["-b", "0", "-e", "0"], &["nothing to move"]),
        (&["-b", "0K"], &["-b 0", "hint"]),
        (&["-e", "8E"], &["need", "EiB", "available", "hint"]),
        (&["-e", "16E"], &["-e 16E", "cannot be counted"]),
        (&["-b", "-1"], &["-b -1", "hint"]),
        (&["--ranks", "0"], &["--ranks 0", "hint"]),
        (&["--algorithm", "nosuch"], &["nosuch", "ring", "halving_doubling"]),
        (&["--chunk-size", "0"], &["--chunk-size=0", "hint"]),
        (&["all_redcue"], &["all_redcue", "all_reduce"]),
        (&["-z", "7"], &["--blocking"]),
        (&["--step", "1M", "-f", "2"], &["cannot be used with"]),
        (&["--no-such-flag"], &["--no-such-flag"]),
    ] {
        let (code, stdout, stderr) = hcomm_bench(arguments);
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert_eq!(stdout, "", "{arguments:?}: words belong on stderr");
        for word in words {
            assert!(stderr.contains(word), "{arguments:?}: no {word:?} in {stderr}");
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn help_version_completions_and_manual_go_to_stdout() {
    for (arguments, words) in [
        (&["--help"][..], "Examples:"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["completions", "bash"], "hcomm-bench"),
        (&["man"], ".TH"),
    ] {
        let (code, stdout, stderr) = hcomm_bench(arguments);
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        assert!(stdout.contains(words), "{arguments:?}: {stdout}");
    }
}

#[test]
fn the_second_name_is_the_same_program() {
    let help = |name: &str| Command::cargo_bin(name).unwrap().arg("--help").output().unwrap().stdout;
    assert!(help("hcomm-bench") == help("hcomm-benchmark"));
}
