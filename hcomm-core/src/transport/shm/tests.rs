//! Real processes: the test binary starts itself again for each rank, so nothing is inherited that a job would not have.
//! Nothing can be left behind: memory and sockets have no names in a file system and go with the last process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::transport::{LinkError, Recv};

const ROLE: &str = "HCOMM_SHM_TEST_ROLE";
const LONG: Duration = Duration::from_secs(60);

/// A rank of a test: how many there are, which it is, and a directory to exchange words in.
struct Rank {
    dir: PathBuf,
    rank: usize,
    ranks: usize,
}

impl Rank {
    fn say(&self, key: &str, value: &str) {
        let place = self.dir.join(format!("{key}-{}", self.rank));
        std::fs::write(place.with_extension("part"), value).unwrap();
        std::fs::rename(place.with_extension("part"), place).unwrap();
    }

    fn hear(&self, key: &str, rank: usize) -> String {
        let start = Instant::now();
        loop {
            match std::fs::read_to_string(self.dir.join(format!("{key}-{rank}"))) {
                Ok(value) => return value,
                Err(_) if start.elapsed() < LONG => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{key} of rank {rank}: {error}"),
            }
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.rank;
        (0..self.ranks).filter(move |rank| *rank != me)
    }

    fn domain(&self) -> Arc<Domain> {
        let heap = Heap::new().unwrap();
        let mut domain = Domain::start("test", self.rank, heap).unwrap();
        self.say("address", &domain.address());
        let peers: Vec<_> = (0..self.ranks).map(|rank| (rank, self.hear("address", rank))).collect();
        let others: Vec<_> = self.others().collect();
        assert_eq!(domain.connect(&peers, LONG).unwrap(), others);
        Arc::new(domain)
    }

    /// A doorbell, a link to each other rank in order, and the memory of the outgoing channels.
    fn links(&self, domain: &Arc<Domain>, bulk: usize) -> (Doorbell, Vec<ShmLink>, HeapRange) {
        let bell = Doorbell::new(domain.heap()).unwrap();
        let size = Channel::size(bulk);
        let range = domain.heap().alloc(size * self.ranks, Channel::ALIGN).unwrap();
        let memory = range.offset;
        self.say("parts", &format!("{memory} {}", bell.offset()));
        let link = |peer: usize| {
            let words = self.hear("parts", peer);
            let (theirs, peer_bell) = words.split_once(' ').unwrap();
            let parts = Parts {
                outgoing: memory + (size * peer) as u64,
                incoming: theirs.parse::<u64>().unwrap() + (size * self.rank) as u64,
                peer_bell: peer_bell.parse().unwrap(),
                bulk,
            };
            // SAFETY: each pair of ranks has its own channels, which live as long as the processes.
            unsafe { ShmLink::new(domain, peer, &parts) }.unwrap()
        };
        (bell, self.others().map(link).collect(), range)
    }
}

/// Starts ranks `from..ranks` in `role`.
fn start(role: &str, dir: &Path, ranks: usize, from: usize) -> Vec<Child> {
    let start = |rank| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "transport::shm::tests::child", "--nocapture"])
            .env(ROLE, format!("{role} {rank} {ranks} {}", dir.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    (from..ranks).map(start).collect()
}

fn run(role: &str, ranks: usize) {
    let dir = tempfile::tempdir().unwrap();
    for child in &mut start(role, dir.path(), ranks, 0) {
        assert!(child.wait().unwrap().success(), "a rank of {role} failed");
    }
}

/// Not a test of its own: what the ranks run.
#[test]
fn child() {
    let Ok(words) = std::env::var(ROLE) else { return };
    let words: Vec<_> = words.splitn(4, ' ').collect();
    let number = |index: usize| words[index].parse::<usize>().unwrap();
    let rank = Rank { dir: words[3].into(), rank: number(1), ranks: number(2) };
    match words[0] {
        "random" => random_messages(&rank),
        "sleep" => sleepers(&rank),
        "wait-to-be-killed" => drop((rank.domain(), rank.say("ready", ""), std::thread::sleep(LONG))),
        role => panic!("no role {role}"),
    }
}

struct Random(u64);

impl Random {
    /// SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// The messages from one rank to another: both know them from the ranks' numbers.
fn message(from: usize, to: usize, index: u64) -> (Vec<u8>, u32) {
    let mut random = Random((from * 1000 + to) as u64 + index * 1_000_003);
    let limit = [1, 9, 57, 200, 5000, 70_000, 600_000][random.next(7) as usize];
    let len = random.next(limit);
    let (start, step) = (random.next(256) as u8, random.next(255) as u8 + 1);
    let bytes = (0..len).map(|i| start.wrapping_add(step.wrapping_mul((i ^ (i >> 8)) as u8))).collect();
    (bytes, random.next(1 << 32) as u32)
}

/// Everybody sends everybody random messages, several under way at once; each is compared with what it must be.
fn random_messages(rank: &Rank) {
    const MESSAGES: u64 = 300;
    let domain = rank.domain();
    let (_bell, mut links, _) = rank.links(&domain, 16 << 10);
    let peers: Vec<_> = rank.others().collect();
    let mut sources: Vec<Vec<Vec<u8>>> = peers.iter().map(|_| Vec::new()).collect();
    let mut received = vec![(0u64, 0usize); peers.len()];
    let mut expected: Vec<_> = peers.iter().map(|peer| message(*peer, rank.rank, 0)).collect();
    let mut buffers = vec![vec![0u8; 600_000]; peers.len()];
    let mut random = Random(rank.rank as u64);
    while received.iter().any(|r| r.0 < MESSAGES) || links.iter().any(|link| link.sends_done() < MESSAGES) {
        let mut moved = false;
        for (i, link) in links.iter_mut().enumerate() {
            if link.sends_posted() < MESSAGES && random.next(3) > 0 {
                let (bytes, stamp) = message(rank.rank, peers[i], link.sends_posted());
                // SAFETY: the bytes are kept in `sources`, and moving a vector does not move its bytes.
                moved |= unsafe { link.post_send(bytes.as_ptr(), bytes.len(), stamp) }.unwrap();
                sources[i].push(bytes);
            }
            moved |= link.progress().unwrap();
            let (index, done) = received[i];
            if index == MESSAGES {
                continue;
            }
            let (bytes, stamp) = &expected[i];
            let dst = buffers[i].as_mut_ptr();
            let mut recv = Recv { dst, operand: dst, reducer: None, len: bytes.len(), done, stamp: *stamp };
            // SAFETY: the buffer is as long as the longest message.
            if unsafe { link.poll_recv(&mut recv) }.unwrap() {
                moved = true;
                received[i].1 = recv.done;
                if recv.done == recv.len {
                    assert!(buffers[i][..recv.len] == *bytes, "message {index} from {}", peers[i]);
                    received[i] = (index + 1, 0);
                    expected[i] = message(peers[i], rank.rank, index + 1);
                }
            }
        }
        if !moved {
            std::thread::yield_now();
        }
    }
    rank.say("done", "");
    rank.others().for_each(|peer| drop(rank.hear("done", peer)));
}

/// Two ranks pass a message to and fro, asleep in between, in both ways of sleeping: a lost wake-up would take the whole
/// timeout, and enough of them the whole test's.
fn sleepers(rank: &Rank) {
    let domain = rank.domain();
    let (mut bell, mut links, _) = rank.links(&domain, Channel::BULK);
    let link = &mut links[0];
    let mut fds: Vec<_> =
        domain.sockets().map(|(_, fd)| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let mut value = 0u64;
    for round in 0..2000u64 {
        if round % 2 == rank.rank as u64 {
            // SAFETY: eight bytes are copied at once, as `sends_done` shows.
            assert!(unsafe { link.post_send((&raw const round).cast(), 8, 1) }.unwrap());
            assert_eq!(link.sends_done(), link.sends_posted());
            continue;
        }
        let dst = (&raw mut value).cast();
        let mut recv = Recv { dst, operand: dst, reducer: None, len: 8, done: 0, stamp: 1 };
        loop {
            // SAFETY: `value` has eight bytes.
            if unsafe { link.poll_recv(&mut recv) }.unwrap() {
                break;
            }
            bell.prepare();
            // SAFETY: as above.
            if unsafe { link.poll_recv(&mut recv) }.unwrap() {
                bell.cancel();
                break;
            }
            let start = Instant::now();
            if round % 3 == 0 {
                bell.sleep_futex(LONG)
            } else {
                bell.sleep_poll(&mut fds, LONG).unwrap()
            }
            assert!(start.elapsed() < LONG / 2, "a wake-up was lost");
        }
        assert_eq!(value, round);
    }
    rank.say("done", "");
    rank.others().for_each(|peer| drop(rank.hear("done", peer)));
}

#[test]
fn random_messages_of_two_ranks_arrive() {
    run("random", 2);
}

#[test]
fn random_messages_of_five_ranks_arrive() {
    run("random", 5);
}

#[test]
fn sleepers_are_woken() {
    run("sleep", 2);
}

#[test]
fn a_killed_peer_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut children = start("wait-to-be-killed", dir.path(), 3, 1);
    let rank = Rank { dir: dir.path().into(), rank: 0, ranks: 3 };
    let domain = rank.domain();
    rank.others().for_each(|peer| drop(rank.hear("ready", peer)));
    assert!(domain.closed_peers().is_empty());
    children[1].kill().unwrap();
    children[1].wait().unwrap();
    assert_eq!(domain.closed_peers(), [2]);
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    assert_eq!(domain.closed_peers(), [1, 2]);
}

/// Domains of many ranks in one process, each in its thread: all connect to all at once.
#[test]
fn thirty_ranks_connect_without_deadlock() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..30 {
            let rank = Rank { dir: dir.path().into(), rank, ranks: 30 };
            scope.spawn(move || rank.domain());
        }
    });
}

