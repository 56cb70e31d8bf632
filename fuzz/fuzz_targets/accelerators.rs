//! Tables of `npu-smi`: read or left out, whatever they hold; links stay among the devices that were named.

#![no_main]

use hcomm_topology::{parse_npus, parse_topology};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for npu in parse_npus(&text) {
        assert!(npu.memory_used_bytes.is_none() || npu.memory_used_bytes <= npu.memory_bytes);
        assert!(npu.power_w.is_none_or(f32::is_finite) && npu.temperature_c.is_none_or(f32::is_finite));
    }
    let topology = parse_topology(&text);
    assert_eq!(topology.cpus.len(), topology.names.len());
    assert!(topology.links.iter().all(|(from, to, _)| from.max(to) < &topology.names.len()));
});
