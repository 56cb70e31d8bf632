//! hcomm-stat: are the links of this machine up, clean and set up right?
//!
//! What a machine has comes from `hcomm-topology`. Here a link is put together and judged (`links`), its counters are sampled
//! (`sample`) and shown (`show`, `json`), and the settings around it are gone through (`check`). Paths of running jobs (`jobs`,
//! `show_jobs`) come from the jobs' telemetry.

#![allow(missing_docs)] // a program: its manual is `--help`

mod args;
mod check;
mod jobs;
mod json;
mod links;
mod sample;
mod show;
mod show_jobs;
mod units;
mod ways;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use hcomm_cli::values::check_sysroot;
use hcomm_cli::{Failure, Readers, Result, Screen, write};
use hcomm_topology::Root;

use args::{Cli, Command};
use jobs::Jobs;
use links::{Health, Link};
use sample::{Growth, Sample};
use ways::Ways;

/// How long rates are measured where no interval is given.
const GLANCE: Duration = Duration::from_millis(200);

/// The whole program.
pub fn main() -> ExitCode {
    let cli: Cli = match hcomm_cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    hcomm_cli::end("hcomm-stat", run(&cli))
}

fn run(cli: &Cli) -> Result<ExitCode> {
    if let Some(Command::Print(print)) = &cli.command {
        return print.print::<Cli>();
    }
    if cli.command.is_some() && (cli.links || cli.down || cli.count.is_some()) {
        let text = "check goes through all links once: --links, --down and --count are not for it";
        return Err(Failure::usage(text, "hcomm-stat check, or hcomm-stat --down"));
    }
    let root = root(cli)?;
    match (&cli.command, cli.interval) {
        (Some(Command::Check), interval) => check(cli, &root, interval),
        (_, Some(interval)) => repeat(cli, &root, interval),
        (_, None) => list(cli, &root),
    }
}

fn root(cli: &Cli) -> Result<Root> {
    let Some(folder) = &cli.sysroot else { return Ok(Root::this_machine()) };
    check_sysroot("--sysroot", folder)?;
    Ok(Root::at(folder))
}

/// Everything that one listing shows.
struct View<'a> {
    root: &'a Root,
    links: Vec<Link>,
    ways: Ways,
    sample: Sample,
    /// Since the sample before; `None` where there is none.
    growth: Option<Growth>,
    /// Running jobs of this user; of another machine's tree none are known.
    jobs: Jobs,
    /// Links that are not shown because they are not down, and how many of these tell no state.
    left_out: usize,
    unknown: usize,
}

impl View<'_> {
    fn read<'a>(root: &'a Root, before: Option<&Sample>) -> View<'a> {
        let links = links::read(root);
        let sample = Sample::take(root, &links);
        let growth = before.map(|before| Growth::between(before, &sample));
        let ways = Ways::read(root, &links);
        let jobs = if root.is_this_machine() { Jobs::read() } else { Jobs::default() };
        View { root, links, ways, sample, growth, jobs, left_out: 0, unknown: 0 }
    }

    /// Leaves what is not well.
    fn only_down(&mut self) {
        let all = self.links.len();
        self.unknown = self.links.iter().filter(|link| link.health == Health::Unknown).count();
        self.links.retain(|link| matches!(link.health, Health::Unwell { .. }));
        self.left_out = all - self.links.len();
    }
}

/// One listing. Rates are those of a moment; a copy of another machine's tree has none.
fn list(cli: &Cli, root: &Root) -> Result<ExitCode> {
    let before = (root.is_this_machine() && !cli.down).then(|| Sample::take(root, &links::read(root)));
    if before.is_some() {
        thread::sleep(GLANCE);
    }
    let mut view = View::read(root, before.as_ref());
    if cli.down {
        view.only_down();
    }
    let screen = Screen::stdout(cli.no_color);
    let text = if cli.json { json::listing(&view, true) } else { show::listing(&view, cli.down, screen) };
    write(text)?;
    Ok(ExitCode::from(u8::from(cli.down && !view.links.is_empty())))
}

/// A listing each interval, of what changed in it.
fn repeat(cli: &Cli, root: &Root, interval: Duration) -> Result<ExitCode> {
    let screen = Screen::stdout(cli.no_color);
    let View { sample: mut before, jobs: mut jobs_before, .. } = View::read(root, None);
    let mut next = Instant::now();
    for number in 0..cli.count.unwrap_or(u64::MAX) {
        // From one moment to the next, so that the time of the work does not add up.
        next += interval;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let mut view = View::read(root, Some(&before));
        if cli.down {
            view.only_down();
        }
        let jobs = view.jobs.clone();
        view.jobs = view.jobs.since(&jobs_before);
        jobs_before = jobs;
        let text = if cli.json { json::listing(&view, false) } else { show::changes(&view, number == 0, screen) };
        if write(text)? == Readers::Gone {
            break;
        }
        before = view.sample;
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes through the settings; counters are watched meanwhile.
fn check(cli: &Cli, root: &Root, interval: Option<Duration>) -> Result<ExitCode> {
    let watch = if root.is_this_machine() { Some(interval.unwrap_or(GLANCE)) } else { interval };
    let findings = check::run(root, watch);
    let screen = Screen::stdout(cli.no_color);
    write(if cli.json { check::show::json(root, &findings) } else { check::show::text(&findings, screen) })?;
    let failed = findings.iter().any(|finding| finding.verdict == check::Verdict::Fail);
    Ok(ExitCode::from(if failed { 3 } else { 0 }))
}