#[test]
fn strangers_and_ranks_of_elsewhere_are_left_out() {
    use std::os::linux::net::SocketAddrExt;
    let heap = || Heap::new().unwrap();
    let mut low = Domain::start("job", 1, heap()).unwrap();
    let mut high = Domain::start("job", 4, heap()).unwrap();
    let other_job = Domain::start("another job", 3, heap()).unwrap();
    let (mut low_list, mut high_list) = (Vec::new(), Vec::new());
    for list in [&mut low_list, &mut high_list] {
        list.push((0, "no-such-boot-1/hcomm".to_string()));
        list.push((1, low.address()));
        list.push((4, high.address()));
    }
    let namespace = low.address().split('/').next().unwrap().to_string();
    low_list.push((2, format!("{namespace}/hcomm-nobody-listens-here")));
    low_list.push((3, other_job.address()));
    let name = high.address().split('/').nth(1).unwrap().to_string();
    // A stranger that connects and says nothing: of the wrong kind for a stream, so it is only held open.
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    assert!(std::os::unix::net::UnixStream::connect_addr(&address).is_err());
    std::thread::scope(|scope| {
        let mut other_job = other_job;
        scope.spawn(move || {
            let peers = [(1, "unused".to_string())];
            assert_eq!(other_job.connect(&peers, LONG).unwrap(), [0usize; 0]);
        });
        scope.spawn(|| assert_eq!(low.connect(&low_list, LONG).unwrap(), [4]));
        assert_eq!(high.connect(&high_list, LONG).unwrap(), [1]);
    });
    assert!(low.resolve(4, 0, high.heap().size()).is_some());
    assert!(low.resolve(4, 1, high.heap().size()).is_none());
    assert!(low.resolve(3, 0, 0).is_none());
}

