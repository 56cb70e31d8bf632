//! Values as people write them.

use hcomm_topology::{
    Accelerator, AcceleratorKind, LinkKind, Machine, PciAddress, PciFunction, Vendor, degraded, possible,
};

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

/// Bytes in whole GB (of 2^30, as makers of accelerators count), or MB below one: `32GB`.
pub fn memory(bytes: u64) -> String {
    let rounded = |unit: u64| bytes / unit + u64::from(bytes % unit >= unit / 2);
    if bytes < GB { format!("{}MB", rounded(MB)) } else { format!("{}GB", rounded(GB)) }
}

/// Used of all: `3.3/64GB`; `-` for the part that is not known.
pub fn memory_used(used: Option<u64>, all: Option<u64>) -> Option<String> {
    match (used, all) {
        (None, None) => None,
        (Some(used), Some(all)) if all < GB => Some(format!("{}/{}", used / MB, memory(all))),
        (Some(used), all) => {
            let all = all.map_or("-".to_owned(), memory);
            Some(format!("{:.1}/{all}", used as f64 / GB as f64))
        }
        (None, Some(all)) => Some(format!("-/{}", memory(all))),
    }
}

/// Generation of PCI Express by GT/s per lane (PCI Express Base Specification): `4.0` for 16.
fn generation(gt_per_s: f32) -> String {
    let known = [(2.5, "1.0"), (5.0, "2.0"), (8.0, "3.0"), (16.0, "4.0"), (32.0, "5.0"), (64.0, "6.0"), (128.0, "7.0")];
    let name = known.iter().find(|(speed, _)| *speed == gt_per_s).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("{gt_per_s}GT/s"))
}

/// `4.0 x16`; a part that is not known is left out.
pub fn pcie(speed: Option<f32>, width: Option<u8>) -> Option<String> {
    match (speed.map(generation), width) {
        (Some(speed), Some(width)) => Some(format!("{speed} x{width}")),
        (Some(speed), None) => Some(speed),
        (None, Some(width)) => Some(format!("x{width}")),
        (None, None) => None,
    }
}

/// A PCI Express link, now and as it could be.
#[derive(Debug, Clone, PartialEq)]
pub struct Pcie {
    pub now: Option<String>,
    pub possible: Option<String>,
    pub degraded: Option<bool>,
}

impl Pcie {
    /// Of the function at an address.
    pub fn of(machine: &Machine, address: Option<PciAddress>) -> Pcie {
        let at = machine.pci.iter().position(|function| Some(function.address) == address);
        let unknown = Pcie { now: None, possible: None, degraded: None };
        let Some((at, function)) = at.and_then(|at| Some((at, machine.pci.get(at)?))) else { return unknown };
        let (speed, width) = possible(&machine.pci, at);
        Pcie {
            now: pcie(function.link.speed_gt_per_s, function.link.width),
            possible: pcie(speed, width),
            degraded: degraded(&machine.pci, at),
        }
    }
}

/// The function at an address.
pub fn function(machine: &Machine, address: Option<PciAddress>) -> Option<&PciFunction> {
    let address = address?;
    machine.pci.iter().find(|function| function.address == address)
}

/// `19e5:d802`.
pub fn ids(function: &PciFunction) -> Option<String> {
    let device = function.device.map_or("?".to_owned(), |device| format!("{device:04x}"));
    Some(format!("{:04x}:{device}", function.vendor?))
}

/// Name of a function, short: what its table has in brackets at the end (`MT2910 Family [ConnectX-7]`), else all; else its numbers.
pub fn name(function: &PciFunction) -> Option<String> {
    let Some(name) = function.name.as_deref() else { return ids(function) };
    let inner = name.strip_suffix(']').and_then(|name| name.rsplit_once('[')).map(|(_, inner)| inner);
    Some(inner.unwrap_or(name).to_owned())
}

/// Model of an accelerator without its maker, else its PCI numbers.
pub fn model(machine: &Machine, accelerator: &Accelerator) -> Option<String> {
    let ids = || function(machine, accelerator.id.pci).and_then(ids);
    let name = accelerator.model.clone().or_else(ids)?;
    Some(match accelerator.id.partition {
        Some(part) => format!("{name} part {part}"),
        None => name,
    })
}

