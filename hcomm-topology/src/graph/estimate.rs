//! How fast the way between two devices is, as far as the source tells.

use serde::Serialize;

use super::pci::PciTree;
use super::{Device, Direct, Relation, place};
use crate::{LinkKind, LinkTarget, Machine};

/// What the way between two devices can carry at best; `None` is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// GB/s, one direction.
    pub gb_per_s: Option<f64>,
    /// Microseconds for a small message. These are round figures: NCCL reckons 0.6 us for a step over a direct link and 1 us over PCIe
    /// (`hwLat` in its `src/graph/tuning.cc`).
    pub latency_us: Option<f64>,
}

/// GB/s of one lane of a link in one direction, by the maker's figures; `None` where the source does not name the generation.
///
/// NVLink by compute capability (NVIDIA's architecture papers): P100 20, V100 and A100 25, GA102 (A6000) 14.0625, H100 25, B200 50.
/// XGMI by architecture (AMD's CDNA papers): MI250X 50, MI300 64.
fn lane_gb_per_s(machine: &Machine, from: usize, kind: LinkKind) -> Option<f64> {
    let said = &machine.accelerators.get(from)?.nccl;
    match kind {
        LinkKind::NvLink => match said.get("sm")?.parse::<u32>().ok()? {
            60..=62 => Some(20.0),
            70..=72 | 80 | 90 => Some(25.0),
            86 => Some(14.0625),
            100 | 103 => Some(50.0),
            _ => None,
        },
        LinkKind::Xgmi => match said.get("gcn")?.trim_start_matches("gfx") {
            "910" | "90a" => Some(50.0),
            "940" | "941" | "942" => Some(64.0),
            _ => None,
        },
        _ => None,
    }
}

/// Of a direct link: what the source says it carries, else lanes by the rate of one.
pub(super) fn of_link(machine: &Machine, direct: &Direct) -> Estimate {
    let link = &direct.link;
    let lanes = || Some(f64::from(link.count?) * lane_gb_per_s(machine, link.from, link.kind)?);
    let hops = match (link.to, link.hops) {
        (LinkTarget::Switch, None) => 1,
        (_, hops) => hops.unwrap_or(1),
    };
    Estimate {
        gb_per_s: link.mb_per_s.map(|rate| rate as f64 / 1000.0).or_else(lanes),
        latency_us: Some(0.6 * f64::from(hops)),
    }
}

/// Of a way over PCIe: the slowest link on it. Between sockets the bus between the processors counts too, of which no source tells.
pub(super) fn of_path(machine: &Machine, tree: &PciTree, relation: Relation, a: &Device, b: &Device) -> Estimate {
    let no_data_path = |device: &Device| {
        let accelerator = device.accelerator.and_then(|at| machine.accelerators.get(at));
        accelerator.is_some_and(|accelerator| accelerator.pci_link_is_not_the_data_path)
    };
    if no_data_path(a) || no_data_path(b) || matches!(relation, Relation::Unknown | Relation::Same) {
        return Estimate::default();
    }
    let links = if relation == Relation::Sys { None } else { tree.links_between(place(a), place(b)) };
    Estimate {
        gb_per_s: links.and_then(|links| links.into_iter().reduce(f64::min)),
        latency_us: (relation != Relation::Sys).then_some(1.0),
    }
}
