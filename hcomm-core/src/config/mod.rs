//! Settings: defaults, then a TOML file, then the environment, then flags; the later wins.
//!
//! One table, [`SETTINGS`], holds for each its name, form, default and meaning; variables, keys, flags, error texts and
//! documentation all come from it. A bad value is an error that names the setting as the user wrote it, the value and what
//! is allowed. An unknown name is only warned about, with the nearest known one: an old configuration must not stop a job
//! on a newer library. An empty variable counts as not set.

mod nearest;
mod settings;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::plan::Algorithm;

pub use settings::{SETTINGS, Setting};

/// The settings of a process, as fields. Those that decide how data moves (algorithm, chunk size, channels, precision,
/// order of reduction) must be equal on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Algorithm of every call; `None` lets the tuner choose.
    pub algorithm: Option<Algorithm>,
    /// Largest message in bytes; `None` lets the tuner choose.
    pub chunk_size: Option<u64>,
    /// Parallel parts of a call; `None` lets the tuner choose.
    pub channels: Option<usize>,
    /// Priority of background requests: 0 is normal, 1 is high and overtakes.
    pub stream_priority: u8,
    /// Bytes of registered memory that a process sets aside for users' buffers at most. No effect in this version.
    pub buffer_size: u64,
    /// Bytes of freed registered memory kept for the next buffer. No effect in this version.
    pub buffer_pool_size: u64,
    /// Network interfaces, as the user wrote them; `None` takes those that route to the peers.
    pub socket_ifname: Option<String>,
    /// File of the machine's topology (NCCL's or hwloc's XML); `None` asks the system.
    pub topo_file: Option<PathBuf>,
    /// Threads that drive background requests; `None` is 75 % of the cores ([`Config::threads_of`]).
    pub threads: Option<usize>,
    /// Longest time that an operation may stand still, and that ranks wait for each other at the start.
    pub timeout: Duration,
    /// Type in which 16-bit floats accumulate.
    pub precision: Precision,
    /// Whether reductions keep one order by rank, at every size and with every algorithm.
    pub deterministic: bool,
    /// How often a peer is heard from.
    pub heartbeat_interval: Duration,
    /// Pause before a failed connection attempt is repeated.
    pub retry_timeout: Duration,
    /// Messages that may wait to be sent on a link.
    pub tx_queue_size: usize,
    /// Bytes of a socket's receive buffer; `None` leaves it to the kernel, which sizes it by itself.
    pub rx_buffer_size: Option<u64>,
    /// URL of the rendezvous store.
    pub store: Option<String>,
    /// Says which ranks share a host, in place of what the host says of itself.
    pub host_id: Option<String>,
    /// Transports that may be used.
    pub transport: Transports,
    /// Whether ranks of a host read each other's ordinary buffers where they lie.
    pub single_copy: SingleCopy,
    /// What is told on stderr.
    pub debug: Debug,
    /// Whether operations are recorded for tools to see, and where.
    pub telemetry: Telemetry,
    /// Whether each rank tells the store what it does.
    pub summaries: Summaries,
}

/// Whether each rank publishes summaries of its telemetry in the store, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summaries {
    /// Where the job is on several hosts.
    Auto,
    /// Not at all.
    Off,
    /// At this interval.
    Every(Duration),
}

/// Whether operations are recorded for tools to see, and where; see `docs/telemetry.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Telemetry {
    /// Not at all.
    Off,
    /// In the first usual folder that takes it.
    On,
    /// In this folder.
    Folder(PathBuf),
}

/// Type in which 16-bit floats accumulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// f32, rounded once at the end of a fold.
    F32,
}

/// Transports that may be used; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transports {
    /// Shared memory, between ranks of one host.
    pub shm: bool,
    /// TCP.
    pub tcp: bool,
}

/// Whether ranks of a host read each other's ordinary buffers where they lie (`process_vm_readv`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SingleCopy {
    /// Where it is faster, if the system lets all ranks of the host read each other.
    Auto,
    /// Wherever it can be done; a system that forbids it is an error.
    On,
    /// Never.
    Off,
}

