//! Every collective, with every type and operation, at every root, over every kind of memory and transport, with every
//! algorithm: against values worked out in [`super::data`].

use hcomm_core::communicator::Force;
use hcomm_core::plan::Counts;
use hcomm_core::{Algorithm, Buffer, Call, Collective, Communicator, DataType, Error, ReduceOp};

use super::data::Case;
use super::job::{Job, say};

pub const ACTS: &[(&str, fn())] = &[("sweep", sweep), ("forced", forced), ("typed", typed), ("big", big)];
pub const TESTS: &[(&str, fn())] = &[
    ("every_collective_is_exact_over_shm", || over_shm("sweep", &[1, 2, 3, 4, 5], "off")),
    ("every_collective_is_exact_by_single_copy", || over_shm("sweep", &[2, 3, 5], "on")),
    ("every_collective_is_exact_over_tcp", || over("sweep", &["", "", "", ""], "tcp")),
    ("every_collective_is_exact_over_hosts", || over("sweep", &["ab", "aab", "aabbb"], "auto")),
    ("every_algorithm_is_exact_over_shm", || over_shm("forced", &[1, 2, 3, 4, 5], "auto")),
    ("every_algorithm_is_exact_over_tcp", || over("forced", &["", "", "", ""], "tcp")),
    ("every_algorithm_is_exact_over_hosts", || over("forced", &["abb", "aabbb"], "auto")),
    ("typed_calls_are_exact", || _ = Job::new("typed", 3).run()),
    ("more_than_2_gib", more_than_2_gib),
];

/// On so many ranks of one host, with ordinary buffers read where they lie or not.
fn over_shm(act: &'static str, sizes: &[usize], single_copy: &str) {
    for &size in sizes {
        let job = Job::new(act, size).env("HCOMM_TRANSPORT", "shm").env("HCOMM_SINGLE_COPY", single_copy);
        let shown = if size == 1 { "self" } else { "shm" };
        assert!(job.run().iter().all(|said| said == &[shown]), "{size}");
    }
}

/// On 1 rank, then 2 and so on, or on as many as there are letters of hosts.
fn over(act: &'static str, hosts: &[&str], transport: &str) {
    for (index, hosts) in hosts.iter().enumerate() {
        let size = if hosts.is_empty() { index + 1 } else { hosts.len() };
        let said = Job::new(act, size).hosts(hosts).env("HCOMM_TRANSPORT", transport).run();
        let shown = match (size, hosts.len(), transport) {
            (1, ..) => "self",
            (2, 2, _) => "tcp",
            (_, 1.., _) => "shm+tcp",
            _ => transport,
        };
        for (rank, said) in said.iter().enumerate() {
            let alone_on_its_host = hosts.chars().nth(rank).is_some_and(|host| hosts.matches(host).count() == 1);
            let shown = if alone_on_its_host { "tcp" } else { shown };
            assert_eq!(said, &[shown], "rank {rank} of {size} {hosts}");
        }
    }
}

/// Where the buffers of a call lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Registered,
    Plain,
    /// Plain, and at an odd address: nothing says that bytes are aligned.
    Odd,
    /// Registered on even ranks only.
    Mixed,
}

const MEMORIES: [Memory; 4] = [Memory::Registered, Memory::Plain, Memory::Odd, Memory::Mixed];
/// Bytes after a buffer that must stay as they are.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xA5;
const ROOM: usize = 4 << 20;

struct Bench {
    communicator: Communicator,
    registered: [Buffer<u8>; 2],
    plain: [Vec<u8>; 2],
}

impl Bench {
    fn new() -> Self {
        let communicator = Communicator::init().unwrap();
        let buffer = || communicator.alloc(ROOM).unwrap();
        Self { registered: [buffer(), buffer()], plain: [vec![0; ROOM], vec![0; ROOM]], communicator }
    }

