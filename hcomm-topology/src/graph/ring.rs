//! Rings over a set of accelerators.

use serde::Serialize;

use super::{Graph, Relation};

/// A ring over devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ring {
    /// Indices of the devices in order; the last is followed by the first.
    pub order: Vec<usize>,
    /// The relation of its weakest pair of neighbours.
    pub weakest: Relation,
    /// Lanes that it has on each pair of neighbours, where all are direct links and their lanes are known.
    pub lanes: Option<u32>,
    /// GB/s that it can carry: the estimate of its slowest pair; of one of several rings, its share.
    pub gb_per_s: Option<f64>,
}

/// As many rings as NCCL has channels at most.
const MOST_RINGS: usize = 32;
/// Up to here the best ring is found exactly, in a table of every set of devices: 2^15 sets.
const EXACT: usize = 16;
/// Levels of strength that are told apart. With 16 devices the costs of so many fit in 64 bits.
const LEVELS: usize = 15;

/// How strong the way between two devices is: greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Strength {
    /// 7 less the distance of the relation.
    nearness: u8,
    /// MB/s, or lanes where bandwidth is not known of all; 0 where it does not count.
    amount: u64,
}

impl Graph {
    /// The ring over `devices` whose weakest pair of neighbours is the best possible, of those the one with the fewest pairs so weak,
    /// and so on: over direct links alone where such a ring exists. Exact up to 16 devices, near to it for more. `None` for fewer than two.
    pub fn ring(&self, devices: &[usize]) -> Option<Ring> {
        let lanes = Lanes::all(self, devices);
        let order = best_cycle(devices.len(), |a, b| self.strength(devices, a, b, &lanes))?;
        Some(self.describe(devices, &order, &lanes))
    }

    /// Rings that share no lane of a direct link, the best first; together they use what the links allow. Where there is none over
    /// direct links alone, or the links go through a switch, one ring uses all there is.
    pub fn rings(&self, devices: &[usize]) -> Vec<Ring> {
        let mut lanes = Lanes::all(self, devices);
        let mut rings: Vec<Ring> = Vec::new();
        while rings.len() < MOST_RINGS {
            let Some(order) = best_cycle(devices.len(), |a, b| self.strength(devices, a, b, &lanes)) else { break };
            let ring = self.describe(devices, &order, &lanes);
            let neighbours = || order.iter().copied().zip(order.iter().copied().cycle().skip(1)).take(order.len());
            let direct = neighbours().all(|(a, b)| lanes.left(a, b) > 0);
            if !direct && !rings.is_empty() {
                break;
            }
            let shared = neighbours().any(|(a, b)| pair(devices, a, b).is_some_and(|(a, b)| self.is_switched(a, b)));
            rings.push(ring);
            // Two devices are one pair, not a ring of two: all lanes are used.
            if !direct || shared || devices.len() < 3 {
                break;
            }
            let used = neighbours().map(|(a, b)| lanes.left(a, b)).min().unwrap_or(0);
            neighbours().for_each(|(a, b)| lanes.take(a, b, used));
        }
        rings
    }

    fn describe(&self, devices: &[usize], order: &[usize], lanes: &Lanes) -> Ring {
        let pairs: Vec<(usize, usize)> =
            order.iter().copied().zip(order.iter().copied().cycle().skip(1)).take(order.len()).collect();
        let known = |(a, b): &(usize, usize)| pair(devices, *a, *b);
        let relations = pairs.iter().filter_map(known).map(|(a, b)| self.weaker(a, b));
        let weakest = relations.max_by_key(|relation| match relation {
            Relation::Link(_, count) => (relation.distance(), u32::MAX - count.unwrap_or(0)),
            other => (other.distance(), 0),
        });
        let counted = lanes.counted && weakest.is_some_and(Relation::is_link);
        let share = pairs.iter().map(|(a, b)| {
            let (from, to) = pair(devices, *a, *b)?;
            let all = self.estimate(from, to).gb_per_s?;
            match self.relation(from, to) {
                Relation::Link(_, Some(count)) if count > 0 => {
                    Some(all * f64::from(lanes.left(*a, *b)) / f64::from(count))
                }
                _ => Some(all),
            }
        });
        let rates: Option<Vec<f64>> = share.collect();
        let own = pairs.iter().map(|(a, b)| lanes.left(*a, *b)).min();
        Ring {
            order: order.iter().filter_map(|at| devices.get(*at).copied()).collect(),
            weakest: weakest.unwrap_or(Relation::Unknown),
            lanes: own.filter(|_| counted),
            gb_per_s: rates.and_then(|rates| rates.into_iter().reduce(f64::min)),
        }
    }

