//! Requests in the background, and several communicators side by side.

use std::time::Duration;

use hcomm_core::communicator::Priority;
use hcomm_core::plan::Counts;
use hcomm_core::{Buffer, Call, Collective, Communicator, Element, ReduceOp};

use super::job::{Job, say};
use super::memory::resident;

pub const ACTS: &[(&str, fn())] = &[
    ("background", background),
    ("overtake", overtake),
    ("splits", splits),
    ("side_by_side", side_by_side),
    ("many", many),
];
pub const TESTS: &[(&str, fn())] = &[
    ("requests_finish_in_any_order", || {
        for (size, hosts) in [(1, ""), (2, ""), (3, ""), (3, "abb")] {
            Job::new("background", size).hosts(hosts).env("HC_COMM_THREADS", 4).run();
        }
        Job::new("background", 2).env("HCOMM_TRANSPORT", "tcp").run();
    }),
    ("high_priority_overtakes", || {
        for transport in ["shm", "tcp"] {
            // Once is proof: without priorities the order of completion is that of submission, always. Not every run
            // shows it, as a busy machine may finish the bulk before the urgent thread gets its turn.
            let overtakes = || Job::new("overtake", 2).env("HCOMM_TRANSPORT", transport).run();
            let seen = (0..4).any(|_| overtakes().concat().contains(&"overtook".to_owned()));
            assert!(seen, "{transport}: what was given before was done first");
        }
    }),
    ("communicators_split", || {
        for hosts in ["", "aabbb"] {
            Job::new("splits", 5).hosts(hosts).run();
        }
    }),
    ("two_threads_have_a_communicator_each", || {
        for hosts in ["", "aab"] {
            Job::new("side_by_side", 3).hosts(hosts).run();
        }
    }),
    ("communicators_leave_nothing_behind", || {
        for transport in ["shm", "tcp"] {
            Job::new("many", 2).env("HCOMM_TRANSPORT", transport).run();
        }
    }),
];

fn all_reduce<T: Element>(count: usize) -> Call {
    let counts = Counts::Even(count as u64);
    Call { collective: Collective::AllReduce, counts, dtype: T::TYPE, op: ReduceOp::Sum, root: 0 }
}

fn filled<T: Element>(c: &Communicator, count: usize, value: T) -> Buffer<T> {
    let mut buffer = c.alloc(count).unwrap();
    buffer.fill(value);
    buffer
}

/// Sum over the ranks of `factor * (rank + 1)`.
fn sum(c: &Communicator, factor: u64) -> u64 {
    factor * (c.size() * (c.size() + 1) / 2) as u64
}

fn background() {
    let mut c = Communicator::init().unwrap();
    let mine = c.rank() as u64 + 1;
    for round in 1..=3 {
        let mut requests = Vec::new();
        for index in 1..=12_u64 {
            let count = [1, 100, 5000, 100_000][index as usize % 4];
            let priority = if index % 3 == 0 { Priority::High } else { Priority::Normal };
            let input = filled(&c, count, mine * index * round);
            let request = if index % 2 == 0 {
                c.start_in_place(&all_reduce::<u64>(count), input, priority).unwrap()
            } else {
                let output = c.alloc(count).unwrap();
                c.start(&all_reduce::<u64>(count), input, output, priority).unwrap()
            };
            requests.push((index, count, request));
            if index == 5 {
                // A blocking call beside those under way.
                let mut word = [mine];
                c.all_reduce_in_place(&mut word, ReduceOp::Sum).unwrap();
                assert_eq!(word[0], sum(&c, 1));
            }
        }
        // Nobody wants this one any more, and it must not disturb the others.
        drop(requests.remove(4));
        requests.rotate_left(round as usize * 3);
        if round == 2 {
            requests.reverse();
        }
        for (index, count, request) in requests {
            let completed = match index % 3 {
                0 => request.wait().unwrap(),
                1 => {
                    let mut waiting = request;
                    loop {
                        match waiting.wait_timeout(Duration::from_micros(50)).unwrap() {
                            Ok(completed) => break completed,
                            Err(again) => waiting = again,
                        }
                    }
                }
                _ => {
                    while !request.test() {
                        std::thread::yield_now();
                    }
                    request.wait().unwrap()
                }
            };
            assert_eq!(completed.output.is_none(), index % 2 == 0);
            let result = completed.output.as_ref().unwrap_or(&completed.input);
            assert_eq!(result.len(), count);
            assert!(result.iter().all(|&value| value == sum(&c, index * round)), "{index} {:?}", &result[..1]);
        }
    }
    let done = c.start_all_reduce(filled(&c, 3, mine), ReduceOp::Max).unwrap().wait().unwrap();
    assert_eq!(done.input[..], [c.size() as u64; 3]);
    // A bad call is refused at once, and the next is good.
    let (short, output) = (c.alloc::<u64>(1).unwrap(), c.alloc(2).unwrap());
    assert_eq!(c.start(&all_reduce::<u64>(2), short, output, Priority::High).unwrap_err().code(), "HC-E0011");
    // One that is under way when the communicator goes is still made to the end.
    let _ = c.start_all_reduce(filled(&c, 10_000, mine), ReduceOp::Sum).unwrap();
}

