//! What each algorithm moves, against the figures of the literature (the sources are named in each algorithm's module;
//! most are collected in Thakur, Rabenseifner and Gropp 2005, and in Chan, Heimlich, Purkayastha and van de Geijn,
//! "Collective communication: theory, practice, and experience", 2007).

use super::*;

/// Divisible by every rank count that the tests here use.
const COUNT: u64 = 16 * 9 * 5 * 7 * 11;
const RANKS: [usize; 12] = [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16];

fn total(algorithm: Algorithm, collective: Collective, n: usize, chunk: u64) -> u64 {
    must_verify(&Request { chunk, ..request(algorithm, collective, n, COUNT) }).total()
}

/// (largest power of two, ranks beyond it)
fn fold(n: u64) -> (u64, u64) {
    (1 << n.ilog2(), n - (1 << n.ilog2()))
}

#[test]
fn all_reduce() {
    for ranks in RANKS {
        let n = ranks as u64;
        let (core, extra) = fold(n);
        let least = 2 * (n - 1) * COUNT;
        let of = |algorithm, chunk| total(algorithm, Collective::AllReduce, ranks, chunk);
        assert_eq!(of(Algorithm::Ring, 4096), least);
        assert_eq!(of(Algorithm::Tree, 4096), least);
        assert_eq!(of(Algorithm::Chain, 4096), least);
        assert_eq!(of(Algorithm::Direct, 4096), least, "two-shot");
        assert_eq!(of(Algorithm::Direct, COUNT), n * (n - 1) * COUNT, "one-shot");
        assert_eq!(of(Algorithm::RecursiveDoubling, 4096), (core * u64::from(core.ilog2()) + 2 * extra) * COUNT);
        assert_eq!(of(Algorithm::HalvingDoubling, 4096), (2 * (core - 1) + 2 * extra) * COUNT);
    }
}

#[test]
fn ring_loads_every_rank_alike() {
    for ranks in RANKS {
        let traffic = must_verify(&request(Algorithm::Ring, Collective::AllReduce, ranks, COUNT));
        let n = ranks as u64;
        assert!((0..ranks).all(|rank| traffic.sent_by(rank) == 2 * (n - 1) * COUNT / n));
        assert_eq!(traffic.elements.len(), ranks, "one link a rank");
        assert_eq!(traffic.messages, 2 * n * (n - 1));
    }
}

#[test]
fn both_trees_together_load_no_rank_more_than_twice() {
    for ranks in RANKS {
        let request = Request { chunk: 4096, ..request(Algorithm::Tree, Collective::AllReduce, ranks, COUNT) };
        let traffic = must_verify(&request);
        // A leaf of one tree sends its half once, an inner rank of the other its half up and to two children.
        let most = (0..ranks).map(|rank| traffic.sent_by(rank)).max().unwrap();
        assert!(most <= 2 * COUNT + 64, "{ranks}: {most}");
    }
}

#[test]
fn blocks() {
    for ranks in RANKS {
        let n = ranks as u64;
        let all = n * (n - 1) * COUNT;
        let of = |algorithm, collective| total(algorithm, collective, ranks, 1 << 20);
        for algorithm in [Algorithm::Ring, Algorithm::Direct, Algorithm::Bruck] {
            assert_eq!(of(algorithm, Collective::AllGather), all, "{algorithm}");
        }
        for algorithm in [Algorithm::Ring, Algorithm::Direct, Algorithm::Pairwise] {
            assert_eq!(of(algorithm, Collective::ReduceScatter), all, "{algorithm}");
        }
        for algorithm in [Algorithm::Direct, Algorithm::Pairwise] {
            assert_eq!(of(algorithm, Collective::AllToAll), all, "{algorithm}");
        }
        if ranks.is_power_of_two() {
            assert_eq!(of(Algorithm::RecursiveDoubling, Collective::AllGather), all);
            assert_eq!(of(Algorithm::HalvingDoubling, Collective::ReduceScatter), all);
        }
        // A block that has the distance d to travel is sent once for each bit of d.
        let bits: u64 = (1..n).map(|distance| u64::from(distance.count_ones())).sum();
        assert_eq!(of(Algorithm::Bruck, Collective::AllToAll), n * bits * COUNT);
    }
}

