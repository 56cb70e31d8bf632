//! The table of settings, and how each value is read.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Config, Debug, Precision, SingleCopy, Summaries, Telemetry, Transports};
use crate::control::split_address;
use crate::plan::Algorithm;
use crate::units::{parse_duration, parse_size};

/// One setting.
pub struct Setting {
    /// Its environment variable.
    pub name: &'static str,
    /// Its value when nobody sets it, as one would write it; empty where there is none.
    pub default: &'static str,
    /// What may be written.
    pub allowed: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Whether it has an effect in this version; if not, its form is checked all the same.
    pub effective: bool,
    read: Read,
}

/// Reads a value into a configuration; the error says what is wrong beyond what [`Setting::allowed`] says, or is empty.
type Read = fn(&mut Config, &str) -> Result<(), String>;

impl Setting {
    /// Its key in a TOML file: the variable in lower case, without the prefix.
    pub fn key(&self) -> String {
        let bare = self.name.strip_prefix("HCOMM_").or(self.name.strip_prefix("HC_COMM_")).unwrap_or(self.name);
        bare.to_ascii_lowercase()
    }

    pub(super) fn apply_to(&self, config: &mut Config, value: &str) -> Result<(), String> {
        (self.read)(config, value)
    }
}

const fn setting(
    name: &'static str,
    default: &'static str,
    allowed: &'static str,
    meaning: &'static str,
    read: Read,
) -> Setting {
    Setting { name, default, allowed, meaning, effective: true, read }
}

/// A setting of a later version.
const fn later(
    name: &'static str,
    default: &'static str,
    allowed: &'static str,
    meaning: &'static str,
    read: Read,
) -> Setting {
    Setting { name, default, allowed, meaning, effective: false, read }
}

const YES_OR_NO: &str = "0 or 1 (no or yes, off or on, false or true)";
const INTERFACES: &str = "interface names or globs, comma-separated (eth0,ib*), or ^ and those to leave out (^docker*)";