/// Both ends of a link in one process: what the peer wrote is told apart from what was expected.
#[test]
fn wrong_stamps_and_lengths_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let ends: Vec<_> = std::thread::scope(|scope| {
        let end = |rank| {
            let rank = Rank { dir: dir.path().into(), rank, ranks: 2 };
            scope.spawn(move || {
                let domain = rank.domain();
                let (bell, links, memory) = rank.links(&domain, 4096);
                (domain, memory, bell, links.into_iter().next().unwrap())
            })
        };
        let ends = [0, 1].map(end);
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    let [(domain, memory, _bell0, mut a), (_domain1, _memory1, _bell1, mut b)] = ends.try_into().ok().unwrap();
    let source = vec![7u8; 10_000];
    let mut target = vec![0u8; 10_000];
    let mut poll = |b: &mut ShmLink, len: usize, done: usize, stamp: u32| {
        let dst = target.as_mut_ptr();
        let mut recv = Recv { dst, operand: dst, reducer: None, len, done, stamp };
        // SAFETY: no length below is beyond the target's.
        unsafe { b.poll_recv(&mut recv) }.map(|moved| (moved, recv.done))
    };
    for len in [0, 8, 56, 57, 10_000] {
        assert_eq!(poll(&mut b, len, 0, 3), Ok((false, 0)));
        // SAFETY: `source` outlives both ends.
        assert!(unsafe { a.post_send(source.as_ptr(), len, 3) }.unwrap());
        assert_eq!(poll(&mut b, len, 0, 4), Err(LinkError::Stamp { got: 3 }));
        assert_eq!(poll(&mut b, len + 8, 0, 3), Err(LinkError::Length { got: len as u64 }));
        let mut done = 0;
        loop {
            let (moved, now) = poll(&mut b, len, done, 3).unwrap();
            done = now;
            if moved && done == len {
                break;
            }
            a.progress().unwrap();
        }
    }
    assert_eq!((a.sends_posted(), a.sends_done()), (5, 5));
    // The queue is bounded: it takes 256 and says so.
    // SAFETY: as above.
    let taken = (0..1000).take_while(|_| unsafe { a.post_send(source.as_ptr(), 10_000, 5) }.unwrap()).count();
    assert_eq!(taken, 256);
    assert!(target.iter().all(|byte| *byte == 7));

    // The memory is freed once the peer, too, has dropped its end.
    let to_peer = memory.offset + Channel::size(4096) as u64;
    domain.heap().retire(memory, vec![Channel::left_word(to_peer)]);
    drop(a);
    let take = || domain.heap().alloc(memory.len as usize, 4096).unwrap();
    assert_ne!(take(), memory);
    drop(b);
    assert_eq!(take(), memory);
}
