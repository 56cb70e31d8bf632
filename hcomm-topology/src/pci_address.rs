//! Where a PCI function is: domain, bus, device, function.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of a PCI function, as in `0000:3b:00.1`. The domain has 4 to 8 hexadecimal digits: controllers behind an
/// Intel volume manager or on some ARM and hyper-visor hosts have domains above `ffff` (field report F18). Letter case does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciAddress {
    /// Domain, also called segment.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is not a PCI address such as 0000:3b:00.0");
        let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            let clean = digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
            clean.then(|| u32::from_str_radix(part, 16).ok()).flatten().ok_or_else(refuse)
        };
        let (rest, function) = text.rsplit_once('.').ok_or_else(refuse)?;
        let (rest, device) = rest.rsplit_once(':').ok_or_else(refuse)?;
        // Some tools leave the domain out when it is 0.
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
        let address = PciAddress {
            domain: hex(domain, 4..=8)?,
            bus: hex(bus, 2..=2)? as u8,
            device: hex(device, 2..=2)? as u8,
            function: hex(function, 1..=1)? as u8,
        };
        if address.device < 32 && address.function < 8 { Ok(address) } else { Err(refuse()) }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for PciAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_tools_write() {
        let read = |text: &str| text.parse::<PciAddress>().map(|address| address.to_string());
        assert_eq!(read("0000:3b:00.1").unwrap(), "0000:3b:00.1");
        assert_eq!(read("0000:9D:00.0").unwrap(), "0000:9d:00.0", "upper case, as npu-smi writes it");
        assert_eq!(read("10000:00:04.0").unwrap(), "10000:00:04.0", "five digits (F18)");
        assert_eq!(read("00000000:19:00.0").unwrap(), "0000:19:00.0", "eight digits, as nvidia-smi writes it");
        assert_eq!(read("3b:00.0").unwrap(), "0000:3b:00.0");
        for bad in [
            "",
            "0000:3b:00",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "000:3b:00.0",
            "0000:3b:00.0.0",
            "123456789:00:00.0",
            "0000:+b:00.0",
        ] {
            assert!(read(bad).unwrap_err().contains(&format!("{bad:?}")), "{bad}");
        }
    }

    #[test]
    fn order_is_by_number_and_width_is_padded() {
        let mut list: Vec<PciAddress> =
            ["10000:00:04.0", "0001:00:00.0", "0000:9b:00.0"].iter().map(|text| text.parse().unwrap()).collect();
        list.sort();
        assert_eq!(
            list.iter().map(PciAddress::to_string).collect::<Vec<_>>(),
            ["0000:9b:00.0", "0001:00:00.0", "10000:00:04.0"]
        );
        assert_eq!(format!("{:>14}", list[0]), "  0000:9b:00.0");
    }
}
