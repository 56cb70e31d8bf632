//! The matrix of relations, laid out as `nvidia-smi topo -m` has it.

use hcomm_cli::{Screen, lines, printable, table::shorten, wrap};
use hcomm_topology::graph::{Device, DeviceKind, Graph, Relation};
use hcomm_topology::{CpuSet, Machine, NumaNode};

use crate::source::Source;
use crate::words;

pub fn text(source: &Source, screen: Screen) -> String {
    let graph = &source.graph;
    if graph.devices().is_empty() {
        return wrap(&format!("No accelerator and no network device: {}.", source.looked), screen);
    }
    let mut text = String::new();
    if graph.accelerators().is_empty() {
        text += &wrap(&format!("No accelerator: {}.", source.looked), screen);
        text += "\n";
    }
    text += &matrix(&source.machine, graph, screen);
    text += &legend(graph, screen);
    text + &crate::status::notes(&source.machine, screen)
}

/// A column of the matrix: its title and its cells.
struct Strip {
    title: String,
    cells: Vec<String>,
}

impl Strip {
    fn width(&self) -> usize {
        self.cells.iter().chain([&self.title]).map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

/// Where the screen is too narrow, the columns come in bands, each with the names of the rows.
fn matrix(machine: &Machine, graph: &Graph, screen: Screen) -> String {
    const GAP: usize = 2;
    let devices = graph.devices();
    let names = Strip { title: String::new(), cells: devices.iter().map(|device| device.label.clone()).collect() };
    let relations = (0..devices.len()).map(|to| Strip {
        title: devices.get(to).map(|device| device.label.clone()).unwrap_or_default(),
        cells: (0..devices.len()).map(|from| cell(graph.relation(from, to))).collect(),
    });
    let affinity = |title: &str, of: &dyn Fn(&Device) -> Option<String>| Strip {
        title: title.to_owned(),
        cells: devices.iter().map(|device| of(device).unwrap_or_else(|| "-".to_owned())).collect(),
    };
    let mut strips: Vec<Strip> = relations.collect();
    strips.push(affinity("CPU Affinity", &|device| Some(cpus(machine, device)?.to_string())));
    strips.push(affinity("NUMA Affinity", &|device| Some(device.numa_node?.to_string())));
    let most = screen.width.unwrap_or(usize::MAX);
    let mut text = String::new();
    let mut ahead = strips.iter().peekable();
    while ahead.peek().is_some() {
        let mut band = vec![&names];
        let mut width = names.width();
        while let Some(strip) = ahead.next_if(|strip| band.len() == 1 || width + GAP + strip.width() <= most) {
            width += GAP + strip.width();
            band.push(strip);
        }
        for row in 0..=devices.len() {
            let mut line = String::new();
            for strip in &band {
                let cell = if row == 0 { Some(&strip.title) } else { strip.cells.get(row - 1) };
                let cell = cell.map(String::as_str).unwrap_or_default();
                line += &format!("{cell:<width$}", width = strip.width() + GAP);
            }
            text += &shorten(line.trim_end(), most);
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

fn cell(relation: Relation) -> String {
    if relation == Relation::Same { " X".to_owned() } else { relation.to_string() }
}

/// Processors next to a device: as its function says, else those of its node.
pub fn cpus<'a>(machine: &'a Machine, device: &Device) -> Option<&'a CpuSet> {
    let function = words::function(machine, device.pci);
    let node = |id: u32| machine.numa.iter().find(|node: &&NumaNode| node.id == id)?.cpus.as_ref();
    let own = function.and_then(|function| function.local_cpus.as_ref());
    own.or_else(|| device.numa_node.and_then(node)).filter(|cpus| !cpus.is_empty())
}

/// The words that are in the matrix, and the names of network devices.
fn legend(graph: &Graph, screen: Screen) -> String {
    let n = graph.devices().len();
    let seen: Vec<Relation> =
        (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).map(|(a, b)| graph.relation(a, b)).collect();
    let mut text = "Legend:\n\n".to_owned();
    let mut explain = |word: &str, meaning: &str| {
        text += &lines(&format!("  {word:<7} = "), "            ", meaning.split(' '), screen);
    };
    explain("X", "the device itself");
    let words = [
        (Relation::Sys, "over the bus between NUMA nodes"),
        (Relation::Node, "between host bridges of one NUMA node"),
        (Relation::Phb, "through the host bridge, from one root port to another"),
        (Relation::Pxb, "through several PCIe switches, not through the host bridge"),
        (Relation::Pix, "through at most one PCIe switch"),
        (Relation::Unknown, "not known"),
    ];
    for (relation, meaning) in words {
        if seen.contains(&relation) {
            explain(&relation.to_string(), meaning);
        }
    }
    let links = [
        ("NV", "NV#", "NVLink, # lanes together"),
        ("C2C", "C2C", "NVLink between chips of one module"),
        ("XGMI", "XGMI", "AMD Infinity Fabric"),
        ("HCCS_SW", "HCCS_SW", "Huawei HCCS through a switch"),
        ("HCCS", "HCCS", "Huawei HCCS"),
        ("SIO", "SIO", "between the dies of one card"),
        ("XL", "XL#", "Xe Link, # lanes together"),
    ];
    let words: Vec<String> = seen.iter().filter(|relation| relation.is_link()).map(ToString::to_string).collect();
    for (prefix, word, meaning) in links {
        let is = |seen: &String| {
            seen.strip_prefix(prefix).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if words.iter().any(is) {
            explain(word, meaning);
        }
    }
    let nics: Vec<&Device> = graph.devices().iter().filter(|device| device.kind == DeviceKind::Nic).collect();
    if !nics.is_empty() {
        text += "\nNIC Legend:\n\n";
        for nic in nics {
            let mut names = nic.names.join(" ");
            if let Some(address) = nic.pci {
                names = if names.is_empty() { address.to_string() } else { format!("{names} ({address})") };
            }
            let names = if names.is_empty() { "-".to_owned() } else { printable(&names) };
            text += &lines(&format!("  {}: ", nic.label), "    ", names.split(' '), screen);
        }
    }
    text
}
