//! Jobs of real processes: started, failing, interrupted, killed. This program is the test, the launcher, the agent and the
//! rank, by its environment.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use hcomm_core::config::Debug;
use hcomm_core::control::{Member, Membership};
use hcomm_core::launch::{self, HostSpec, Launch, Plan};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

const LONG: Duration = Duration::from_secs(20);
/// What a launcher is to start.
const PLAN: &str = "HCOMM_TEST_PLAN";
/// What its ranks do.
const ACT: &str = "HCOMM_TEST_ACT";

fn main() -> ExitCode {
    if let Some(outcome) = launch::run_as_agent() {
        return report(outcome);
    }
    // Ranks of our own launcher have its variables too; those of others have no plan.
    if std::env::var("HCOMM_RANK").is_ok() || std::env::var(PLAN).is_err() && std::env::var(ACT).is_ok() {
        return rank();
    }
    if let Ok(plan) = std::env::var(PLAN) {
        return launcher(&plan);
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let mut count = 0;
    for (name, test) in TESTS {
        if filter.as_ref().is_none_or(|filter| name.contains(filter.as_str())) {
            test();
            println!("test {name} ... ok");
            count += 1;
        }
    }
    println!("{count} tests passed");
    ExitCode::SUCCESS
}

const TESTS: [(&str, fn()); 14] = [
    ("an_agent_that_starts_nothing_is_an_error", an_agent_that_starts_nothing_is_an_error),
    ("a_served_store_out_of_reach_is_told_with_what_to_do", a_served_store_out_of_reach_is_told_with_what_to_do),
    ("ranks_meet_and_end", ranks_meet_and_end),
    ("a_failing_rank_ends_the_job_with_its_code", a_failing_rank_ends_the_job_with_its_code),
    ("a_killed_rank_ends_the_job_and_is_named", a_killed_rank_ends_the_job_and_is_named),
    ("a_program_that_cannot_start_is_an_error", a_program_that_cannot_start_is_an_error),
    ("signals_end_every_rank", signals_end_every_rank),
    ("a_killed_launcher_leaves_no_rank", a_killed_launcher_leaves_no_rank),
    ("agents_start_ranks_on_hosts", agents_start_ranks_on_hosts),
    ("a_killed_head_leaves_no_rank_on_any_host", a_killed_head_leaves_no_rank_on_any_host),
    ("hosts_that_join_meet", hosts_that_join_meet),
    ("one_interrupted_host_ends_all_that_joined", one_interrupted_host_ends_all_that_joined),
    ("ranks_of_open_mpi_meet", ranks_of_open_mpi_meet),
    ("ranks_of_mpich_meet", ranks_of_mpich_meet),
];

// The rank.

fn rank() -> ExitCode {
    let blocked = SigSet::thread_get_mask().unwrap();
    assert!(!blocked.contains(Signal::SIGTERM) && !blocked.contains(Signal::SIGINT), "it cannot be interrupted");
    let place = launch::detect(&|name| std::env::var(name).ok()).unwrap().unwrap();
    let (server, store) = place.open_store(LONG, Debug::Warn).unwrap();
    assert_eq!(server.is_some(), place.source != "hcomm" && place.rank == 0, "our launcher serves, or rank 0");
    let hosts = vec!["here".to_owned(); place.size];
    let member = Member { rank: place.rank, hosts, heartbeat: Duration::from_millis(10), ..Member::default() };
    let membership = Membership::join(store.clone(), member).unwrap();
    store.set(&format!("up/{}", place.rank), b"").unwrap();
    for rank in 0..place.size {
        store.wait(&format!("up/{rank}"), LONG).unwrap();
    }
    let (rank, size, pid) = (place.rank, place.size, std::process::id());
    say(&format!("@rank {rank} of {size} pid {pid}"));
    match std::env::var(ACT).unwrap().as_str() {
        "end" => {
            membership.leave();
            if let Some(server) = server {
                assert!(server.wait_for_clients_to_leave(1, LONG));
            }
            return ExitCode::SUCCESS;
        }
        "fail" if rank == 1 => std::process::exit(7),
        "die" if rank == 1 => kill(Pid::this(), Signal::SIGKILL).unwrap(),
        _ => {}
    }
    loop {
        if membership.verdict().is_some() {
            return ExitCode::FAILURE;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// One write, so that lines of several processes do not mix.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

// The launcher.

fn launcher(plan: &str) -> ExitCode {
    let words: Vec<&str> = plan.split(' ').collect();
    let mut program = std::env::current_exe().unwrap();
    let (plan, timeout) = match words[..] {
        ["local", ranks] => (Plan::Local { ranks: ranks.parse().unwrap(), store: None }, LONG),
        ["missing"] => {
            program = "/nonexistent/program".into();
            (Plan::Local { ranks: 2, store: None }, LONG)
        }
        ["hosts"] => {
            let agent = ["/bin/sh", "-c", "shift; exec \"$@\"", "agent"].map(OsString::from).to_vec();
            let host = |name: &str, ranks| HostSpec { name: name.into(), ranks };
            let store = Some(format!("tcp://127.0.0.1:{}", free_port()));
            let plan = Plan::Hosts { hosts: vec![host("a", 2), host("b", 1)], agent: Some(agent), store };
            (plan, LONG)
        }
        ["agent", agent] => {
            let agent = agent.split(',').map(OsString::from).collect();
            let hosts = ["a", "b"].map(|name| HostSpec { name: name.into(), ranks: 1 }).to_vec();
            (Plan::Hosts { hosts, agent: Some(agent), store: Some(format!("tcp://127.0.0.1:{}", free_port())) }, LONG)
        }
        ["join", url, ranks, timeout_ms] => {
            let plan = Plan::Join { url: url.into(), nodes: 2, ranks: ranks.parse().unwrap() };
            (plan, Duration::from_millis(timeout_ms.parse().unwrap()))
        }
        _ => panic!("{plan}"),
    };
    let environment = vec![(ACT.to_owned(), std::env::var(ACT).unwrap())];
    report(launch::run(&Launch {
        plan,
        program,
        args: Vec::new(),
        environment,
        bind: true,
        timeout,
        debug: Debug::Warn,
    }))
}

fn report(outcome: hcomm_core::Result<launch::Outcome>) -> ExitCode {
    match outcome {
        Ok(outcome) => {
            outcome.words.iter().for_each(|words| say(&format!("@words {words}")));
            ExitCode::from(outcome.code as u8)
        }
        Err(error) => {
            say(&format!("@error {error}"));
            ExitCode::from(9)
        }
    }
}

// The tests.

struct Job {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn job(plan: &str, act: &str) -> Job {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(PLAN, plan).env(ACT, act).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Job { child, lines }
}

impl Job {
    /// The process ids of so many ranks, once they are up.
    fn ranks(&mut self, count: usize, size: usize) -> Vec<i32> {
        let of = format!(" of {size} pid ");
        let mut pid = || {
            let line =
                self.lines.next().unwrap_or_else(|| panic!("the job ended before {count} ranks were up")).unwrap();
            line.split_once(&of).unwrap_or_else(|| panic!("{line}")).1.parse().unwrap()
        };
        (0..count).map(|_| pid()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Exit code and what was said until the end.
    fn end(mut self) -> (Option<i32>, String) {
        let said = self.lines.by_ref().map(|line| line.unwrap()).collect::<Vec<_>>().join("\n");
        (self.child.wait().unwrap().code(), said)
    }
}

fn assert_gone(pids: &[i32]) {
    let start = Instant::now();
    let is_there = |pid: &i32| {
        // A zombie without a parent that waits is as good as gone.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Path::new(&format!("/proc/{pid}")).exists() && !stat.contains(") Z ")
    };
    while pids.iter().any(is_there) {
        assert!(start.elapsed() < LONG, "processes are left");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn ranks_meet_and_end() {
    let mut job = job("local 3", "end");
    job.ranks(3, 3);
    assert_eq!(job.end(), (Some(0), String::new()));
}

fn a_failing_rank_ends_the_job_with_its_code() {
    let mut job = job("local 3", "fail");
    let pids = job.ranks(3, 3);
    assert_eq!(job.end(), (Some(7), String::new()));
    assert_gone(&pids);
}

fn a_killed_rank_ends_the_job_and_is_named() {
    let mut job = job("local 3", "die");
    let pids = job.ranks(3, 3);
    let (code, said) = job.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("@words rank 1 (pid ") && said.contains("killed by signal 9 (SIGKILL)"), "{said}");
    assert_gone(&pids);
}

fn a_program_that_cannot_start_is_an_error() {
    let (code, said) = job("missing", "end").end();
    assert_eq!(code, Some(9));
    assert!(said.contains("cannot start rank 0 (/nonexistent/program)"), "{said}");
}

fn signals_end_every_rank() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut job = job("local 2", "stay");
        let pids = job.ranks(2, 2);
        // A stopped one must end too: it takes the harder signal.
        if signal == Signal::SIGTERM {
            kill(Pid::from_raw(pids[0]), Signal::SIGSTOP).unwrap();
        }
        job.signal(signal);
        assert_eq!(job.end().0, Some(128 + signal as i32));
        assert_gone(&pids);
    }
}

fn a_killed_launcher_leaves_no_rank() {
    let mut job = job("local 2", "stay");
    let pids = job.ranks(2, 2);
    job.signal(Signal::SIGKILL);
    assert_gone(&pids);
}

fn agents_start_ranks_on_hosts() {
    let mut good = job("hosts", "end");
    good.ranks(3, 3);
    assert_eq!(good.end(), (Some(0), String::new()));
    let mut bad = job("hosts", "fail");
    let pids = bad.ranks(3, 3);
    // Which agent ends first is open: that of the rank, or that of those who noticed.
    assert!(matches!(bad.end().0, Some(7 | 1)));
    assert_gone(&pids);
}

fn an_agent_that_starts_nothing_is_an_error() {
    let (code, said) = job("agent /bin/true", "end").end();
    assert_eq!(code, Some(9));
    assert!(said.contains("only 0 of 2 ranks came"), "{said}");
    // What ssh says when it cannot connect is no exit code of ours.
    assert_eq!(job("agent /bin/sh,-c,exit${IFS}255", "end").end().0, Some(1));
}

fn a_killed_head_leaves_no_rank_on_any_host() {
    let mut killed = job("hosts", "stay");
    let pids = killed.ranks(3, 3);
    killed.signal(Signal::SIGKILL);
    assert_gone(&pids);
    let mut interrupted = job("hosts", "stay");
    let pids = interrupted.ranks(3, 3);
    interrupted.signal(Signal::SIGINT);
    assert_eq!(interrupted.end().0, Some(130));
    assert_gone(&pids);
}

fn hosts_that_join_meet() {
    let directory = tempfile::tempdir().unwrap();
    for url in [format!("tcp://127.0.0.1:{}", free_port()), format!("file://{}", directory.path().display())] {
        let mut nodes = [2, 1].map(|ranks| (ranks, job(&format!("join {url} {ranks} 20000"), "end")));
        nodes.iter_mut().for_each(|(ranks, node)| _ = node.ranks(*ranks, 3));
        for (_, node) in nodes {
            assert_eq!(node.end(), (Some(0), String::new()));
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files are left");
    let port = free_port();
    let alone = job(&format!("join tcp://127.0.0.1:{port} 1 60000"), "end");
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < LONG, "nobody serves");
        std::thread::yield_now();
    }
    alone.signal(Signal::SIGINT);
    assert_eq!(alone.end().0, Some(130));
    let (code, said) = job(&format!("join tcp://127.0.0.1:{} 1 50", free_port()), "end").end();
    assert_eq!(code, Some(9));
    assert!(said.contains("only 1 of 2 nodes have come"), "{said}");
}

fn one_interrupted_host_ends_all_that_joined() {
    let url = format!("tcp://127.0.0.1:{}", free_port());
    let mut nodes = [1, 1].map(|ranks| job(&format!("join {url} {ranks} 20000"), "stay"));
    let pids: Vec<i32> = nodes.iter_mut().flat_map(|node| node.ranks(1, 2)).collect();
    nodes[1].signal(Signal::SIGINT);
    let codes = nodes.map(|node| node.end().0);
    assert!(codes[0].is_some_and(|code| code != 0) && codes[1] == Some(130), "{codes:?}");
    assert_gone(&pids);
}

fn ranks_of_open_mpi_meet() {
    ranks_of_another_launcher_meet("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "-n", "3"]);
}

fn ranks_of_mpich_meet() {
    ranks_of_another_launcher_meet("mpirun.mpich", &["-n", "3"]);
}

fn ranks_of_another_launcher_meet(launcher: &str, args: &[&str]) {
    let mut command = Command::new(launcher);
    command.args(args).arg(std::env::current_exe().unwrap()).env(ACT, "end").stdin(Stdio::null());
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {launcher} is not installed");
            return;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches(" of 3 pid ").count(), 3, "{said}");
}

fn a_served_store_out_of_reach_is_told_with_what_to_do() {
    let url = format!("tcp://127.0.0.1:{}", free_port());
    let variables =
        [("HCOMM_RANK", "1"), ("HCOMM_WORLD_SIZE", "2"), ("HCOMM_STORE", url.as_str()), ("HCOMM_STORE_SERVED", "1")];
    let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
    let place = launch::detect(&lookup).unwrap().unwrap();
    let error = place.open_store(Duration::from_millis(20), Debug::Off).err().unwrap().to_string();
    assert!(error.contains(&url) && error.contains("refused") && error.contains("lo up"), "{error}");
}