    /// The relation of a pair, of the two directions the weaker.
    fn weaker(&self, a: usize, b: usize) -> Relation {
        let (there, back) = (self.relation(a, b), self.relation(b, a));
        if there.distance() >= back.distance() { there } else { back }
    }

    fn strength(&self, devices: &[usize], a: usize, b: usize, lanes: &Lanes) -> Strength {
        let Some((from, to)) = pair(devices, a, b) else { return Strength { nearness: 0, amount: 0 } };
        let relation = self.weaker(from, to);
        let left = lanes.left(a, b);
        match relation {
            Relation::Link(_, count) if left > 0 => {
                let whole = if lanes.rated {
                    self.estimate(from, to).gb_per_s.map(|rate| (rate * 1000.0) as u64)
                } else {
                    None
                };
                let amount = match (whole, count) {
                    (Some(whole), Some(count)) if count > 0 => whole * u64::from(left) / u64::from(count),
                    (Some(whole), _) => whole,
                    (None, _) => u64::from(left),
                };
                Strength { nearness: 7 - relation.distance(), amount }
            }
            // All lanes are taken by other rings: what is beside them is slower than any.
            Relation::Link(..) => Strength { nearness: 0, amount: 0 },
            other => Strength { nearness: 7 - other.distance(), amount: 0 },
        }
    }
}

fn pair(devices: &[usize], a: usize, b: usize) -> Option<(usize, usize)> {
    Some((*devices.get(a)?, *devices.get(b)?))
}

/// The lanes of direct links that are still free, by positions in the set of devices.
struct Lanes {
    n: usize,
    free: Vec<u32>,
    /// Whether the lanes of all direct links are known.
    counted: bool,
    /// Whether the bandwidth of all direct links is known.
    rated: bool,
}

impl Lanes {
    fn all(graph: &Graph, devices: &[usize]) -> Lanes {
        let n = devices.len();
        let mut lanes = Lanes { n, free: Vec::with_capacity(n * n), counted: true, rated: true };
        for a in devices {
            for b in devices {
                let relation = graph.weaker(*a, *b);
                lanes.free.push(match relation {
                    Relation::Link(_, count) => count.unwrap_or(1),
                    _ => 0,
                });
                if let Relation::Link(_, count) = relation {
                    lanes.counted &= count.is_some();
                    lanes.rated &= graph.estimate(*a, *b).gb_per_s.is_some();
                }
            }
        }
        lanes
    }

    fn left(&self, a: usize, b: usize) -> u32 {
        self.free.get(a * self.n + b).copied().unwrap_or(0)
    }

    fn take(&mut self, a: usize, b: usize, count: u32) {
        for at in [a * self.n + b, b * self.n + a] {
            if let Some(free) = self.free.get_mut(at) {
                *free = free.saturating_sub(count);
            }
        }
    }
}

