//! Point to point.

use hcomm_core::{Communicator, DataType, ReduceOp};

use super::data::mix;
use super::job::Job;

pub const ACTS: &[(&str, fn())] = &[("messages", messages), ("bad_arguments", bad_arguments)];
pub const TESTS: &[(&str, fn())] = &[
    ("messages_arrive", || {
        for (size, hosts, transport) in [(2, "", "shm"), (3, "", "shm"), (3, "", "tcp"), (4, "aabb", "auto")] {
            for single_copy in ["auto", "off"] {
                let job = Job::new("messages", size).hosts(hosts).env("HCOMM_SINGLE_COPY", single_copy);
                job.env("HCOMM_TRANSPORT", transport).run();
            }
        }
    }),
    ("bad_arguments_do_no_harm", || _ = Job::new("bad_arguments", 2).run()),
];

/// The `i`-th element of a message from `rank`.
fn word(rank: usize, seed: usize, i: usize) -> u32 {
    mix((rank as u64) << 56 | (seed as u64) << 32 | i as u64) as u32
}

fn message(rank: usize, seed: usize, count: usize) -> Vec<u32> {
    (0..count).map(|i| word(rank, seed, i)).collect()
}

fn messages() {
    let mut c = Communicator::init().unwrap();
    let (rank, n) = (c.rank(), c.size());
    let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
    let mut registered = [c.alloc::<u32>(300_000).unwrap(), c.alloc(300_000).unwrap()];
    let mut plain = [vec![0; 300_000], vec![0; 300_000]];
    // Around the ring at once, then pair by pair; the kind of memory may differ between the two sides.
    for (seed, count) in [0, 1, 13, 14, 1000, 1024, 4095, 4096, 4097, 20_000, 300_000].into_iter().enumerate() {
        for kind in 0..4 {
            let registered_here = (kind + rank * (kind / 2)) % 2 == 0;
            let [from, to] = match registered_here {
                true => registered.each_mut().map(|buffer| &mut buffer[..count]),
                false => plain.each_mut().map(|buffer| &mut buffer[..count]),
            };
            from.copy_from_slice(&message(rank, seed, count));
            to.fill(0);
            c.send_receive(from, next, to, before).unwrap();
            assert!(*to == message(before, seed, count), "{count} {kind}: ring");
            to.fill(0);
            if rank == 0 {
                (1..n).for_each(|peer| c.send(from, peer).unwrap());
                for peer in 1..n {
                    c.receive(to, peer).unwrap();
                    assert!(*to == message(peer, seed, count), "{count} {kind}: from {peer}");
                }
            } else {
                c.receive(to, 0).unwrap();
                assert!(*to == message(0, seed, count), "{count} {kind}: from 0");
                c.send(from, 0).unwrap();
            }
        }
        let mut total = [1_u8];
        c.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
        assert_eq!(usize::from(total[0]), n);
    }
    // Two that send to each other do not wait for each other.
    if rank < 2 {
        let mut came = vec![0; 200_000];
        c.send_receive(&message(rank, 77, 200_000), 1 - rank, &mut came, 1 - rank).unwrap();
        assert!(came == message(1 - rank, 77, 200_000));
    }
}

fn refused<T: std::fmt::Debug>(result: hcomm_core::Result<T>, code: &str, words: &str) {
    let error = result.unwrap_err();
    assert!(error.code() == code && error.to_string().contains(words), "{}: {error}", error.code());
}

fn bad_arguments() {
    use hcomm_core::communicator::Force;
    use hcomm_core::plan::Counts;
    use hcomm_core::{Algorithm, Call, Collective};
    let mut c = Communicator::init().unwrap();
    let rank = c.rank();
    let argument = "HC-E0011";
    refused(c.send(&[1], rank), argument, &format!("peer {rank}"));
    refused(c.receive(&mut [1], 2), argument, "peer 2");
    refused(c.send_receive(&[1], 1 - rank, &mut [1], rank), argument, "not another rank");
    refused(c.broadcast(&mut [1], 2), argument, "root 2");
    refused(c.all_reduce(&[1, 2], &mut [1], ReduceOp::Sum), argument, "output holds 4 bytes");
    refused(c.all_gather_uneven(&[1], &mut [1; 3], &[1, 1, 1]), argument, "3 counts");
    refused(c.all_to_all_uneven(&[1], &mut [1; 3], &[1, 1]), argument, "matrix of 2");
    for (collective, counts) in [
        (Collective::AllReduce, Counts::Even(u64::MAX)),
        (Collective::AllGather, Counts::Even(u64::MAX / 2 + 1)),
        (Collective::AllToAll, Counts::Even(u64::MAX / 16)),
        (Collective::Scatter, Counts::PerRank([u64::MAX, 1].into())),
        (Collective::AllToAll, Counts::Matrix([u64::MAX, 1, 1, 1].into())),
    ] {
        let call = Call { collective, counts, dtype: DataType::F64, op: ReduceOp::Sum, root: 0 };
        refused(c.run(&call, &[], &mut []), argument, "address space");
        refused(c.run_in_place(&call, &mut []), argument, "address space");
        refused(c.supports(&call, Algorithm::Direct), argument, "address space");
    }
    let per_rank = Call {
        collective: Collective::Broadcast,
        counts: Counts::PerRank([1, 1].into()),
        dtype: DataType::U8,
        op: ReduceOp::Sum,
        root: 0,
    };
    refused(c.run_in_place(&per_rank, &mut [1]), argument, "counts");
    refused(c.force(Force { channels: Some(5), ..Force::default() }), "HC-E0001", "1 to 4");
    refused(c.force(Force { chunk_bytes: Some(0), ..Force::default() }), "HC-E0001", "at least 1");
    c.force(Force { algorithm: Some(Algorithm::Bruck), ..Force::default() }).unwrap();
    refused(c.broadcast(&mut [1], 0), "HC-E0008", "bruck");
    c.force(Force::default()).unwrap();
    refused(c.alloc::<u64>(usize::MAX), "HC-E0009", "cannot reserve");
    // None of these was a failure of the job.
    let mut word = [rank as u32];
    c.all_reduce_in_place(&mut word, ReduceOp::Sum).unwrap();
    assert_eq!(word, [1]);
}
