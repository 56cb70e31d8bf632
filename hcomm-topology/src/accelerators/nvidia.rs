//! NVIDIA: what the driver's folder in `/proc` says, and what NVML (libnvidia-ml) says when it is installed.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
use nvml_wrapper::{Device, Nvml};

use super::Found;
use super::sysfs::fill;
use crate::{
    Accelerator, AcceleratorKind, AcceleratorLink, DeviceId, LinkKind, LinkTarget, PciAddress, PciFunction, Root,
    Vendor,
};

/// The library's name on every system; the one without a number is there only where programs are built.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";
/// Instances that a GPU has at most are 7; a count far above is damaged.
const MOST_INSTANCES: u32 = 64;
/// Links that a GPU has at most (`NVML_NVLINK_MAX_LINKS`).
const MOST_LINKS: u32 = 18;

/// Model and name of a GPU, from `/proc/driver/nvidia/gpus/<address>/information` (lines `Model: <tabs> Tesla V100-SXM2-16GB`).
pub(super) fn add_proc(root: &Root, accelerator: &mut Accelerator) {
    let Some(address) = accelerator.id.pci else { return };
    let Some(text) = root.text(format!("proc/driver/nvidia/gpus/{address}/information")) else { return };
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))?.1.trim();
        // A driver that has not opened the device yet writes question marks.
        (!value.is_empty() && value != "Unknown" && !value.contains('?')).then(|| value.to_owned())
    };
    if let Some(model) = field("Model") {
        accelerator.model = Some(plain_model(&model));
    }
    fill(&mut accelerator.uuid, field("GPU UUID"));
}

/// Asks NVML. Each value that it does not give stays as it was.
pub(super) fn add_nvml(library: &OsStr, pci: &[PciFunction], found: &mut Found) {
    let is_nvidia = |a: &Accelerator| a.vendor == Some(Vendor::Nvidia);
    let nvml = match Nvml::builder().lib_path(library).init() {
        Ok(nvml) => nvml,
        Err(error) => {
            if found.accelerators.iter().any(is_nvidia) {
                let library = library.to_string_lossy();
                found
                    .notes
                    .push(format!("NVML does not answer ({library}: {error}): memory, load and NVLink are unknown"));
            }
            return;
        }
    };
    let count = match nvml.device_count() {
        Ok(count) => count,
        Err(error) => return found.notes.push(format!("NVML does not count its devices: {error}")),
    };
    let mut devices: Vec<(usize, Device<'_>)> = Vec::new();
    for index in 0..count {
        let device = match nvml.device_by_index(index) {
            Ok(device) => device,
            Err(error) => {
                found.notes.push(format!("NVML device {index}: {error}"));
                continue;
            }
        };
        let Some(at) = place(&device, index, found) else {
            found.notes.push(format!("NVML device {index} does not say which PCI function it is"));
            continue;
        };
        if let Some(accelerator) = found.accelerators.get_mut(at) {
            accelerator.id.name = Some(format!("nvml{index}"));
            ask(&device, accelerator);
        }
        devices.push((at, device));
    }
    for (at, device) in &devices {
        let links = links(&nvml_links(device), *at, pci, found);
        found.links.extend(links);
    }
    let parts = devices.iter().filter_map(|(at, device)| Some((*at, instances(device, found.accelerators.get(*at)?))));
    let parts = parts.filter(|(_, parts)| !parts.is_empty()).collect();
    split(found, parts);
}

/// The instances that a GPU in MIG mode is divided into, in NVML's order; empty for one that is not.
fn instances(device: &Device<'_>, whole: &Accelerator) -> Vec<Accelerator> {
    if !device.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Vec::new();
    }
    let most = device.mig_device_count().unwrap_or(0).min(MOST_INSTANCES);
    let instances = (0..most).filter_map(|index| device.mig_device_by_index(index).ok());
    let part = |(number, instance): (u32, Device<'_>)| {
        let mut part = whole.clone();
        part.id.partition = Some(number);
        part.id.name = whole.id.name.as_ref().map(|name| format!("{name}.{number}"));
        // What is told of the whole is not told of a part; temperature is, as they are one chip.
        (part.memory_bytes, part.memory_used_bytes, part.uuid) = (None, None, None);
        (part.utilisation_percent, part.power_w) = (None, None);
        ask(&instance, &mut part);
        part
    };
    (0..).zip(instances).map(part).collect()
}

/// Puts parts in place of the accelerators that they are of. Links of the whole stay with its first part.
fn split(found: &mut Found, mut parts: BTreeMap<usize, Vec<Accelerator>>) {
    let mut new_place = Vec::new();
    for (at, whole) in std::mem::take(&mut found.accelerators).into_iter().enumerate() {
        new_place.push(found.accelerators.len());
        found.accelerators.extend(parts.remove(&at).unwrap_or_else(|| vec![whole]));
    }
    let place = |at: usize| new_place.get(at).copied().unwrap_or(at);
    for link in &mut found.links {
        link.from = place(link.from);
        if let LinkTarget::Accelerator(to) = &mut link.to {
            *to = place(*to);
        }
    }
}