#[test]
fn rooted() {
    for ranks in RANKS {
        let n = ranks as u64;
        let of = |algorithm, collective| total(algorithm, collective, ranks, 1 << 20);
        for algorithm in [Algorithm::Direct, Algorithm::Binomial, Algorithm::Chain, Algorithm::Tree] {
            assert_eq!(of(algorithm, Collective::Broadcast), (n - 1) * COUNT, "{algorithm}");
            assert_eq!(of(algorithm, Collective::Reduce), (n - 1) * COUNT, "{algorithm}");
        }
        for collective in [Collective::Scatter, Collective::Gather] {
            assert_eq!(of(Algorithm::Direct, collective), (n - 1) * COUNT);
            // A block travels once for each bit of its number.
            let bits: u64 = (1..n).map(|number| u64::from(number.count_ones())).sum();
            assert_eq!(of(Algorithm::Binomial, collective), bits * COUNT);
        }
    }
}

#[test]
fn messages_for_latency() {
    for ranks in RANKS {
        let n = ranks as u64;
        let rounds = u64::from(n.next_power_of_two().ilog2());
        let of = |algorithm, collective| must_verify(&request(algorithm, collective, ranks, 4)).messages;
        assert_eq!(of(Algorithm::Bruck, Collective::AllToAll), n * rounds);
        assert_eq!(of(Algorithm::Bruck, Collective::Barrier), n * rounds);
        assert_eq!(of(Algorithm::RecursiveDoubling, Collective::Barrier), n * rounds);
        assert_eq!(of(Algorithm::Direct, Collective::Barrier), n * (n - 1));
        assert_eq!(of(Algorithm::Direct, Collective::AllReduce), n * (n - 1));
        assert_eq!(of(Algorithm::Binomial, Collective::Broadcast), n - 1);
    }
}

/// Elements between hosts, and the most and the least that a rank sends there.
fn between_hosts(request: &Request) -> (u64, u64, u64) {
    let hosts = request.hosts.as_ref().unwrap();
    let traffic = must_verify(request);
    let outside = |&(&(from, to), _): &(&(usize, usize), &u64)| hosts[from] != hosts[to];
    let mut by_rank = vec![0; request.ranks];
    for ((from, _), count) in traffic.elements.iter().filter(outside) {
        by_rank[*from] += count;
    }
    (by_rank.iter().sum(), *by_rank.iter().max().unwrap(), *by_rank.iter().min().unwrap())
}

#[test]
fn hierarchical_sends_between_hosts_what_one_rank_a_host_would_and_uses_all_rails() {
    for (sizes, chunk) in
        [(vec![4, 4], 4096), (vec![4, 4, 4], 4096), (vec![2, 3], 64), (vec![3, 2, 1], 4096), (vec![1, 5, 2, 4], 64)]
    {
        let hosts: Arc<[usize]> =
            sizes.iter().enumerate().flat_map(|(host, &size)| std::iter::repeat_n(host, size)).collect();
        let plain = request(Algorithm::Hierarchical, Collective::AllReduce, hosts.len(), COUNT);
        let request = Request { hosts: Some(hosts.clone()), chunk, ..plain };
        let (total, most, least) = between_hosts(&request);
        let apart = sizes.len() as u64;
        assert_eq!(total, 2 * (apart - 1) * COUNT, "{sizes:?}");
        // Each host sends 2 (h-1)/h of the data, its ranks alike.
        let host_share = 2 * (apart - 1) * COUNT / apart;
        let (large, small) = (*sizes.iter().max().unwrap() as u64, *sizes.iter().min().unwrap() as u64);
        assert!(most <= host_share / small + 1000, "{sizes:?}: {most}");
        assert!(least + 1000 >= host_share / large, "{sizes:?}: {least}");

        let gather = Request { collective: Collective::AllGather, counts: Counts::Even(1000), ..request.clone() };
        assert_eq!(between_hosts(&gather).0, (apart - 1) * 1000 * hosts.len() as u64, "every block to every host once");
        let scatter = Request { collective: Collective::ReduceScatter, ..gather };
        assert_eq!(between_hosts(&scatter).0, (apart - 1) * 1000 * hosts.len() as u64);
        let broadcast = Request { collective: Collective::Broadcast, root: 1, ..request.clone() };
        assert_eq!(between_hosts(&broadcast).0, (apart - 1) * COUNT);
        let reduce = Request { collective: Collective::Reduce, ..broadcast };
        assert_eq!(between_hosts(&reduce).0, (apart - 1) * COUNT);
    }
}
