//! Watches over child processes until all have ended, and sees to it that they do.
//!
//! Signals come through a signalfd rather than handlers: everything that can happen (a child ends, Ctrl-C, the head goes
//! away, another node fails) is then one `poll` in one thread, with no state shared with a handler.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// How long the others have to notice by themselves that one has failed, and to say so.
const GRACE: Duration = Duration::from_secs(5);

/// How often children are looked at though no signal came: in a program whose other threads do not block it, the kernel
/// may throw the signal of an ended child away.
const LOOK: Duration = Duration::from_millis(200);

/// How a launch ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// For the process to exit with: 0, that of the first rank that failed (1 where a signal killed it; over several hosts,
    /// that of the host that ended first), or 128 and the number of the signal that ended the launcher.
    pub code: i32,
    /// What a person should be told, a line each: ranks that a signal killed, or that had to be killed.
    pub words: Vec<String>,
}

/// Catches the signals that end a job, and those of ended children, while it lives. To be made before other threads are.
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    pub(super) fn catch() -> Result<Signals> {
        let failed = |e| Error::system("cannot catch signals", e);
        let mut set = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD].into_iter().for_each(|s| set.add(s));
        let before = SigSet::thread_get_mask().map_err(failed)?;
        set.thread_block().map_err(failed)?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(failed)?;
        Ok(Signals { fd, before })
    }

    /// Waits for a signal, `most` at most; the first that came, apart from those of children.
    pub(super) fn wait(&self, most: Duration) -> Option<i32> {
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], timeout); // no signal, then
        self.take().first().copied()
    }

    /// The signals that came, apart from those of children.
    fn take(&self) -> Vec<i32> {
        let next = || self.fd.read_signal().ok().flatten().map(|info| info.ssi_signo as i32);
        std::iter::from_fn(next).filter(|signal| *signal != Signal::SIGCHLD as i32).collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask(); // it was this thread's mask before
    }
}

/// Tells a supervisor from another thread that the job failed elsewhere.
#[derive(Clone)]
pub(super) struct Alarm {
    inner: Arc<(EventFd, Mutex<Option<String>>)>,
}

impl Alarm {
    pub(super) fn new() -> Result<Alarm> {
        let fd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let fd = fd.map_err(|e| Error::system("eventfd", e))?;
        Ok(Alarm { inner: Arc::new((fd, Mutex::new(None))) })
    }

    pub(super) fn raise(&self, why: String) {
        self.inner.1.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        let _ = self.inner.0.write(1); // full means that it is raised
    }

    fn raised(&self) -> Option<String> {
        self.inner.1.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A child, and what it is called in messages.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) child: Child,
    /// Closed to make it end, where it listens to that.
    pub(super) stdin: Option<ChildStdin>,
}

/// What is being done about ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// One failed; the others are asked to end at this time.
    Grace(Instant),
    /// They were asked to end; they are killed at this time.
    Asked(Instant),
    Killed,
}

