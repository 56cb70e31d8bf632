//! Recordings and traces.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::job::{ALL_REDUCE, BROADCAST, Job, begin, shape};
use super::{json, monitor, run};

/// Watches `job` with these arguments for a while, in which it makes more calls.
fn watched(job: &mut Job, arguments: &[&str]) -> (i32, String, String) {
    let mut command = job.monitor(&["--interval", "10ms", "--duration", "300ms"]);
    command.args(arguments).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    for part in 0..20 {
        job.calls(ALL_REDUCE, 8, 1000 * part + 1, 1000 * part + 1000);
        job.calls(BROADCAST, 1 << 20, 1000 * part + 1000, 1000 * part + 1001);
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn replayed(path: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = monitor(arguments);
    command.arg("--replay").arg(path);
    run(command)
}

#[test]
fn a_replay_shows_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut job = Job::new("record", 2);
    let (code, live, stderr) = watched(&mut job, &["--json", "--record", path.to_str().unwrap()]);
    assert_eq!(code, 0, "{stderr}");
    assert!(live.lines().count() > 3 && live.contains("\"broadcast\""), "{live}");
    let (code, again, stderr) = replayed(&path, &["--json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(again == live, "not the same:\n{live}\n{again}");
    let (_, once, _) = replayed(&path, &["--once", "--json"]);
    assert_eq!(once.trim_end(), live.lines().last().unwrap(), "once is how it was at the end");
    // What does not change is not written again: the histograms are the most of a line.
    let lines: Vec<usize> = std::fs::read_to_string(&path).unwrap().lines().map(str::len).collect();
    assert!(2 * lines.last().unwrap() < *lines.iter().max().unwrap(), "{lines:?}");
}

#[test]
fn a_recording_that_is_cut_shows_what_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut job = Job::new("cut", 2);
    let (_, live, _) = watched(&mut job, &["--json", "--record", path.to_str().unwrap()]);
    let whole = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut.rec");
    for length in [whole.len() - 1, whole.len() / 2, whole.len() / 3] {
        std::fs::write(&cut, &whole[..length]).unwrap();
        let (code, stdout, stderr) = replayed(&cut, &["--json"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(live.starts_with(&stdout) && stdout.len() < live.len());
        assert!(whole[length - 1] == b'\n' || stderr.contains("ends in the middle of line"), "{stderr}");
    }
    // Bytes that are no line: what came before is shown, and where it stops is said.
    let second = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(2).unwrap().0;
    let mut damaged = whole.clone();
    damaged[second + 5] = b'\n';
    std::fs::write(&cut, damaged).unwrap();
    let (code, stdout, stderr) = replayed(&cut, &["--json"]);
    assert_eq!((code, stdout.lines().count()), (1, 2), "{stderr}");
    assert!(stderr.contains("line 4, is damaged"), "{stderr}");
}

#[test]
fn nothing_is_overwritten_and_files_have_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    std::fs::write(&path, "mine").unwrap();
    let mut job = Job::new("files", 2);
    for flag in ["--record", "--trace"] {
        let (code, stdout, stderr) = run(job.monitor(&["--json", flag, path.to_str().unwrap()]));
        assert_eq!((code, stdout.as_str()), (1, ""));
        assert!(stderr.contains("is there already") && stderr.contains("hint"), "{stderr}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let (code, _, stderr) = run(job.monitor(&["--json", flag, "/nosuch/file"]));
        assert!(code == 1 && stderr.contains("cannot make /nosuch/file"), "{stderr}");
        let (code, _, stderr) = run(job.monitor(&["--json", "--duration", "50ms", flag, "/dev/full"]));
        assert!(code == 1 && stderr.contains("cannot write /dev/full"), "{code} {stderr}");

        let small = folder.path().join(format!("small{flag}"));
        let (code, _, stderr) = watched(&mut job, &["--json", "--max-size", "2000", flag, small.to_str().unwrap()]);
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(stderr.matches("into --max-size").count(), 1, "{stderr}");
        assert!(std::fs::metadata(&small).unwrap().len() < 2300);
    }
    json(&std::fs::read_to_string(folder.path().join("small--trace")).unwrap());
}

/// The rules of the format for the kinds of events that are used, checked by a program that knows nothing of ours.
const CHECK: &str = include_str!("../check_trace.py");

#[test]
fn a_trace_keeps_to_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mut job = Job::new("trace", 3);
    begin(&mut job.ranks[2].1, 30_000, &shape(ALL_REDUCE, 1 << 20));
    // Another job with the same name's begin, the ranks of which have the same numbers.
    let mut other = Job::new("trace", 2);
    other.calls(ALL_REDUCE, 1 << 20, 1, 10);
    let mut command = job.monitor(&["--csv", "--duration", "200ms", "--trace"]);
    command.arg(&path);
    job.ranks.truncate(3);
    job.ranks[..2].iter_mut().for_each(|(_, lane)| {
        (1..100).for_each(|number| {
            let shape = shape(BROADCAST, 1 << 20);
            begin(lane, number, &shape);
            lane.end(number, &shape);
            lane.calls().end(number);
        })
    });
    let (code, csv, stderr) = run(command);
    assert_eq!(code, 0, "{stderr}");
    let checked = python(CHECK, &path);
    let records = csv.lines().filter(|line| line.contains(",broadcast,")).count() as u64;
    assert!(records > 0);
    assert_eq!((&checked["pids"], &checked["open"]), (&json("[0,1,2]"), &json("1")));
    assert_eq!(checked["calls"].as_u64().unwrap(), 2 * records, "a line is of both ranks, the third made none");
}

fn python(program: &str, path: &Path) -> Value {
    let output = Command::new("python3").args(["-c", program]).arg(path).output().expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json(&String::from_utf8(output.stdout).unwrap())
}