fn overtake() {
    let mut c = Communicator::init().unwrap();
    let warm = filled(&c, 1, 1_u64);
    c.start_all_reduce(warm, ReduceOp::Sum).unwrap().wait().unwrap();
    let bulk: Vec<_> = (0..24)
        .map(|_| {
            let buffer = filled(&c, 2 << 20, 1_u32);
            c.start_in_place(&all_reduce::<u32>(2 << 20), buffer, Priority::Normal).unwrap()
        })
        .collect();
    let urgent = filled(&c, 64, 1_u32);
    let urgent = c.start_in_place(&all_reduce::<u32>(64), urgent, Priority::High).unwrap().wait().unwrap();
    let behind = bulk.iter().filter(|request| !request.test()).count();
    assert_eq!(urgent.input[..], [2; 64]);
    if behind > 0 {
        say("overtook");
    }
    for request in bulk {
        let done = request.wait().unwrap();
        assert!(done.input.iter().all(|&value| value == 2));
    }
}

/// The ranks of `c` in the job.
fn members(c: &mut Communicator, world_rank: usize) -> Vec<u8> {
    let mut all = vec![0; c.size()];
    c.all_gather(&[world_rank as u8], &mut all).unwrap();
    all
}

fn splits() {
    let mut c = Communicator::init().unwrap();
    let rank = c.rank();
    // Odd and even; the even ones in reverse.
    let key = if rank.is_multiple_of(2) { -(rank as i64) } else { 0 };
    let mut half = c.split(Some(rank as u32 % 2), key).unwrap().unwrap();
    assert_eq!(members(&mut half, rank), [&[4, 2, 0][..], &[1, 3]][rank % 2]);
    assert_eq!(half.ranks().iter().map(|info| info.pid).nth(half.rank()), Some(std::process::id()));
    // Ranks 0 and 4 stay out.
    let middle = c.split((1..=3).contains(&rank).then_some(7), 0).unwrap();
    assert_eq!(middle.is_some(), (1..=3).contains(&rank));
    let mut alone = c.split(Some(rank as u32), 5).unwrap().unwrap();
    assert_eq!(members(&mut alone, rank), [rank as u8]);
    // A part of a part, while the parent and the other parts are in use.
    let mut quarter = half.split(Some(u32::from(half.rank() > 0)), 0).unwrap().unwrap();
    let mut middle = middle;
    for round in 0..20_u32 {
        let mut words = vec![round + rank as u32; 5000];
        c.all_reduce_in_place(&mut words, ReduceOp::Max).unwrap();
        assert_eq!(words[4999], round + 4);
        half.all_reduce_in_place(&mut words[..7], ReduceOp::Sum).unwrap();
        assert_eq!(words[0], half.size() as u32 * (round + 4));
        if let Some(middle) = &mut middle {
            let mut word = [rank as u32];
            middle.broadcast(&mut word, 2).unwrap();
            assert_eq!(word, [3]);
        }
        quarter.barrier().unwrap();
    }
    assert_eq!(members(&mut quarter, rank), [&[2, 0][..], &[1], &[2, 0], &[3], &[4]][rank]);
    // A part lives on when its parent is gone.
    drop(c);
    assert_eq!(members(&mut half, rank).len(), half.size());
}

fn side_by_side() {
    let mut c = Communicator::init().unwrap();
    let n = c.size() as u64;
    let pair = [c.split(Some(0), 0).unwrap().unwrap(), c.split(Some(1), 0).unwrap().unwrap()];
    std::thread::scope(|scope| {
        for (index, mut own) in pair.into_iter().enumerate() {
            scope.spawn(move || {
                let mut registered = own.alloc::<u64>(40_000).unwrap();
                let mut plain = vec![0; 3000];
                for round in 0..100 {
                    let value = round * 2 + index as u64;
                    let buffer: &mut [u64] = if round % 2 == 0 { &mut registered } else { &mut plain };
                    buffer.fill(value);
                    own.all_reduce_in_place(buffer, ReduceOp::Sum).unwrap();
                    assert!(buffer.iter().all(|&sum| sum == value * n), "{index} {round}");
                }
            });
        }
        for _ in 0..50 {
            c.barrier().unwrap();
        }
    });
}

fn many() {
    let mut c = Communicator::init().unwrap();
    let mut warm = 0;
    for round in 0..200 {
        let mut part = c.split(Some(0), 0).unwrap().unwrap();
        let mut buffer = part.alloc::<u32>(10_000).unwrap();
        buffer.fill(1);
        part.all_reduce_in_place(&mut buffer, ReduceOp::Sum).unwrap();
        assert_eq!(buffer[9_999], 2);
        if round % 50 == 20 {
            // With threads of its own.
            part.start_all_reduce(buffer, ReduceOp::Sum).unwrap().wait().unwrap();
        }
        if round == 40 {
            warm = resident();
        }
    }
    let grown = resident().saturating_sub(warm);
    assert!(grown < 4 << 20, "160 communicators left {grown} bytes behind");
}
