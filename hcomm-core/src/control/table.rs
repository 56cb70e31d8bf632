//! What the embedded store holds, apart from any socket: pairs with revisions and ages, leases, and who waits for what.
//!
//! Pure: time comes in as an argument, answers go out as values. So [`super::server`] is only sockets.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::protocol::{Request, Response};
use super::{Item, check_key, check_prefix, check_value};

/// Most bytes of keys and values together.
const MAX_TOTAL_BYTES: usize = 128 << 20;
/// What a pair costs beside its key and value.
const PAIR_BYTES: usize = 128;
/// Most calls of one connection that wait at the same time.
const MAX_WAITING: usize = 256;

/// Names a connection; never used twice.
pub(super) type Session = u64;

/// An answer that became due: to which connection, to which of its calls, and what.
pub(super) type Answer = (Session, u32, Response);

struct Entry {
    value: Vec<u8>,
    revision: u64,
    set_at: Instant,
}

struct Lease {
    session: Session,
    lost: Vec<u8>,
    ttl: Duration,
}

struct Waiter {
    session: Session,
    id: u32,
    want: Want,
    deadline: Instant,
}

enum Want {
    Key(String),
    Prefix(String, u64),
}

/// The pairs, the leases and the waiting calls.
#[derive(Default)]
pub(super) struct Table {
    entries: BTreeMap<String, Entry>,
    bytes: usize,
    revision: u64,
    leases: BTreeMap<String, Lease>,
    /// When each connection was last heard of.
    heard: HashMap<Session, Instant>,
    waiters: BTreeMap<u64, Waiter>,
    /// Waiters by what they wait for, so that a change wakes only those that it concerns.
    by_key: HashMap<String, BTreeSet<u64>>,
    by_prefix: BTreeMap<String, BTreeSet<u64>>,
    by_deadline: BTreeSet<(Instant, u64)>,
    waiting_of: HashMap<Session, usize>,
    next_waiter: u64,
}

impl Table {
    /// Does what `request` asks; the answers include those of other calls that waited for this one. A call that must
    /// wait is answered later.
    pub(super) fn handle(&mut self, session: Session, id: u32, request: Request, now: Instant) -> Vec<Answer> {
        self.heard.insert(session, now);
        let mut answers = Vec::new();
        let response =
            self.apply(session, id, request, now, &mut answers).unwrap_or_else(|text| Some(Response::Failed(text)));
        answers.extend(response.map(|response| (session, id, response)));
        answers
    }

    fn apply(
        &mut self,
        session: Session,
        id: u32,
        request: Request,
        now: Instant,
        answers: &mut Vec<Answer>,
    ) -> Result<Option<Response>, String> {
        Ok(Some(match request {
            Request::Set { key, value } => {
                self.put(&key, value, now, answers)?;
                Response::Done
            }
            Request::Get { key } => {
                check_key(&key)?;
                Response::Value(self.value(&key))
            }
            Request::Wait { key, timeout } => {
                check_key(&key)?;
                match self.value(&key) {
                    Some(value) => Response::Value(Some(value)),
                    None => return self.defer(session, id, Want::Key(key), now + bounded(timeout)),
                }
            }
            Request::Add { key, delta } => {
                check_key(&key)?;
                let old = self.entries.get(&key).map_or("0", |e| std::str::from_utf8(&e.value).unwrap_or(""));
                let old: i64 = old.parse().map_err(|_| format!("key {key} does not hold a number"))?;
                let new = old.checked_add(delta).ok_or_else(|| format!("key {key}: {old} + {delta} overflows"))?;
                self.put(&key, new.to_string().into_bytes(), now, answers)?;
                Response::Number(new)
            }
            Request::Swap { key, expected, value } => {
                check_key(&key)?;
                let same = self.entries.get(&key).map(|e| e.value.as_slice()) == expected.as_deref();
                if same {
                    self.put(&key, value, now, answers)?;
                }
                Response::Flag(same)
            }
            Request::Delete { key } => {
                check_key(&key)?;
                self.leases.remove(&key);
                if let Some(old) = self.entries.remove(&key) {
                    self.bytes -= cost(&key, &old.value);
                }
                Response::Done
            }
            Request::List { prefix } => {
                check_prefix(&prefix)?;
                let item = |(key, e): (&String, &Entry)| Item {
                    key: key.clone(),
                    value: e.value.clone(),
                    age: now.saturating_duration_since(e.set_at),
                };
                Response::Items(self.under(&prefix).map(item).collect())
            }
            Request::Watch { prefix, revision, timeout } => {
                check_prefix(&prefix)?;
                let revision = revision.min(self.revision); // one from another store must not wait for ever
                match self.changes(&prefix, revision) {
                    Some(response) => response,
                    None => return self.defer(session, id, Want::Prefix(prefix, revision), now + bounded(timeout)),
                }
            }
            Request::Lease { key, value, lost, ttl } => {
                check_value(&lost)?;
                if self.leases.get(&key).is_some_and(|lease| lease.session != session) {
                    return Err(format!("key {key} is leased by another process"));
                }
                self.put(&key, value, now, answers)?;
                self.leases.insert(key, Lease { session, lost, ttl: bounded(ttl) });
                Response::Done
            }
            Request::Release { key } => {
                check_key(&key)?;
                if self.leases.get(&key).is_some_and(|lease| lease.session == session) {
                    self.leases.remove(&key);
                }
                Response::Done
            }
            Request::Ping => Response::Done,
            Request::Goodbye => {
                self.leases.retain(|_, lease| lease.session != session);
                Response::Done
            }
        }))
    }

