//! What every store does alike, and what the embedded one does with strangers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn local_server() -> StoreServer {
    StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), "job").unwrap()
}

fn client(server: &StoreServer) -> Arc<dyn Store> {
    connect(&format!("tcp://{}", server.address()), "job", LONG).unwrap()
}

/// Runs `test` on two connections to the same store of each kind.
fn on_every_store(test: impl Fn(Arc<dyn Store>, Arc<dyn Store>)) {
    let server = local_server();
    test(client(&server), client(&server));
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    test(connect(&url, "job", LONG).unwrap(), connect(&url, "job", LONG).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files are left");
}

#[test]
fn pairs_are_seen_by_the_other() {
    on_every_store(|a, b| {
        assert_eq!(a.get("x/1").unwrap(), None);
        a.set("x/1", b"one").unwrap();
        a.set("x/2", b"").unwrap();
        a.set("y", &[0, 255]).unwrap();
        assert_eq!(b.get("x/1").unwrap().unwrap(), b"one");
        assert_eq!(b.get("y").unwrap().unwrap(), [0, 255]);
        let items = b.list("x/").unwrap();
        let pairs: Vec<_> = items.iter().map(|i| (i.key.as_str(), i.value.as_slice())).collect();
        assert_eq!(pairs, [("x/1", b"one".as_slice()), ("x/2", b"")]);
        assert!(items[0].age < LONG);
        b.delete("x/1").unwrap();
        b.delete("x/1").unwrap();
        assert_eq!(a.get("x/1").unwrap(), None);
        assert!(a.set("a b", b"").is_err() && a.set("", b"").is_err() && a.set("../x", b"").is_ok());
        assert!(a.set("big", &vec![0; MAX_VALUE_BYTES + 1]).is_err());
        let big = vec![7; MAX_VALUE_BYTES];
        a.set("big", &big).unwrap();
        assert_eq!(b.get("big").unwrap().unwrap(), big);
    });
}

#[test]
fn waiting_ends_when_the_key_comes_or_time_is_up() {
    on_every_store(|a, b| {
        let waiter = thread::spawn({
            let a = a.clone();
            move || a.wait("k", LONG).unwrap()
        });
        b.set("k", b"v").unwrap();
        assert_eq!(waiter.join().unwrap(), b"v");
        assert_eq!(a.wait("k", Duration::ZERO).unwrap(), b"v");
        let error = a.wait("never", Duration::from_millis(30)).unwrap_err();
        assert!(error.to_string().contains("key never"), "{error}");
    });
}

#[test]
fn counters_and_swaps_are_atomic() {
    on_every_store(|a, b| {
        let count = |store: Arc<dyn Store>| move || (0..50).for_each(|_| _ = store.add("n", 2).unwrap());
        let threads = [thread::spawn(count(a.clone())), thread::spawn(count(b.clone()))];
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(a.add("n", -200).unwrap(), 0);
        let won: Vec<bool> = thread::scope(|scope| {
            let race = |store: &Arc<dyn Store>, value: &'static [u8]| {
                let store = store.clone();
                scope.spawn(move || store.compare_and_swap("first", None, value).unwrap())
            };
            let threads = [race(&a, b"a"), race(&b, b"b")];
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(a.get("first").unwrap().unwrap(), if won[0] { b"a" } else { b"b" });
        assert_ne!(won[0], won[1]);
        assert!(!b.compare_and_swap("first", Some(b"?"), b"c").unwrap());
        assert!(b.compare_and_swap("first", Some(if won[0] { b"a" } else { b"b" }), b"c").unwrap());
        assert!(b.compare_and_swap("absent", Some(b""), b"c").is_ok_and(|swapped| !swapped));
    });
}

#[test]
fn watching_tells_each_change_once() {
    on_every_store(|a, b| {
        a.set("w/1", b"1").unwrap();
        let (revision, pairs) = b.watch("w/", 0, LONG).unwrap();
        assert_eq!(pairs, [("w/1".to_owned(), b"1".to_vec())]);
        a.set("v/1", b"0").unwrap();
        let (revision, pairs) = b.watch("w/", revision, Duration::from_millis(60)).unwrap();
        assert_eq!(pairs, []);
        let watcher = thread::spawn({
            let b = b.clone();
            move || b.watch("w/", revision, LONG).unwrap()
        });
        a.set("w/2", b"2").unwrap();
        let (revision, pairs) = watcher.join().unwrap();
        assert_eq!(pairs, [("w/2".to_owned(), b"2".to_vec())]);
        a.set("w/1", b"1").unwrap();
        assert_eq!(b.watch("w/", revision, LONG).unwrap().1.len(), 1, "the same value again is a change");
    });
}

#[test]
fn a_lease_ends_well_with_release_or_goodbye() {
    on_every_store(|a, b| {
        a.lease("alive/1", b"here", b"lost", LONG).unwrap();
        a.lease("alive/2", b"here", b"lost", LONG).unwrap();
        a.set("alive/1", b"left").unwrap();
        a.release("alive/1").unwrap();
        drop(a);
        let values: Vec<_> = b.list("alive/").unwrap().into_iter().map(|item| item.value).collect();
        assert_eq!(values, [b"left", b"here"]);
    });
}

#[test]
fn urls_that_name_no_store_are_settings_errors() {
    for url in
        ["", "tcp://", "tcp://host", "tcp://host:0", "tcp://host:70000", "tcp://::1:5", "tcp://[::1:5", "http://a:1"]
    {
        let error = connect(url, "job", Duration::ZERO).err().expect(url);
        assert_eq!(error.code(), "HC-E0001", "{url}: {error}");
    }
    for url in ["file://", "file:///", "file://relative", "etcd://a:1"] {
        assert!(connect(url, "job", Duration::ZERO).is_err(), "{url}");
    }
    assert_eq!(split_address("", "[::1]:5").unwrap(), ("::1".into(), 5));
    for job in ["", "a/b", ".x", &"j".repeat(129)] {
        assert!(connect("tcp://127.0.0.1:1", job, Duration::ZERO).is_err(), "{job}");
    }
}

#[test]
fn connecting_waits_for_a_server_that_starts_later() {
    let address = local_server().address(); // a port that was free a moment ago
    let waiting = thread::spawn(move || connect(&format!("tcp://{address}"), "job", LONG).map(|_| ()));
    let server = StoreServer::start(address, "job").unwrap();
    waiting.join().unwrap().unwrap();
    assert!(server.wait_for_clients_to_leave(0, LONG));
}

#[test]
fn names_and_ipv6_addresses_are_taken() {
    let server = local_server();
    connect(&format!("tcp://localhost:{}", server.address().port()), "job", LONG).unwrap();
    let Ok(server) = StoreServer::start((Ipv6Addr::LOCALHOST, 0).into(), "job") else { return };
    client(&server).set("k", b"v").unwrap();
}

#[test]
fn no_server_is_an_error_that_names_url_time_and_cause() {
    let address = local_server().address();
    let error = connect(&format!("tcp://{address}"), "job", Duration::from_millis(20)).err().unwrap().to_string();
    assert!(error.contains(&format!("tcp://{address}")), "{error}");
    assert!(error.contains("after") && error.contains("refused"), "{error}");
    let error = connect("tcp://no-such-host.invalid:1", "job", Duration::ZERO).err().unwrap().to_string();
    assert!(error.contains("cannot resolve no-such-host.invalid"), "{error}");
}

#[test]
fn a_long_wait_for_a_server_is_told_with_its_cause() {
    let address = local_server().address();
    let mut told = Vec::new();
    let waited = NOTICE + Duration::from_secs(1);
    let done = connect_telling(&format!("tcp://{address}"), "job", waited, &mut |words| told.push(words.to_owned()));
    assert!(done.is_err());
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&address.to_string()) && told[0].contains("refused"), "{told:?}");
    let mut told = String::new();
    assert!(connect_telling("file:///no/such/directory", "job", waited, &mut |words| told.push_str(words)).is_err());
    assert!(told.contains("/no/such/directory") && told.contains("No such file"), "{told}");
}