/// What is told on stderr; each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Debug {
    /// Nothing.
    Off,
    /// What is wrong but not fatal.
    Warn,
    /// What was chosen, and why.
    Info,
    /// Each step.
    Trace,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            algorithm: None,
            chunk_size: None,
            channels: None,
            stream_priority: 0,
            buffer_size: 256 << 20,
            buffer_pool_size: 256 << 20,
            socket_ifname: None,
            topo_file: None,
            threads: None,
            timeout: Duration::from_secs(300),
            precision: Precision::F32,
            deterministic: false,
            heartbeat_interval: Duration::from_millis(200),
            retry_timeout: Duration::from_millis(50),
            tx_queue_size: 8192,
            rx_buffer_size: None,
            store: None,
            host_id: None,
            transport: Transports { shm: true, tcp: true },
            single_copy: SingleCopy::Auto,
            debug: Debug::Warn,
            telemetry: Telemetry::On,
            summaries: Summaries::Auto,
        }
    }
}

/// Variables that are no settings: those by which launchers tell a process its place, and the name of the file.
const LAUNCHER: [&str; 7] = [
    "HCOMM_RANK",
    "HCOMM_WORLD_SIZE",
    "HCOMM_LOCAL_RANK",
    "HCOMM_LOCAL_SIZE",
    "HCOMM_JOB_ID",
    "HCOMM_STORE_SERVED",
    CONFIG_FILE,
];
const LAUNCHER_PREFIX: &str = "HCOMM_LAUNCH_";
const CONFIG_FILE: &str = "HCOMM_CONFIG";
/// Longest file of settings.
const MOST_BYTES: u64 = 64 << 10;

