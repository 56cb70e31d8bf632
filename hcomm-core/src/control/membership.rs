//! Who is alive, agreed on through the store.
//!
//! One thread a process holds a lease that the store turns to `lost` when the process dies, tells with each heartbeat what
//! the rank is doing, and watches the others. The first failure that any rank sees becomes the *verdict* by
//! compare-and-swap on one key: so all ranks name the same culprit, although the fall of one makes others fall that its
//! neighbours see first. Silence alone is no death: a stopped process is lost only when its lease ends, which is long;
//! before that, operations time out and [`Membership::laggards`] says who is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::activity::{Activity, CallWords, Laggard, parse, parse_recent};
use super::{Changes, HEARTBEAT_INTERVAL, Store};
use crate::error::{Error, Result};

/// Changes that come within this time are looked at together: when a thousand ranks join or leave, each hears of some
/// changes many times, not of each change on its own.
const GATHER: Duration = Duration::from_millis(20);
/// Longest text of a verdict.
const MAX_TEXT: usize = 16 << 10;

/// Where the ranks of a job hold their leases, by rank: what is there tells who was lost ([`is_lost`]).
pub const LIVES: &str = "members/watch/alive/";

const HERE: &[u8] = b"here";
const LEFT: &[u8] = b"left";
const LOST: &[u8] = b"lost";

/// What the job failed of, the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A rank died, or cannot be reached.
    Lost {
        /// Its rank in the job.
        rank: usize,
        /// Its host.
        host: String,
        /// What was seen of it.
        cause: String,
    },
    /// A rank failed by itself and said so.
    Aborted {
        /// Its rank in the job.
        rank: usize,
        /// Its error.
        text: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Lost { rank, host, cause } => write!(f, "rank {rank} on {host} is lost: {cause}"),
            Verdict::Aborted { rank, text } => write!(f, "rank {rank} failed: {text}"),
        }
    }
}

/// How a rank takes part.
#[derive(Debug, Clone)]
pub struct Member {
    /// What the keys begin with; another one for each set of ranks that joins in the same job.
    pub prefix: String,
    /// This rank.
    pub rank: usize,
    /// Host name of each rank.
    pub hosts: Vec<String>,
    /// How often the others hear of this rank.
    pub heartbeat: Duration,
    /// How long a rank may be silent before it counts as lost, though nothing was seen of its death.
    pub lease: Duration,
    /// The rank that serves the store, if one does: when the store is gone, so is that rank.
    pub store_rank: Option<usize>,
    /// Puts a call into words.
    pub describe: fn(&CallWords) -> String,
}

/// Whether the value of a key below [`LIVES`] says that the rank died without having left.
pub fn is_lost(value: &[u8]) -> bool {
    value == LOST
}

impl Default for Member {
    fn default() -> Self {
        Member {
            prefix: "members".into(),
            rank: 0,
            hosts: Vec::new(),
            heartbeat: HEARTBEAT_INTERVAL,
            lease: Duration::from_secs(300),
            store_rank: None,
            describe: |_| String::new(),
        }
    }
}

/// A rank's part in watching over the job; leaves in good order when dropped, unless its thread panics.
pub struct Membership {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<dyn Store>,
    member: Member,
    verdict: OnceLock<Arc<Verdict>>,
    stop: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    activities: BTreeMap<u64, Arc<Activity>>,
    left: BTreeSet<usize>,
    store_error: Option<String>,
}