/// A server that takes connections and then says nothing, as one that was stopped.
fn silent_server() -> (String, thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[protocol::Welcome::Accepted as u8]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()); // until the client is gone
    };
    (url, thread::spawn(serve))
}

#[test]
fn hasty_calls_give_up_soon_and_only_the_first_of_them_waits() {
    let (url, server) = silent_server();
    let store = connect(&url, "job", LONG).unwrap();
    let asking = store.clone();
    let under_way = thread::spawn(move || asking.get("k").unwrap_err().to_string());
    store.hasten();
    let short = |error: String| assert!(error.contains("no answer within 1.5s"), "{error}");
    short(store.get("k").unwrap_err().to_string());
    short(under_way.join().unwrap());
    let begun = Instant::now();
    (0..20).for_each(|_| short(store.set("k", b"").unwrap_err().to_string()));
    assert!(begun.elapsed() < LONG, "each waited");
    drop(store);
    server.join().unwrap();
}

#[test]
fn hasty_calls_are_answered_by_a_server_that_answers() {
    let server = local_server();
    let store = client(&server);
    store.hasten();
    store.set("k", b"v").unwrap();
    assert_eq!(store.wait("k", LONG).unwrap(), b"v");
}

#[test]
fn another_job_is_turned_away_and_told_so() {
    let server = local_server();
    let url = format!("tcp://{}", server.address());
    let error = connect(&url, "other", Duration::ZERO).err().unwrap().to_string();
    assert!(error.contains("another job than other"), "{error}");
    until(|| (server.refused() == 1).then_some(()));
}

