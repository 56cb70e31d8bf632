//! Every algorithm and collective for every rank count from 1 to 64.

use super::*;

/// Counts of a collective at a size: of blocks also uneven ones, with zeros, and nearly all of them zero.
fn counts(collective: Collective, n: usize, count: u64) -> Vec<Counts> {
    let m = n as u64;
    let even = Counts::Even(if count > m { count / m } else { count });
    let per_rank = |f: &dyn Fn(u64) -> u64| Counts::PerRank((0..m).map(f).collect());
    match collective {
        Collective::ReduceScatter | Collective::AllGather | Collective::Scatter | Collective::Gather => vec![
            even,
            per_rank(&|rank| (rank * 7 + count) % 23),
            per_rank(&|rank| if rank % 3 == 1 { 0 } else { count % 29 + rank }),
            per_rank(&|rank| if rank == m / 2 { count } else { 0 }),
        ],
        Collective::AllToAll => {
            let pairs = (0..n * n).map(|pair| [0, 1, count % 17, 3][(pair * 31 + n) % 4]);
            vec![even, Counts::Matrix(pairs.collect())]
        }
        _ => vec![Counts::Even(count)],
    }
}

/// The longest message that most algorithms would send if chunks were no matter.
fn longest(collective: Collective, counts: &Counts, n: u64) -> u64 {
    match counts {
        Counts::Even(count) if collective == Collective::AllReduce => count.div_ceil(n),
        Counts::Even(count) => *count,
        Counts::PerRank(counts) | Counts::Matrix(counts) => counts.iter().copied().max().unwrap_or(0),
    }
}

/// A few shapes together with all the ways to run them would be millions: small rank counts get many of the combinations,
/// and for the others each shape is run one way, another one each time.
fn sweep(algorithm: Algorithm, reach: Reach) {
    let mut turn = 0;
    for n in 1..=64usize {
        let m = n as u64;
        for collective in collectives(algorithm) {
            for count in [0, 1, 7, m - 1, m, 1003] {
                for (pattern, counts) in counts(collective, n, count).into_iter().enumerate() {
                    let ways = match n {
                        0..=6 => 8,
                        7..=16 => 1,
                        _ => usize::from(pattern == 0 || pattern as u64 == (m + count) % 4),
                    };
                    // With many ranks few rounds: more of them show nothing new.
                    let half = longest(collective, &counts, m) / 2 + 1;
                    let chunks = if n <= 16 { [1 << 20, 16, 5, 100] } else { [1 << 20, half, 1 << 20, half + 100] };
                    for _ in 0..ways {
                        turn += 1;
                        let mixes = host_mixes(n);
                        let request = Request {
                            counts: counts.clone(),
                            root: if collective.rooted() { turn * 5 % n } else { 0 },
                            chunk: chunks[turn % 4],
                            channels: 1 + turn / 4 % 3,
                            in_place: turn / 2 % 2 == 1,
                            hosts: mixes[turn % mixes.len()].clone(),
                            reach,
                            ..request(algorithm, collective, n, 0)
                        };
                        if n == 1 || !refused(&request) {
                            must_verify(&request);
                        }
                    }
                }
            }
        }
    }
}

macro_rules! sweeps {
    ($($name:ident: $algorithm:ident, $reach:ident;)*) => {$(
        #[test]
        fn $name() {
            sweep(Algorithm::$algorithm, Reach::$reach);
        }
    )*};
}
sweeps! {
    ring: Ring, Messages;
    recursive_doubling: RecursiveDoubling, Messages;
    halving_doubling: HalvingDoubling, Messages;
    tree: Tree, Messages;
    direct: Direct, Messages;
    direct_remote: Direct, ReadWrite;
    direct_read: Direct, Read;
    bruck: Bruck, Messages;
    pairwise: Pairwise, Messages;
    binomial: Binomial, Messages;
    chain: Chain, Messages;
    hierarchical: Hierarchical, Messages;
}

#[test]
fn every_root() {
    for algorithm in Algorithm::ALL {
        for collective in collectives(algorithm).into_iter().filter(|collective| collective.rooted()) {
            for n in [2, 3, 5, 8, 13] {
                for root in 0..n {
                    for in_place in [false, true] {
                        for reach in [Reach::Messages, Reach::Read, Reach::ReadWrite] {
                            let hosts = host_mixes(n)[root % 7].clone();
                            let plain = request(algorithm, collective, n, 37);
                            must_verify(&Request { root, in_place, reach, hosts, chunk: 10, channels: 2, ..plain });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_host_mix() {
    for collective in collectives(Algorithm::Hierarchical) {
        for n in [2, 3, 4, 6, 7, 9, 12, 16] {
            for hosts in host_mixes(n) {
                for (chunk, in_place) in [(1 << 20, true), (8, false), (8, true)] {
                    for channels in [1, 2] {
                        let plain = request(Algorithm::Hierarchical, collective, n, 150);
                        let root = if collective.rooted() { n / 2 } else { 0 };
                        must_verify(&Request { hosts: hosts.clone(), chunk, channels, in_place, root, ..plain });
                    }
                }
            }
        }
    }
}

#[test]
fn no_plan_is_too_large_for_64_bits() {
    let huge = request(Algorithm::Ring, Collective::AllReduce, 3, u64::MAX / 4);
    assert!(build(&Request { chunk: u64::MAX / 4, ..huge }, 1).is_ok());
    let all = Counts::Even(u64::MAX / 2);
    let over = Request { counts: all, ..request(Algorithm::Ring, Collective::AllGather, 3, 0) };
    assert!(over.supports().is_err_and(|error| error.to_string().contains("64 bits")));
}
