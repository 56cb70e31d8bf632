//! The program as a user meets it: mistakes, help, and every output but the screen, over telemetry files made here.

mod exports;
mod forms;
mod job;
mod metrics;
mod mistakes;
mod store;

use std::process::Stdio;

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

/// The program, with its ends of pipes free.
fn monitor(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::cargo_bin("hcomm-monitor").unwrap();
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("COLUMNS").env("TZ", "UTC");
    command
}

/// Exit code, stdout and stderr.
fn run(mut command: std::process::Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code().expect("no signal"), stdout, stderr)
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}
