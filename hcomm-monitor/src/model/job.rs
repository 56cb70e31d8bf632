//! A job: its processes on one host.

use std::fmt;

use hcomm_telemetry::{Snapshot, Stall, stalls};

use super::calls::Calls;
use super::fold::{self, Fold};
use super::links::{self, LinkRow};
use super::operations::{self, Row};
use super::process::Process;
use super::ranks::{Condition, RankRow};

/// An operation that lasts so long and longer than most of its kind stands.
const STUCK_NS: u64 = 500_000_000;
/// How many times the 99th percentile of its kind it must last.
const STUCK_FACTOR: u64 = 4;

/// A job. Ranks on one boot of one host share a clock and so belong together; those of other hosts are a job of their own here.
#[derive(Debug, Clone)]
pub struct Job {
    /// Tells it from every other that this model has known.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Identity of that boot of the host.
    pub boot_id: String,
    /// Ranks, on all hosts.
    pub world_size: u32,
    /// Name of the program.
    pub program: String,
    /// When its first process began, in nanoseconds since 1970.
    pub started_wall_ns: u64,
    /// When it was seen that it is over.
    pub ended_wall_ns: Option<u64>,
    /// Finished calls.
    pub calls: Calls,
    /// Timed operations of its ranks that were overwritten before they were read, since it was found.
    pub missed: u64,
    processes: Vec<Process>,
    rows: Vec<Row>,
    stalls: Vec<Stall>,
    /// When it was looked at last, by the clock of the one who looks.
    looked_ns: u64,
}

/// How a job ended, or that it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Some process lives.
    Running,
    /// All left in good order.
    Ended,
    /// Ranks that were killed, and those that failed with the error of the first.
    Failed(Vec<u32>, Vec<u32>, String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = |ranks: &[u32]| crate::units::ranks(ranks);
        match self {
            Outcome::Running => f.write_str("running"),
            Outcome::Ended => f.write_str("ended"),
            Outcome::Failed(killed, failed, error) => {
                f.write_str("ended")?;
                if !killed.is_empty() {
                    write!(f, ", {} killed", ranks(killed))?;
                }
                if !failed.is_empty() {
                    write!(f, ", {} failed: {error}", ranks(failed))?;
                }
                Ok(())
            }
        }
    }
}

impl Job {
    pub(super) fn new(id: u64, first: &Snapshot) -> Self {
        let identity = &first.identity;
        Self {
            id,
            name: identity.job.clone(),
            boot_id: identity.boot_id.clone(),
            world_size: identity.world_size,
            program: identity.program.clone(),
            started_wall_ns: identity.wall_ns(identity.started_ns),
            ended_wall_ns: None,
            calls: Calls::default(),
            missed: 0,
            processes: Vec::new(),
            rows: Vec::new(),
            stalls: Vec::new(),
            looked_ns: 0,
        }
    }