    /// Runs `call` and compares all that it may and may not have written.
    fn check(&mut self, call: &Call, in_place: bool, memory: Memory) {
        let (rank, ranks) = (self.communicator.rank(), self.communicator.size());
        let what = |ran: &Communicator| format!("{call} in place {in_place} {memory:?} {:?}", ran.last_run());
        let expected = Case { call, ranks }.expected(rank);
        let registered = memory == Memory::Registered || memory == Memory::Mixed && rank % 2 == 0;
        let odd = usize::from(memory == Memory::Odd);
        let [first, second] = match registered {
            true => self.registered.each_mut().map(|buffer| &mut buffer[..]),
            false => self.plain.each_mut().map(|buffer| &mut buffer[odd..]),
        };
        let (input_bytes, output_bytes) = (expected.input.len(), expected.output.len());
        if in_place {
            let (at, to) = expected.at;
            let need = (at + input_bytes).max(to + output_bytes);
            let buffer = &mut first[..need + GUARD];
            buffer.fill(UNTOUCHED);
            buffer[at..at + input_bytes].copy_from_slice(&expected.input);
            let mut after = buffer.to_vec();
            after[to..to + output_bytes].copy_from_slice(&expected.output);
            self.communicator.run_in_place(call, buffer).unwrap_or_else(|error| panic!("{call}: {error}"));
            assert!(*buffer == after, "{}", what(&self.communicator));
        } else {
            let (input, output) = (&mut first[..input_bytes], &mut second[..output_bytes + GUARD]);
            input.copy_from_slice(&expected.input);
            output.fill(UNTOUCHED);
            self.communicator.run(call, input, output).unwrap_or_else(|error| panic!("{call}: {error}"));
            assert!(output[..output_bytes] == expected.output, "{}", what(&self.communicator));
            assert!(
                output[output_bytes..].iter().all(|&byte| byte == UNTOUCHED),
                "{} wrote too much",
                what(&self.communicator)
            );
            assert!(*input == expected.input, "{} wrote to its input", what(&self.communicator));
        }
    }
}

fn call(collective: Collective, counts: Counts, dtype: DataType, op: ReduceOp, root: usize) -> Call {
    Call { collective, counts, dtype, op, root }
}

/// Counts of all kinds that a collective takes, none of them above about `largest` elements.
fn shapes(collective: Collective, ranks: usize, largest: u64) -> Vec<Counts> {
    let largest = if collective == Collective::AllToAll { largest / ranks as u64 + 1 } else { largest };
    let even = [0, 1, 2, 37, largest].map(Counts::Even);
    let uneven = |count: usize| {
        let zeros = Counts::PerRank(vec![0; count].into());
        let small = Counts::PerRank((0..count as u64).map(|i| i * 7 % 5).collect());
        let large = Counts::PerRank((0..count as u64).map(|i| if i % 3 == 1 { 0 } else { largest - 7 * i }).collect());
        [zeros, small, large]
    };
    let matrix = |counts| match counts {
        Counts::PerRank(counts) => Counts::Matrix(counts),
        other => other,
    };
    match collective {
        Collective::Barrier => vec![Counts::Even(0)],
        Collective::AllGather | Collective::ReduceScatter | Collective::Gather | Collective::Scatter => {
            even.into_iter().chain(uneven(ranks)).collect()
        }
        Collective::AllToAll => even.into_iter().chain(uneven(ranks * ranks).map(matrix)).collect(),
        _ => even.into(),
    }
}

fn roots(collective: Collective, ranks: usize) -> usize {
    if collective.rooted() { ranks } else { 1 }
}

/// What the tuner chooses.
fn sweep() {
    let mut bench = Bench::new();
    let ranks = bench.communicator.size();
    let mut turn = 0;
    for collective in Collective::ALL {
        for counts in shapes(collective, ranks, 9001) {
            for root in 0..roots(collective, ranks) {
                for in_place in [false, true] {
                    // Types and operations take turns; all pairs of them are below.
                    for memory in MEMORIES.into_iter().skip(if root > 0 { 3 } else { 0 }) {
                        turn += 1;
                        let (dtype, op) = (DataType::ALL[turn % 10], ReduceOp::ALL[turn % 11 % 5]);
                        bench.check(&call(collective, counts.clone(), dtype, op, root), in_place, memory);
                    }
                }
            }
        }
    }
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL {
            for (count, memory) in [(3, Memory::Plain), (1001, Memory::Plain), (8222, Memory::Registered)] {
                for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce] {
                    bench.check(&call(collective, Counts::Even(count), dtype, op, ranks - 1), false, memory);
                }
            }
        }
    }
    say(bench.communicator.last_run().transport);
}

/// Every algorithm, with chunks of all sizes and up to four channels.
fn forced() {
    let mut bench = Bench::new();
    let ranks = bench.communicator.size();
    let mut turn = 0;
    let mut ran = 0;
    for (algorithm, collective) in
        Algorithm::ALL.into_iter().flat_map(|a| Collective::ALL.into_iter().map(move |c| (a, c)))
    {
        for counts in shapes(collective, ranks, 1501) {
            for channels in 1..=Communicator::MAX_CHANNELS {
                turn += 1;
                let (dtype, op) = (DataType::ALL[turn % 10], ReduceOp::ALL[turn % 11 % 5]);
                let call = call(collective, counts.clone(), dtype, op, turn % roots(collective, ranks));
                let chunk_bytes = Some([200, 1000, 8192][turn % 3]);
                bench
                    .communicator
                    .force(Force { algorithm: Some(algorithm), chunk_bytes, channels: Some(channels) })
                    .unwrap();
                match bench.communicator.supports(&call, algorithm) {
                    Ok(()) => {}
                    Err(Error::Unsuited { .. }) => continue,
                    Err(error) => panic!("{call}: {error}"),
                }
                bench.check(&call, turn % 2 == 0, MEMORIES[turn / 2 % 4]);
                let info = bench.communicator.last_run();
                assert_eq!(info.algorithm, algorithm, "{call}");
                ran += 1;
            }
        }
    }
    assert!(ran > 400, "only {ran} ran");
    say(bench.communicator.last_run().transport);
}

