//! The loop of all outputs but the screen.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hcomm_cli::{Failure, Readers, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::model::Model;
use crate::source::Source;

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing more can come.
    Source,
    /// Its time was over.
    Time,
    /// Nobody reads any more.
    Readers,
    /// The user, or the system on the user's behalf, said so.
    Signal,
}

/// Looks each `interval` until `duration` is over, the source is at its end, nobody reads any more, or a signal comes. `write` is
/// called after each look; `listens` is whether its end is when stdout is closed. A recording is read through without waiting.
///
/// # Errors
/// Those of the source and of `write`.
pub fn run(
    source: &mut dyn Source,
    interval: Duration,
    duration: Option<Duration>,
    listens: bool,
    mut write: impl FnMut(&Model) -> Result<Readers>,
) -> Result<(Model, End)> {
    let mut model = Model::new(source.places());
    let outside = Outside::new(listens)?;
    let start = Instant::now();
    let mut next = start;
    while let Some(tick) = source.poll()? {
        model.update(tick);
        if write(&model)? == Readers::Gone {
            return Ok((model, End::Readers));
        }
        let wait = if source.is_live() {
            let now = Instant::now();
            let left = duration.map(|duration| duration.saturating_sub(now - start));
            if left == Some(Duration::ZERO) {
                return Ok((model, End::Time));
            }
            // From one moment to the next, so that the time of the work does not add up; what was slept over is not made up for.
            next = (next + interval).max(now);
            left.map_or(next - now, |left| left.min(next - now))
        } else {
            Duration::ZERO
        };
        if let Some(end) = outside.wait(wait)? {
            return Ok((model, end));
        }
    }
    Ok((model, End::Source))
}

/// What ends a watch from outside, also while nothing is written: signals, and a closed pipe at stdout.
struct Outside {
    signals: UnixStream,
    listens: bool,
}

impl Outside {
    fn new(listens: bool) -> Result<Self> {
        let failed = |cause: io::Error| Failure::run(format!("cannot listen for signals: {cause}"), "");
        let (signals, write) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let write = write.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, write).map_err(failed)?;
        }
        Ok(Self { signals, listens })
    }

    /// Waits so long, or until there is a reason to end.
    fn wait(&self, time: Duration) -> Result<Option<End>> {
        let deadline = Instant::now() + time;
        loop {
            let stdout = io::stdout();
            // A closed pipe and a terminal that hung up report themselves without being asked.
            let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if self.listens {
                watched.push(PollFd::new(stdout.as_fd(), PollFlags::empty()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, or the last part of a millisecond would be waited for in a busy loop.
            let millis = left.as_nanos().div_ceil(1_000_000).min(1_000_000);
            let timeout = PollTimeout::try_from(millis as i32).unwrap_or(PollTimeout::MAX);
            match poll(&mut watched, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(cause) => return Err(Failure::run(format!("cannot wait: {}", cause.desc()), "")),
            }
            let mut seen = watched.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty()));
            match (seen.next(), seen.next()) {
                (Some(true), _) => return Ok(Some(End::Signal)),
                (_, Some(true)) => return Ok(Some(End::Readers)),
                _ if Instant::now() >= deadline => return Ok(None),
                _ => {}
            }
        }
    }
}