    /// Whether a process belongs to it.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        let identity = &snapshot.identity;
        (&self.name, &self.boot_id, self.world_size) == (&identity.job, &identity.boot_id, identity.world_size)
    }

    pub(super) fn begin_tick(&mut self) {
        self.calls.begin_tick();
        self.processes.iter_mut().for_each(|process| process.seen_in_tick = false);
    }

    /// A process's state. `since_ns`: when its host was looked at before; `at_ns`: now.
    pub(super) fn take(&mut self, mut snapshot: Snapshot, since_ns: Option<u64>, at_ns: u64) {
        let identity = &snapshot.identity;
        let rank = identity.rank;
        self.started_wall_ns = self.started_wall_ns.min(identity.wall_ns(identity.started_ns));
        self.missed = self.missed.saturating_add(snapshot.missed);
        self.calls.take(rank, identity.wall_offset_ns, &snapshot.records);
        // They are in the calls now; the rest of a snapshot is small.
        snapshot.records = Vec::new();
        // In order of ranks: a job may have ten thousand.
        let from = self.processes.partition_point(|process| process.latest.identity.rank < rank);
        let to = self.processes.partition_point(|process| process.latest.identity.rank <= rank);
        match self.processes[from..to].iter_mut().find(|process| process.is_same(&snapshot)) {
            Some(process) => process.take(snapshot, at_ns),
            None => {
                // A rank that was started again.
                self.processes.retain(|process| process.latest.identity.rank != rank || !process.is_over());
                let at = self.processes.partition_point(|process| process.latest.identity.rank <= rank);
                self.processes.insert(at, Process::new(snapshot, since_ns, at_ns));
            }
        }
    }

    pub(super) fn end_tick(&mut self, wall_ns: u64, at_ns: u64) {
        self.looked_ns = at_ns;
        self.processes.iter_mut().filter(|process| !process.seen_in_tick).for_each(Process::miss);
        self.calls.end_tick(&self.processes);
        self.compare();
        self.rows = operations::rows(&self.processes, &self.rows);
        self.stalls = self.stuck();
        if self.is_over() && self.ended_wall_ns.is_none() {
            self.ended_wall_ns = Some(wall_ns);
        }
    }

    /// Who came how late to the calls that were finished in this tick.
    fn compare(&mut self) {
        for call in self.calls.finished() {
            let last = call.last();
            for (rank, late) in call.lateness() {
                let Some(process) = self.processes.iter_mut().find(|process| process.latest.identity.rank == rank)
                else {
                    continue;
                };
                process.lateness.record(late, 1);
                process.compared += 1;
                process.last_in += u64::from(last.is_some_and(|(last, _)| last == rank));
            }
        }
    }

    fn stuck(&self) -> Vec<Stall> {
        let live = self.processes.iter().filter(|process| process.seen_in_tick);
        // Younger ones are not stuck, whatever the ranks.
        let mut stalls = stalls(live.map(|process| &process.latest), STUCK_NS / 5);
        stalls.retain(|stall| {
            let broken = !stall.stopped.is_empty() || !stall.gone.is_empty();
            let usual = self
                .rows
                .iter()
                .filter(|row| row.key().0 == stall.kind)
                .filter_map(|row| row.total.durations.quantile(0.99));
            stall.age_ns
                >= if broken {
                    STUCK_NS / 5
                } else {
                    STUCK_NS.max(usual.max().unwrap_or(0).saturating_mul(STUCK_FACTOR))
                }
        });
        stalls
    }

    /// Counts from now on.
    pub(super) fn reset(&mut self) {
        self.processes.iter_mut().for_each(Process::reset);
        self.missed = 0;
        self.rows = operations::rows(&self.processes, &self.rows);
    }

    /// Its processes, by rank.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = &Process> {
        self.processes.iter()
    }

    /// Operations by kind, size and ranks.
    pub fn operations(&self) -> &[Row] {
        &self.rows
    }

    /// Ranks.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = RankRow> + '_ {
        self.processes.iter().map(RankRow::of)
    }

    /// Ranks that are alike as one, those that are odd first: some rows, however many ranks there are.
    pub fn folds(&self) -> Vec<Fold> {
        fold::folds(self, self.looked_ns)
    }

    /// Links, by rank and peer.
    pub fn links(&self) -> impl Iterator<Item = LinkRow> + '_ {
        self.processes.iter().flat_map(links::rows)
    }

    /// Operations that stand, the oldest first.
    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }

    /// Whether all its processes are over.
    pub fn is_over(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(Process::is_over)
    }

    /// What became of it.
    pub fn outcome(&self) -> Outcome {
        if !self.is_over() {
            return Outcome::Running;
        }
        let (mut killed, mut failed, mut first) = (vec![], vec![], String::new());
        for process in &self.processes {
            match Condition::of(process) {
                Condition::Killed => killed.push(process.latest.identity.rank),
                Condition::Failed(error) => {
                    if failed.is_empty() {
                        first = error;
                    }
                    failed.push(process.latest.identity.rank);
                }
                _ => {}
            }
        }
        if killed.is_empty() && failed.is_empty() { Outcome::Ended } else { Outcome::Failed(killed, failed, first) }
    }

    /// Calls of a rank, the mean over the ranks; also those for whose kind there was no room.
    pub fn calls_per_rank(&self) -> Option<u64> {
        let ranks = self.processes.len() as u64;
        let calls = self.processes.iter().map(|process| process.latest.total().0).fold(0, u64::saturating_add);
        calls.checked_div(ranks)
    }
}