/// The methods on slices of numbers.
fn typed() {
    let mut c = Communicator::init().unwrap();
    let (rank, n) = (c.rank(), c.size());
    assert_eq!((n, c.ranks().len()), (3, 3));
    let (mine, mut three) = ([rank as i32 + 1, 10], [0; 3]);
    let mut two = [0; 2];
    c.all_reduce(&mine, &mut two, ReduceOp::Sum).unwrap();
    assert_eq!(two, [6, 30]);
    c.all_reduce_in_place(&mut two, ReduceOp::Max).unwrap();
    assert_eq!(two, [6, 30]);
    c.all_gather(&mine[..1], &mut three).unwrap();
    assert_eq!(three, [1, 2, 3]);
    let mut six = [0; 6];
    let counts = [1, 2, 3];
    let blocks = [[7; 3], [8; 3], [9; 3]];
    c.all_gather_uneven(&blocks[rank][..rank + 1], &mut six, &counts).unwrap();
    assert_eq!(six, [7, 8, 8, 9, 9, 9]);
    let mut one = [0];
    c.reduce_scatter(&[1, 2, rank as i32], &mut one, ReduceOp::Sum).unwrap();
    assert_eq!(one, [[3], [6], [3]][rank]);
    let mut out = vec![0; rank + 1];
    c.reduce_scatter_uneven(&[1, 2, 3, 4, 5, 6], &mut out, &counts, ReduceOp::Prod).unwrap();
    assert_eq!(out, [&[1][..], &[8, 27], &[64, 125, 216]][rank]);
    let mut word = if rank == 2 { [5_u64] } else { [0] };
    c.broadcast(&mut word, 2).unwrap();
    assert_eq!(word, [5]);
    let mut sum = if rank == 1 { vec![0.0; 2] } else { Vec::new() };
    c.reduce(&[0.5_f32, rank as f32], &mut sum, ReduceOp::Avg, 1).unwrap();
    assert_eq!(sum, if rank == 1 { vec![0.5, 1.0] } else { vec![] });
    let input: &[u8] = if rank == 0 { &[4, 5, 6] } else { &[] };
    let mut part = [0];
    c.scatter(input, &mut part, 0).unwrap();
    assert_eq!(part, [4 + rank as u8]);
    let mut all = if rank == 0 { vec![0; 3] } else { Vec::new() };
    c.gather(&part, &mut all, 0).unwrap();
    assert_eq!(all, if rank == 0 { vec![4, 5, 6] } else { vec![] });
    let r = rank as i64 * 10;
    let mut came = [0; 3];
    c.all_to_all(&[r, r + 1, r + 2], &mut came, 1).unwrap();
    assert_eq!(came, [0, 10, 20].map(|from| from + rank as i64));
    // Rank i sends i elements to rank 0 and nothing to others.
    let matrix = [0, 0, 0, 1, 0, 0, 2, 0, 0];
    let mut came = if rank == 0 { vec![0; 3] } else { Vec::new() };
    c.all_to_all_uneven(&vec![r; rank], &mut came, &matrix).unwrap();
    assert_eq!(came, if rank == 0 { vec![10, 20, 20] } else { vec![] });
    c.barrier().unwrap();
    let words = c.all_gather_bytes(&vec![rank as u8; rank * 2]).unwrap();
    assert_eq!(words, [vec![], vec![1; 2], vec![2; 4]]);
}

/// Counts beyond 32 bits need more memory than every machine has.
fn more_than_2_gib() {
    if std::env::var_os("HCOMM_TEST_BIG").is_none() {
        println!("skipped: HCOMM_TEST_BIG=1 asks for 10 GiB of memory");
        return;
    }
    for transport in ["shm", "tcp"] {
        Job::new("big", 2).env("HCOMM_TRANSPORT", transport).run();
    }
}

fn big() {
    const COUNT: usize = (2 << 30) + 16;
    let mut communicator = Communicator::init().unwrap();
    let mut buffer = communicator.alloc::<i8>(COUNT).unwrap();
    let rank = communicator.rank() as i8;
    buffer[0] = 3 + rank;
    buffer[1 << 31] = 5 + rank;
    buffer[COUNT - 1] = 7 + rank;
    communicator.all_reduce_in_place(&mut buffer, ReduceOp::Sum).unwrap();
    assert_eq!([buffer[0], buffer[1], buffer[1 << 31], buffer[COUNT - 2], buffer[COUNT - 1]], [7, 0, 11, 0, 15]);
}
