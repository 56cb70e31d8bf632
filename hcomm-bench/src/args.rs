//! The command line, with nccl-tests' letters, and its translation into [`Settings`] that can be run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use hcomm_cli::{Failure, Print, Result};
use hcomm_core::config::Config;
use hcomm_core::{Algorithm, DataType, Error, ReduceOp};

use crate::sizes::{self, Step};
use crate::values;
use crate::workload::Workload;

const EXAMPLES: &str = "\
Examples:
  hcomm-bench                                  all_reduce over the local cores, 8 B to 128 MiB
  hcomm-bench all -d all -o all -e 1M -g 3     check every collective, type and operation
  hcomm-bench all_gather -b 1M -e 1G -f 4 -n 50
  hcomm-bench --algorithm ring,tree --chunk-size 64K,256K --json results.json
  hcomm-bench --hosts alpha:8,beta:8           over ssh
  hcomm-bench --join tcp://alpha:29500 --nodes 4 -g 8     the same line on each of 4 hosts

Times:
  time      mean of operations back to back, no clock read between them; the slowest rank's (-a)
  p50, p99  of single iterations, each timed by itself in a second loop, less the cost of a clock
            read; in each the slowest rank counts. From 20 us on, one loop serves both.
  algbw     size / time; busbw is algbw by nccl-tests' factor. 1 GB is 10^9 bytes.

Exit codes: 0 good, 1 failed (wrong result, lost rank), 2 bad arguments.";

/// Measures and checks collective communication.
#[derive(Debug, Parser)]
#[command(name = "hcomm-bench", bin_name = "hcomm-bench", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub print: Option<Print>,
    #[command(flatten)]
    pub bench: Bench,
}

/// Where buffers lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Buffers {
    /// Memory that the ranks of a host share: no copies
    Registered,
    /// Ordinary memory
    Plain,
}

/// Which rank's time is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    Rank0,
    Mean,
    Min,
    Max,
}

#[derive(Debug, Args)]
pub struct Bench {
    /// What to measure: a list such as all_reduce,broadcast, or all [default: all_reduce]
    ///
    /// Known: all_reduce, reduce_scatter, all_gather, broadcast, reduce, scatter, gather, all_to_all, sendrecv, barrier, and
    /// with uneven counts all_gather_v, reduce_scatter_v, all_to_all_v.
    #[arg(value_name = "COLLECTIVE")]
    collectives: Vec<String>,

