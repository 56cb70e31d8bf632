//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hcomm_cli::{Print, values};

use crate::explain::Explain;

const EXAMPLES: &str = "\
Examples:
  hcomm-monitor                         the live screen; ? shows its keys, q ends it
  hcomm-monitor --interval 1s           looks once a second
  hcomm-monitor --log                   a line each operation
  hcomm-monitor --log --duration 10s    for ten seconds
  hcomm-monitor --log --pid 4711        of the job that process 4711 belongs to, or started
  hcomm-monitor --log --job train       of the jobs whose names begin so
  hcomm-monitor --once                  how the jobs are now
  hcomm-monitor --once --store tcp://node1:29500   all ranks of that job, on all hosts; ranks that are alike on one line
  hcomm-monitor --json | jq -c '.jobs[].stalls[]'
  hcomm-monitor --trace run.json        open run.json in ui.perfetto.dev
  hcomm-monitor --record run.rec        then: hcomm-monitor --replay run.rec
  hcomm-monitor --prometheus 127.0.0.1:9400
  hcomm-monitor explain /dev/shm/hcomm-1000/train.*.flight.jsonl

The columns of --log:
  TIME      when the first rank began, in local time
  BYTES     size of the operation as nccl-tests counts it; 1KB is 1024 bytes
  DURATION  of the slowest rank; with + when it began earlier than it was seen to wait, by less than a millisecond

Very short operations are timed by sample (one in 251), and only those have a line; how many there were is told on
standard error. Jobs of this user on this host are found by themselves.

Exit codes: 0 good, 1 failed (nothing to attach to), 2 bad arguments.";

/// Watch running jobs: what each operation moves, how long it takes, and who is late.
#[derive(Debug, Parser)]
#[command(name = "hcomm-monitor", bin_name = "hcomm-monitor", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub watch: Watch,
}

/// What is watched, and how it is shown.
#[derive(Debug, Args)]
pub struct Watch {
    /// How often to look
    #[arg(short, long, value_name = "DURATION", value_parser = values::duration, default_value = "100ms")]
    pub interval: Duration,
    /// Only the job of this process: one of its ranks, or what started them
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// The ranks of all hosts, by the summaries that they publish in the store of their job; looks once a second at most
    ///
    /// tcp://HOST:PORT or file:///DIRECTORY, as HCOMM_STORE. Jobs on several hosts publish by themselves, others with
    /// HCOMM_SUMMARY_INTERVAL=1s.
    #[arg(long, value_name = "URL", conflicts_with = "pid")]
    pub store: Option<String>,
    /// Only jobs whose names begin so
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// End after this time
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub duration: Option<Duration>,
    /// How the jobs are now: looks twice, an interval apart, so that rates are known
    #[arg(long, conflicts_with_all = ["duration", "log"], help_heading = "Output")]
    pub once: bool,
    /// A line each operation; also where standard output is no terminal, or one that cannot move its cursor (TERM=dumb)
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = "Output")]
    pub log: bool,
    /// All that is known as JSON, a line each look
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    pub json: bool,
    /// --log as CSV; with --once the operations by kind and size
    #[arg(long, help_heading = "Output")]
    pub csv: bool,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, and show nothing unless told to. Port 0 takes a free one
    ///
    /// Whoever reaches the address can read them: 127.0.0.1 keeps them on this host.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once", help_heading = "Export")]
    pub prometheus: Option<String>,
    /// Write the calls into a new file that Perfetto and Chrome open
    #[arg(long, value_name = "FILE", help_heading = "Export")]
    pub trace: Option<PathBuf>,
    /// Write all that is seen into a new file, for --replay
    #[arg(long, value_name = "FILE", help_heading = "Export")]
    pub record: Option<PathBuf>,
    /// Where the files of --trace and --record end at the latest
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "1G", help_heading = "Export")]
    pub max_size: u64,
    /// Show what --record has written instead of what happens now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "job", "store", "duration", "record", "prometheus"])]
    pub replay: Option<PathBuf>,
    /// No colours; as do NO_COLOR and TERM=dumb
    #[arg(long, help_heading = "Output")]
    pub no_color: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say from the ranks' flight records which rank was behind, or where ranks diverged
    ///
    /// A rank writes its record when an operation fails (a time-out, a lost rank); its error ends with the path.
    Explain(Explain),
    #[command(flatten)]
    Print(Print),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_is_sound() {
        Cli::command().debug_assert();
        for line in [
            &["-i", "0"][..],
            &["-i", "abc"],
            &["--pid", "x"],
            &["--duration", "0"],
            &["nosuch"],
            &["--log", "--json"],
            &["--json", "--csv"],
            &["--once", "--log"],
            &["--once", "--duration", "1s"],
        ] {
            assert!(Cli::try_parse_from(std::iter::once(&"hcomm-monitor").chain(line)).is_err(), "{line:?}");
        }
        let cli = Cli::try_parse_from(["hcomm-monitor", "--log", "--duration", "3s"]).unwrap();
        assert_eq!(
            (cli.watch.interval, cli.watch.duration),
            (Duration::from_millis(100), Some(Duration::from_secs(3)))
        );
    }
}