impl Config {
    /// The settings from `file` (else the file that `HCOMM_CONFIG` names) and the variables `env`. `warn` is told of names that
    /// are unknown or have no effect in this version, a sentence each.
    ///
    /// # Errors
    /// [`Error::Setting`] for a bad value or a file that is no TOML, [`Error::System`] for a file that cannot be read.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        warn: &mut dyn FnMut(String),
    ) -> Result<Self> {
        let ours = |name: &str| name.starts_with("HCOMM_") || name.starts_with("HC_COMM_");
        let mut variables: Vec<_> = env.filter(|(name, value)| ours(name) && !value.is_empty()).collect();
        // The environment has no order; warnings should have one.
        variables.sort();
        let named = variables.iter().find(|(name, _)| name == CONFIG_FILE).map(|(_, path)| PathBuf::from(path));
        let mut config = Self::default();
        if let Some(path) = file.map(Path::to_path_buf).or(named) {
            config.apply_file(&path, warn)?;
        }
        for (name, value) in &variables {
            if LAUNCHER.contains(&name.as_str()) || name.starts_with(LAUNCHER_PREFIX) {
                continue;
            }
            match SETTINGS.iter().find(|setting| setting.name == name) {
                Some(setting) => config.apply(setting, name, value, warn)?,
                None => warn(unknown(name, nearest::nearest(name, SETTINGS.iter().map(|setting| setting.name)))),
            }
        }
        Ok(config)
    }

    /// Sets one setting, as a flag does. `name` is a variable (`HCOMM_CHUNK_SIZE`), a key (`chunk_size`) or a flag
    /// (`--chunk-size`).
    ///
    /// # Errors
    /// [`Error::Setting`] for an unknown name or a bad value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let key = name.trim_start_matches('-').replace('-', "_");
        match SETTINGS.iter().find(|setting| setting.name == key || setting.key() == key) {
            Some(setting) => self.apply(setting, name, value, &mut |_| ()),
            None => {
                let keys: Vec<String> = SETTINGS.iter().map(Setting::key).collect();
                let near = nearest::nearest(&key, keys.iter().map(String::as_str));
                let allowed =
                    near.map_or("no such setting".into(), |key| format!("no such setting; did you mean {key}?"));
                Err(Error::Setting { name: name.to_owned(), value: value.to_owned(), allowed })
            }
        }
    }

    /// Threads that drive background requests on a machine (or a share of it) of so many physical cores; at least 1.
    pub fn threads_of(&self, physical_cores: usize) -> usize {
        self.threads.unwrap_or((physical_cores * 3 / 4).max(1))
    }

    fn apply(&mut self, setting: &Setting, name: &str, value: &str, warn: &mut dyn FnMut(String)) -> Result<()> {
        setting.apply_to(self, value.trim()).map_err(|reason| {
            let allowed = match reason.is_empty() {
                true => format!("allowed is {}", setting.allowed),
                false => format!("{reason}; allowed is {}", setting.allowed),
            };
            Error::Setting { name: name.to_owned(), value: value.to_owned(), allowed }
        })?;
        if !setting.effective {
            warn(format!("{name} has no effect in this version"));
        }
        Ok(())
    }

    fn apply_file(&mut self, path: &Path, warn: &mut dyn FnMut(String)) -> Result<()> {
        let shown = path.display();
        let failed = |cause: std::io::Error| Error::system(format!("read settings from {shown}"), cause);
        let mut text = String::new();
        std::fs::File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::system(
                format!("read settings from {shown}"),
                format!("longer than {MOST_BYTES} bytes"),
            ));
        }
        let table: toml::Table = text.parse().map_err(|cause: toml::de::Error| Error::Setting {
            name: "configuration file".into(),
            value: shown.to_string(),
            allowed: format!("must be TOML: {}", in_short(&cause)),
        })?;
        for (key, value) in &table {
            let name = format!("{key} in {shown}");
            let Some(setting) = SETTINGS.iter().find(|setting| setting.key() == *key) else {
                let keys: Vec<String> = SETTINGS.iter().map(Setting::key).collect();
                warn(unknown(&name, nearest::nearest(key, keys.iter().map(String::as_str))));
                continue;
            };
            let text = toml_text(value).ok_or_else(|| Error::Setting {
                name: name.clone(),
                value: value.to_string(),
                allowed: format!("allowed is {}, as text or number", setting.allowed),
            })?;
            self.apply(setting, &name, &text, warn)?;
        }
        Ok(())
    }
}

/// The parser's message, which quotes the line that it does not understand, but not all of a long one.
fn in_short(cause: &toml::de::Error) -> String {
    let short = |line: &str| line.chars().take(100).collect::<String>();
    cause.to_string().trim_end().lines().map(short).collect::<Vec<_>>().join("\n")
}

/// A TOML value as one would write it in a variable; lists become comma-separated.
fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(_) | toml::Value::Boolean(_) | toml::Value::Float(_) => Some(value.to_string()),
        toml::Value::Array(parts) => Some(parts.iter().map(toml_text).collect::<Option<Vec<_>>>()?.join(",")),
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

fn unknown(name: &str, nearest: Option<&str>) -> String {
    match nearest {
        Some(known) => format!("unknown setting {name} is ignored; did you mean {known}?"),
        None => format!("unknown setting {name} is ignored"),
    }
}

/// The variables of this process; bytes that are no UTF-8 are replaced.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

impl Config {
    /// The settings of the environment; warnings go to stderr, if `HCOMM_DEBUG` lets them.
    ///
    /// # Errors
    /// As for [`Config::load`].
    pub fn from_environment() -> Result<Self> {
        let mut warnings = Vec::new();
        let config = Self::load(None, environment(), &mut |warning| warnings.push(warning))?;
        for warning in warnings {
            config.debug.say(Debug::Warn, || warning);
        }
        Ok(config)
    }
}

impl Debug {
    /// Writes a line on stderr if `level` is asked for.
    pub fn say(self, level: Debug, line: impl FnOnce() -> String) {
        if level <= self && level != Debug::Off {
            eprintln!("hcomm: {}", line());
        }
    }
}
