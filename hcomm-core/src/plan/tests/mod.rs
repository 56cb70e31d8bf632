//! Every algorithm, verified: shapes one by one, at random, against textbook figures, and broken on purpose.

mod mutations;
mod random;
mod small;
mod sweep;
mod traffic;

use std::sync::Arc;

use super::*;

/// A plain request: one host, root 0, one channel, out of place.
fn request(algorithm: Algorithm, collective: Collective, ranks: usize, count: u64) -> Request {
    Request {
        collective,
        algorithm,
        ranks,
        counts: Counts::Even(count),
        root: 0,
        chunk: 1 << 20,
        channels: 1,
        hosts: None,
        in_place: false,
        reach: Reach::Messages,
    }
}

/// What each algorithm is for, written down by hand.
fn collectives(algorithm: Algorithm) -> Vec<Collective> {
    use Collective::*;
    match algorithm {
        Algorithm::Ring => vec![AllReduce, ReduceScatter, AllGather, SendRecv],
        Algorithm::RecursiveDoubling => vec![AllReduce, AllGather, Barrier],
        Algorithm::HalvingDoubling => vec![AllReduce, ReduceScatter],
        Algorithm::Tree | Algorithm::Chain => vec![AllReduce, Broadcast, Reduce],
        Algorithm::Direct => Collective::ALL.to_vec(),
        Algorithm::Bruck => vec![AllGather, AllToAll, Barrier],
        Algorithm::Pairwise => vec![AllToAll, ReduceScatter, SendRecv],
        Algorithm::Binomial => vec![Broadcast, Reduce, Scatter, Gather],
        Algorithm::Hierarchical => vec![AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Barrier],
    }
}

/// Whether one of the two restrictions on shapes applies that an algorithm has for a collective it is for.
fn refused(request: &Request) -> bool {
    match (request.algorithm, request.collective, &request.counts) {
        (Algorithm::RecursiveDoubling, Collective::AllGather, _) => !request.ranks.is_power_of_two(),
        (Algorithm::Bruck, Collective::AllToAll, Counts::Matrix(_)) => request.ranks > 1,
        _ => false,
    }
}

/// Verifies, and insists on the promised rank order.
fn must_verify(request: &Request) -> Traffic {
    match verify(request) {
        Ok(traffic) => {
            let promised = request.algorithm.rank_ordered(request.collective);
            assert!(traffic.rank_ordered || !promised, "not folded by rank: {request:?}");
            traffic
        }
        Err(fault) => panic!("{fault}: {request:?}"),
    }
}

/// Ways to put n ranks on hosts: together, apart, in turns, in uneven runs, mixed up.
fn host_mixes(n: usize) -> Vec<Option<Arc<[usize]>>> {
    let mixed = |f: &dyn Fn(usize) -> usize| {
        // Hosts are numbered in order of first appearance.
        let mut seen = Vec::new();
        let host = |rank| {
            let key = f(rank);
            seen.iter().position(|&other| other == key).unwrap_or_else(|| {
                seen.push(key);
                seen.len() - 1
            })
        };
        Some((0..n).map(host).collect::<Arc<[usize]>>())
    };
    vec![
        None,
        mixed(&|rank| rank),
        mixed(&|rank| rank / 4),
        mixed(&|rank| rank % 3),
        mixed(&|rank| (rank as f64).sqrt() as usize),
        mixed(&|rank| rank * rank % 7),
        mixed(&|rank| usize::from(rank + 1 == n)),
    ]
}

#[test]
fn every_refusal_is_one_that_is_written_down() {
    for algorithm in Algorithm::ALL {
        for collective in Collective::ALL {
            for ranks in 2..10 {
                let request = request(algorithm, collective, ranks, 5);
                let fits = collectives(algorithm).contains(&collective) && !refused(&request);
                assert_eq!(request.supports().is_ok(), fits, "{algorithm} {collective} {ranks}");
                assert_eq!(build(&request, 0).is_ok(), fits);
                if let Err(error) = request.supports() {
                    assert_eq!(error.code(), "HC-E0008");
                    assert!(error.to_string().len() > 60, "says nothing: {error}");
                }
            }
            assert!(request(algorithm, collective, 1, 5).supports().is_ok(), "one rank is a copy");
        }
    }
}
