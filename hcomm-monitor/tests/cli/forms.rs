//! What is written of a job that is known exactly.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::job::{ALL_REDUCE, BROADCAST, Job, begin, shape};
use super::{json, monitor, run};

fn known(name: &str) -> Job {
    let mut job = Job::new(name, 2);
    job.calls(ALL_REDUCE, 8, 1, 1001);
    job.calls(BROADCAST, 3000, 1001, 1011);
    job
}

#[test]
fn json_has_counts_and_units() {
    let job = known("json");
    let (code, stdout, stderr) = run(job.monitor(&["--once", "--json"]));
    assert_eq!((code, stderr.as_str(), stdout.lines().count()), (0, "", 1));
    let look = json(&stdout);
    assert_eq!(look["schema"], "hcomm-monitor/1");
    assert!(look["time_unix_ns"].is_u64() && look["interval_s"].is_f64());
    let seen = &look["jobs"][0];
    assert_eq!(
        (&seen["job"], &seen["world_size"], &seen["ranks_seen"]),
        (&json(&format!("{:?}", job.name)), &json("2"), &json("2"))
    );
    assert_eq!(seen["outcome"]["state"], "running");
    let operations = seen["operations"].as_array().unwrap();
    let figures = |at: usize| {
        ["operation", "size_bytes", "ranks", "calls", "bytes", "errors"].map(|key| operations[at][key].clone())
    };
    assert_eq!(figures(0), ["\"all_reduce\"", "8", "2", "1000", "8000", "0"].map(json));
    assert_eq!(figures(1), ["\"broadcast\"", "3000", "2", "10", "30000", "0"].map(json));
    assert_eq!(operations[0]["calls_per_s"], 0.0, "nothing was done in the interval");
    assert_eq!((&seen["ranks"][1]["rank"], &seen["ranks"][1]["calls"]), (&json("1"), &json("1010")));
    assert_eq!(seen["ranks"][0]["operation"], json("null"), "it is in none");
    let link = &seen["links"][0];
    assert_eq!((&link["rank"], &link["peer"], &link["transport"]), (&json("0"), &json("1"), &json("\"shm\"")));
    // Short calls are added when the next one is timed.
    let ways = ["sent_bytes", "received_bytes"].map(|key| link[key].as_u64().unwrap());
    assert!(ways[0] <= 38000 && ways[0] > 0 && ways[1] == 2 * ways[0], "{ways:?}");
}

#[test]
fn every_look_is_a_line_and_calls_come_once() {
    let job = known("lines");
    let (code, stdout, _) = run(job.monitor(&["--json", "--duration", "200ms", "--interval", "20ms"]));
    assert_eq!(code, 0);
    let looks: Vec<_> = stdout.lines().map(json).collect();
    assert!(looks.len() > 2, "{stdout}");
    let numbers = |look: &serde_json::Value| -> Vec<u64> {
        look["jobs"][0]["calls"].as_array().unwrap().iter().map(|call| call["number"].as_u64().unwrap()).collect()
    };
    let all: Vec<u64> = looks.iter().flat_map(numbers).collect();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
    assert_eq!(all.iter().filter(|number| **number > 1000).count() as u64, {
        let (_, stdout, _) = run(job.monitor(&["--csv", "--duration", "200ms"]));
        assert!(
            stdout.starts_with("time_unix_ns,job,communicator,lane,number,operation,bytes,duration_ns,"),
            "{stdout}"
        );
        stdout.lines().filter(|line| line.contains(",broadcast,3000,")).count() as u64
    });
}

#[test]
fn once_is_a_table_or_csv() {
    let job = known("once");
    let (code, stdout, _) = run(job.monitor(&["--once"]));
    assert_eq!(code, 0);
    assert!(stdout.starts_with(&format!("job {}: ", job.name)), "{stdout}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let row = stdout.lines().map(words).find(|words| words.first().is_some_and(|word| word == "broadcast")).unwrap();
    assert_eq!(row[..4], ["broadcast", "2.93KB", "2", "10"]);
    assert!(!stdout.contains('\x1b'), "no colour into a pipe");
    let (_, csv, _) = run(job.monitor(&["--once", "--csv"]));
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|title| *title == name).unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    assert_eq!((lines[2][column("operation")], lines[2][column("bytes")]), ("broadcast", "30000"));
}

#[test]
fn an_operation_that_stands_is_told() {
    let mut job = known("stands");
    let shape = shape(ALL_REDUCE, 1 << 20);
    begin(&mut job.ranks[0].1, 1011, &shape);
    // It stands from half a second on: the watch ends when the reader has seen the words.
    let mut child = job.monitor(&["--log"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let stands = said.find(|line| line.contains("stands since")).unwrap();
    assert!(
        stands.contains("all_reduce #1011 of 1MB") && stands.contains("rank 0 inside, rank 1 not come"),
        "{stands}"
    );
    begin(&mut job.ranks[1].1, 1011, &shape);
    for (_, lane) in &mut job.ranks {
        lane.end(1011, &shape);
        lane.calls().end(1011);
    }
    assert!(said.any(|line| line.contains("all_reduce #1011 stands no longer")));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "this is how a watch ends");
}

#[test]
fn a_closed_pipe_ends_it_quietly_and_a_full_disk_does_not() {
    let job = known("pipe");
    for arguments in [&["--log"][..], &["--json"], &["--csv"]] {
        let mut child = job.monitor(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("cannot") && !said.contains("panicked"), "{said}");
    }
    for arguments in [&["--log"][..], &["--json"], &["--csv"], &["--once"], &["--once", "--json"]] {
        let mut command = job.monitor(arguments);
        command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
        let (code, _, stderr) = run(command);
        assert_eq!(code, 1, "{arguments:?}: {stderr}");
        assert!(stderr.contains("cannot write"), "{stderr}");
    }
}

#[test]
fn it_ends_with_its_reader_also_when_nothing_happens() {
    let mut command: Command = monitor(&["--job", "no-job-has-this-name", "--log", "--interval", "1h"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("TIME "), "{line}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
