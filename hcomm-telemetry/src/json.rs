//! The JSON form of a [`Snapshot`](crate::Snapshot): what derive makes of it, but for names and histograms. It is written into
//! recordings and published between hosts, so what is read may be anybody's: lists have an end, and names stay those of the tables.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::histogram::{BUCKETS, Histogram};
use crate::names::{ALGORITHMS, ELEMENTS, KINDS, Kind, OPERATIONS, TRANSPORTS};
use crate::path::STATES;

/// One of the names of a table. By this alias, as derive would otherwise take the text for a part of the input.
pub(crate) type Name = Option<&'static str>;

/// A list of at most `MOST` parts. Each part has keys that it must have, so that a short text makes no large list; this bounds the
/// ones with histograms.
pub(crate) fn at_most<'de, const MOST: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(part) = parts.next_element()? {
                if list.len() == MOST {
                    return Err(A::Error::invalid_length(MOST + 1, &self));
                }
                list.push(part);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

/// A path as text; bytes that are no UTF-8 are replaced.
pub(crate) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// A name or null; a name that this version does not know is null.
fn name<'de, D: Deserializer<'de>>(names: &[&'static str], deserializer: D) -> Result<Name, D::Error> {
    let text = Option::<Cow<'_, str>>::deserialize(deserializer)?;
    Ok(text.and_then(|text| names.iter().find(|name| **name == text).copied()))
}

pub(crate) fn algorithm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    name(&ALGORITHMS, deserializer)
}

pub(crate) fn transport<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    name(&TRANSPORTS, deserializer)
}

pub(crate) fn element<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    name(&ELEMENTS, deserializer)
}

/// As [`name`]; "unknown" is none.
pub(crate) fn socket_state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    name(&STATES[1..], deserializer)
}

pub(crate) fn operation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    name(&OPERATIONS, deserializer)
}

impl Serialize for Kind {
    /// Its name; `?` and the number where this version has no name for it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match KINDS.get(usize::from(self.0)) {
            Some(name) => serializer.serialize_str(name),
            None => serializer.collect_str(&format_args!("?{}", self.0)),
        }
    }
}

impl<'de> Deserialize<'de> for Kind {
    /// A name that this version does not know is a kind that has none.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        let known = KINDS.iter().position(|name| *name == text).map(|number| number as u8);
        let numbered = || text.strip_prefix('?')?.parse::<u8>().ok();
        Ok(Kind(known.or_else(numbered).unwrap_or(u8::MAX)))
    }
}

impl Serialize for Histogram {
    /// Pairs of bucket and count, of those that hold any.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.pairs().count()))?;
        self.pairs().try_for_each(|pair| list.serialize_element(&pair))?;
        list.end()
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        let pairs: Vec<(usize, u64)> = at_most::<BUCKETS, _, _>(deserializer)?;
        let mut counts = vec![0_u64; BUCKETS];
        for (bucket, count) in pairs {
            let held = counts.get_mut(bucket).ok_or_else(|| {
                D::Error::custom(format_args!("there is no bucket {bucket}: a histogram has {BUCKETS}"))
            })?;
            *held = held.saturating_add(count);
        }
        Ok(Histogram::from_counts(counts))
    }
}