    /// A connection closed: its waiting calls are forgotten, and what it leased is lost.
    pub(super) fn close(&mut self, session: Session, now: Instant) -> Vec<Answer> {
        let waiting: Vec<u64> = self.waiters.iter().filter(|(_, w)| w.session == session).map(|(n, _)| *n).collect();
        for number in waiting {
            self.forget(number);
        }
        self.heard.remove(&session);
        self.waiting_of.remove(&session);
        let gone =
            self.leases.iter().filter(|(_, lease)| lease.session == session).map(|(key, _)| key.clone()).collect();
        self.lose(gone, now)
    }

    /// Answers calls that waited long enough, and gives up leases that nobody renewed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(&(deadline, number)) = self.by_deadline.first()
            && deadline <= now
        {
            if let Some(waiter) = self.forget(number) {
                let response = match waiter.want {
                    Want::Key(_) => Response::TimedOut,
                    Want::Prefix(..) => Response::Changes { revision: self.revision, pairs: Vec::new() },
                };
                answers.push((waiter.session, waiter.id, response));
            }
        }
        let silent = self.leases.iter().filter(|(_, lease)| self.lease_end(lease).is_none_or(|end| end <= now));
        let gone = silent.map(|(key, _)| key.clone()).collect();
        answers.extend(self.lose(gone, now));
        answers
    }

    /// When [`Table::expire`] has something to do, if ever.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waiter = self.by_deadline.first().map(|(deadline, _)| *deadline);
        let lease = self.leases.values().filter_map(|lease| self.lease_end(lease)).min();
        waiter.into_iter().chain(lease).min()
    }

    fn lease_end(&self, lease: &Lease) -> Option<Instant> {
        self.heard.get(&lease.session).map(|heard| *heard + lease.ttl)
    }

    fn lose(&mut self, keys: Vec<String>, now: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        for key in keys {
            if let Some(lease) = self.leases.remove(&key) {
                // Cannot fail: the key was checked, and `lost` was when it was leased. A full table makes it fail after
                // all, and then nobody can be told.
                let _ = self.put(&key, lease.lost, now, &mut answers);
            }
        }
        answers
    }

    fn put(&mut self, key: &str, value: Vec<u8>, now: Instant, answers: &mut Vec<Answer>) -> Result<(), String> {
        check_key(key)?;
        check_value(&value)?;
        let old = self.entries.get(key).map_or(0, |e| cost(key, &e.value));
        let bytes = self.bytes - old + cost(key, &value);
        if bytes > MAX_TOTAL_BYTES {
            return Err(format!("the store is full ({MAX_TOTAL_BYTES} bytes)"));
        }
        self.bytes = bytes;
        self.revision += 1;
        self.entries.insert(key.to_owned(), Entry { value, revision: self.revision, set_at: now });
        self.wake(key, answers);
        Ok(())
    }

    fn wake(&mut self, key: &str, answers: &mut Vec<Answer>) {
        let mut due: Vec<u64> = self.by_key.get(key).into_iter().flatten().copied().collect();
        // Every prefix of the key is looked up, however many calls watch: a key is at most 200 bytes.
        due.extend((0..=key.len()).filter_map(|end| self.by_prefix.get(key.get(..end)?)).flatten());
        for number in due {
            let Some(waiter) = self.forget(number) else { continue };
            let response = match &waiter.want {
                Want::Key(key) => Some(Response::Value(self.value(key))),
                Want::Prefix(prefix, revision) => self.changes(prefix, *revision),
            };
            answers.extend(response.map(|response| (waiter.session, waiter.id, response)));
        }
    }

    fn defer(&mut self, session: Session, id: u32, want: Want, deadline: Instant) -> Result<Option<Response>, String> {
        let waiting = self.waiting_of.entry(session).or_default();
        if *waiting >= MAX_WAITING {
            return Err(format!("more than {MAX_WAITING} calls of one process wait"));
        }
        *waiting += 1;
        let number = self.next_waiter;
        self.next_waiter += 1;
        match &want {
            Want::Key(key) => self.by_key.entry(key.clone()).or_default().insert(number),
            Want::Prefix(prefix, _) => self.by_prefix.entry(prefix.clone()).or_default().insert(number),
        };
        self.by_deadline.insert((deadline, number));
        self.waiters.insert(number, Waiter { session, id, want, deadline });
        Ok(None)
    }

    fn forget(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&number)?;
        self.by_deadline.remove(&(waiter.deadline, number));
        match &waiter.want {
            Want::Key(key) => {
                if let Some(numbers) = self.by_key.get_mut(key) {
                    numbers.remove(&number);
                    if numbers.is_empty() {
                        self.by_key.remove(key);
                    }
                }
            }
            Want::Prefix(prefix, _) => {
                if let Some(numbers) = self.by_prefix.get_mut(prefix) {
                    numbers.remove(&number);
                    if numbers.is_empty() {
                        self.by_prefix.remove(prefix);
                    }
                }
            }
        }
        if let Some(waiting) = self.waiting_of.get_mut(&waiter.session) {
            *waiting -= 1;
        }
        Some(waiter)
    }

    fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.entries.get(key).map(|e| e.value.clone())
    }

    fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Entry)> {
        self.entries.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
    }

    fn changes(&self, prefix: &str, revision: u64) -> Option<Response> {
        let changed = self.under(prefix).filter(|(_, e)| e.revision > revision);
        let pairs: Vec<_> = changed.map(|(key, e)| (key.clone(), e.value.clone())).collect();
        (!pairs.is_empty()).then_some(Response::Changes { revision: self.revision, pairs })
    }
}

