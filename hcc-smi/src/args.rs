//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hcomm_cli::{Print, values};

const EXAMPLES: &str = "\
Examples:
  hcc-smi                          accelerators, network devices and processors of this machine
  hcc-smi -l                       a line a device
  hcc-smi topo -m                  how each two devices reach each other
  hcc-smi links                    each link: what it runs at, what it could
  hcc-smi rings                    rings and trees over the accelerators
  hcc-smi --json | jq .devices     for programs; what is unknown is null
  hcc-smi --xml > topo.xml         for NCCL (NCCL_TOPO_FILE)
  hcc-smi topo --from topo.xml     from a topology file of NCCL, RCCL or hwloc
  hcc-smi --sysroot /tmp/node7     from a copy of another machine's /sys and /proc
  hcc-smi --watch 1s               again each second

Exit codes: 0 good (also with no accelerator), 1 failed, 2 bad arguments.";

/// Accelerators and network devices, the links between them, and whether these are well
#[derive(Debug, Parser)]
#[command(name = "hcc-smi", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub view: Option<Command>,
    /// A line a device
    #[arg(short, long)]
    pub list: bool,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// How each two devices reach each other, with the processors next to each
    Topo {
        /// As nvidia-smi has it; the matrix is printed with and without
        #[arg(short, long)]
        matrix: bool,
    },
    /// Each link: what it runs at, what it could run at, its bandwidth
    Links,
    /// The rings and trees over the accelerators, and the network device of each
    Rings,
    #[command(flatten)]
    Print(Print),
}

#[derive(Debug, Args)]
pub struct Options {
    /// JSON (schema hcc-smi/1)
    #[arg(long, global = true, conflicts_with = "xml")]
    pub json: bool,
    /// NCCL's topology XML of the whole machine, which --from reads
    #[arg(long, global = true)]
    pub xml: bool,
    /// Read a topology file of NCCL, RCCL or hwloc (XML) instead of this machine
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "sysroot")]
    pub from: Option<PathBuf>,
    /// Read the folder that holds another machine's sys and proc
    #[arg(long, global = true, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// Again and again, this far apart: 1s, 500ms
    #[arg(long, global = true, value_name = "TIME", value_parser = values::duration)]
    pub watch: Option<Duration>,
    /// No colours, also by NO_COLOR and TERM=dumb
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Status,
    List,
    Topo,
    Links,
    Rings,
}
