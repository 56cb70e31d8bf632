//! The terminal: taken over while the program shows its screen, and given back however it ends.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event as Heard, KeyEvent, KeyEventKind};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::low_level::emulate_default_handler;

/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Gives the terminal back, if it is taken. Where it is gone there is nothing to give back.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = queue!(out, LeaveAlternateScreen, Show).and_then(|()| out.flush());
        let _ = disable_raw_mode();
    }
}

/// The terminal, taken over until this is dropped or the program panics.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// There is none, or it cannot be set.
    pub fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                // First, so that the words stay readable.
                give_back();
                before(info);
            }));
        });
        let terminal = take().and_then(|()| Self::blank());
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(cause) => {
                give_back();
                Err(cause)
            }
        }
    }

    fn blank() -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
        Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout())))
    }

    /// Shows what `draw` makes.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(|_| ())
    }

    /// Takes it over anew: after a stop the shell has set it as it likes.
    ///
    /// # Errors
    /// As [`Screen::enter`].
    pub fn retake(&mut self) -> io::Result<()> {
        give_back();
        take()?;
        // One that remembers nothing draws everything.
        self.terminal = Self::blank()?;
        Ok(())
    }

    /// Stops the program, as Ctrl-Z does, and comes back when it is continued.
    ///
    /// # Errors
    /// As [`Screen::enter`].
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        emulate_default_handler(SIGTSTP)?;
        self.retake()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// What happened while the program waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A key.
    Key(KeyEvent),
    /// A signal that ends the program.
    End(i32),
    /// A signal that stops it.
    Stop,
    /// It was stopped and goes on.
    Continued,
    /// The terminal is gone.
    Gone,
}

/// Keys and signals.
pub struct Input {
    terminal: Keys,
    signals: SignalDelivery<UnixStream, SignalOnly>,
}

/// Where keys come from: standard input, or the controlling terminal when that is something else.
enum Keys {
    Stdin(io::Stdin),
    Terminal(File),
}

impl Keys {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Keys::Stdin(stdin) => stdin.as_fd(),
            Keys::Terminal(file) => file.as_fd(),
        }
    }
}

impl Input {
    /// Signals do nothing by themselves from here on.
    ///
    /// # Errors
    /// There is no terminal to type at.
    pub fn new() -> io::Result<Self> {
        let stdin = io::stdin();
        let terminal = if stdin.is_terminal() { Keys::Stdin(stdin) } else { Keys::Terminal(File::open("/dev/tty")?) };
        let (read, write) = UnixStream::pair()?;
        let wanted = [SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT, SIGWINCH];
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, wanted)?;
        Ok(Self { terminal, signals })
    }

    /// Waits until something happens or `until` is there.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub fn wait(&mut self, until: Instant) -> io::Result<Vec<Event>> {
        let left = until.saturating_duration_since(Instant::now());
        // To the next millisecond: a wait of 0 would be one of many.
        let timeout = PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        let mut fds = [
            PollFd::new(self.terminal.fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.get_read().as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        let state = fds[0].revents().unwrap_or(PollFlags::empty());
        let mut events: Vec<Event> = self.signals.pending().filter_map(of_signal).collect();
        if state.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
            events.push(Event::Gone);
            return Ok(events);
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Heard::Key(key) if key.kind != KeyEventKind::Release => events.push(Event::Key(key)),
                _ => {}
            }
        }
        Ok(events)
    }
}

fn of_signal(signal: i32) -> Option<Event> {
    match signal {
        SIGTERM | SIGHUP | SIGINT => Some(Event::End(signal)),
        SIGTSTP => Some(Event::Stop),
        SIGCONT => Some(Event::Continued),
        // A new size is seen when the next frame is drawn.
        _ => None,
    }
}

/// Ends the program as `signal` does where nobody handles it, so that whoever waits for it sees that.
pub fn die_of(signal: i32) {
    give_back();
    let _ = emulate_default_handler(signal);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the copy of this program that runs within a terminal.
    const INSIDE: &str = "HCOMM_MONITOR_TEST_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(INSIDE).is_some() {
            let _screen = Screen::enter().unwrap();
            panic!("as asked");
        }
        if Command::new("script").arg("--version").output().is_err() {
            eprintln!("skipped: script(1), which makes a terminal, is not installed");
            return;
        }
        let me = std::env::current_exe().unwrap();
        let name = "tui::terminal::tests::a_panic_gives_the_terminal_back";
        // A pipe between the test and the terminal would catch its words: they go to the terminal, as the screen does.
        let inside = format!(
            "stty -g; stty rows 24 cols 80; {INSIDE}=1 RUST_BACKTRACE=0 '{}' --exact {name} --nocapture; stty -g",
            me.display()
        );
        let said = Command::new("script").args(["-qec", &inside, "/dev/null"]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        // What stty says: hexadecimal numbers with colons between them.
        let is_state =
            |line: &&str| line.matches(':').count() > 10 && line.chars().all(|c| c.is_ascii_hexdigit() || c == ':');
        let states: Vec<&str> = said.lines().map(str::trim).filter(is_state).collect();
        assert_eq!(states.len(), 2, "{said}");
        assert_eq!(states[0], states[1]);
        let (screen, words) =
            (said.find("\x1b[?1049h").expect("it was taken"), said.find("as asked").expect("it panicked"));
        let back = said.find("\x1b[?1049l").expect("it was given back");
        assert!(screen < back && back < words, "{said:?}");
    }
}
