//! Sets of processor or node numbers, as the kernel writes them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};

/// A set of processor (or NUMA node) numbers; printed as the kernel's lists: `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// No machine has more processors than this; a list that names more is damaged.
const MOST: u32 = 1 << 20;

impl CpuSet {
    /// Reads a list such as `0-3,8` (also with strides, `0-14:2/4`, as the kernel writes for interrupts), with any space or NUL
    /// bytes around it. `None` if it is no such list. An empty text is the empty set.
    pub fn parse_list(text: &str) -> Option<CpuSet> {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let mut set = BTreeSet::new();
        if text.is_empty() {
            return Some(CpuSet(set));
        }
        for part in text.split(',') {
            let (range, stride) = match part.trim().split_once(':') {
                Some((range, stride)) => (range, Some(stride.split_once('/')?)),
                None => (part.trim(), None),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
            let (used, group) = match stride {
                Some((used, group)) => (used.parse::<u32>().ok()?, group.parse::<u32>().ok().filter(|n| *n > 0)?),
                None => (1, 1),
            };
            if first > last || last >= MOST {
                return None;
            }
            set.extend((first..=last).filter(|number| (number - first) % group < used));
        }
        Some(CpuSet(set))
    }

    /// Reads a mask such as `00000000,0000000f`: hexadecimal words of 32 bits, the last the lowest. `None` if it is no mask.
    pub fn parse_mask(text: &str) -> Option<CpuSet> {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let mut set = BTreeSet::new();
        for (word, digits) in (0_u32..).zip(text.rsplit(',')) {
            let digits = digits.trim().trim_start_matches("0x");
            if digits.is_empty() || digits.len() > 8 || word >= MOST / 32 {
                return None;
            }
            let bits = u32::from_str_radix(digits, 16).ok()?;
            set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 32 + bit));
        }
        Some(CpuSet(set))
    }

    /// As the kernel writes masks: `00000000,0000000f`.
    pub fn to_mask(&self) -> String {
        let mut words = vec![0_u32; self.iter().next_back().map_or(1, |last| last as usize / 32 + 1)];
        for number in self.iter() {
            if let Some(word) = words.get_mut(number as usize / 32) {
                *word |= 1 << (number % 32);
            }
        }
        words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers that are in both.
    #[must_use]
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }

    /// The numbers that are in either.
    #[must_use]
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.union(&other.0).copied().collect())
    }

    /// Whether all numbers of this set are in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        CpuSet(numbers.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut numbers = self.iter().peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            let comma = if text.is_empty() { "" } else { "," };
            text += &if first == last { format!("{comma}{first}") } else { format!("{comma}{first}-{last}") };
        }
        f.pad(&text)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_kernels_write_them() {
        let list = |text| CpuSet::parse_list(text).map(|set| set.to_string());
        assert_eq!(list("0-3,8").as_deref(), Some("0-3,8"));
        assert_eq!(list("0-31\n\0").as_deref(), Some("0-31"), "old kernels end with a NUL");
        assert_eq!(list("\n").as_deref(), Some(""));
        assert_eq!(list("8-87,96-175").unwrap(), "8-87,96-175", "POWER9");
        assert_eq!(list("0-14:2/4").unwrap(), "0-1,4-5,8-9,12-13");
        assert_eq!(list("3,1,2").unwrap(), "1-3");
        for bad in ["a", "3-1", "-1", "1-", "0-4294967295", "0-3:1/0", "0-3:2"] {
            assert_eq!(list(bad), None, "{bad}");
        }
    }

    #[test]
    fn masks_as_kernels_write_them() {
        let mask = |text| CpuSet::parse_mask(text).map(|set| set.to_string());
        assert_eq!(mask("00000fff").unwrap(), "0-11");
        assert_eq!(mask("00000000,ffffffff,00000000,00000000\n\0").unwrap(), "64-95");
        assert_eq!(mask("0").unwrap(), "");
        assert_eq!(mask("0x3").unwrap(), "0-1");
        for bad in ["", "g", "1,,2", "123456789"] {
            assert_eq!(mask(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back(numbers in proptest::collection::btree_set(0_u32..2000, 0..100)) {
            let set: CpuSet = numbers.into_iter().collect();
            proptest::prop_assert_eq!(CpuSet::parse_list(&set.to_string()), Some(set.clone()));
            proptest::prop_assert_eq!(CpuSet::parse_mask(&set.to_mask()), Some(set));
        }
    }
}
