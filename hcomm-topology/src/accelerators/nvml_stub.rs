//! A stand-in for libnvidia-ml with the layouts of NVML's documentation, for tests: compiled alone as a shared library. Device 0 answers all,
//! device 1 only says where it is, device 2 fails; newer functions are missing.

#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_uint, c_void};

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const GPU_IS_LOST: c_int = 15;

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

fn copy(to: *mut c_char, room: usize, text: &str) {
    for (at, byte) in text.bytes().chain([0]).take(room).enumerate() {
        unsafe { *to.add(at) = byte as c_char };
    }
}

fn place(info: *mut PciInfo, address: &str, vendor_device: c_uint) -> c_int {
    unsafe {
        copy((*info).bus_id.as_mut_ptr(), 32, address);
        copy((*info).bus_id_legacy.as_mut_ptr(), 16, "");
        ((*info).domain, (*info).bus, (*info).device) = (0, 0, 0);
        ((*info).pci_device_id, (*info).pci_subsystem_id) = (vendor_device, 0);
    }
    SUCCESS
}

/// Handles are the index and one, so that none is null.
fn only_first(device: *mut c_void, then: impl FnOnce()) -> c_int {
    if device as usize != 1 {
        return NOT_SUPPORTED;
    }
    then();
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    unsafe { *count = 3 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> c_int {
    if index > 1 {
        return GPU_IS_LOST;
    }
    unsafe { *device = (index as usize + 1) as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, info: *mut PciInfo) -> c_int {
    place(info, if device as usize == 1 { "00000000:19:00.0" } else { "00000000:3B:00.0" }, 0x233010de)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, room: c_uint) -> c_int {
    only_first(device, || copy(name, room as usize, "NVIDIA H100 80GB HBM3"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, room: c_uint) -> c_int {
    only_first(device, || copy(uuid, room as usize, "GPU-0"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut Memory) -> c_int {
    only_first(device, || unsafe { ((*memory).total, (*memory).used) = (85_520_809_984, 1 << 30) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: *mut c_void, rates: *mut [c_uint; 2]) -> c_int {
    only_first(device, || unsafe { *rates = [93, 12] })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(device: *mut c_void, _: c_uint, degrees: *mut c_uint) -> c_int {
    only_first(device, || unsafe { *degrees = 45 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: *mut c_void, milliwatts: *mut c_uint) -> c_int {
    only_first(device, || unsafe { *milliwatts = 612_500 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkState(device: *mut c_void, link: c_uint, active: *mut c_uint) -> c_int {
    only_first(device, || unsafe { *active = c_uint::from(link < 4) })
}

/// Links 0 and 1 lead to the other GPU, 2 to a switch, 3 to something unheard of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    _: *mut c_void,
    link: c_uint,
    info: *mut PciInfo,
) -> c_int {
    match link {
        0 | 1 => place(info, "00000000:3B:00.0", 0x233010de),
        2 => place(info, "00000000:5D:00.0", 0x22a310de),
        _ => place(info, "FFFFFFFF:FF:FF.0", 0),
    }
}