/// Index of the accelerator that an NVML device is; one that the PCI part does not know is added.
fn place(device: &Device<'_>, index: u32, found: &mut Found) -> Option<usize> {
    let address: PciAddress = device.pci_info().ok()?.bus_id.parse().ok()?;
    let known = found.accelerators.iter().position(|accelerator| accelerator.id.pci == Some(address));
    known.or_else(|| {
        let id = DeviceId { pci: Some(address), partition: None, name: Some(format!("nvml{index}")) };
        let (kind, vendor) = (AcceleratorKind::Gpu, Some(Vendor::Nvidia));
        found.accelerators.push(Accelerator { kind, vendor, ..Accelerator::unknown(id) });
        Some(found.accelerators.len() - 1)
    })
}

fn ask(device: &Device<'_>, accelerator: &mut Accelerator) {
    if let Ok(memory) = device.memory_info() {
        accelerator.memory_bytes = Some(memory.total);
        accelerator.memory_used_bytes = Some(memory.used);
    }
    if let Ok(name) = device.name() {
        accelerator.model = Some(plain_model(&name));
    }
    accelerator.uuid = device.uuid().ok().or(accelerator.uuid.take());
    fill(&mut accelerator.utilisation_percent, device.utilization_rates().ok().map(|rates| rates.gpu as f32));
    fill(&mut accelerator.temperature_c, device.temperature(TemperatureSensor::Gpu).ok().map(|degrees| degrees as f32));
    fill(&mut accelerator.power_w, device.power_usage().ok().map(|milliwatts| milliwatts as f32 / 1e3));
}

/// The vendor is a field of its own.
fn plain_model(name: &str) -> String {
    name.strip_prefix("NVIDIA ").unwrap_or(name).to_owned()
}

/// The far end of an active link: its address, and its vendor (0 where NVML does not say).
type FarEnd = (Option<PciAddress>, u16);

/// Far ends of the active links of a device, and the MB/s of each link.
fn nvml_links(device: &Device<'_>) -> (Vec<FarEnd>, Option<u64>) {
    let active =
        (0..MOST_LINKS).map(|link| device.link_wrapper_for(link)).filter(|link| link.is_active().unwrap_or(false));
    let far = |link: nvml_wrapper::nv_link::NvLink<'_, '_>| {
        let info = link.remote_pci_info().ok()?;
        Some((info.bus_id.parse().ok(), (info.pci_device_id & 0xffff) as u16))
    };
    let ends: Vec<FarEnd> = active.map(|link| far(link).unwrap_or((None, 0))).collect();
    let speed = device.field_values_for(&[FieldId(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)]).ok();
    let sample = speed.and_then(|samples| samples.into_iter().next()?.ok()?.value.ok());
    let each = match sample {
        Some(SampleValue::U32(speed)) => Some(u64::from(speed)),
        Some(SampleValue::U64(speed)) => Some(speed),
        _ => None,
    };
    (ends, each.filter(|speed| *speed > 0))
}

/// Links of accelerator `from`, those to one target taken together.
fn links(
    (ends, each): &(Vec<FarEnd>, Option<u64>),
    from: usize,
    pci: &[PciFunction],
    found: &mut Found,
) -> Vec<AcceleratorLink> {
    let mut counts: BTreeMap<LinkTarget, u32> = BTreeMap::new();
    let mut unknown = 0_u32;
    for (address, vendor) in ends {
        match target(*address, *vendor, pci, found) {
            Some(target) => *counts.entry(target).or_default() += 1,
            None => unknown += 1,
        }
    }
    if unknown > 0 {
        found.notes.push(format!("accelerator {from}: NVML does not say where {unknown} of its NVLinks lead"));
    }
    let link = |(to, count): (LinkTarget, u32)| AcceleratorLink {
        from,
        to,
        kind: LinkKind::NvLink,
        count: Some(count),
        hops: Some(1),
        mb_per_s: each.and_then(|each| each.checked_mul(u64::from(count))),
    };
    counts.into_iter().map(link).collect()
}

