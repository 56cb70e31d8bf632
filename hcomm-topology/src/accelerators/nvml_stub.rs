//! A stand-in for libnvidia-ml with the layouts of NVML's documentation, for tests: compiled alone as a shared library. Device 0 answers all,
//! device 1 only says where it is, device 2 fails, device 3 is divided into two instances; newer functions are missing.

#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_uint, c_void};

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const GPU_IS_LOST: c_int = 15;

/// Handles of the GPU that is divided, and of its instances.
const WHOLE: usize = 4;
const SMALL: usize = 101;
const LARGE: usize = 102;

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
    unsafe { *count = 4 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> c_int {
    if index == 2 {
        return GPU_IS_LOST;
    }
    unsafe { *device = (index as usize + 1) as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, info: *mut PciInfo) -> c_int {
    let address = match device as usize {
        1 => "00000000:19:00.0",
        WHOLE => "00000000:86:00.0",
        _ => "00000000:3B:00.0",
    };
    place(info, address, 0x233010de)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(device: *mut c_void, now: *mut c_uint, next: *mut c_uint) -> c_int {
    if device as usize != WHOLE {
        return NOT_SUPPORTED;
    }
    unsafe { (*now, *next) = (1, 1) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(_: *mut c_void, count: *mut c_uint) -> c_int {
    unsafe { *count = 7 };
    SUCCESS
}

/// Instances are not numbered without gaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    _: *mut c_void,
    index: c_uint,
    instance: *mut *mut c_void,
) -> c_int {
    let handle = match index {
        0 => SMALL,
        3 => LARGE,
        _ => return NOT_FOUND,
    };
    unsafe { *instance = handle as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, room: c_uint) -> c_int {
    let text = match device as usize {
        1 => "NVIDIA H100 80GB HBM3",
        SMALL => "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        LARGE => "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        _ => return NOT_SUPPORTED,
    };
    copy(name, room as usize, text);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, room: c_uint) -> c_int {
    let text = match device as usize {
        1 => "GPU-0",
        SMALL => "MIG-0",
        LARGE => "MIG-1",
        _ => return NOT_SUPPORTED,
    };
    copy(uuid, room as usize, text);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut Memory) -> c_int {
    let total = match device as usize {
        1 => 85_520_809_984,
        SMALL => 10 << 30,
        LARGE => 40 << 30,
        _ => return NOT_SUPPORTED,
    };
    unsafe { ((*memory).total, (*memory).used) = (total, 1 << 30) };
    SUCCESS
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
