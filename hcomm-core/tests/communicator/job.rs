//! A job: this program started again as ranks, which say lines on stdout.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hcomm_core::control::StoreServer;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ACT: &str = "HCOMM_LAUNCH_TEST_ACT";
/// Where the ranks of all tests keep their telemetry.
pub const TELEMETRY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/telemetry");
const JOB_ID: &str = "test";
/// No job takes longer, on the slowest machine; one that does hangs.
const LONGEST: Duration = Duration::from_secs(120);

/// What this process is to do, if it is a rank.
pub fn act() -> Option<String> {
    let act = std::env::var(ACT).ok()?;
    // Nothing is left of a test that is killed.
    prctl::set_pdeathsig(Signal::SIGKILL).expect("prctl");
    Some(act)
}

/// One write, so that a line is whole.
pub fn say(line: impl std::fmt::Display) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the test reads");
}

/// A job to start.
pub struct Job {
    act: &'static str,
    size: usize,
    environment: Vec<(String, String)>,
    hosts: Vec<String>,
    rank_serves: bool,
}

impl Job {
    pub fn new(act: &'static str, size: usize) -> Self {
        Self { act, size, environment: Vec::new(), hosts: Vec::new(), rank_serves: false }
    }

    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.into(), value.to_string()));
        self
    }

    /// The ranks take themselves to be on these hosts, a letter each; empty is one host.
    pub fn hosts(mut self, hosts: &str) -> Self {
        self.hosts = hosts.chars().map(|host| format!("host-{host}")).collect();
        self
    }

    /// Rank 0 serves the store, in place of this process.
    pub fn rank_serves(mut self) -> Self {
        self.rank_serves = true;
        self
    }

    pub fn start(self) -> Running {
        let server =
            (!self.rank_serves).then(|| StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), JOB_ID).expect("a store"));
        let address = match &server {
            Some(server) => server.address(),
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a free port"),
        };
        let ranks = (0..self.size).map(|rank| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            let inherited = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("HCOMM_"));
            inherited.for_each(|name| _ = command.env_remove(name));
            command
                .env(ACT, self.act)
                .env("HCOMM_RANK", rank.to_string())
                .env("HCOMM_WORLD_SIZE", self.size.to_string())
                .env("HCOMM_JOB_ID", JOB_ID)
                .env("HCOMM_STORE", format!("tcp://{address}"))
                .env("HCOMM_TIMEOUT", "60s")
                .env("HCOMM_TELEMETRY", TELEMETRY)
                .envs(server.as_ref().map(|_| ("HCOMM_STORE_SERVED", "1")))
                .envs(self.hosts.get(rank).map(|host| ("HCOMM_HOST_ID", host)))
                .envs(self.environment.iter().cloned())
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            let mut child = command.spawn().expect("a rank");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            let (said, heard) = channel();
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    if said.send(line).is_err() {
                        return;
                    }
                }
            });
            Rank { child, heard }
        });
        let name = format!("{} of {} ranks {:?} {:?}", self.act, self.size, self.hosts, self.environment);
        Running { ranks: ranks.collect(), name, deadline: Instant::now() + LONGEST, _server: server }
    }

    /// Runs to the end. Every rank must end well. What each said.
    pub fn run(self) -> Vec<Vec<String>> {
        let running = self.start();
        let name = running.name.clone();
        let ends = running.end();
        let bad: Vec<String> = ends
            .iter()
            .enumerate()
            .filter(|(_, end)| !end.status.success())
            .map(|(rank, end)| format!("rank {rank}: {}, said {:?}", end.status, end.said))
            .collect();
        assert!(bad.is_empty(), "{name}: {}", bad.join("; "));
        ends.into_iter().map(|end| end.said).collect()
    }
}

struct Rank {
    child: Child,
    heard: Receiver<String>,
}

/// How a rank ended.
pub struct End {
    pub status: ExitStatus,
    /// What it said that nobody had listened to before.
    pub said: Vec<String>,
}

/// A job under way. Dropped, nothing of it is left.
pub struct Running {
    ranks: Vec<Rank>,
    name: String,
    deadline: Instant,
    _server: Option<StoreServer>,
}

impl Running {
    /// The next line of a rank; `None` when it says no more.
    fn hear(&mut self, rank: usize) -> Option<String> {
        match self.ranks[rank].heard.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{}: rank {rank} hangs", self.name),
        }
    }

    /// Waits until a rank says `line`.
    pub fn await_line(&mut self, rank: usize, line: &str) {
        let said = self.hear(rank);
        assert_eq!(said.as_deref(), Some(line), "{}: rank {rank}", self.name);
    }

    pub fn signal(&self, rank: usize, signal: Signal) {
        kill(Pid::from_raw(self.ranks[rank].child.id() as i32), signal).expect("it is there");
    }

    /// Waits for the end of all ranks.
    pub fn end(mut self) -> Vec<End> {
        let all: Vec<usize> = (0..self.ranks.len()).collect();
        self.end_of(&all)
    }

    /// Waits for the end of some ranks.
    pub fn end_of(&mut self, ranks: &[usize]) -> Vec<End> {
        let mut ends = Vec::new();
        for &rank in ranks {
            let said = std::iter::from_fn(|| self.hear(rank)).collect();
            // Its stdout is closed, so it is gone or about to be.
            let status = self.ranks[rank].child.wait().expect("a child");
            ends.push(End { status, said });
        }
        ends
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}