impl Membership {
    /// Takes the lease and starts the thread.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not answer, [`Error::Argument`] when `member` is no rank of its job.
    pub fn join(store: Arc<dyn Store>, member: Member) -> Result<Membership> {
        if member.rank >= member.hosts.len() {
            let reason = format!("rank {} of {} ranks", member.rank, member.hosts.len());
            return Err(Error::Argument { call: "Membership::join", reason });
        }
        let (verdict, stop, state) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { store, member, verdict, stop, state });
        let lease = shared.member.lease;
        shared.tell_activity()?; // so that whoever has a lease has been heard of
        shared.store.lease(&shared.alive_key(shared.member.rank), HERE, LOST, lease)?;
        let watcher = shared.clone();
        let thread = std::thread::Builder::new().name("hcomm-member".into()).spawn(move || watcher.run());
        let thread = thread.map_err(|e| Error::system("cannot start the membership thread", e))?;
        Ok(Membership { shared, thread: Some(thread) })
    }

    /// What the job failed of, if it did. Costs one load, and is meant to be asked in waiting loops.
    pub fn verdict(&self) -> Option<&Arc<Verdict>> {
        self.shared.verdict.get()
    }

    /// Tells of the calls of `communicator` (any number that all its ranks agree on) that are written down in `activity`, as
    /// long as anyone else keeps it.
    pub fn tell_of(&self, communicator: u64, activity: &Arc<Activity>) {
        self.shared.state().activities.insert(communicator, Arc::clone(activity));
    }

    /// Whether `rank` has left in good order.
    pub fn has_left(&self, rank: usize) -> bool {
        self.shared.state().left.contains(&rank)
    }

    /// Proposes that `rank` is lost; returns what the job agreed on, which may be an earlier failure. Waits for the store,
    /// within its bound; where that does not answer, the proposal is the verdict of this rank.
    pub fn report_lost(&self, rank: usize, cause: &str) -> Arc<Verdict> {
        self.shared.store.hasten();
        self.shared.propose(self.shared.lost(rank, cause.into()))
    }

    /// Proposes that this rank failed by itself; otherwise as [`Membership::report_lost`].
    pub fn report_abort(&self, text: &str) -> Arc<Verdict> {
        self.shared.store.hasten();
        self.shared.propose(Verdict::Aborted { rank: self.shared.member.rank, text: text.into() })
    }

    /// Which of `ranks` have not come to call `number` of `communicator`. Asks the store, within its bound, which gets short: who
    /// asks is about to fail.
    ///
    /// # Errors
    /// [`Error::Store`] when it does not answer.
    pub fn laggards(
        &self,
        communicator: u64,
        number: u64,
        ranks: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<Laggard>> {
        self.shared.store.hasten();
        self.shared.laggards(communicator, number, ranks)
    }

    /// The latest calls of `rank` on `communicator`: number and words, the latest first. Asks the store, within its bound.
    ///
    /// # Errors
    /// [`Error::Store`] when it does not answer.
    pub fn recent_calls(&self, communicator: u64, rank: usize) -> Result<Vec<(u64, String)>> {
        if rank == self.shared.member.rank {
            self.shared.tell_activity()?;
        }
        let bytes = self.shared.store.get(&self.shared.key("activity", rank))?;
        Ok(parse_recent(&bytes.unwrap_or_default(), communicator))
    }

    /// Why the store does not answer, if it does not. Collectives go on without it.
    pub fn store_error(&self) -> Option<String> {
        self.shared.state().store_error.clone()
    }

    /// Leaves in good order: from now on the end of this process is no failure of the job.
    pub fn leave(self) {
        drop(self);
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stop.store(true, Ordering::Release);
        let key = self.shared.alive_key(self.shared.member.rank);
        // The change also wakes our own watching thread. A store that is gone needs no leave. What was done last is told
        // first: others may ask what became of this rank.
        let told = self.shared.tell_activity();
        if told.and_then(|()| self.shared.store.set(&key, LEFT)).is_ok() {
            let _ = self.shared.store.release(&key);
        }
        thread.thread().unpark();
        let _ = thread.join();
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.report_abort("it panicked");
        }
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys that every rank watches.
    fn watched(&self) -> String {
        format!("{}/watch/", self.member.prefix)
    }

    fn alive_key(&self, rank: usize) -> String {
        self.key("watch/alive", rank)
    }

    fn verdict_key(&self) -> String {
        format!("{}verdict", self.watched())
    }

    fn key(&self, kind: &str, rank: usize) -> String {
        format!("{}/{kind}/{rank}", self.member.prefix)
    }

    fn lost(&self, rank: usize, cause: String) -> Verdict {
        let host = self.member.hosts.get(rank).cloned().unwrap_or_else(|| "an unknown host".into());
        Verdict::Lost { rank, host, cause }
    }

    fn run(&self) {
        let mut revision = 0;
        while !self.stop.load(Ordering::Acquire) {
            match self.beat(revision) {
                Ok((next, changes)) => {
                    revision = next;
                    self.state().store_error = None;
                    let changed = !changes.is_empty();
                    changes.iter().for_each(|(key, value)| self.see(key, value));
                    if changed {
                        std::thread::park_timeout(GATHER);
                    }
                }
                Err(error) => {
                    self.note_store_error(error.to_string());
                    std::thread::park_timeout(self.member.heartbeat);
                }
            }
        }
    }

    /// Tells what this rank does, then watches for one heartbeat.
    fn beat(&self, revision: u64) -> Result<Changes> {
        self.tell_activity()?;
        self.store.watch(&self.watched(), revision, self.member.heartbeat)
    }

    fn tell_activity(&self) -> Result<()> {
        let activities = {
            let mut state = self.state();
            state.activities.retain(|_, activity| Arc::strong_count(activity) > 1);
            state.activities.clone()
        };
        let lines: String = activities.iter().map(|(id, a)| a.line(*id, self.member.describe)).collect();
        self.store.set(&self.key("activity", self.member.rank), lines.as_bytes())
    }

    fn see(&self, key: &str, value: &[u8]) {
        if key == self.verdict_key() {
            if let Some(verdict) = decode(value) {
                let _ = self.verdict.set(Arc::new(verdict)); // the first stays
            }
            return;
        }
        let Some(rank) = key.rsplit('/').next().and_then(|rank| rank.parse::<usize>().ok()) else { return };
        match value {
            LEFT => _ = self.state().left.insert(rank),
            LOST if self.verdict.get().is_none() => {
                let cause = self.cause_of_loss(rank);
                self.propose(self.lost(rank, cause));
            }
            _ => {}
        }
    }

    /// Whether it went silent or fell at once.
    fn cause_of_loss(&self, rank: usize) -> String {
        let key = self.key("activity", rank);
        let items = self.store.list(&key).unwrap_or_default();
        match items.iter().find(|item| item.key == key) {
            Some(item) if item.age >= self.member.lease => format!("not heard of for {:.1} s", item.age.as_secs_f64()),
            _ => "its process ended without leaving the job (killed, or crashed)".into(),
        }
    }

    fn propose(&self, verdict: Verdict) -> Arc<Verdict> {
        if let Some(agreed) = self.verdict.get() {
            return agreed.clone();
        }
        let key = self.verdict_key();
        let agreed = match self.store.compare_and_swap(&key, None, &encode(&verdict)) {
            Ok(true) => Some(verdict.clone()),
            Ok(false) => self.store.get(&key).ok().flatten().and_then(|bytes| decode(&bytes)),
            Err(error) => {
                self.note_store_error(error.to_string());
                None
            }
        };
        self.verdict.get_or_init(|| Arc::new(agreed.unwrap_or(verdict))).clone()
    }

    fn note_store_error(&self, error: String) {
        let Some(cause) = self.store.broken() else {
            self.state().store_error = Some(error);
            return;
        };
        let served_by = self.member.store_rank.filter(|rank| *rank != self.member.rank);
        let mut state = self.state();
        if let Some(rank) = served_by
            && !state.left.contains(&rank)
            && !self.stop.load(Ordering::Acquire)
        {
            // All ranks conclude the same, from the same fact: the store can no longer arbitrate.
            let cause = format!("the store that it serves is gone ({cause})");
            let _ = self.verdict.set(Arc::new(self.lost(rank, cause)));
        }
        state.store_error = Some(error);
    }

    fn laggards(&self, communicator: u64, number: u64, ranks: impl IntoIterator<Item = usize>) -> Result<Vec<Laggard>> {
        let items = self.store.list(&format!("{}/activity/", self.member.prefix))?;
        let by_key: BTreeMap<&str, _> = items.iter().map(|item| (item.key.as_str(), item)).collect();
        let left = self.state().left.clone();
        let mut laggards = Vec::new();
        for rank in ranks.into_iter().filter(|rank| *rank != self.member.rank) {
            let item = by_key.get(self.key("activity", rank).as_str()).copied();
            let known = item.and_then(|item| parse(&item.value, communicator));
            let knows = known.is_some();
            let (call, inside, operation) = known.unwrap_or_default();
            if call < number {
                let host = self.member.hosts.get(rank).cloned().unwrap_or_else(|| "an unknown host".into());
                let (silent, left) = (item.map(|item| item.age), left.contains(&rank));
                laggards.push(Laggard { rank, host, knows, call, inside, operation, silent, left });
            }
        }
        Ok(laggards)
    }
}