/// What is at the far end: another GPU, an NVSwitch (NVIDIA's, but no GPU), or the processor (IBM's).
fn target(address: Option<PciAddress>, vendor: u16, pci: &[PciFunction], found: &Found) -> Option<LinkTarget> {
    if let Some(at) = address.and_then(|address| found.accelerators.iter().position(|a| a.id.pci == Some(address))) {
        return Some(LinkTarget::Accelerator(at));
    }
    let known = address.and_then(|address| pci.iter().find(|function| function.address == address));
    match known.and_then(|function| function.vendor).unwrap_or(vendor) {
        0x10de => Some(LinkTarget::Switch),
        0x1014 => Some(LinkTarget::Cpu),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;
    use std::process::Command;

    /// The stub of NVML, compiled; `None`, with a line that says so, where there is no compiler.
    fn stub(folder: &std::path::Path) -> Option<PathBuf> {
        let library = folder.join("libnvidia-ml-stub.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/accelerators/nvml_stub.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let built = Command::new(rustc)
            .args(["--edition", "2024", "--crate-type", "cdylib", "-o"])
            .args([library.as_os_str(), source.as_ref()])
            .output();
        match built {
            Ok(output) if output.status.success() => Some(library),
            other => {
                // Past the harness, which keeps the output of tests that pass to itself.
                let _ = writeln!(std::io::stderr(), "skipped: the stub of NVML cannot be compiled: {other:?}");
                None
            }
        }
    }

    fn function(address: &str, class: u32, vendor: u16) -> PciFunction {
        let (class, vendor) = (Some(class), Some(vendor));
        PciFunction { class, vendor, ..PciFunction::unknown(address.parse().unwrap()) }
    }

    #[test]
    fn what_nvml_says() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = stub(folder.path()) else { return };
        let pci = [
            function("0000:19:00.0", 0x030200, 0x10de),
            function("0000:3b:00.0", 0x030200, 0x10de),
            function("0000:5d:00.0", 0x068000, 0x10de),
            function("0000:86:00.0", 0x030200, 0x10de),
        ];
        let mut found = Found { accelerators: super::super::functions(&pci), ..Found::default() };
        add_nvml(library.as_os_str(), &pci, &mut found);
        let [first, second, part, other] = &found.accelerators[..] else { panic!("{found:?}") };
        assert_eq!(first.model.as_deref(), Some("H100 80GB HBM3"));
        assert_eq!((first.memory_bytes, first.memory_used_bytes), (Some(85_520_809_984), Some(1 << 30)));
        assert_eq!(
            (first.utilisation_percent, first.temperature_c, first.power_w),
            (Some(93.0), Some(45.0), Some(612.5))
        );
        assert_eq!((first.uuid.as_deref(), first.id.name.as_deref()), (Some("GPU-0"), Some("nvml0")));
        // The second fails in all but its place, and the library lacks other functions altogether.
        assert_eq!(second.id.name.as_deref(), Some("nvml1"));
        assert_eq!((second.memory_bytes, second.power_w, &second.model), (None, None, &None));
        // The third is divided into two instances.
        let facts = |a: &Accelerator| (a.id.partition, a.uuid.clone(), a.memory_bytes, a.model.clone());
        let expected = |number: u32, gib: u64, model: &str| {
            (Some(number), Some(format!("MIG-{number}")), Some(gib << 30), Some(model.to_owned()))
        };
        assert_eq!(facts(part), expected(0, 10, "H100 80GB HBM3 MIG 1g.10gb"));
        assert_eq!(facts(other), expected(1, 40, "H100 80GB HBM3 MIG 3g.40gb"));
        assert_eq!(other.id.pci, Some("0000:86:00.0".parse().unwrap()));
        assert_eq!((other.utilisation_percent, other.id.name.as_deref()), (None, Some("nvml3.1")));
        let link = |to, count| AcceleratorLink {
            from: 0,
            to,
            kind: LinkKind::NvLink,
            count: Some(count),
            hops: Some(1),
            mb_per_s: None,
        };
        assert_eq!(found.links, [link(LinkTarget::Accelerator(1), 2), link(LinkTarget::Switch, 1)]);
        assert!(found.notes.iter().any(|note| note.contains("1 of its NVLinks")), "{:?}", found.notes);
        assert!(found.notes.iter().any(|note| note.contains("NVML device 2")), "{:?}", found.notes);
    }

    #[test]
    fn links_follow_when_a_gpu_is_split() {
        let unknown =
            |name: &str| Accelerator::unknown(DeviceId { pci: None, partition: None, name: Some(name.to_owned()) });
        let link = |from, to| AcceleratorLink {
            from,
            to: LinkTarget::Accelerator(to),
            kind: LinkKind::NvLink,
            count: None,
            hops: None,
            mb_per_s: None,
        };
        let mut found = Found { accelerators: ["a", "b", "c"].map(unknown).to_vec(), ..Found::default() };
        found.links = vec![link(0, 2), link(2, 1)];
        split(&mut found, [(1, vec![unknown("b0"), unknown("b1")])].into());
        let names: Vec<_> = found.accelerators.iter().map(|a| a.id.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "b0", "b1", "c"]);
        assert_eq!(found.links, [link(0, 3), link(3, 1)]);
    }

    #[test]
    fn no_library() {
        let mut found = Found::default();
        add_nvml("libhcomm-no-such.so".as_ref(), &[], &mut found);
        assert_eq!(found, Found::default(), "no NVIDIA device, so nothing is missed");
        let pci = [function("0000:19:00.0", 0x030200, 0x10de)];
        found.accelerators = super::super::functions(&pci);
        add_nvml("libhcomm-no-such.so".as_ref(), &pci, &mut found);
        assert!(found.notes[0].contains("NVML") && found.accelerators[0].memory_bytes.is_none(), "{:?}", found.notes);
    }
}