/// Every setting, in the order of the user guide.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting("HCOMM_ALGORITHM", "auto",
        "auto, ring, recursive_doubling, halving_doubling, tree, direct, bruck, pairwise, binomial, chain or hierarchical",
        "algorithm of every collective; an error where it cannot do one",
        |config, text| { config.algorithm = auto_or(text, algorithm)?; Ok(()) }),
    setting("HCOMM_CHUNK_SIZE", "auto", "auto, or a size from 64 to 1G, such as 256K",
        "largest message that a collective is cut into",
        |config, text| { config.chunk_size = auto_or(text, |text| size(text, 64..=1 << 30))?; Ok(()) }),
    setting("HCOMM_CHANNELS", "auto", "auto, or a whole number from 1 to 4",
        "parallel parts of a collective",
        |config, text| { config.channels = auto_or(text, |text| number(text, 1..=4))?; Ok(()) }),
    setting("HCOMM_STREAM_PRIORITY", "0", "0 (normal) or 1 (high, which overtakes)",
        "priority of background requests",
        |config, text| { config.stream_priority = number(text, 0..=1)? as u8; Ok(()) }),
    later("HCOMM_BUFFER_SIZE", "256M", "a size from 1M, such as 192MB or 256MB",
        "registered memory of a process at most",
        |config, text| { config.buffer_size = size(text, 1 << 20..=1 << 50)?; Ok(()) }),
    later("HCOMM_BUFFER_POOL_SIZE", "256M", "a size, such as 64MB; 0 keeps nothing",
        "freed registered memory that is kept for the next buffer",
        |config, text| { config.buffer_pool_size = size(text, 0..=1 << 50)?; Ok(()) }),
    setting("HCOMM_SOCKET_IFNAME", "", INTERFACES,
        "network interfaces of TCP; without it those that route to the peers",
        |config, text| { config.socket_ifname = Some(list(text)?); Ok(()) }),
    setting("HC_COMM_THREADS", "auto", "auto (75 % of the physical cores), or a whole number from 1 to 1024",
        "threads that drive background requests",
        |config, text| { config.threads = auto_or(text, |text| number(text, 1..=1024))?; Ok(()) }),
    setting("HCOMM_TIMEOUT", "300s", "a duration from 1ms, such as 300s",
        "longest time that an operation may stand still, and that ranks wait for each other at the start; then it fails with \
         the names of those that have not come",
        |config, text| { config.timeout = duration(text, Duration::from_millis(1))?; Ok(()) }),
    setting("HCOMM_PRECISION", "f32", "f32",
        "type in which f16 and bf16 are accumulated",
        |config, text| choose(text, &[("f32", Precision::F32)]).map(|precision| config.precision = precision)),
    setting("HCOMM_DETERMINISTIC", "0", YES_OR_NO,
        "one order of reduction by rank: the same bits at every size, with every algorithm and transport",
        |config, text| { config.deterministic = yes_or_no(text)?; Ok(()) }),
    setting("HCOMM_HEARTBEAT_INTERVAL", "200ms", "a duration from 1ms, such as 200ms",
        "how often a peer is heard from",
        |config, text| { config.heartbeat_interval = duration(text, Duration::from_millis(1))?; Ok(()) }),
    setting("HCOMM_RETRY_TIMEOUT", "50ms", "a duration from 1ms, such as 50ms",
        "pause before a failed connection attempt is repeated",
        |config, text| { config.retry_timeout = duration(text, Duration::from_millis(1))?; Ok(()) }),
    setting("HCOMM_TX_QUEUE_SIZE", "8192", "a whole number from 1 to 1048576",
        "messages that may wait to be sent on a link",
        |config, text| { config.tx_queue_size = number(text, 1..=1 << 20)?; Ok(()) }),
    setting("HCOMM_RX_BUFFER_SIZE", "auto", "auto, or a size from 4K to 1G, such as 2MB",
        "receive buffer of a socket; auto lets the kernel size it",
        |config, text| { config.rx_buffer_size = auto_or(text, |text| size(text, 4 << 10..=1 << 30))?; Ok(()) }),
    setting("HCOMM_STORE", "", "tcp://HOST:PORT or file:///DIRECTORY",
        "where the ranks of a job find each other",
        |config, text| { config.store = Some(store(text)?); Ok(()) }),
    setting("HCOMM_HOST_ID", "", "1 to 128 letters, digits and -_.:",
        "ranks with the same one share a host; without it the host is asked",
        |config, text| { config.host_id = Some(host_id(text)?); Ok(()) }),
    setting("HCOMM_TRANSPORT", "auto", "auto, shm, tcp, or shm,tcp",
        "transports that may be used",
        |config, text| { config.transport = transports(text)?; Ok(()) }),
    setting("HCOMM_SINGLE_COPY", "auto", "auto, on or off",
        "whether ranks of a host read each other's ordinary buffers where they lie (process_vm_readv), instead of through shared \
         memory; auto does where it is faster and the system lets it, on makes it an error if the system does not",
        |config, text| choose(text, &[("auto", SingleCopy::Auto), ("on", SingleCopy::On), ("off", SingleCopy::Off)])
            .map(|single_copy| config.single_copy = single_copy)),
    setting("HCOMM_DEBUG", "warn", "off, warn, info or trace",
        "what is told on stderr",
        |config, text| choose(text, &[("off", Debug::Off), ("warn", Debug::Warn), ("info", Debug::Info), ("trace", Debug::Trace)])
            .map(|debug| config.debug = debug)),
    later("HCOMM_IB_HCA", "", INTERFACES, "RDMA devices", |_, text| list(text).map(drop)),
    later("HCOMM_IB_GID_INDEX", "auto", "auto, or a whole number from 0 to 255", "GID of RoCE",
        |_, text| auto_or(text, |text| number(text, 0..=255)).map(drop)),
    later("HCOMM_ROUTE_INTERVAL", "5s", "a duration from 1ms, such as 5s", "how often the costs of paths are recomputed",
        |_, text| duration(text, Duration::from_millis(1)).map(drop)),
    later("HCOMM_LOSS_THRESHOLD", "1%", "a percentage from 0% to 100%, such as 0.1%", "loss above which traffic leaves a path",
        |_, text| percentage(text)),
    later("HCOMM_SECRET", "", "any text", "what the ranks of a job prove to each other", |_, text| some_text(text)),
    later("HCOMM_TUNING_FILE", "", "a path", "what was measured here, for the tuner", |_, text| some_text(text)),
    setting("HCOMM_TOPO_FILE", "", "the path of a file in NCCL's or hwloc's XML",
        "which processors and interfaces are next to which memory, in place of what the system says",
        |config, text| { some_text(text)?; config.topo_file = Some(text.into()); Ok(()) }),
    setting("HCOMM_TELEMETRY", "1", "0 or 1 (no or yes, off or on, false or true), or the absolute path of a folder",
        "whether operations are recorded for hcomm-monitor and others to see, and where",
        |config, text| { config.telemetry = telemetry(text)?; Ok(()) }),
    setting("HCOMM_SUMMARY_INTERVAL", "auto", "auto (2s for jobs on several hosts, longer beyond 2000 ranks, else off), off, or a duration from 100ms, such as 1s",
        "how often each rank tells the store what it does, for hcomm-monitor --store",
        |config, text| { config.summaries = summaries(text)?; Ok(()) }),
];