    /// First size [default: 8]
    #[arg(
        short = 'b',
        long,
        alias = "minbytes",
        value_name = "SIZE",
        allow_hyphen_values = true,
        help_heading = "Sizes"
    )]
    min_bytes: Option<String>,
    /// Last size [default: 128M]
    #[arg(
        short = 'e',
        long,
        alias = "maxbytes",
        value_name = "SIZE",
        allow_hyphen_values = true,
        help_heading = "Sizes"
    )]
    max_bytes: Option<String>,
    /// Each size is the one before times so much [default: 2]
    #[arg(
        short = 'f',
        long,
        alias = "stepfactor",
        value_name = "N",
        allow_hyphen_values = true,
        help_heading = "Sizes"
    )]
    step_factor: Option<String>,
    /// Each size is the one before plus so much
    #[arg(short = 'i', long, aliases = ["stepbytes", "step"], value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "step_factor", help_heading = "Sizes")]
    step_bytes: Option<String>,

    /// Element types, by Rust's or nccl-tests' names: a list, or all
    #[arg(
        short = 'd',
        long,
        alias = "datatype",
        value_name = "TYPE,...",
        default_value = "f32",
        help_heading = "Data"
    )]
    dtype: String,
    /// Operations: a list of sum, prod, min, max, avg, or all
    #[arg(short = 'o', long, alias = "op", value_name = "OP,...", default_value = "sum", help_heading = "Data")]
    redop: String,
    /// Root of rooted collectives; -1 for each rank in turn
    #[arg(
        short = 'r',
        long,
        value_name = "RANK",
        default_value_t = 0,
        allow_hyphen_values = true,
        help_heading = "Data"
    )]
    root: i64,
    /// Checked runs of each row, with fresh data each; 0 for none
    #[arg(short = 'c', long, allow_hyphen_values = true, value_name = "N", default_value_t = 1, help_heading = "Data")]
    check: u32,
    /// Seed of the checked data
    #[arg(long, allow_hyphen_values = true, value_name = "N", default_value_t = 1, help_heading = "Data")]
    seed: u64,
    /// Where buffers lie
    #[arg(long, value_enum, default_value_t = Buffers::Registered, help_heading = "Data")]
    buffers: Buffers,

    /// Timed iterations [default: at least 20, and up to 10000 while they take under 50 ms]
    #[arg(short = 'n', long, allow_hyphen_values = true, value_name = "N", help_heading = "Timing")]
    iters: Option<u64>,
    /// Time each cell for about so long instead of -n
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "DURATION",
        conflicts_with = "iters",
        help_heading = "Timing"
    )]
    time: Option<String>,
    /// Iterations before the timed ones
    #[arg(
        short = 'w',
        long,
        allow_hyphen_values = true,
        alias = "warmup_iters",
        value_name = "N",
        default_value_t = 5,
        help_heading = "Timing"
    )]
    warmup: u64,
    /// Operations an iteration; times are of one operation
    #[arg(short = 'm', long, allow_hyphen_values = true, alias = "agg_iters", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Timing")]
    agg_iters: u64,
    /// 1: a barrier after each operation, timed with it; 3: after each iteration, not timed; 0, 2: none
    #[arg(short = 'z', long, allow_hyphen_values = true, value_name = "0..3", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3), help_heading = "Timing")]
    blocking: u8,
    /// Whose time is printed: 0 rank 0's, 1 the mean of ranks, 2 the fastest rank's, 3 the slowest rank's
    #[arg(short = 'a', long, allow_hyphen_values = true, value_name = "0..3", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=3), help_heading = "Timing")]
    average: u8,
    /// Add a column with the CPU time of an operation (user and system, all threads, mean of ranks)
    #[arg(short = 'C', long, alias = "report_cputime", value_name = "0|1", default_value_t = 0, default_missing_value = "1", num_args = 0..=1, value_parser = clap::value_parser!(u8).range(0..=1), help_heading = "Timing")]
    report_cputime: u8,
    /// How long an operation may wait for other ranks
    #[arg(short = 'T', long, allow_hyphen_values = true, value_name = "DURATION", help_heading = "Timing")]
    timeout: Option<String>,

    /// Algorithms: a list, all, or auto [default: auto]
    ///
    /// Known: ring, recursive_doubling, halving_doubling, tree, direct, bruck, pairwise, binomial, chain, hierarchical. Those that
    /// cannot do a collective are left out with a note.
    #[arg(long, value_name = "NAME,...", help_heading = "How it runs")]
    algorithm: Option<String>,
    /// Chunk sizes: a list, or auto [default: auto]
    #[arg(long, value_name = "SIZE,...", allow_hyphen_values = true, help_heading = "How it runs")]
    chunk_size: Option<String>,
    /// Parallel channels: a list, or auto [default: auto]
    #[arg(long, value_name = "N,...", allow_hyphen_values = true, help_heading = "How it runs")]
    channels: Option<String>,
    /// Transports: a list of shm, tcp, or auto [default: auto]
    #[arg(long, value_name = "NAME,...", help_heading = "How it runs")]
    transport: Option<String>,
    /// Settings, as a TOML file; HCOMM_* variables and flags go before it
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    config: Option<PathBuf>,

    /// Ranks on this host, or with --join on each host [default: usable cores, at least 2]
    #[arg(short = 'g', long, alias = "ngpus", value_name = "N", allow_hyphen_values = true, help_heading = "Ranks")]
    ranks: Option<String>,
    /// Hosts and their ranks, started over ssh: alpha:8,beta:8
    #[arg(long, value_name = "HOST[:N],...", conflicts_with_all = ["hostfile", "join"], help_heading = "Ranks")]
    hosts: Option<String>,
    /// The same from a file: a line "HOST slots=N" or "HOST:N" a host
    #[arg(long, value_name = "FILE", conflicts_with = "join", help_heading = "Ranks")]
    hostfile: Option<PathBuf>,
    /// Instead of ssh: run as COMMAND HOST PROGRAM ARGUMENTS
    #[arg(long, value_name = "COMMAND", conflicts_with = "join", help_heading = "Ranks")]
    launch_agent: Option<String>,
    /// Meet the other hosts, which are given the same command, at this address: tcp://HOST:PORT
    #[arg(long, value_name = "URL", requires = "nodes", conflicts_with = "store", help_heading = "Ranks")]
    join: Option<String>,
    /// Number of hosts that --join waits for
    #[arg(long, allow_hyphen_values = true, value_name = "N", requires = "join", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Ranks")]
    nodes: Option<u32>,
    /// Store through which ranks meet: tcp://HOST:PORT or file:///DIR
    #[arg(long, value_name = "URL", help_heading = "Ranks")]
    store: Option<String>,

    /// Write JSON to a file, or instead of the table to stdout (-)
    #[arg(long, value_name = "FILE|-", help_heading = "Output")]
    json: Option<String>,
    /// Write CSV to a file, or instead of the table to stdout (-)
    #[arg(long, value_name = "FILE|-", help_heading = "Output")]
    csv: Option<String>,
    /// Write a markdown table to a file, or instead of the table to stdout (-, or nothing)
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, require_equals = true, default_missing_value = "-", help_heading = "Output")]
    markdown: Option<String>,
    /// Add each rank's own times to the output
    #[arg(long, help_heading = "Output")]
    per_rank: bool,
    /// No colours and no progress line, as with NO_COLOR or TERM=dumb
    #[arg(long, help_heading = "Output")]
    no_color: bool,
}

