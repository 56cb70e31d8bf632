//! How a thread waits when nothing moves: spin, then yield, then sleep on its doorbell until a peer rings.
//!
//! Spinning is what makes small messages fast, and what ruins a shared core: the spin budget is therefore almost nothing
//! when the ranks of this host outnumber the processors they may use.

use std::time::{Duration, Instant};

/// Budgets before sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitPolicy {
    /// Polls one after the other; without a pause instruction, which costs more than the exchange of a small message.
    pub spins: u32,
    /// Polls with `sched_yield` between, after the spins.
    pub yields: u32,
}

impl WaitPolicy {
    /// For a lane of one of `local_ranks` ranks that share `processors`; a poll of sockets is a system call, of shared
    /// memory a load.
    ///
    /// The budgets come from measurements on a 2-core virtual machine, where waking a sleeper on another core costs 35
    /// to 50 us: spinning must outlast the hops of a running collective, and on shared cores a yield (1 to 4 us) lets the
    /// peer run that is waited for. Beside the system call that polls a socket a yield is cheap, and the kernel's own work for
    /// that socket may be what the core is wanted for: so no spinning there.
    pub fn new(local_ranks: usize, processors: usize, sockets: bool) -> Self {
        let (spins, yields) = match (local_ranks <= processors, sockets) {
            (true, false) => (20_000, 60),
            (true, true) => (0, 200),
            (false, false) => (8, 1000),
            (false, true) => (0, 100),
        };
        Self { spins, yields }
    }
}

/// What to do after a poll that moved nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Poll again.
    Poll,
    /// Announce the sleep on the doorbell, then poll once more.
    Arm,
    /// Sleep, at most this long, then look at the peers' health and poll again.
    Sleep(Duration),
}

/// One wait: from the first poll that moved nothing to the next that did.
#[derive(Debug)]
pub(crate) struct Waiter {
    policy: WaitPolicy,
    polls: u32,
    armed: bool,
    since: Option<Instant>,
}

/// Longest sleep between two looks at verdicts and deadlines.
const NAP: Duration = Duration::from_millis(50);

impl Waiter {
    pub fn new(policy: WaitPolicy) -> Self {
        Self { policy, polls: 0, armed: false, since: None }
    }

    /// Something moved. Returns whether an announced sleep must be cancelled.
    pub fn moved(&mut self) -> bool {
        self.polls = 0;
        self.since = None;
        std::mem::take(&mut self.armed)
    }

    /// Nothing moved: what now.
    #[inline]
    pub fn stuck(&mut self) -> Next {
        if self.polls < self.policy.spins {
            self.polls += 1;
            return Next::Poll;
        }
        self.stuck_long()
    }

    #[cold]
    fn stuck_long(&mut self) -> Next {
        self.since.get_or_insert_with(Instant::now);
        if self.polls < self.policy.spins + self.policy.yields {
            self.polls += 1;
            std::thread::yield_now();
            return Next::Poll;
        }
        if std::mem::replace(&mut self.armed, true) {
            // After one sleep a new announcement is needed.
            self.armed = false;
            Next::Sleep(NAP)
        } else {
            Next::Arm
        }
    }

    /// Since when nothing moved; `None` while still spinning.
    pub fn since(&self) -> Option<Instant> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_spins_then_yields_then_sleeps_and_announces_each_sleep() {
        let mut waiter = Waiter::new(WaitPolicy { spins: 2, yields: 1 });
        let polls = [waiter.stuck(), waiter.stuck()];
        assert_eq!((polls, waiter.since()), ([Next::Poll; 2], None), "spinning takes no clock");
        assert_eq!(waiter.stuck(), Next::Poll);
        let since = waiter.since();
        assert!(since.is_some());
        for _ in 0..2 {
            assert_eq!([waiter.stuck(), waiter.stuck()], [Next::Arm, Next::Sleep(NAP)]);
        }
        assert_eq!(waiter.since(), since, "sleeping is part of the same wait");
        assert!(!waiter.moved(), "the announcement ended with the sleep");
        assert_eq!((waiter.stuck(), waiter.since()), (Next::Poll, None));
    }

    #[test]
    fn what_moves_after_an_announcement_takes_it_back() {
        let mut waiter = Waiter::new(WaitPolicy { spins: 0, yields: 0 });
        assert_eq!(waiter.stuck(), Next::Arm);
        assert!(waiter.moved());
        assert!(!waiter.moved());
    }

    #[test]
    fn ranks_that_share_a_processor_hardly_spin() {
        let alone = WaitPolicy::new(2, 2, false);
        let crowded = WaitPolicy::new(3, 2, false);
        assert!(crowded.spins * 10 < alone.spins);
        assert!(WaitPolicy::new(2, 2, true).spins < alone.spins, "a poll of a socket is a system call");
    }
}
