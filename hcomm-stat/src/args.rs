//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use hcomm_cli::{Print, values};

const EXAMPLES: &str = "\
Examples:
  hcomm-stat                       a line a link, Ethernet and RDMA, with totals since start-up; then the paths of running jobs
  hcomm-stat -i 1s                 rates and what was added each second
  hcomm-stat -i 200ms --count 10 --json
  hcomm-stat --down                only what is not well; exit code 1 if any
  hcomm-stat check                 settings, counters and states, each with the command that mends it
  hcomm-stat --sysroot /mnt/host   the sys and proc of another machine

Figures:
  RX, TX   bytes per second, 1 GB is 10^9 bytes; InfiniBand counts words of 4 bytes, shown as bytes
  ERRORS   receive and send errors; of RDMA ports symbol, receive, recovery and link-down counters
  DROPS    packets that were dropped or missed
  RTT      shortest smoothed round trip of the sockets of a path, LOSS share of its segments that were sent again:
           since the sockets opened, with -i in the interval; COST of a path is not known yet
  RETRANS  packets sent again by an RDMA port; TCP's are known for the machine only, below the table
  255+     a counter that has stopped at the largest value it holds
  -        not known

Exit codes: 0 good, 1 a link is not well (--down), 2 bad arguments, 3 a check failed.";

/// Are the network links of this machine up, clean and set up right?
#[derive(Debug, Parser)]
#[command(name = "hcomm-stat", bin_name = "hcomm-stat", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// List the links; also without any argument
    #[arg(short, long)]
    pub links: bool,
    /// Again each interval: rates, and what was added
    #[arg(short, long, value_name = "DURATION", value_parser = values::duration, global = true)]
    pub interval: Option<Duration>,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "interval", value_parser = values::count)]
    pub count: Option<u64>,
    /// Only what is not well
    #[arg(long)]
    pub down: bool,
    /// Another machine's sys and proc, below this folder
    #[arg(long, value_name = "DIR", global = true)]
    pub sysroot: Option<PathBuf>,
    /// JSON, schema hcomm-stat/1; with -i a line each interval
    #[arg(long, global = true)]
    pub json: bool,
    /// No colours, as with NO_COLOR or TERM=dumb
    #[arg(long, global = true)]
    pub no_color: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Go through settings, counters and states: ok, warn, fail or unknown, with reason and remedy; exit code 3 if one fails
    Check,
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
        for line in [&["-i", "0"][..], &["-i", "abc"], &["--count", "2"], &["-i", "1s", "--count", "0"], &["nosuch"]] {
            assert!(Cli::try_parse_from(std::iter::once(&"hcomm-stat").chain(line)).is_err(), "{line:?}");
        }
        let cli = Cli::try_parse_from(["hcomm-stat", "check", "--json", "-i", "200ms"]).unwrap();
        assert!(cli.json && matches!(cli.command, Some(Command::Check)));
        assert_eq!(cli.interval, Some(Duration::from_millis(200)));
    }
}
