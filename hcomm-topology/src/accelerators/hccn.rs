//! The network port on an Ascend chip: what `hccn_tool -i N ... -g` prints, lines `name: value` (Huawei, "HCCN Tool interface reference").

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Found, command};
use crate::AcceleratorPort;

/// Each answer takes some tens of milliseconds; a driver that hangs must not hang us.
const LIMIT: Duration = Duration::from_secs(3);
/// Questions, and who takes over the answer.
const QUESTIONS: [(&str, TakeOver); 6] = [
    ("-link", link),
    ("-speed", speed),
    ("-ip", address),
    ("-net_health", health),
    ("-optical", optics),
    ("-stat", counters),
];

/// Takes over what one answer says.
type TakeOver = fn(&mut AcceleratorPort, &Fields);
/// Values by their names in lower case.
pub(super) type Fields = BTreeMap<String, String>;

/// Asks for the port of each NPU that has a number on the machine; silent where the tool is not installed.
pub(super) fn add(found: &mut Found) {
    let Some(tool) = command::find("hccn_tool").map(Arc::new) else { return };
    // The numbers are those of npu-smi.
    let number = |name: &Option<String>| name.as_ref()?.strip_prefix("phy ")?.parse().ok();
    let numbered = found.accelerators.iter().enumerate().filter_map(|(at, npu)| Some((at, number(&npu.id.name)?)));
    let asking: Vec<_> = numbered
        .map(|(at, number): (usize, u32)| {
            let tool = Arc::clone(&tool);
            (at, std::thread::spawn(move || ask(&tool, number)))
        })
        .collect();
    let mut troubles = Vec::new();
    for (at, thread) in asking {
        let Ok((port, trouble)) = thread.join() else { continue };
        troubles.extend(trouble);
        if let Some(npu) = found.accelerators.get_mut(at).filter(|_| port != AcceleratorPort::default()) {
            npu.port = Some(port);
        }
    }
    if let Some(first) = troubles.first() {
        found.notes.push(format!("{first}: what it would tell of the ports of NPUs is unknown"));
    }
}

/// All that one NPU answers, and the first thing that went wrong.
fn ask(tool: &Path, number: u32) -> (AcceleratorPort, Option<String>) {
    let (mut port, mut trouble) = (AcceleratorPort::default(), None);
    for (question, take_over) in QUESTIONS {
        match command::output_of(tool, &["-i", &number.to_string(), question, "-g"], LIMIT) {
            Ok(text) => take_over(&mut port, &fields(&text)),
            Err(why) => trouble = trouble.or(why),
        }
    }
    (port, trouble)
}

/// Lines `name: value` with any space about.
pub(super) fn fields(text: &str) -> Fields {
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_lowercase(), value.trim().to_owned())).filter(|(_, value)| !value.is_empty())
    };
    text.lines().filter_map(field).collect()
}

pub(super) fn link(port: &mut AcceleratorPort, fields: &Fields) {
    port.up = match fields.get("link status").map(|status| status.to_lowercase()).as_deref() {
        Some("up") => Some(true),
        Some("down") => Some(false),
        _ => None,
    };
}

/// `200000 Mb/s`.
pub(super) fn speed(port: &mut AcceleratorPort, fields: &Fields) {
    let mbit = fields.get("speed").and_then(|speed| speed.strip_suffix("Mb/s")?.trim().parse().ok());
    port.speed_mbit_per_s = mbit.filter(|speed| *speed > 0 && *speed < u64::from(u32::MAX));
}

pub(super) fn address(port: &mut AcceleratorPort, fields: &Fields) {
    let part = |name: &str| fields.get(name)?.parse::<Ipv4Addr>().ok();
    let prefix = part("netmask").map(u32::from).filter(|mask| mask.leading_ones() + mask.trailing_zeros() >= 32);
    let own = part("ipaddr").filter(|address| !address.is_unspecified());
    port.address = own.map(|own| match prefix {
        Some(mask) => format!("{own}/{}", mask.leading_ones()),
        None => own.to_string(),
    });
}

pub(super) fn health(port: &mut AcceleratorPort, fields: &Fields) {
    port.health = fields.get("net health status").cloned();
}

/// `present: present`, `temperature: 45 C`.
pub(super) fn optics(port: &mut AcceleratorPort, fields: &Fields) {
    port.module_present = match fields.get("present").map(String::as_str) {
        Some("present") => Some(true),
        Some("not present") => Some(false),
        _ => None,
    };
    let degrees = fields.get("temperature").and_then(|text| text.split_whitespace().next()?.parse().ok());
    port.module_temperature_c = degrees.filter(|degrees: &f32| degrees.is_finite());
}

/// Names such as `mac_rx_bad_pkt_num`.
pub(super) fn counters(port: &mut AcceleratorPort, fields: &Fields) {
    let number = |(name, value): (&String, &String)| Some((name.clone(), value.parse().ok()?));
    port.counters = fields.iter().filter_map(number).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as Huawei's documents show them.
    #[test]
    fn answers() {
        let mut port = AcceleratorPort::default();
        link(&mut port, &fields("link status: UP\n"));
        speed(&mut port, &fields("Speed: 200000 Mb/s\n"));
        address(&mut port, &fields("ipaddr:10.20.0.10\nnetmask:255.255.255.0\n"));
        health(&mut port, &fields("net health status: Success\n"));
        optics(&mut port, &fields("optical info:\npresent              : not present\nTemp High Thres      : 70 C\n"));
        counters(&mut port, &fields("packet statistics:\nmac_rx_bad_pkt_num:3\nnic_tx_all_oct_num:16921741\n"));
        let expected = AcceleratorPort {
            up: Some(true),
            speed_mbit_per_s: Some(200_000),
            address: Some("10.20.0.10/24".to_owned()),
            health: Some("Success".to_owned()),
            module_present: Some(false),
            module_temperature_c: None,
            counters: [("mac_rx_bad_pkt_num".to_owned(), 3), ("nic_tx_all_oct_num".to_owned(), 16_921_741)].into(),
        };
        assert_eq!(port, expected);
        optics(&mut port, &fields("present : present\ntemperature : 45 C\n"));
        assert_eq!((port.module_present, port.module_temperature_c), (Some(true), Some(45.0)));
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let mut port = AcceleratorPort::default();
        for text in
            ["", "hccn_tool is busy, please try again.\n", "link status:\nSpeed: -\nipaddr:0.0.0.0\nnetmask:-1\n"]
        {
            for (_, take_over) in QUESTIONS {
                take_over(&mut port, &fields(text));
            }
            assert_eq!(port, AcceleratorPort::default(), "{text}");
        }
        address(&mut port, &fields("ipaddr:10.0.0.1\nnetmask:255.0.255.0"));
        assert_eq!(port.address.as_deref(), Some("10.0.0.1"), "no prefix has this mask");
        speed(&mut port, &fields("Speed: 4294967295 Mb/s"));
        assert_eq!(port.speed_mbit_per_s, None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "((link status|Speed|ipaddr|netmask|present|x)[ ]?:[ ]?[-0-9A-Za-z./ ]{0,20}\n|\\PC{0,20}\n){0,10}") {
            for (_, take_over) in QUESTIONS {
                take_over(&mut AcceleratorPort::default(), &fields(&text));
            }
        }
    }
}