/// How many iterations are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// At least 20, more while they take under 50 ms.
    Auto,
    /// So many.
    Iterations(u64),
    /// For so long.
    Time(Duration),
}

/// How ranks come to be, as far as the command line says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    pub ranks: Option<usize>,
    pub hosts: Option<String>,
    pub hostfile: Option<PathBuf>,
    pub launch_agent: Option<String>,
    pub join: Option<String>,
    pub nodes: Option<u32>,
    pub store: Option<String>,
    pub timeout: Option<Duration>,
    pub transport: Option<String>,
    pub config: Option<PathBuf>,
}

/// Where results go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Whether stdout carries the table: no other format asked for it.
    pub table: bool,
    pub json: Option<String>,
    pub csv: Option<String>,
    pub markdown: Option<String>,
    pub per_rank: bool,
    pub cpu: bool,
    pub plain: bool,
}

/// All that is to be measured, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub workloads: Vec<Workload>,
    pub sizes: Vec<u64>,
    pub dtypes: Vec<DataType>,
    pub ops: Vec<ReduceOp>,
    /// `None` is every rank in turn.
    pub root: Option<usize>,
    pub checks: u32,
    pub seed: u64,
    pub buffers: Buffers,
    pub effort: Effort,
    pub warmup: u64,
    pub aggregate: u64,
    pub blocking: u8,
    pub average: Average,
    pub algorithms: Vec<Option<Algorithm>>,
    pub chunk_sizes: Vec<Option<u64>>,
    pub channels: Vec<Option<usize>>,
    pub placement: Placement,
    pub outputs: Outputs,
}

impl Bench {
    /// Reads every value; each mistake is a sentence and exit code 2.
    pub fn settings(&self) -> Result<Settings> {
        let text = |value: &Option<String>, default: &str| value.clone().unwrap_or_else(|| default.to_owned());
        Ok(Settings {
            workloads: match &self.collectives[..] {
                [] => values::workloads("all_reduce")?,
                words => values::workloads(&words.join(","))?,
            },
            sizes: self.sizes()?,
            dtypes: values::data_types("-d", &self.dtype)?,
            ops: values::operations("-o", &self.redop)?,
            root: self.root()?,
            checks: self.check,
            seed: self.seed,
            buffers: self.buffers,
            effort: self.effort()?,
            warmup: self.warmup,
            aggregate: self.agg_iters,
            blocking: self.blocking,
            average: [Average::Rank0, Average::Mean, Average::Min, Average::Max][usize::from(self.average)],
            algorithms: values::algorithms("--algorithm", &text(&self.algorithm, "auto"))?,
            chunk_sizes: values::chunk_sizes("--chunk-size", &text(&self.chunk_size, "auto"))?,
            channels: values::channel_counts("--channels", &text(&self.channels, "auto"))?,
            placement: self.placement()?,
            outputs: self.outputs()?,
        })
    }

    fn sizes(&self) -> Result<Vec<u64>> {
        let read = |flag, value: &Option<String>| value.as_ref().map(|text| values::size(flag, text)).transpose();
        let (first, last) = (read("-b", &self.min_bytes)?, read("-e", &self.max_bytes)?);
        // One bound given alone beyond the other's default moves that default.
        let (first, last) = match (first, last) {
            (Some(first), Some(last)) => (first, last),
            (Some(first), None) => (first, first.max(128 << 20)),
            (None, Some(last)) => (last.min(8), last),
            (None, None) => (8, 128 << 20),
        };
        let step = match (&self.step_bytes, &self.step_factor) {
            (Some(text), _) => Step::Bytes(values::size("-i", text)?),
            (None, Some(text)) => Step::Factor(text.parse().map_err(|_| {
                Failure::usage(format!("-f {text}: not a factor"), "use a whole number of 2 or more, such as -f 2")
            })?),
            (None, None) => Step::Factor(2),
        };
        sizes::series(first, last, step)
    }