#[test]
fn strangers_are_cut_off_and_disturb_nobody() {
    let server = local_server();
    let (a, b) = (client(&server), client(&server));
    let garbage = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // ends only because the server closes
        answer
    };
    assert_eq!(garbage(b"GET / HTTP/1.1\r\n\r\n"), b"");
    let hello = protocol::encode_hello("job");
    assert_eq!(garbage(&[&hello, &b"\xff\xff\xff\xff"[..]].concat()), b"", "a frame of 4 GiB");
    assert_eq!(garbage(&[&hello, &b"\x05\0\0\0\0\0\0\0\x63"[..]].concat()), b"", "an unknown request");
    // Those who say nothing, more than are let in: the oldest go.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut oldest = &silent[0];
    assert_eq!(oldest.read(&mut [0]).unwrap(), 0);
    a.set("k", b"v").unwrap();
    assert_eq!(b.get("k").unwrap().unwrap(), b"v");
    until(|| (server.refused() >= 3 + 36).then_some(()));
    assert!(server.wait_for_clients_to_leave(2, LONG));
}

#[test]
fn a_client_whose_connection_breaks_loses_its_leases_at_once() {
    let server = local_server();
    let watcher = client(&server);
    // By hand: a real client says goodbye.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut bytes = protocol::encode_hello("job");
    let lease = protocol::Request::Lease {
        key: "alive/7".into(),
        value: b"here".to_vec(),
        lost: b"lost".to_vec(),
        ttl: Duration::from_secs(3600),
    };
    protocol::encode_request(1, &lease, &mut bytes);
    stream.write_all(&bytes).unwrap();
    let (revision, pairs) = watcher.watch("alive/", 0, LONG).unwrap();
    assert_eq!(pairs[0].1, b"here");
    drop(stream);
    assert_eq!(watcher.watch("alive/", revision, LONG).unwrap().1[0].1, b"lost");
}

#[test]
fn a_server_that_goes_fails_waiting_and_later_calls() {
    let server = local_server();
    let store = client(&server);
    let waiting = thread::spawn({
        let store = store.clone();
        move || store.wait("never", LONG).unwrap_err().to_string()
    });
    drop(server);
    let error = waiting.join().unwrap();
    assert!(error.contains("the connection broke") || error.contains("closed the connection"), "{error}");
    assert!(store.set("k", b"v").is_err());
}

