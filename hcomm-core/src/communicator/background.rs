//! Background threads of a communicator: each owns a lane and runs the operations given to it one after the other, so that
//! several operations are under way at once. Lanes belong to a priority, and a lane of lower priority holds back while one
//! of higher priority moves.
//!
//! Which lane an operation takes depends on its number within its priority alone, so all ranks choose the same.

#![allow(unsafe_code)] // runs plans over buffers that jobs own

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Communicator;
use super::call::Prepared;
use super::drive::{Context, Hold};
use super::group::Group;
use super::parts::LaneParts;
use super::world::World;
use crate::engine::Buffers;
use crate::error::{Error, Result};

/// Which operations overtake which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Overtakes operations of normal priority.
    High,
    /// Bulk.
    #[default]
    Normal,
}

impl From<u8> for Priority {
    /// As `HCOMM_STREAM_PRIORITY` says it: 0 is normal, all above is high.
    fn from(level: u8) -> Self {
        if level == 0 { Priority::Normal } else { Priority::High }
    }
}

impl Priority {
    const ALL: [Priority; 2] = [Priority::High, Priority::Normal];
}

/// An operation to run, with what is to be done when it is complete.
pub(super) struct Job {
    pub prepared: Arc<Prepared>,
    pub buffers: Buffers,
    pub finish: Box<dyn FnOnce(Result<()>) + Send>,
}

/// What the threads of one communicator share.
#[derive(Default)]
struct Traffic {
    /// Operations of high priority under way.
    urgent: AtomicUsize,
    /// Counts their movements, so that others hold back only while there are any: an operation of high priority that waits
    /// for a rank which itself waits for one of normal priority must not hold that up.
    beats: AtomicU64,
    /// What ended the first operation that failed: none is begun after it.
    failure: OnceLock<Error>,
}

/// Jobs of one lane.
#[derive(Default)]
struct Inbox {
    jobs: Mutex<VecDeque<(u64, Job)>>,
    came: Condvar,
    closed: AtomicBool,
}

struct Worker {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

/// The threads of a communicator.
pub(crate) struct Background {
    /// By priority, then lane.
    workers: Vec<Vec<Worker>>,
    /// Operations given so far, by priority.
    given: [u64; 2],
    traffic: Arc<Traffic>,
}

/// Lanes of one priority at most: more in flight than this only share the same wires and caches.
const MAX_LANES: usize = 4;

impl Background {
    /// Agrees on the number of lanes and makes them; all ranks call it.
    pub fn start(communicator: &mut Communicator) -> Result<Self> {
        let wanted = (communicator.world.config.threads_of(communicator.world.processors) / Priority::ALL.len())
            .clamp(1, MAX_LANES);
        let all = communicator.all_gather_bytes(&[wanted as u8])?;
        let lanes = all.iter().filter_map(|answer| answer.first()).min().map_or(1, |&least| usize::from(least));
        let traffic = Arc::new(Traffic::default());
        let mut workers = Vec::new();
        // Lane 0 is the caller's.
        let mut number = 1;
        for priority in Priority::ALL {
            let mut row = Vec::with_capacity(lanes);
            for _ in 0..lanes {
                row.push(Worker::start(communicator, number, priority, Arc::clone(&traffic))?);
                number += 1;
            }
            workers.push(row);
        }
        Ok(Self { workers, given: [0; 2], traffic })
    }

    /// What ended the first operation that failed.
    pub fn failure(&self) -> Option<&Error> {
        self.traffic.failure.get()
    }

    pub fn submit(&mut self, job: Job, priority: Priority) {
        let given = &mut self.given[priority as usize];
        let row = &self.workers[priority as usize];
        let inbox = &row[(*given % row.len() as u64) as usize].inbox;
        *given += 1;
        inbox.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back((*given, job));
        inbox.came.notify_one();
    }
}

impl Drop for Background {
    /// Lets the operations under way finish; each is bounded by the timeout.
    fn drop(&mut self) {
        for worker in self.workers.iter().flatten() {
            let jobs = worker.inbox.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            worker.inbox.closed.store(true, Ordering::Relaxed);
            worker.inbox.came.notify_all();
            drop(jobs);
        }
        for worker in self.workers.iter_mut().flatten() {
            if let Some(thread) = worker.thread.take() {
                // A thread that panicked has nothing more to say.
                let _ = thread.join();
            }
        }
    }
}

impl Worker {
    fn start(communicator: &mut Communicator, lane: u32, priority: Priority, traffic: Arc<Traffic>) -> Result<Self> {
        let world = Arc::clone(&communicator.world);
        let group = Arc::clone(&communicator.group);
        let parts = LaneParts::reserve(&world, &group.shared)?;
        let theirs = communicator.all_gather_words(&parts.encode())?;
        let context = Context::new(&world, &group, lane, parts.connect(&world, &group, lane, &theirs)?);
        let inbox = Arc::new(Inbox::default());
        let theirs = Arc::clone(&inbox);
        let thread = std::thread::Builder::new()
            .name(format!("hcomm-lane-{lane}"))
            .spawn(move || serve(&world, &group, context, &theirs, priority, &traffic))
            .map_err(|error| Error::system("start a background thread", error))?;
        Ok(Self { inbox, thread: Some(thread) })
    }
}

/// The life of a background thread.
fn serve(world: &World, group: &Group, mut context: Context, inbox: &Inbox, priority: Priority, traffic: &Traffic) {
    while let Some((number, job)) = next(inbox) {
        if let Some(error) = traffic.failure.get() {
            (job.finish)(Err(Error::Broken(error.to_string())));
            continue;
        }
        if priority == Priority::High {
            traffic.urgent.fetch_add(1, Ordering::Relaxed);
        }
        let mut hold = HoldBack { traffic, priority, seen: 0 };
        let result = context.execute(world, group, &job.prepared, job.buffers, number, &mut hold);
        let result = result.map_err(|error| world.record_failure(error));
        if priority == Priority::High {
            traffic.urgent.fetch_sub(1, Ordering::Relaxed);
        }
        if let Err(error) = &result {
            // The first stays.
            let _ = traffic.failure.set(error.clone());
        }
        (job.finish)(result);
    }
}

fn next(inbox: &Inbox) -> Option<(u64, Job)> {
    let mut jobs = inbox.jobs.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = jobs.pop_front() {
            return Some(job);
        }
        if inbox.closed.load(Ordering::Relaxed) {
            return None;
        }
        jobs = inbox.came.wait(jobs).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Makes way for operations of higher priority.
struct HoldBack<'a> {
    traffic: &'a Traffic,
    priority: Priority,
    seen: u64,
}

/// How long a lane of normal priority looks away while one of high priority moves.
const PAUSE: Duration = Duration::from_micros(50);

impl Hold for HoldBack<'_> {
    fn moved(&mut self) {
        if self.priority == Priority::High {
            self.traffic.beats.fetch_add(1, Ordering::Relaxed);
            return;
        }
        while self.traffic.urgent.load(Ordering::Relaxed) > 0 {
            let beats = self.traffic.beats.load(Ordering::Relaxed);
            if beats == self.seen {
                break;
            }
            self.seen = beats;
            std::thread::sleep(PAUSE);
        }
    }
}
