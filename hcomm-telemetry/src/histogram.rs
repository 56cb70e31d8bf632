//! A log-linear histogram of durations, as HdrHistogram's (hdrhistogram.org): sixteen buckets for each doubling, so that a
//! value read back is within 1/32 (3.2 %) of the one that was recorded, from 16 ns to 18 minutes; below 16 ns it is exact.

/// Bits of a value that are kept.
const PRECISION: u32 = 4;
const PER_OCTAVE: usize = 1 << PRECISION;
/// Values from 2^40 ns (18 minutes) on share the last bucket; the longest is kept beside the histogram.
const LARGEST_BIT: u32 = 40;

/// Buckets of a histogram.
pub const BUCKETS: usize = (LARGEST_BIT - PRECISION + 1) as usize * PER_OCTAVE;

/// The bucket of a duration in nanoseconds.
#[inline]
pub(crate) fn bucket_of(ns: u64) -> usize {
    if ns < PER_OCTAVE as u64 {
        return ns as usize;
    }
    let octave = ns.ilog2() - PRECISION;
    let within = (ns >> octave) as usize & (PER_OCTAVE - 1);
    ((octave as usize + 1) * PER_OCTAVE + within).min(BUCKETS - 1)
}

/// First nanosecond of a bucket, and how many it holds.
fn bounds(bucket: usize) -> (u64, u64) {
    match bucket / PER_OCTAVE {
        0 => (bucket as u64, 1),
        octave => {
            let width = 1 << (octave - 1);
            ((PER_OCTAVE + bucket % PER_OCTAVE) as u64 * width, width)
        }
    }
}

/// Durations that were counted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of the first bucket of `counts`.
    first: usize,
    /// From the first bucket that holds any to the last: durations of one operation lie close together, and a tool copies and adds
    /// many of these.
    counts: Vec<u64>,
    total: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.filled()).finish()
    }
}

impl Histogram {
    /// From the counts of its buckets; what is missing is 0.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>) -> Self {
        let mut histogram = Self::default();
        let mut filled = 0;
        for (bucket, count) in counts.into_iter().take(BUCKETS).enumerate() {
            if count == 0 && histogram.counts.is_empty() {
                continue;
            }
            if histogram.counts.is_empty() {
                histogram.first = bucket;
            }
            histogram.counts.push(count);
            histogram.total = histogram.total.saturating_add(count);
            if count > 0 {
                filled = histogram.counts.len();
            }
        }
        histogram.counts.truncate(filled);
        histogram
    }

    /// Counts a duration in nanoseconds `times` times.
    pub fn record(&mut self, ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = bucket_of(ns);
        self.cover(bucket, bucket);
        let count = &mut self.counts[bucket - self.first];
        *count = count.saturating_add(times);
        self.total = self.total.saturating_add(times);
    }

    /// Makes room for buckets, both of which will be filled.
    fn cover(&mut self, from: usize, to: usize) {
        if self.counts.is_empty() {
            self.first = from;
        }
        if from < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - from));
            self.first = from;
        }
        let length = to + 1 - self.first;
        if self.counts.len() < length {
            self.counts.resize(length, 0);
        }
    }

    /// Durations counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The duration in nanoseconds below which a share `q` (0 to 1) of all lie, as the middle of its bucket; `None` when
    /// none was counted.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let wanted = ((q.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0_u64;
        for (bucket, count) in self.pairs() {
            seen = seen.saturating_add(count);
            if seen >= wanted {
                let (low, width) = bounds(bucket);
                return Some(low + width / 2);
            }
        }
        None
    }

    /// Buckets that hold any: (first nanosecond, nanoseconds in the bucket, count), shortest first.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.pairs().map(|(bucket, count)| {
            let (low, width) = bounds(bucket);
            (low, width, count)
        })
    }

    /// Buckets that hold any, by number, with their counts.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (self.first..).zip(self.counts.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// How many lie below `ns`, by whole buckets.
    pub fn below(&self, ns: u64) -> u64 {
        let end = bucket_of(ns);
        self.pairs().take_while(|(bucket, _)| *bucket < end).fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Histogram) {
        if other.counts.is_empty() {
            return;
        }
        self.cover(other.first, other.first + other.counts.len() - 1);
        let mine = &mut self.counts[other.first - self.first..];
        for (mine, theirs) in mine.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.total = self.total.saturating_add(other.total);
    }

    /// What came after `earlier`, an older state of this one.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |bucket: usize| {
            let at = bucket.checked_sub(earlier.first)?;
            earlier.counts.get(at).copied()
        };
        let rest =
            (self.first..).zip(&self.counts).map(|(bucket, count)| count.saturating_sub(before(bucket).unwrap_or(0)));
        Self::from_counts(std::iter::repeat_n(0, self.first).chain(rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, width) = bounds(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(low + width - 1)), (bucket, bucket));
            next = low + width;
        }
        assert_eq!(next, 1 << LARGEST_BIT);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=100).for_each(|i| histogram.record(i * 1000, 1));
        let near = |q, ns: f64| {
            let got = histogram.quantile(q).unwrap() as f64;
            assert!((got - ns).abs() <= ns / 32.0 + 0.5, "{q}: {got}, not {ns}");
        };
        near(0.0, 1000.0);
        near(0.5, 50_000.0);
        near(0.99, 99_000.0);
        near(1.0, 100_000.0);
        assert_eq!((histogram.total(), histogram.below(1000), histogram.below(u64::MAX)), (100, 0, 100));
    }

    proptest! {
        #[test]
        fn a_value_read_back_is_near(ns in 0_u64..1 << LARGEST_BIT) {
            let mut histogram = Histogram::default();
            histogram.record(ns, 3);
            let got = histogram.quantile(0.5).unwrap();
            prop_assert!(got.abs_diff(ns) as f64 <= ns as f64 / 32.0);
        }

        #[test]
        fn the_difference_of_two_states_is_what_came_between(first: Vec<u32>, second: Vec<u32>) {
            let mut histogram = Histogram::default();
            first.iter().for_each(|&ns| histogram.record(ns.into(), 1));
            let earlier = histogram.clone();
            let mut between = Histogram::default();
            second.iter().for_each(|&ns| { histogram.record(ns.into(), 1); between.record(ns.into(), 1); });
            prop_assert_eq!(&histogram.since(&earlier), &between);
            let mut sum = earlier;
            sum.add(&between);
            prop_assert_eq!(sum, histogram);
        }
    }
}