fn cost(key: &str, value: &[u8]) -> usize {
    key.len() + value.len() + PAIR_BYTES
}

/// No time that comes over the wire may overflow the clock.
fn bounded(time: Duration) -> Duration {
    time.min(Duration::from_secs(366 * 24 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn set(key: &str, value: &str) -> Request {
        Request::Set { key: key.into(), value: value.into() }
    }

    fn watch(revision: u64) -> Request {
        Request::Watch { prefix: "a/".into(), revision, timeout: SECOND }
    }

    fn lease(key: &str) -> Request {
        Request::Lease { key: key.into(), value: b"here".to_vec(), lost: b"lost".to_vec(), ttl: SECOND }
    }

    #[test]
    fn waiting_calls_are_answered_once_by_what_concerns_them() {
        let (mut table, now) = (Table::default(), Instant::now());
        assert!(table.handle(1, 10, Request::Wait { key: "a/x".into(), timeout: SECOND }, now).is_empty());
        assert!(table.handle(2, 20, watch(0), now).is_empty());
        assert_eq!(table.handle(3, 30, set("b", "1"), now), [(3, 30, Response::Done)]);
        let pairs = vec![("a/x".to_owned(), b"2".to_vec())];
        let mut answers = table.handle(3, 31, set("a/x", "2"), now);
        answers.sort_by_key(|a| a.0);
        assert_eq!(
            answers,
            [
                (1, 10, Response::Value(Some(b"2".to_vec()))),
                (2, 20, Response::Changes { revision: 2, pairs }),
                (3, 31, Response::Done)
            ]
        );
        assert_eq!(table.handle(3, 32, set("a/x", "3"), now), [(3, 32, Response::Done)]);
        assert_eq!(table.next_deadline(), None);
    }

    #[test]
    fn waiting_calls_end_at_their_deadline() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.handle(1, 10, Request::Wait { key: "a/x".into(), timeout: SECOND }, now);
        table.handle(1, 11, watch(0), now);
        assert_eq!(table.next_deadline(), Some(now + SECOND));
        assert!(table.expire(now).is_empty());
        let answers = table.expire(now + SECOND);
        assert_eq!(answers[0], (1, 10, Response::TimedOut));
        assert_eq!(answers[1], (1, 11, Response::Changes { revision: 0, pairs: vec![] }));
    }

    #[test]
    fn a_closed_connection_loses_its_leases_at_once_and_a_silent_one_in_time() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.handle(1, 1, lease("a/1"), now);
        table.handle(2, 1, lease("a/2"), now);
        table.handle(3, 1, watch(2), now);
        let lost = |key: &str, revision| Response::Changes { revision, pairs: vec![(key.into(), b"lost".to_vec())] };
        assert_eq!(table.close(1, now), [(3, 1, lost("a/1", 3))]);

        table.handle(2, 2, Request::Ping, now + SECOND / 2);
        table.handle(3, 2, watch(3), now + SECOND / 2);
        assert!(table.expire(now + SECOND).is_empty());
        assert!(table.expire(now + SECOND * 3 / 2).contains(&(3, 2, Response::Changes { revision: 3, pairs: vec![] })));
        let answers = table.handle(3, 3, Request::Get { key: "a/2".into() }, now + SECOND * 3 / 2);
        assert_eq!(answers, [(3, 3, Response::Value(Some(b"lost".to_vec())))]);
    }

    #[test]
    fn released_leases_and_those_of_who_said_goodbye_stay() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.handle(1, 1, lease("a/1"), now);
        table.handle(1, 2, Request::Release { key: "a/1".into() }, now);
        table.handle(2, 1, lease("a/2"), now);
        table.handle(2, 2, Request::Goodbye, now);
        table.close(1, now);
        table.close(2, now);
        table.expire(now + SECOND * 9);
        let Response::Items(items) = table.handle(3, 1, Request::List { prefix: "a/".into() }, now).remove(0).2 else {
            panic!("not a list")
        };
        assert!(items.iter().all(|item| item.value == b"here") && items.len() == 2, "{items:?}");
        assert!(matches!(table.handle(3, 1, lease("a/1"), now)[..], [(_, _, Response::Done)]));
    }

    #[test]
    fn counters_swaps_and_bad_keys() {
        let (mut table, now) = (Table::default(), Instant::now());
        let mut ask = |request| table.handle(1, 1, request, now).remove(0).2;
        let add = |key: &str, delta| Request::Add { key: key.into(), delta };
        assert_eq!(ask(add("n", 3)), Response::Number(3));
        assert_eq!(ask(add("n", -5)), Response::Number(-2));
        assert_eq!(ask(add("n", i64::MIN)), Response::Failed(format!("key n: -2 + {} overflows", i64::MIN)));
        ask(set("text", "x"));
        assert_eq!(ask(add("text", 1)), Response::Failed("key text does not hold a number".into()));
        let swap = |expected: Option<&str>, value: &str| Request::Swap {
            key: "s".into(),
            expected: expected.map(|e| e.into()),
            value: value.into(),
        };
        assert_eq!(ask(swap(Some("1"), "2")), Response::Flag(false));
        assert_eq!(ask(swap(None, "1")), Response::Flag(true));
        assert_eq!(ask(swap(None, "3")), Response::Flag(false));
        assert_eq!(ask(swap(Some("1"), "2")), Response::Flag(true));
        for key in ["", "/a", "a/", "a b", "ä", &"k".repeat(201)] {
            assert!(matches!(ask(set(key, "")), Response::Failed(_)), "{key}");
        }
        let big = Request::Set { key: "big".into(), value: vec![0; super::super::MAX_VALUE_BYTES + 1] };
        assert!(matches!(ask(big), Response::Failed(_)));
    }

    #[test]
    fn the_total_is_bounded_and_deleting_gives_room() {
        let (mut table, now) = (Table::default(), Instant::now());
        let big = |n: usize| Request::Set { key: n.to_string(), value: vec![0; super::super::MAX_VALUE_BYTES] };
        let fitting = (0..).take_while(|n| table.handle(1, 1, big(*n), now)[0].2 == Response::Done).count();
        assert_eq!(fitting, 127);
        table.handle(1, 1, Request::Delete { key: "0".into() }, now);
        assert_eq!(table.handle(1, 1, big(200), now)[0].2, Response::Done);
    }
}