/// The cycle through all of `0..n` with the fewest steps of the weakest kind, of those the fewest of the next, and so on. It begins at 0.
fn best_cycle(n: usize, strength: impl Fn(usize, usize) -> Strength) -> Option<Vec<usize>> {
    if n < 2 {
        return None;
    }
    let mut levels: Vec<Strength> =
        (0..n).flat_map(|a| (0..a).map(move |b| (a, b))).map(|(a, b)| strength(a, b)).collect();
    levels.sort_by(|a, b| b.cmp(a));
    levels.dedup();
    if levels.len() == 1 {
        return Some((0..n).collect());
    }
    // A step of one level costs more than a whole cycle of the levels above it.
    let base = n as u64 + 1;
    let cost = |a: usize, b: usize| {
        let level = levels.iter().position(|level| *level == strength(a, b)).unwrap_or(levels.len());
        let most = if n <= EXACT { LEVELS } else { (64.0 / (base as f64).log2()) as usize - 1 };
        match (level + most).saturating_sub(levels.len().max(most)) {
            0 => 0,
            level => base.saturating_pow(level as u32 - 1),
        }
    };
    let costs: Vec<u64> = (0..n * n).map(|at| if at / n == at % n { 0 } else { cost(at / n, at % n) }).collect();
    if n <= EXACT { exact(n, &costs) } else { Some(heuristic(n, &costs)) }
}

/// The cheapest cycle by the table of every set of devices and last device (Held and Karp 1962).
fn exact(n: usize, costs: &[u64]) -> Option<Vec<usize>> {
    let others = n - 1;
    let cost = |a: usize, b: usize| costs.get(a * n + b).copied().unwrap_or(u64::MAX);
    // best[set * others + last]: the cheapest way from 0 through the set (bit i is device i + 1) that ends at device last + 1.
    let mut best = vec![(u64::MAX, 0_u8); others << others];
    for last in 0..others {
        *best.get_mut((1 << last) * others + last)? = (cost(0, last + 1), 0);
    }
    for set in 1..1_usize << others {
        for last in (0..others).filter(|last| set >> last & 1 == 1) {
            let (so_far, _) = *best.get(set * others + last)?;
            if so_far == u64::MAX {
                continue;
            }
            for next in (0..others).filter(|next| set >> next & 1 == 0) {
                let place = best.get_mut((set | 1 << next) * others + next)?;
                let through = so_far.saturating_add(cost(last + 1, next + 1));
                if through < place.0 {
                    *place = (through, last as u8);
                }
            }
        }
    }
    let mut set = (1 << others) - 1;
    let whole =
        |last: &usize| best.get(set * others + last).map(|(so_far, _)| so_far.saturating_add(cost(last + 1, 0)));
    let mut last = (0..others).min_by_key(whole)?;
    let mut order = vec![0; n];
    for place in (1..n).rev() {
        *order.get_mut(place)? = last + 1;
        let before = usize::from(best.get(set * others + last)?.1);
        set &= !(1 << last);
        last = before;
    }
    Some(order)
}