/// `None` for `auto`.
fn auto_or<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.eq_ignore_ascii_case("auto") { Ok(None) } else { read(text).map(Some) }
}

fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let choice = choices.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    choice.map(|&(_, value)| value).ok_or_else(String::new)
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    let name = text.to_ascii_lowercase().replace('-', "_");
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(String::new)
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    let words = [("0", false), ("1", true), ("no", false), ("yes", true), ("off", false), ("on", true)];
    choose(text, &words).or_else(|_| choose(text, &[("false", false), ("true", true)]))
}

fn telemetry(text: &str) -> Result<Telemetry, String> {
    match yes_or_no(text) {
        Ok(true) => Ok(Telemetry::On),
        Ok(false) => Ok(Telemetry::Off),
        Err(_) if text.starts_with('/') => Ok(Telemetry::Folder(text.into())),
        Err(reason) => Err(reason),
    }
}

fn summaries(text: &str) -> Result<Summaries, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Summaries::Auto);
    }
    match yes_or_no(text) {
        Ok(false) => Ok(Summaries::Off),
        _ => duration(text, Duration::from_millis(100)).map(Summaries::Every),
    }
}

fn number(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(String::new)
}

fn size(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if range.contains(&bytes) { Ok(bytes) } else { Err(format!("{bytes} bytes is out of range")) }
}

fn duration(text: &str, least: Duration) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration >= least { Ok(duration) } else { Err("too short".into()) }
}

fn percentage(text: &str) -> Result<(), String> {
    let number = text.strip_suffix('%').ok_or("a percentage ends with %")?.parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).map(drop).ok_or_else(String::new)
}

fn some_text(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("empty".into()) } else { Ok(()) }
}

/// A comma-separated list without empty parts; what the parts mean is for the one who uses them.
fn list(text: &str) -> Result<String, String> {
    let good = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
    if text.trim_start_matches(['^', '=']).split(',').all(good) { Ok(text.to_owned()) } else { Err(String::new()) }
}

fn store(text: &str) -> Result<String, String> {
    if text.starts_with("etcd://") {
        return Err("etcd is not in this version".into());
    }
    let good = text.strip_prefix("tcp://").is_some_and(|address| split_address(text, address).is_ok())
        || text.strip_prefix("file://").is_some_and(|path| path.starts_with('/') && path.len() > 1);
    if good { Ok(text.to_owned()) } else { Err(String::new()) }
}

fn host_id(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if (1..=128).contains(&text.len()) && text.chars().all(good) { Ok(text.to_owned()) } else { Err(String::new()) }
}

fn transports(text: &str) -> Result<Transports, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Config::default().transport);
    }
    let mut transports = Transports { shm: false, tcp: false };
    for part in text.split(',') {
        match part.trim().to_ascii_lowercase().as_str() {
            "shm" => transports.shm = true,
            "tcp" => transports.tcp = true,
            "rdma" => return Err("rdma is not in this version".into()),
            _ => return Err(String::new()),
        }
    }
    Ok(transports)
}
