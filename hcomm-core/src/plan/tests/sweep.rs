//! Every algorithm and collective for every rank count from 1 to 64.

use super::*;

/// Counts for block collectives: even, uneven, with zeros, nearly all of them zero.
fn block_counts(n: usize, count: u64) -> Vec<Counts> {
    let per_rank = |f: &dyn Fn(u64) -> u64| Counts::PerRank((0..n as u64).map(f).collect());
    vec![
        Counts::Even(count / n as u64),
        per_rank(&|rank| (rank * 7 + count) % 23),
        per_rank(&|rank| if rank % 3 == 1 { 0 } else { count % 29 + rank }),
        per_rank(&|rank| if rank == n as u64 / 2 { count } else { 0 }),
    ]
}

fn pair_counts(n: usize, count: u64) -> Vec<Counts> {
    let pairs = (0..n * n).map(|pair| [0, 1, count % 17, 3][(pair * 31 + n) % 4]);
    vec![Counts::Even(count / n as u64), Counts::Matrix(pairs.collect())]
}

fn counts(collective: Collective, n: usize, count: u64) -> Vec<Counts> {
    match collective {
        Collective::ReduceScatter | Collective::AllGather | Collective::Scatter | Collective::Gather => {
            block_counts(n, count)
        }
        Collective::AllToAll => pair_counts(n, count),
        _ => vec![Counts::Even(count)],
    }
}

/// A few shapes together with all the ways to run them would be millions: small rank counts get many of the combinations,
/// and for the others each shape is run one way, another one each time.
fn sweep(algorithm: Algorithm, remote: bool) {
    let chunks = [1 << 20, 16, 5, 100];
    let mut turn = 0;
    for n in 1..=64usize {
        let m = n as u64;
        for collective in collectives(algorithm) {
            for count in [0, 1, 7, m - 1, m, 1003] {
                for counts in counts(collective, n, count) {
                    let ways = if n <= 6 { 8 } else { 1 };
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
                            remote,
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
    ($($name:ident: $algorithm:ident, $remote:expr;)*) => {$(
        #[test]
        fn $name() {
            sweep(Algorithm::$algorithm, $remote);
        }
    )*};
}
sweeps! {
    ring: Ring, false;
    recursive_doubling: RecursiveDoubling, false;
    halving_doubling: HalvingDoubling, false;
    tree: Tree, false;
    direct: Direct, false;
    direct_remote: Direct, true;
    bruck: Bruck, false;
    pairwise: Pairwise, false;
    binomial: Binomial, false;
    chain: Chain, false;
    hierarchical: Hierarchical, false;
}

#[test]
fn every_root() {
    for algorithm in Algorithm::ALL {
        for collective in collectives(algorithm).into_iter().filter(|collective| collective.rooted()) {
            for n in [2, 3, 5, 8, 13] {
                for root in 0..n {
                    for in_place in [false, true] {
                        for remote in [false, algorithm == Algorithm::Direct] {
                            let hosts = host_mixes(n)[root % 7].clone();
                            let plain = request(algorithm, collective, n, 37);
                            must_verify(&Request { root, in_place, remote, hosts, chunk: 10, channels: 2, ..plain });
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
