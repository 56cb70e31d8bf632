//! Texts of `/sys` and `/proc`: sets of processors read back as they were printed, and lines of control groups and processor models
//! are read or refused, whatever they hold.

#![no_main]
#![allow(dead_code)]

use hcomm_topology::{CpuSet, Root};
use libfuzzer_sys::fuzz_target;

#[path = "../../hcomm-topology/src/limits/groups.rs"]
mod groups;
#[path = "../../hcomm-topology/src/cpus/model.rs"]
mod model;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for set in [CpuSet::parse_list(&text), CpuSet::parse_mask(&text)].into_iter().flatten() {
        assert_eq!(CpuSet::parse_list(&set.to_string()), Some(set));
    }
    if let Some((controllers, path)) = groups::membership(&text) {
        assert!(!controllers.contains(':') && !path.split('/').any(|part| part == ".."));
    }
    let _ = groups::mount(&text);
    let named = model::Model::of(&text).name;
    assert!(named.is_none_or(|name| !name.is_empty() && name.trim() == name));
});
