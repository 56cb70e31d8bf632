//! `--store`: the whole job from one place, out of a store that the test fills.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use hcomm_core::control::{LIVES, SUMMARIES, Store, StoreServer, connect};
use hcomm_telemetry::{Reader, Snapshot, State, Summarizer};

use super::job::{ALL_REDUCE, Job};
use super::{json, monitor, run};

const LONG: Duration = Duration::from_secs(20);

/// A store, and what the ranks of a job that this test plays say in it.
struct Published {
    server: StoreServer,
    store: Arc<dyn Store>,
    url: String,
}

impl Published {
    fn new() -> Self {
        let server = StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), "big").unwrap();
        let url = format!("tcp://{}", server.address());
        let store = connect(&url, "big", LONG).unwrap();
        Self { server, store, url }
    }

    /// `ranks` ranks on hosts of eight, each as `change` makes it of one that did some calls.
    fn ranks(&self, ranks: u32, change: impl Fn(u32, &mut Snapshot)) {
        let mut job = Job::new("published", 1);
        job.calls(ALL_REDUCE, 8, 1, 1001);
        job.calls(ALL_REDUCE, 1 << 20, 1001, 1101);
        let like = Reader::of(&job.ranks[0].0).unwrap().snapshot().unwrap();
        for rank in 0..ranks {
            let mut snapshot = like.clone();
            let identity = &mut snapshot.identity;
            (identity.job, identity.rank, identity.world_size) = ("big".into(), rank, ranks);
            identity.host = format!("node{:04}", rank / 8);
            identity.boot_id = format!("boot of {}", identity.host);
            // Clocks of other hosts began at another time.
            let skew = u64::from(rank / 8) * 1_000_000_000_000;
            (identity.started_ns, snapshot.taken_ns) = (identity.started_ns + skew, snapshot.taken_ns + skew);
            snapshot.lanes.clear();
            change(rank, &mut snapshot);
            let text = Summarizer::new(6 << 10).encode(snapshot);
            self.store.set(&format!("{SUMMARIES}{rank}"), text.as_bytes()).unwrap();
        }
    }

    fn once(&self, more: &[&str]) -> (i32, String, String) {
        let mut command = monitor(&["--once", "--store", &self.url]);
        command.args(more).env("COLUMNS", "120");
        run(command)
    }
}

#[test]
fn ten_thousand_ranks_fit_a_screen_with_the_odd_ones_first() {
    let job = Published::new();
    job.ranks(10_000, |rank, snapshot| {
        if rank == 4711 {
            snapshot.state = State::Failed("rank 17 is lost".into());
        }
        if (800..808).contains(&rank) {
            snapshot.stopped = Some(true);
        }
        // Half of the job does something else as well.
        if rank >= 5000 {
            snapshot.operations.pop();
        }
    });
    job.store.set(&format!("{LIVES}17"), b"lost").unwrap();
    job.store.set(&format!("{LIVES}18"), b"left").unwrap();
    let (code, text, stderr) = job.once(&[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 24, "{} lines: {text}", lines.len());
    assert!(lines[0].starts_with("job big: ") && lines[0].contains("10000 of 10000 ranks seen, running"), "{text}");
    let first = lines.iter().position(|line| line.starts_with("COUNT")).unwrap() + 1;
    let begin = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
    assert!(begin(lines[first], &["1  4711 ", "failed", "rank 17 is lost", "node0588"]), "{text}");
    assert!(begin(lines[first + 1], &["1  17 ", "killed", "node0002"]), "{text}");
    assert!(begin(lines[first + 2], &["8  800-807 ", "stopped", "node0100"]), "{text}");
    assert!(begin(lines[first + 3], &["5000  5000-9999 ", "running", "625 hosts", "1000"]), "{text}");
    assert!(begin(lines[first + 4], &["4990  0-16, 18-799, 808", "running", "1100"]), "{text}");
    assert_eq!(lines.len(), first + 5, "{text}");
    // Nobody waits for an observer.
    drop(job.store);
    assert!(job.server.wait_for_clients_to_leave(0, LONG));
}

#[test]
fn a_job_that_left_is_over_and_a_store_that_ends_ends_the_program() {
    let job = Published::new();
    job.ranks(3, |rank, snapshot| {
        if rank < 2 {
            snapshot.state = State::Ended;
        }
    });
    let (code, text, _) = job.once(&["--json"]);
    assert_eq!((code, json(&text)["jobs"][0]["job"].as_str()), (0, Some("big")), "{text}");
    job.store.set(&format!("{LIVES}2"), b"lost").unwrap();
    let (code, text, _) = job.once(&[]);
    assert!(code == 0 && text.contains("ended, rank 2 killed"), "{text}");
    let mut log = monitor(&["--log", "--store", &job.url]);
    log.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut log = log.spawn().unwrap();
    let mut said = std::io::BufReader::new(log.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("job big: 3 of 3 ranks seen"), "{line}");
    drop(job);
    assert!(log.wait().unwrap().success(), "at the end of the store");
}

#[test]
fn what_is_no_summary_is_named_and_no_store_is_a_failure() {
    let job = Published::new();
    job.ranks(1, |_, _| ());
    job.store.set(&format!("{SUMMARIES}7"), b"garbage").unwrap();
    let (code, text, stderr) = job.once(&[]);
    assert!(
        code == 0 && text.contains("job big") && stderr.contains("skipped") && stderr.contains("summary/7"),
        "{stderr}"
    );
    for (url, code) in [("http://a:1", 1), ("file:///no/such/folder", 1)] {
        let (got, stdout, stderr) = run(monitor(&["--once", "--store", url]));
        assert!((got, stdout.as_str()) == (code, "") && stderr.contains(url), "{url}: {got} {stderr}");
    }
}