    fn root(&self) -> Result<Option<usize>> {
        match self.root {
            -1 => Ok(None),
            root => usize::try_from(root)
                .map(Some)
                .map_err(|_| Failure::usage(format!("-r {root}: not a rank"), "use a rank, or -1 for each in turn")),
        }
    }

    fn effort(&self) -> Result<Effort> {
        match (&self.time, self.iters) {
            (Some(text), _) => values::duration("--time", text).map(Effort::Time),
            (None, Some(0)) => Err(Failure::usage("-n 0: nothing would be timed", "use 1 or more")),
            (None, Some(iterations)) => Ok(Effort::Iterations(iterations)),
            (None, None) => Ok(Effort::Auto),
        }
    }

    fn placement(&self) -> Result<Placement> {
        let ranks = match &self.ranks {
            None => None,
            Some(text) => match text.parse::<usize>() {
                Ok(ranks @ 1..=4096) => Some(ranks),
                _ => {
                    let hint = "use 1 to 4096; without -g there is one a usable core";
                    return Err(Failure::usage(format!("--ranks {text}: not a number of ranks"), hint));
                }
            },
        };
        if let Some(agent) = &self.launch_agent {
            if agent.trim().is_empty() {
                let hint = "give a command that is run as COMMAND HOST PROGRAM ARGUMENT";
                return Err(Failure::usage("--launch-agent is empty", hint));
            }
            if self.hosts.is_none() && self.hostfile.is_none() {
                let hint = "name the hosts with --hosts or --hostfile";
                return Err(Failure::usage("--launch-agent without hosts starts nothing", hint));
            }
        }
        Ok(Placement {
            ranks,
            hosts: self.hosts.clone(),
            hostfile: self.hostfile.clone(),
            launch_agent: self.launch_agent.clone(),
            join: self.join.as_ref().map(|url| join_url(url)).transpose()?,
            nodes: self.nodes,
            store: self.store.clone(),
            timeout: self.timeout.as_ref().map(|text| values::duration("-T", text)).transpose()?,
            transport: self.transport.as_ref().map(|text| transport(text)).transpose()?,
            config: self.config.clone(),
        })
    }

    fn outputs(&self) -> Result<Outputs> {
        let files = [&self.json, &self.csv, &self.markdown];
        for (index, file) in files.iter().enumerate() {
            if let Some(file) = file.as_deref().filter(|file| *file != "-")
                && files[..index].iter().any(|other| other.as_deref() == Some(file))
            {
                let text = format!("two of --json, --csv and --markdown go to {file}");
                return Err(Failure::usage(text, "give each a file of its own"));
            }
        }
        let to_stdout = files.iter().filter(|file| file.as_deref() == Some("-")).count();
        if to_stdout > 1 {
            return Err(Failure::usage(
                "more than one of --json, --csv and --markdown goes to stdout",
                "give all but one of them a file",
            ));
        }
        Ok(Outputs {
            table: to_stdout == 0,
            json: self.json.clone(),
            csv: self.csv.clone(),
            markdown: self.markdown.clone(),
            per_rank: self.per_rank,
            cpu: self.report_cputime == 1,
            plain: self.no_color,
        })
    }
}

/// A store's URL, refused by the flag's own name.
fn join_url(url: &str) -> Result<String> {
    match Config::default().set("--store", url) {
        Err(Error::Setting { value, allowed, .. }) => {
            Err(Error::Setting { name: "--join".into(), value, allowed }.into())
        }
        checked => Ok(checked.map(|()| url.to_owned())?),
    }
}

