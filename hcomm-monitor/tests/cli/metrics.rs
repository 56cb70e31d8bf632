//! Metrics over HTTP: what a client gets that was not written here, and that bad clients disturb nobody.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::job::{ALL_REDUCE, BROADCAST, Job};
use super::json;

/// The program, serving, and where.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn new(job: &Job, arguments: &[&str]) -> Self {
        let mut command = job.monitor(&["--prometheus", "127.0.0.1:0", "--interval", "10ms"]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = said.find(|line| line.contains("http://")).unwrap();
        let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap().to_owned();
        // The job is there when this is said; the rest nobody needs, but the pipe must have a reader.
        said.find(|line| line.contains(&format!("job {}: ", job.name))).unwrap();
        std::thread::spawn(move || said.for_each(drop));
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// All that is answered to these bytes.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn job(name: &str) -> Job {
    let mut job = Job::new(name, 2);
    job.calls(ALL_REDUCE, 8, 1, 1001);
    job.calls(BROADCAST, 3000, 1001, 1011);
    job
}

/// Asks with Python's client, and checks the rules of the format.
const SCRAPE: &str = include_str!("../check_metrics.py");

fn scrape(address: &str) -> serde_json::Value {
    let output = Command::new("python3").args(["-c", SCRAPE, address]).output().expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json(&String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_client_reads_what_the_job_did() {
    let job = job("metrics");
    let served = Served::new(&job, &[]);
    let seen = scrape(&served.address);
    assert_eq!(seen["calls"], json("[1000.0, 1000.0]"));
    assert_eq!(seen["bytes"], json("[30000.0, 30000.0]"));
    assert_eq!((&seen["histograms"], &seen["jobs"]), (&json("4"), &json(&format!("[{:?}]", job.name))));
    // Where the tool of the project itself is installed, its rules too.
    match Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Err(_) => eprintln!("promtool is not installed"),
        Ok(mut tool) => {
            tool.stdin.take().unwrap().write_all(seen["text"].as_str().unwrap().as_bytes()).unwrap();
            let output = tool.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

#[test]
fn the_last_figures_of_a_job_that_ended_stay() {
    let mut job = job("last");
    let served = Served::new(&job, &[]);
    job.calls(ALL_REDUCE, 8, 1011, 1021);
    job.ranks.clear();
    let ended = |text: &str| {
        text.lines().filter(|line| line.starts_with("hcomm_rank_running{") && line.ends_with(" 0")).count()
    };
    while ended(scrape(&served.address)["text"].as_str().unwrap()) < 2 {}
    assert_eq!(scrape(&served.address)["calls"], json("[1010.0, 1010.0]"));
}

#[test]
fn bad_clients_disturb_nobody() {
    let job = job("clients");
    let served = Served::new(&job, &[]);
    // More than are served at a time, each with half a request.
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = served.connect();
            stream.write_all(b"GET /metr").unwrap();
            stream
        })
        .collect();
    // One that never reads its answer, and one that is gone at once.
    let mut deaf = served.connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    drop(served.connect());
    assert_eq!(scrape(&served.address)["calls"], json("[1000.0, 1000.0]"));
    let status = |request: &[u8]| served.ask(request).split("\r\n").next().unwrap().to_owned();
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status(b"PUT /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status(b"\x16\x03\x01\x02\x00\n\n"), "HTTP/1.1 400 Bad Request");
    let head = served.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    // A head without an end is cut off, however much comes.
    let mut endless = served.connect();
    while endless.write_all(&[b'a'; 1 << 16]).is_ok() {}
    assert_eq!(scrape(&served.address)["calls"], json("[1000.0, 1000.0]"));
    drop(slow);
}

#[test]
fn it_shows_nothing_unless_told_to() {
    let job = job("quiet");
    for (arguments, begins) in [(&[][..], ""), (&["--log"], "TIME "), (&["--csv"], "time_unix_ns,")] {
        let mut served = Served::new(&job, arguments);
        let mut stdout = served.child.stdout.take().unwrap();
        scrape(&served.address);
        kill(Pid::from_raw(served.child.id() as i32), Signal::SIGTERM).unwrap();
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        assert!(text.starts_with(begins) && (!text.is_empty() || begins.is_empty()), "{arguments:?}: {text}");
        assert!(!begins.is_empty() || text.is_empty(), "{text}");
        assert_eq!(served.child.wait().unwrap().code(), Some(0));
    }
}