const RANK_OF_CHILD: &str = "HCOMM_TEST_RANK";

fn member(rank: usize) -> Member {
    let hosts = vec!["alpha".to_owned(), "beta".to_owned()];
    Member { rank, hosts, heartbeat: Duration::from_millis(10), ..Member::default() }
}

/// Not a test by itself: the process that [`a_killed_rank_is_lost_and_a_stopped_one_is_silent`] starts.
#[test]
fn rank_as_a_process() {
    let (Ok(rank), Ok(url)) = (std::env::var(RANK_OF_CHILD), std::env::var("HCOMM_STORE")) else { return };
    let membership = Membership::join(connect(&url, "job", LONG).unwrap(), member(rank.parse().unwrap())).unwrap();
    let activity = Arc::new(Activity::default());
    membership.tell_of(1, &activity);
    activity.begin(41, [0; 4]);
    println!("joined");
    let _ = std::io::stdin().read(&mut [0]); // until the parent ends
}

/// Kills the process when the test fails: a stopped one would stay for ever.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rank_process(rank: usize, url: &str) -> KillOnDrop {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "control::tests::rank_as_a_process", "--nocapture", "--test-threads", "1"]);
    command.env(RANK_OF_CHILD, rank.to_string()).env("HCOMM_STORE", url);
    let mut child = KillOnDrop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("joined")));
    child
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < LONG, "nothing came");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Kills a rank that was stopped before, and so could not say goodbye even if it would.
fn see_a_rank_stop_and_die(url: &str) {
    let child = rank_process(1, url);
    let membership = Membership::join(connect(url, "job", LONG).unwrap(), member(0)).unwrap();
    until(|| membership.laggards(1, 42, [1]).unwrap().pop().filter(|laggard| laggard.call == 41));
    kill(Pid::from_raw(child.0.id() as i32), Signal::SIGSTOP).unwrap();
    let laggard = until(|| {
        let laggard = membership.laggards(1, 42, 0..2).unwrap().pop()?;
        (laggard.silent? > Duration::from_millis(300)).then_some(laggard)
    });
    assert_eq!((laggard.rank, laggard.call, laggard.inside), (1, 41, true));
    assert_eq!(membership.verdict(), None, "silence is no death");
    drop(child);
    let verdict = until(|| membership.verdict().cloned());
    let Verdict::Lost { rank: 1, host, cause } = &*verdict else { panic!("{verdict}") };
    assert!(host == "beta" && cause.contains("killed"), "{verdict}");
}

#[test]
fn a_killed_rank_is_lost_and_a_stopped_one_is_silent() {
    let server = local_server();
    see_a_rank_stop_and_die(&format!("tcp://{}", server.address()));
    let directory = tempfile::tempdir().unwrap();
    see_a_rank_stop_and_die(&format!("file://{}", directory.path().display()));
}

#[test]
fn a_rank_whose_lease_ends_in_silence_is_lost_with_that_cause() {
    let server = local_server();
    // A rank by hand that never renews; its connection stays open.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut bytes = protocol::encode_hello("job");
    let (key, value, lost) = ("members/watch/alive/1".to_owned(), b"here".to_vec(), b"lost".to_vec());
    let set = protocol::Request::Set { key: "members/activity/1".into(), value: Vec::new() };
    protocol::encode_request(1, &set, &mut bytes);
    let ttl = Duration::from_millis(50);
    protocol::encode_request(2, &protocol::Request::Lease { key, value, lost, ttl }, &mut bytes);
    stream.write_all(&bytes).unwrap();
    let watcher = Member { lease: ttl, ..member(0) };
    let membership = Membership::join(client(&server), watcher).unwrap();
    let verdict = until(|| membership.verdict().cloned());
    let Verdict::Lost { rank: 1, cause, .. } = &*verdict else { panic!("{verdict}") };
    assert!(cause.contains("not heard of for"), "{verdict}");
}
