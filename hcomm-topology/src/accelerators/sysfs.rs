//! What the drivers of AMD, Intel and others write beside the PCI function: memory, load, sensors.
//!
//! amdgpu: <https://docs.kernel.org/gpu/amdgpu/driver-misc.html>; sensors: <https://docs.kernel.org/hwmon/sysfs-interface.html>; Intel:
//! `Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon` and the `tile*` folders of xe, `lmem_total_bytes` of i915.

use std::path::PathBuf;

use crate::{Accelerator, PciAddress, Root};

/// Fills in what is still unknown.
pub(super) fn add(root: &Root, accelerator: &mut Accelerator) {
    let Some(address) = accelerator.id.pci else { return };
    let place = place(address);
    let Some(folder) = root.open_folder(&place) else { return };
    let memory = folder
        .number("mem_info_vram_total")
        .or_else(|| tiles(root, address))
        .or_else(|| card(root, address).and_then(|card| root.number(card.join("lmem_total_bytes"))));
    fill(&mut accelerator.memory_bytes, memory);
    fill(&mut accelerator.memory_used_bytes, folder.number("mem_info_vram_used"));
    fill(&mut accelerator.utilisation_percent, folder.number("gpu_busy_percent"));
    fill(&mut accelerator.uuid, folder.text("unique_id").filter(|id| !id.trim_matches('0').is_empty()));
    fill(&mut accelerator.id.name, render_node(root, address));
    let product = folder.text("product_name").filter(|name| !name.is_empty());
    fill(&mut accelerator.model, product);
    let Some(sensors) = root.list(place.join("hwmon")).first().map(|name| place.join("hwmon").join(name)) else {
        return;
    };
    // Thousandths of a degree, millionths of a watt.
    let thousandths = |name: &str| root.number::<f32>(sensors.join(name)).filter(|n| n.is_finite()).map(|n| n / 1e3);
    fill(&mut accelerator.temperature_c, thousandths("temp1_input"));
    let power = thousandths("power1_average").or_else(|| thousandths("power1_input"));
    fill(&mut accelerator.power_w, power.map(|milliwatts| milliwatts / 1e3));
}

/// Keeps what is known already.
pub(super) fn fill<T>(known: &mut Option<T>, new: Option<T>) {
    if known.is_none() {
        *known = new;
    }
}

/// Folder of a function, as the bus lists it.
pub(super) fn place(address: PciAddress) -> PathBuf {
    PathBuf::from(format!("sys/bus/pci/devices/{address}"))
}

/// Memory of all tiles of an Intel GPU.
fn tiles(root: &Root, address: PciAddress) -> Option<u64> {
    let place = place(address);
    let tiles: Vec<String> = root.list(&place).into_iter().filter(|name| name.starts_with("tile")).collect();
    let sizes = tiles.iter().map(|tile| root.number::<u64>(place.join(tile).join("physical_vram_size_bytes")));
    // One that does not tell makes the sum unknown.
    sizes.reduce(|sum, size| sum?.checked_add(size?)).flatten()
}

/// The DRM card of a function.
fn card(root: &Root, address: PciAddress) -> Option<PathBuf> {
    let drm = place(address).join("drm");
    root.list(&drm).into_iter().find(|name| name.starts_with("card")).map(|name| drm.join(name))
}

/// The name of the DRM node for computing: `renderD128`.
fn render_node(root: &Root, address: PciAddress) -> Option<String> {
    root.list(place(address).join("drm")).into_iter().find(|name| name.starts_with("renderD"))
}