/// A cheap cycle: the nearest neighbour next, then parts turned round while that helps (2-opt).
fn heuristic(n: usize, costs: &[u64]) -> Vec<usize> {
    let cost = |a: usize, b: usize| costs.get(a * n + b).copied().unwrap_or(u64::MAX);
    let mut order = vec![0];
    let mut left: Vec<usize> = (1..n).collect();
    let mut last = 0;
    while let Some(at) = (0..left.len()).min_by_key(|at| left.get(*at).map(|next| cost(last, *next))) {
        last = left.remove(at);
        order.push(last);
    }
    let mut better = true;
    // Each turn makes the cycle cheaper, so it ends; the bound keeps the time in hand.
    for _ in 0..100 {
        if !std::mem::take(&mut better) {
            break;
        }
        for first in 0..n - 1 {
            for end in first + 2..n {
                let (Some(&a), Some(&b), Some(&c)) = (order.get(first), order.get(first + 1), order.get(end)) else {
                    continue;
                };
                let d = order.get(end + 1).copied().unwrap_or(0);
                if a != d && cost(a, c).saturating_add(cost(b, d)) < cost(a, b).saturating_add(cost(c, d)) {
                    if let Some(part) = order.get_mut(first + 1..=end) {
                        part.reverse();
                    }
                    better = true;
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of `n` GPUs with the word that `word` gives for each pair.
    fn graph(n: usize, word: impl Fn(usize, usize) -> String) -> Graph {
        let labels: Vec<String> = (0..n).map(|at| format!("GPU{at}")).collect();
        let row = |a: usize| (0..n).map(|b| if a == b { "X".to_owned() } else { word(a.min(b), a.max(b)) }).collect();
        let words: Vec<Vec<String>> = (0..n).map(row).collect();
        Graph::from_words(&labels, &words).unwrap()
    }

    #[test]
    fn direct_links_alone_where_such_a_ring_exists() {
        // Two pairs with bridges: the ring has both.
        let pairs = graph(4, |a, b| if (a, b) == (0, 2) || (a, b) == (1, 3) { "NV4".into() } else { "SYS".into() });
        let ring = pairs.ring(&[0, 1, 2, 3]).unwrap();
        assert_eq!(ring.weakest, Relation::Sys);
        let next = |device: usize| ring.order.iter().position(|at| *at == device).unwrap();
        assert!([(0, 2), (1, 3)].iter().all(|(a, b)| matches!(next(*a).abs_diff(next(*b)), 1 | 3)), "{ring:?}");
        assert_eq!(pairs.rings(&[0, 1, 2, 3]).len(), 1);
        // A cycle of links, and nothing else near.
        let cycle = graph(6, |a, b| {
            if [(0, 3), (1, 3), (1, 4), (2, 4), (2, 5), (0, 5)].contains(&(a, b)) { "NV1" } else { "PIX" }.into()
        });
        let ring = cycle.ring(&[0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!((ring.order, ring.lanes), (vec![0, 5, 2, 4, 1, 3], Some(1)));
    }

    #[test]
    fn rings_share_no_lane() {
        let mesh = graph(8, |_, _| "NV1".into());
        let rings = mesh.rings(&(0..8).collect::<Vec<_>>());
        assert_eq!(rings.len(), 3, "seven lanes at each device are three rings and one over");
        assert!(rings.iter().all(|ring| ring.lanes == Some(1)));
        assert_eq!(graph(2, |_, _| "NV4".into()).rings(&[0, 1]).len(), 1);
        assert!(graph(1, |_, _| String::new()).rings(&[0]).is_empty());
        assert!(mesh.rings(&[]).is_empty() && mesh.ring(&[99]).is_none());
    }

    #[test]
    fn the_best_of_all_orders() {
        // Against every order of seven devices.
        let word = |a: usize, b: usize| format!("NV{}", 1 + (a * 7 + b * 5 + a * b) % 6);
        let graph = graph(7, word);
        let narrowest = |order: &[usize]| {
            let pairs = order.iter().zip(order.iter().cycle().skip(1));
            pairs.map(|(a, b)| 1 + (a.min(b) * 7 + a.max(b) * 5 + a * b) % 6).min().unwrap()
        };
        fn orders(prefix: &mut Vec<usize>, n: usize, best: &mut usize, narrowest: &dyn Fn(&[usize]) -> usize) {
            if prefix.len() == n {
                *best = narrowest(prefix).max(*best);
            }
            for next in (0..n).filter(|next| !prefix.contains(next)).collect::<Vec<_>>() {
                prefix.push(next);
                orders(prefix, n, best, narrowest);
                prefix.pop();
            }
        }
        let mut best = 0;
        orders(&mut vec![0], 7, &mut best, &narrowest);
        assert_eq!(narrowest(&graph.ring(&[0, 1, 2, 3, 4, 5, 6]).unwrap().order), best);
    }

    #[test]
    fn many_devices_take_no_time() {
        let word = |a: usize, b: usize| if (a + b).is_multiple_of(3) { "NV2".into() } else { "SYS".into() };
        let all: Vec<usize> = (0..16).collect();
        let sixteen = graph(16, word);
        let ring = sixteen.ring(&all).unwrap();
        assert_eq!(ring.order.len(), 16);
        let many = graph(72, |_, _| "NV18".into());
        assert_eq!(many.rings(&(0..72).collect::<Vec<_>>())[0].lanes, Some(18));
        let mixed = graph(40, word);
        let mut order = mixed.ring(&(0..40).collect::<Vec<_>>()).unwrap().order;
        order.sort_unstable();
        assert_eq!(order, (0..40).collect::<Vec<_>>());
    }
}
