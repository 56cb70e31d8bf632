//! Huawei Ascend: what `npu-smi info` and `npu-smi info -t topo` print.
//!
//! Both are tables for people, and change with the tool's version: columns grow wider, `Phy-ID` and the HBM column come and go, numbers run
//! together (`57784/ 65536`), what is not known is `-` or `NA`. So cells are found by the bars and by the names in the heading, not by
//! position.

use crate::{CpuSet, Health, LinkKind, PciAddress};

/// A chip, as `npu-smi info` lists it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Npu {
    /// Number of its card.
    pub card: Option<u32>,
    /// Number on its card.
    pub chip: Option<u32>,
    /// Number on the machine.
    pub physical: Option<u32>,
    /// Where it is.
    pub pci: Option<PciAddress>,
    /// Model, as `Ascend 910B3`.
    pub model: Option<String>,
    /// The tool's word on its health.
    pub health: Option<Health>,
    /// Watts.
    pub power_w: Option<f32>,
    /// Degrees Celsius.
    pub temperature_c: Option<f32>,
    /// How busy its cores are.
    pub utilisation_percent: Option<f32>,
    /// Bytes in use.
    pub memory_used_bytes: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
}

/// What `npu-smi info -t topo` says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NpuTopology {
    /// Names of the devices, as `NPU0`.
    pub names: Vec<String>,
    /// Direct links: from, to (indices into `names`), kind.
    pub links: Vec<(usize, usize, LinkKind)>,
    /// Processors next to each device.
    pub cpus: Vec<Option<CpuSet>>,
}

/// No machine has more NPUs.
const MOST: usize = 4096;

/// Reads what `npu-smi info` prints: two lines a chip. What cannot be read is left out.
pub fn parse_npus(text: &str) -> Vec<Npu> {
    let mut npus = Vec::new();
    let mut first: Option<Vec<&str>> = None;
    // Whether the heading of the second lines has a physical number, and memory of the chip beside that of the host.
    let (mut has_physical, mut has_hbm) = (false, false);
    for line in text.lines() {
        let line = line.trim();
        let Some(inner) = line.strip_prefix('|').map(|line| line.strip_suffix('|').unwrap_or(line)) else { continue };
        if inner.contains("Process id") || inner.contains("Process ID") {
            // The table of processes follows, whose lines begin with numbers too.
            break;
        }
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if cells.first().is_some_and(|cell| cell.starts_with("Chip")) {
            has_physical = cells[0].contains("Phy-ID") || cells[0].contains("Device");
            has_hbm = cells.last().is_some_and(|cell| cell.contains("HBM-Usage"));
        }
        let is_row = cells.len() >= 3 && cells[0].starts_with(|c: char| c.is_ascii_digit());
        match first.take() {
            _ if !is_row => {}
            None => first = Some(cells),
            Some(above) => npus.push(npu(&above, &cells, has_physical, has_hbm)),
        }
        if npus.len() >= MOST {
            break;
        }
    }
    npus
}

fn npu(first: &[&str], second: &[&str], has_physical: bool, has_hbm: bool) -> Npu {
    let mut who = cell(first, 0).split_whitespace();
    let card = who.next().and_then(|word| word.parse().ok());
    let model = who.next().map(model_name);
    let mut sensors = cell(first, 2).split_whitespace().map(value);
    let mut which = cell(second, 0).split_whitespace().map(|word| word.parse::<u32>().ok());
    let chip = which.next().flatten();
    let physical = if has_physical { which.next().flatten() } else { None };
    let load = cell(second, 2).replace('/', " / ");
    let mut load = load.split_whitespace();
    let utilisation_percent = load.next().and_then(value);
    // Pairs `used / total`: of the host's memory, and of the chip's where that has a column.
    let rest: Vec<&str> = load.filter(|word| *word != "/").collect();
    let pairs: Vec<(Option<u64>, Option<u64>)> =
        rest.chunks(2).map(|pair| (mebibytes(pair.first()), mebibytes(pair.get(1)))).collect();
    let (used, total) = pairs.get(usize::from(has_hbm)).copied().unwrap_or_default();
    let total = total.filter(|bytes| *bytes > 0);
    Npu {
        card,
        chip,
        physical,
        pci: cell(second, 1).parse().ok(),
        model,
        health: health(cell(first, 1)),
        power_w: sensors.next().flatten(),
        temperature_c: sensors.next().flatten(),
        utilisation_percent,
        memory_used_bytes: used.filter(|used| total.is_some_and(|total| *used <= total)),
        memory_bytes: total,
    }
}

fn cell<'a>(cells: &[&'a str], at: usize) -> &'a str {
    cells.get(at).copied().unwrap_or("")
}

/// A number; `-` and `NA` are none.
fn value(word: &str) -> Option<f32> {
    word.parse().ok().filter(|number: &f32| number.is_finite() && *number >= 0.0)
}

fn mebibytes(word: Option<&&str>) -> Option<u64> {
    word?.parse::<u64>().ok()?.checked_mul(1 << 20)
}

/// `910B3` and `Ascend910` both are `Ascend ...`.
fn model_name(word: &str) -> String {
    format!("Ascend {}", word.strip_prefix("Ascend").unwrap_or(word))
}

fn health(word: &str) -> Option<Health> {
    match word {
        "OK" => Some(Health::Good),
        "" | "-" | "NA" | "N/A" | "UNKNOWN" | "Unknown" => None,
        bad => Some(Health::Bad(bad.to_owned())),
    }
}

/// Reads what `npu-smi info -t topo` prints: a matrix, and at its right the processors next to each device.
pub fn parse_topology(text: &str) -> NpuTopology {
    let mut topology = NpuTopology::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(name) = words.first() else { continue };
        if topology.names.is_empty() {
            let devices = words.iter().take_while(|word| **word != "CPU");
            if name.to_ascii_uppercase().contains("NPU") || name.to_ascii_uppercase().contains("PHY") {
                topology.names = devices.take(MOST).map(|word| (*word).to_owned()).collect();
                topology.cpus = vec![None; topology.names.len()];
            }
            continue;
        }
        let Some(from) = topology.names.iter().position(|known| known == name) else { continue };
        let cells = words.get(1..=topology.names.len()).unwrap_or_default();
        // Sentences of the legend may begin with a device's name; only a row has its X on the diagonal.
        if cells.get(from) != Some(&"X") {
            continue;
        }
        let kinds = cells.iter().enumerate().filter_map(|(to, word)| Some((from, to, kind(word)?)));
        topology.links.extend(kinds);
        let cpus = words.get(topology.names.len() + 1).and_then(|word| CpuSet::parse_list(word));
        if let Some(place) = topology.cpus.get_mut(from) {
            *place = cpus.filter(|set| !set.is_empty());
        }
    }
    topology
}

/// Kinds of direct link; all other words (`PIX`, `PHB`, `SYS`, ...) are ways over PCI.
fn kind(word: &str) -> Option<LinkKind> {
    match word {
        "HCCS" => Some(LinkKind::Hccs),
        "HCCS_SW" => Some(LinkKind::HccsSwitch),
        "SIO" => Some(LinkKind::Sio),
        _ => None,
    }
}
