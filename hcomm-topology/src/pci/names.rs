//! Names of vendors and devices, from the system's `pci.ids` (format: <https://pci-ids.ucw.cz/>).

use std::collections::{BTreeMap, BTreeSet};

use crate::{PciFunction, Root};

/// Where distributions keep the table.
const PLACES: [&str; 2] = ["usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"];

/// Names the functions by the table below the root, else by this machine's: a number means the same everywhere.
pub(super) fn add_names(root: &Root, functions: &mut [PciFunction]) {
    let wanted: BTreeSet<(u16, u16)> = functions.iter().filter_map(|f| Some((f.vendor?, f.device?))).collect();
    if wanted.is_empty() {
        return;
    }
    let table = |root: &Root| PLACES.iter().find_map(|place| root.bytes(place));
    let Some(table) = table(root).or_else(|| table(&Root::this_machine())) else { return };
    let names = look_up(&table, &wanted);
    for function in functions {
        let key = function.vendor.zip(function.device);
        function.name = key.and_then(|key| names.get(&key)).cloned();
    }
}

/// The names, `vendor device`, of those wanted that the table has. One pass, and only lines of wanted vendors are looked at closely.
fn look_up(table: &[u8], wanted: &BTreeSet<(u16, u16)>) -> BTreeMap<(u16, u16), String> {
    let mut names = BTreeMap::new();
    let mut vendor: Option<(u16, &[u8])> = None;
    for line in table.split(|byte| *byte == b'\n') {
        match line {
            // Below the vendors, the table lists classes (`C 03  Display controller`).
            [b'C', b' ', ..] => break,
            [b'#', ..] | [] | [b'\t', b'\t', ..] => {}
            [b'\t', device @ ..] => {
                let Some((number, vendor)) = vendor else { continue };
                let Some((device, name)) = entry(device) else { continue };
                if wanted.contains(&(number, device)) {
                    let text = [vendor, name].map(|name| String::from_utf8_lossy(name).trim().to_owned());
                    names.insert((number, device), text.join(" "));
                }
            }
            _ => {
                let is_wanted = |number| wanted.range((number, 0)..=(number, u16::MAX)).next().is_some();
                vendor = entry(line).filter(|(number, _)| is_wanted(*number));
            }
        }
    }
    names
}

/// Number and name of `10de  NVIDIA Corporation`.
fn entry(line: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, name) = line.split_at_checked(4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    Some((u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?, name))
}
