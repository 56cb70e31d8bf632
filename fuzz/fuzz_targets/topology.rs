//! Topology files of other tools: whatever is read is written and read again, and makes a graph.

#![no_main]

use hcomm_topology::Machine;
use hcomm_topology::formats::{ascend::RankTable, nccl};
use hcomm_topology::graph::Graph;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(machine) = Machine::from_xml("fuzz", text) {
        let graph = Graph::of(&machine);
        let again = Machine::from_xml("written", &nccl::write(&machine)).expect("what we write can be read");
        let same = Graph::of(&again).devices().len() == graph.devices().len();
        // Devices without an address, and names with signs that NCCL's reader does not know, are not kept.
        assert!(same || machine.accelerators.iter().any(|device| device.id.pci.is_none()) || text.contains('&'));
        let some: Vec<usize> = graph.accelerators().into_iter().take(8).collect();
        let _ = (graph.rings(&some), graph.trees(&some), graph.assign_nics(&some));
    }
    if let Ok(table) = RankTable::from_json("fuzz", text) {
        assert!(table.ranks() > 0);
    }
});