/// Watches over workers.
pub(super) struct Supervisor<'a> {
    workers: Vec<Worker>,
    signals: &'a Signals,
    alarm: Option<Alarm>,
    /// Whether the end of our own standard input ends the workers.
    ends_with_stdin: bool,
    /// How long workers have to end when asked to.
    patience: Duration,
    stage: Stage,
    code: Option<i32>,
    words: Vec<String>,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(signals: &'a Signals, patience: Duration) -> Self {
        let (workers, words) = (Vec::new(), Vec::new());
        let (alarm, ends_with_stdin, code) = (None, false, None);
        Supervisor { workers, signals, alarm, ends_with_stdin, patience, stage: Stage::Running, code, words }
    }

    pub(super) fn ends_with_stdin(mut self) -> Self {
        self.ends_with_stdin = true;
        self
    }

    pub(super) fn listens_to(mut self, alarm: Alarm) -> Self {
        self.alarm = Some(alarm);
        self
    }

    pub(super) fn add(&mut self, worker: Worker) {
        self.workers.push(worker);
    }

    /// Ends all workers, since the job cannot be.
    pub(super) fn give_up(mut self) {
        self.ask_to_end();
        self.run();
    }

    /// Returns when every worker has ended.
    pub(super) fn run(mut self) -> Outcome {
        loop {
            self.reap();
            if self.workers.is_empty() {
                return Outcome { code: self.code.unwrap_or(0), words: self.words };
            }
            self.move_on();
            self.wait();
        }
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        self.workers.retain_mut(|worker| match worker.child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                ended.push((worker.name.clone(), worker.child.id(), status, worker.stdin.is_some()));
                false
            }
            Err(_) => false, // not ours any more
        });
        // Of several that ended since we looked, one that a signal killed is the cause, and not who noticed.
        ended.sort_by_key(|(_, _, status, _)| status.signal().is_none());
        for (name, pid, status, is_agent) in ended {
            self.judge(&name, pid, status, is_agent);
        }
    }

    fn judge(&mut self, name: &str, pid: u32, status: ExitStatus, is_agent: bool) {
        let ours = !matches!(self.stage, Stage::Running | Stage::Grace(_));
        if status.success() || ours {
            return; // what ends after it was asked to is not the cause
        }
        if let Some(signal) = status.signal() {
            let word = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |s| format!("{signal} ({s})"));
            self.words.push(format!("{name} (pid {pid}) was killed by signal {word}"));
        } else if is_agent && self.code.is_none() {
            // A rank says itself what it fails of; who starts one on another host may have nothing to say.
            self.words.push(format!("{name} ended with {status}"));
        }
        // 255 is what ssh and its like say of themselves (ssh(1), EXIT STATUS).
        let code = status.code().filter(|code| !is_agent || *code != 255);
        self.code.get_or_insert(code.unwrap_or(1));
        self.start_grace();
    }

    fn start_grace(&mut self) {
        if self.stage == Stage::Running {
            self.stage = Stage::Grace(Instant::now() + GRACE);
        }
    }

    fn ask_to_end(&mut self) {
        for worker in &mut self.workers {
            worker.stdin = None;
            signal(worker, Signal::SIGTERM);
        }
        self.stage = Stage::Asked(Instant::now() + self.patience);
    }

    fn kill_all(&mut self) {
        self.workers.iter().for_each(|worker| signal(worker, Signal::SIGKILL));
        self.stage = Stage::Killed;
    }

    /// Does what is due by now.
    fn move_on(&mut self) {
        let now = Instant::now();
        match self.stage {
            Stage::Grace(end) if end <= now => {
                let names: Vec<&str> = self.workers.iter().map(|w| w.name.as_str()).collect();
                self.words.push(format!("{} did not end by itself and was ended", names.join(", ")));
                self.ask_to_end();
            }
            Stage::Asked(end) if end <= now => self.kill_all(),
            _ => {}
        }
    }

    /// Waits until something happens.
    fn wait(&mut self) {
        let left = match self.stage {
            Stage::Grace(end) | Stage::Asked(end) => end.saturating_duration_since(Instant::now()),
            Stage::Running | Stage::Killed => LOOK,
        };
        self.look(left.min(LOOK) + Duration::from_millis(1));
    }

    /// Whether more workers are to be started: starting thousands takes long, and who interrupts that is heard at once.
    pub(super) fn goes_on(&mut self) -> bool {
        self.look(Duration::ZERO);
        self.stage == Stage::Running
    }

    /// Waits until something happens, `most` at most, and takes note of it.
    fn look(&mut self, most: Duration) {
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
        let stdin = std::io::stdin();
        let listens = self.stage == Stage::Running;
        let stdin = (self.ends_with_stdin && listens).then(|| stdin.as_fd());
        let alarm = self.alarm.as_ref().filter(|_| listens).map(|alarm| alarm.inner.0.as_fd());
        let fds: Vec<BorrowedFd<'_>> = [Some(self.signals.fd.as_fd()), stdin, alarm].into_iter().flatten().collect();
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        if poll(&mut polled, timeout).is_err() {
            return; // interrupted
        }
        let stdin_ready = stdin.is_some() && polled[1].any().unwrap_or(false);
        if stdin_ready && std::io::Read::read(&mut std::io::stdin(), &mut [0; 64]).unwrap_or(0) == 0 {
            self.words.push("the launcher went away".into());
            self.code.get_or_insert(1);
            self.ask_to_end();
        }
        for number in self.signals.take() {
            self.interrupted(number);
        }
        if let Some(why) = self.alarm.as_ref().and_then(Alarm::raised)
            && self.stage == Stage::Running
        {
            self.words.push(why);
            self.code.get_or_insert(1);
            self.start_grace();
        }
    }

    /// The first time all are asked to end, the second time they are killed.
    fn interrupted(&mut self, number: i32) {
        match self.stage {
            Stage::Running | Stage::Grace(_) => {
                self.code = Some(128 + number);
                self.ask_to_end();
            }
            Stage::Asked(_) | Stage::Killed => self.kill_all(),
        }
    }
}

fn signal(worker: &Worker, signal: Signal) {
    // It has not been waited for, so the number is still its own. One that just ended takes no signal, and needs none.
    let _ = kill(Pid::from_raw(worker.child.id() as i32), signal);
}
