//! The words for how two devices reach each other.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::LinkKind;

/// How two devices reach each other, in the words of `nvidia-smi topo -m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The same device: `X`.
    Same,
    /// A direct link: `NV12`, `XGMI`, `HCCS`, `SIO`; with the number of lanes, where it is known.
    Link(LinkKind, Option<u32>),
    /// At most one PCIe switch between them, which two functions of one card have too: `PIX`.
    Pix,
    /// Several switches, not through the host bridge: `PXB`.
    Pxb,
    /// The same PCI root bus, through other root ports: `PHB`.
    Phb,
    /// Another root bus, the same set of NUMA nodes: `NODE`.
    Node,
    /// Other NUMA nodes: `SYS`.
    Sys,
    /// What the source does not tell: `?`. Never taken as near.
    Unknown,
}

impl Relation {
    /// 0 for the nearest. All direct links are equally near; what is not known is farther than all that is.
    pub fn distance(self) -> u8 {
        match self {
            Relation::Same => 0,
            Relation::Link(..) => 1,
            Relation::Pix => 2,
            Relation::Pxb => 3,
            Relation::Phb => 4,
            Relation::Node => 5,
            Relation::Sys => 6,
            Relation::Unknown => 7,
        }
    }

    /// Whether it is a direct link.
    pub fn is_link(self) -> bool {
        matches!(self, Relation::Link(..))
    }
}

/// Words of links, and whether a number of lanes is a part of the word.
const LINKS: [(&str, LinkKind, bool); 7] = [
    ("NV", LinkKind::NvLink, true),
    ("C2C", LinkKind::NvLinkC2c, false),
    ("XGMI", LinkKind::Xgmi, false),
    ("HCCS_SW", LinkKind::HccsSwitch, false),
    ("HCCS", LinkKind::Hccs, false),
    ("SIO", LinkKind::Sio, false),
    ("XL", LinkKind::XeLink, true),
];

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Relation::Same => "X",
            Relation::Pix => "PIX",
            Relation::Pxb => "PXB",
            Relation::Phb => "PHB",
            Relation::Node => "NODE",
            Relation::Sys => "SYS",
            Relation::Unknown => "?",
            Relation::Link(kind, count) => {
                let (word, _, counted) =
                    LINKS.iter().find(|(_, known, _)| known == kind).copied().unwrap_or(("?", *kind, false));
                return match count.filter(|_| counted) {
                    Some(count) => f.pad(&format!("{word}{count}")),
                    None => f.pad(word),
                };
            }
        };
        f.pad(word)
    }
}

impl FromStr for Relation {
    type Err = String;

    /// Reads a word in either case. `-`, `?`, `N/A` and an empty word are unknown.
    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.trim().to_ascii_uppercase();
        Ok(match word.as_str() {
            "X" => Relation::Same,
            "PIX" => Relation::Pix,
            "PXB" => Relation::Pxb,
            "PHB" => Relation::Phb,
            "NODE" => Relation::Node,
            "SYS" => Relation::Sys,
            "" | "-" | "?" | "N/A" => Relation::Unknown,
            word => {
                let link = |(name, kind, _): &(&str, LinkKind, bool)| {
                    let count = word.strip_prefix(name)?;
                    let count = if count.is_empty() { None } else { Some(count.parse().ok()?) };
                    Some(Relation::Link(*kind, count))
                };
                LINKS
                    .iter()
                    .find_map(link)
                    .ok_or_else(|| format!("{text:?} is no word such as X, NV12, PIX, PXB, PHB, NODE, SYS"))?
            }
        })
    }
}

impl Serialize for Relation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Relation::Unknown => serializer.serialize_none(),
            known => serializer.collect_str(known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        let words = [
            "X", "NV12", "NV", "C2C", "XGMI", "HCCS_SW", "HCCS", "SIO", "XL4", "PIX", "PXB", "PHB", "NODE", "SYS", "?",
        ];
        for word in words {
            assert_eq!(word.parse::<Relation>().unwrap().to_string(), word);
        }
        assert_eq!("pix".parse(), Ok(Relation::Pix));
        assert_eq!("N/A".parse(), Ok(Relation::Unknown));
        assert_eq!("NV12".parse(), Ok(Relation::Link(LinkKind::NvLink, Some(12))));
        for bad in ["NVX", "PXN", "NV-1", "XGMI!"] {
            assert!(bad.parse::<Relation>().unwrap_err().contains(bad), "{bad}");
        }
        assert_eq!(format!("{:>5}", Relation::Pix), "  PIX");
    }

    #[test]
    fn unknown_is_never_near() {
        let all = ["X", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS", "?"];
        let distances: Vec<u8> = all.iter().map(|word| word.parse::<Relation>().unwrap().distance()).collect();
        assert_eq!(distances, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(serde_json::to_string(&Relation::Unknown).unwrap(), "null");
    }
}