/// `kind`, rank, host and text, a line each, the text last since it may have lines of its own.
fn encode(verdict: &Verdict) -> Vec<u8> {
    let (kind, rank, host, text) = match verdict {
        Verdict::Lost { rank, host, cause } => ("lost", rank, host.as_str(), cause),
        Verdict::Aborted { rank, text } => ("aborted", rank, "", text),
    };
    let mut bytes = format!("{kind}\n{rank}\n{}\n{text}", host.replace('\n', " ")).into_bytes();
    bytes.truncate(MAX_TEXT);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Verdict> {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(4, '\n');
    let (kind, rank) = (parts.next()?, parts.next()?.parse().ok()?);
    let (host, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    match kind {
        "lost" => Some(Verdict::Lost { rank, host, cause: text }),
        "aborted" => Some(Verdict::Aborted { rank, text }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::control::{StoreServer, connect};

    const LONG: Duration = Duration::from_secs(20);

    struct Job {
        server: Option<StoreServer>,
        members: Vec<Option<Membership>>,
    }

    fn job(size: usize, store_rank: Option<usize>) -> Job {
        let server = StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), "job").unwrap();
        let url = format!("tcp://{}", server.address());
        let join = |rank| {
            let hosts = (0..size).map(|rank| format!("host{rank}")).collect();
            let describe = |words: &CallWords| format!("all_reduce of {}", words[0]);
            let heartbeat = Duration::from_millis(10);
            let member = Member { rank, hosts, heartbeat, store_rank, describe, ..Member::default() };
            Some(Membership::join(connect(&url, "job", LONG).unwrap(), member).unwrap())
        };
        Job { members: (0..size).map(join).collect(), server: Some(server) }
    }

    impl Job {
        fn member(&self, rank: usize) -> &Membership {
            self.members[rank].as_ref().unwrap()
        }

        fn verdict_of(&self, rank: usize) -> Verdict {
            until(|| self.member(rank).verdict().map(|v| Verdict::clone(v)))
        }
    }

    fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(start.elapsed() < LONG, "nothing came");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_first_failure_is_the_verdict_of_all() {
        let job = job(3, None);
        let first = job.member(2).report_abort("out of memory");
        let second = job.member(0).report_lost(2, "connection reset");
        assert_eq!(*first, Verdict::Aborted { rank: 2, text: "out of memory".into() });
        assert_eq!(second, first);
        assert_eq!(job.verdict_of(1), *first);
    }

    #[test]
    fn proposals_at_the_same_time_agree() {
        let job = job(4, None);
        let verdicts: Vec<_> = std::thread::scope(|scope| {
            let report = |rank: usize| {
                let member = job.member(rank);
                scope.spawn(move || member.report_lost((rank + 1) % 4, "connection reset"))
            };
            let threads: Vec<_> = (0..4).map(report).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(verdicts.iter().all(|v| v == &verdicts[0]), "{verdicts:?}");
    }

    #[test]
    fn a_rank_that_leaves_is_not_lost_and_one_that_panics_is() {
        let mut job = job(3, None);
        job.members[1].take().unwrap().leave();
        until(|| job.member(0).shared.state().left.contains(&1).then_some(()));
        assert_eq!(job.member(0).verdict(), None);
        let member = job.members[2].take().unwrap();
        let panicked = std::thread::spawn(move || {
            let _member = member;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(job.verdict_of(0), Verdict::Aborted { rank: 2, text: "it panicked".into() });
    }

    #[test]
    fn laggards_are_named_with_what_they_do() {
        let mut job = job(4, None);
        let kept = [0, 1, 2].map(|rank| {
            let activity = Arc::new(Activity::default());
            job.member(rank).tell_of(1, &activity);
            activity
        });
        kept[0].begin(2, [8, 0, 0, 0]);
        kept[1].begin(1, [8, 0, 0, 0]);
        kept[1].end(1);
        kept[2].begin(2, [8, 0, 0, 0]);
        job.members[3].take().unwrap().leave();
        let laggards = until(|| {
            let laggards = job.member(0).laggards(1, 2, 0..4).unwrap();
            (laggards.len() == 2 && laggards[0].call == 1 && laggards[1].left).then_some(laggards)
        });
        let one = &laggards[0];
        assert_eq!((one.rank, one.host.as_str(), one.inside), (1, "host1", false));
        assert_eq!(one.operation, "all_reduce of 8");
        assert!(one.silent.unwrap() < LONG);
        assert_eq!((laggards[1].rank, laggards[1].call), (3, 0));
        assert_eq!(job.member(0).laggards(1, 2, [2]).unwrap(), []);
        assert_eq!(
            job.member(0).recent_calls(1, 2).unwrap(),
            [(2, "all_reduce of 8".into()), (1, "all_reduce of 0".into())]
        );
        // A communicator that is gone is told of no longer.
        drop(kept);
        until(|| job.member(0).laggards(1, 2, [1]).unwrap().first().filter(|one| !one.knows).map(drop));
    }

    #[test]
    fn the_stores_end_disturbs_nobody_unless_a_rank_served_it() {
        let mut plain = job(2, None);
        drop(plain.server.take());
        until(|| plain.member(0).store_error());
        assert_eq!(plain.member(0).verdict(), None);
        assert!(plain.member(0).laggards(1, 1, [1]).is_err());

        let mut served = job(2, Some(0));
        drop(served.server.take());
        let Verdict::Lost { rank: 0, host, cause } = served.verdict_of(1) else { panic!("not lost") };
        assert!(host == "host0" && cause.contains("store"), "{cause}");
        assert_eq!(served.member(0).verdict(), None);
    }

    #[test]
    fn who_is_no_rank_of_the_job_cannot_join() {
        let server = StoreServer::start((Ipv4Addr::LOCALHOST, 0).into(), "job").unwrap();
        let store = connect(&format!("tcp://{}", server.address()), "job", LONG).unwrap();
        assert!(Membership::join(store, Member::default()).is_err());
    }

    proptest! {
        #[test]
        fn verdicts_come_back_as_they_went(rank: usize, host in "[a-z.0-9]{0,9}", text in ".{0,40}\n?.{0,40}", lost: bool) {
            let verdict = if lost {
                Verdict::Lost { rank, host, cause: text }
            } else {
                Verdict::Aborted { rank, text }
            };
            prop_assert_eq!(decode(&encode(&verdict)), Some(verdict));
        }

        #[test]
        fn any_bytes_are_a_verdict_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
            let _ = parse(&bytes, 0);
        }
    }
}