fn transport(text: &str) -> Result<String> {
    for word in text.split(',') {
        if !["shm", "tcp", "auto"].contains(&word.trim().to_ascii_lowercase().as_str()) {
            let failure = Failure::usage(format!("--transport {word}: not known"), "known are shm, tcp, and auto");
            return Err(failure);
        }
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn settings(line: &[&str]) -> Result<Settings> {
        let words = std::iter::once(&"hcomm-bench").chain(line);
        Cli::try_parse_from(words).expect("clap takes it").bench.settings()
    }

    #[test]
    fn the_command_is_sound_and_its_help_stays() {
        Cli::command().debug_assert();
        insta::assert_snapshot!(Cli::command().term_width(100).render_long_help());
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.workloads[0].name(), "all_reduce");
        assert_eq!((settings.sizes[0], *settings.sizes.last().unwrap(), settings.sizes.len()), (8, 128 << 20, 25));
        assert_eq!(settings.effort, Effort::Auto);
        assert_eq!(settings.average, Average::Max);
        assert!(settings.outputs.table);
    }

    #[test]
    fn collectives_may_be_words_or_a_list() {
        let names = |line: &[&str]| settings(line).unwrap().workloads.iter().map(|w| w.name()).collect::<Vec<_>>();
        assert_eq!(names(&["all_gather,barrier"]), ["all_gather", "barrier"]);
        assert_eq!(names(&["all_gather", "-e", "1K", "barrier"]), ["all_gather", "barrier"]);
        assert!(Cli::try_parse_from(["hcomm-bench", "man"]).unwrap().print.is_some());
    }

    #[test]
    fn a_bad_meeting_point_is_told_by_its_flag() {
        for url in ["nonsense", "tcp://a", "tcp://a:0", "tcp://:1", "tcp://a:99999", "file://", "file://x"] {
            let failure = settings(&["--nodes", "2", "--join", url]).unwrap_err();
            assert!(failure.code == 2 && failure.text.contains(&format!("--join={url}")), "{failure}");
        }
    }

    #[test]
    fn negative_numbers_are_refused_as_such() {
        for flag in ["-n", "-w", "-m", "-c", "-z", "-a", "--seed", "-T", "--time", "--nodes"] {
            let error = Cli::try_parse_from(["hcomm-bench", flag, "-5"]).and_then(|cli| match cli.bench.settings() {
                Ok(_) => Ok(()),
                Err(failure) => Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, failure.to_string())),
            });
            let error = error.expect_err(flag).to_string();
            assert!(!error.contains("unexpected argument"), "{error}");
        }
    }

    #[test]
    fn one_bound_alone_moves_the_other() {
        assert_eq!(settings(&["-e", "4"]).unwrap().sizes, [4]);
        assert_eq!(settings(&["-b", "1G"]).unwrap().sizes, [1 << 30]);
    }

    /// F26: sizes that cannot be run are refused, not skipped or wrapped.
    #[test]
    fn sizes_of_field_report_26() {
        assert_eq!(settings(&["-b", "64M", "-e", "70M", "--step", "2M"]).unwrap().sizes.len(), 4);
        for line in [
            ["-b", "1G", "-e", "1M"],
            ["-b", "0", "-e", "0"],
            ["-b", "0K", "-e", "1M"],
            ["-b", "8", "-e", "16E"],
            ["-b", "-1", "-e", "8"],
            ["-e", "1M", "-f", "1"],
            ["-e", "1M", "-f", "-2"],
            ["-e", "1M", "-i", "0"],
            ["-e", "1.5M", "-b", "8"],
        ] {
            let failure = settings(&line).unwrap_err();
            assert_eq!(failure.code, 2, "{line:?}");
            assert!(!failure.hint.is_empty(), "{line:?} has no hint");
        }
    }

    #[test]
    fn mistakes_are_refused_with_a_hint() {
        for line in [
            &["--ranks", "0"][..],
            &["--ranks", "-3"],
            &["--ranks", "4097"],
            &["--algorithm", "nosuch"],
            &["--chunk-size", "0"],
            &["--channels", "0"],
            &["-n", "0"],
            &["-r", "-2"],
            &["-d", "f33"],
            &["-o", "mul"],
            &["all_redcue"],
            &["--json", "-", "--csv", "-"],
            &["--transport", "carrier-pigeon"],
            &["--time", "0s"],
            &["all_reduce,"],
            &["all_reduce", "nosuch"],
            &["all,all_reduce"],
            &["--channels", "5"],
            &["--chunk-size", "1"],
            &["--json", "a", "--csv", "a"],
            &["--launch-agent", "", "--hosts", "a"],
            &["--launch-agent", "a"],
        ] {
            let failure = settings(line).unwrap_err();
            assert_eq!(failure.code, 2, "{line:?}");
            assert!(!failure.hint.is_empty(), "{line:?} has no hint");
        }
    }
}