/// Maker and model: `NVIDIA H100 SXM5 80GB`, `Ascend 910B`, `NVIDIA GPU 10de:2330`.
pub fn full_model(machine: &Machine, accelerator: &Accelerator) -> String {
    let maker = match accelerator.vendor {
        Some(Vendor::Nvidia) => "NVIDIA",
        Some(Vendor::Amd) => "AMD",
        Some(Vendor::Intel) => "Intel",
        Some(Vendor::Habana) => "Habana",
        // Its accelerators are known as Ascend.
        Some(Vendor::Huawei) if accelerator.model.is_none() => "Huawei",
        _ => "",
    };
    let kind = match (accelerator.kind, accelerator.model.is_some()) {
        (_, true) => "",
        (AcceleratorKind::Gpu, _) => "GPU",
        (AcceleratorKind::Npu, _) => "NPU",
        (AcceleratorKind::Other, _) => "accelerator",
    };
    let model = model(machine, accelerator).unwrap_or_default();
    let maker = if model.contains(maker) { "" } else { maker };
    [maker, kind, &model].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Kinds of direct link, as their makers write them.
pub fn link_kind(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::NvLink => "NVLink",
        LinkKind::NvLinkC2c => "NVLink-C2C",
        LinkKind::Xgmi => "XGMI",
        LinkKind::Hccs => "HCCS",
        LinkKind::HccsSwitch => "HCCS_SW",
        LinkKind::Sio => "SIO",
        LinkKind::XeLink => "Xe Link",
    }
}

/// GB/s with as many digits as they are worth: `25`, `63.0`, `3.94`.
pub fn rate(gb_per_s: f64) -> String {
    match gb_per_s {
        rate if rate >= 99.95 || rate.fract() == 0.0 => format!("{rate:.0}"),
        rate if rate >= 9.995 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hcomm_topology::DeviceId;

    #[test]
    fn sizes() {
        let cases =
            [(32 * GB, "32GB"), (85_520_809_984, "80GB"), (512 * MB, "512MB"), (0, "0MB"), (u64::MAX, "17179869184GB")];
        for (bytes, text) in cases {
            assert_eq!(memory(bytes), text);
        }
        assert_eq!(memory_used(Some(3419 * MB), Some(64 * GB)).as_deref(), Some("3.3/64GB"));
        assert_eq!(memory_used(None, Some(64 * GB)).as_deref(), Some("-/64GB"));
        assert_eq!(memory_used(Some(GB), None).as_deref(), Some("1.0/-"));
        assert_eq!(memory_used(None, None), None);
    }

    #[test]
    fn links() {
        assert_eq!(pcie(Some(16.0), Some(16)).as_deref(), Some("4.0 x16"));
        assert_eq!(pcie(Some(20.0), Some(8)).as_deref(), Some("20GT/s x8"));
        assert_eq!(pcie(None, Some(8)).as_deref(), Some("x8"));
        assert_eq!(pcie(Some(2.5), None).as_deref(), Some("1.0"));
        assert_eq!(pcie(None, None), None);
        assert_eq!([25.0, 63.015, 3.938, 450.0, 99.96, 0.25].map(rate), ["25", "63.0", "3.94", "450", "100", "0.25"]);
    }

    #[test]
    fn names() {
        let machine = Machine::default();
        let accelerator = |vendor, kind, model: Option<&str>| {
            let id = DeviceId { pci: None, partition: None, name: None };
            let model = model.map(str::to_owned);
            full_model(&machine, &Accelerator { vendor, kind, model, ..Accelerator::unknown(id) })
        };
        let (gpu, npu) = (AcceleratorKind::Gpu, AcceleratorKind::Npu);
        assert_eq!(accelerator(Some(Vendor::Nvidia), gpu, Some("H100 SXM5 80GB")), "NVIDIA H100 SXM5 80GB");
        assert_eq!(accelerator(Some(Vendor::Huawei), npu, Some("Ascend 910B")), "Ascend 910B");
        assert_eq!(accelerator(Some(Vendor::Amd), gpu, Some("AMD Instinct MI300X")), "AMD Instinct MI300X");
        assert_eq!(accelerator(Some(Vendor::Huawei), npu, None), "Huawei NPU");
        assert_eq!(accelerator(None, AcceleratorKind::Other, None), "accelerator");
    }
}
