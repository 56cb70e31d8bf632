//! Rank tables of Ascend clusters.

use hcomm_topology::formats::ascend::RankTable;
use serde_json::json;

use crate::support::{Tally, data, expected};
use crate::xml::entries;

#[test]
fn rank_tables() {
    let mut tally = Tally::new("rank tables");
    let Some(all) = expected("ascend") else { return };
    for (name, entry) in entries(&all).into_iter().filter(|(name, _)| !name.starts_with('_')) {
        let table = RankTable::from_file(data(&format!("ascend/{name}")));
        let machine = format!("ascend/{name}");
        tally.equal(&machine, "valid", json!(table.is_ok()), entry["valid"].clone());
        match table {
            Ok(table) => {
                tally.equal(&machine, "ranks", json!(table.ranks()), entry["ranks"].clone());
                tally.equal(&machine, "servers", json!(table.servers.len()), entry["servers"].clone());
                let pods = Some(table.super_pods.len()).filter(|pods| *pods > 0);
                tally.equal(&machine, "super_pods", json!(pods), entry.get("super_pods").cloned().unwrap_or_default());
            }
            Err(error) => {
                let why = entry["why"].as_str().unwrap();
                let word = if why.contains("contiguous") { "contiguous" } else { "completed" };
                tally.equal(&machine, &format!("{error} says why"), error.to_string().contains(word), true);
            }
        }
    }
}
