//! Failing well: whatever becomes of a rank, every other one gets an error that names it, soon, and nothing hangs.

use std::time::{Duration, Instant};

use hcomm_core::plan::Counts;
use hcomm_core::{Call, Collective, Communicator, DataType, Error, ReduceOp, Result};
use nix::sys::signal::Signal;

use super::job::{Job, Running, say};

pub const ACTS: &[(&str, fn())] = &[
    ("looping", looping),
    ("copying", copying),
    ("absent", absent),
    ("absent_from_a_message", absent_from_a_message),
    ("absent_from_a_request", absent_from_a_request),
    ("absent_from_a_part", absent_from_a_part),
    ("disagreeing", disagreeing),
    ("leaving_early", leaving_early),
    ("done_early", done_early),
];
pub const TESTS: &[(&str, fn())] = &[
    ("a_rank_killed_in_a_call_is_named", || killed("looping")),
    ("a_rank_killed_while_its_buffer_is_read_is_named", || killed("copying")),
    ("a_rank_killed_outside_of_a_call_is_named", || killed("absent")),
    ("a_stopped_rank_is_named", stopped),
    ("a_rank_that_does_not_come_is_named_with_its_call", not_coming),
    ("ranks_of_a_split_communicator_are_named_by_both_numbers", not_coming_to_a_part),
    ("ranks_that_disagree_are_told_both_calls", mismatches),
    ("a_rank_that_leaves_early_is_named", left_early),
    ("a_rank_may_leave_when_its_part_is_done", || {
        for transport in ["shm", "tcp"] {
            Job::new("done_early", 3).env("HCOMM_TRANSPORT", transport).run();
        }
    }),
];

/// Who fails, or how, for the ranks.
const CASE: &str = "HCOMM_LAUNCH_TEST_CASE";
/// Within this a death is known to all.
const SOON: Duration = Duration::from_secs(5);

fn case() -> usize {
    std::env::var(CASE).unwrap().parse().unwrap()
}

/// Joins and says when all are there.
fn init() -> Communicator {
    let mut c = Communicator::init().unwrap();
    c.barrier().unwrap();
    c
}

/// Says the error, and that the communicator takes no more calls.
fn report(mut c: Communicator, result: Result<()>) {
    match result {
        Ok(()) => say("no error"),
        Err(error) => {
            say(format!("{} {error}", error.code()));
            let next = c.barrier();
            assert!(matches!(next, Err(Error::Broken(_))), "{next:?}");
            let next = c.send(&[1], (c.rank() + 1) % c.size());
            assert!(matches!(next, Err(Error::Broken(_))), "{next:?}");
        }
    }
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

fn looping() {
    let mut c = init();
    let mut buffer = vec![1_f32; 100_000];
    let mut failed = None;
    for round in 0.. {
        if let Err(error) = c.all_reduce_in_place(&mut buffer, ReduceOp::Max) {
            failed = Some(error);
            break;
        }
        if round == 2 {
            say("up");
        }
    }
    report(c, failed.map_or(Ok(()), Err));
}

/// Ordinary buffers, read where they lie.
fn copying() {
    let mut c = init();
    let mine = vec![1_u8; 1 << 20];
    let mut all = vec![0; c.size() << 20];
    let mut failed = None;
    for round in 0.. {
        if let Err(error) = c.all_gather(&mine, &mut all) {
            failed = Some(error);
            break;
        }
        if round == 2 {
            say("up");
        }
    }
    report(c, failed.map_or(Ok(()), Err));
}

fn absent() {
    let mut c = init();
    say("up");
    if c.rank() == case() {
        wait_for_the_end();
    }
    let result = c.all_reduce_in_place(&mut [1; 1000], ReduceOp::Sum);
    report(c, result);
}

fn absent_from_a_message() {
    let mut c = init();
    say("up");
    if c.rank() == case() {
        wait_for_the_end();
    }
    let result = c.receive(&mut [1; 1000], case());
    report(c, result);
}

fn absent_from_a_request() {
    let mut c = init();
    let buffer = c.alloc::<u8>(1000).unwrap();
    let buffer = c.start_all_reduce(buffer, ReduceOp::Sum).unwrap().wait().unwrap().input;
    say("up");
    if c.rank() == case() {
        wait_for_the_end();
    }
    let result = c.start_all_reduce(buffer, ReduceOp::Sum).unwrap().wait().map(drop);
    report(c, result);
}

/// The odd ranks have a communicator of their own, to whose call one of them does not come.
fn absent_from_a_part() {
    let mut c = init();
    let mut part = c.split(Some(c.rank() as u32 % 2), 0).unwrap().unwrap();
    say("up");
    if c.rank() == case() {
        wait_for_the_end();
    }
    let result = match c.rank() % 2 {
        0 => c.barrier(),
        _ => part.all_reduce_in_place(&mut [1; 1000], ReduceOp::Sum),
    };
    say(result.unwrap_err());
}

/// Rank `victim` of a job in which all are up gets `signal`; then all others end by themselves. What they said.
fn signalled(mut job: Running, size: usize, victim: usize, signal: Option<Signal>) -> Vec<String> {
    (0..size).for_each(|rank| job.await_line(rank, "up"));
    if let Some(signal) = signal {
        job.signal(victim, signal);
    }
    let others: Vec<usize> = (0..size).filter(|&rank| rank != victim).collect();
    let ends = job.end_of(&others);
    ends.into_iter()
        .map(|end| {
            assert!(end.status.success() && end.said.len() == 1, "{} {:?}", end.status, end.said);
            end.said.concat()
        })
        .collect()
}

/// Ranks by the letters of their hosts, and the transport.
const PLACES: [(&str, &str); 9] = [
    ("aa", "shm"),
    ("aaa", "shm"),
    ("aaaa", "shm"),
    ("aa", "tcp"),
    ("aaa", "tcp"),
    ("aaaa", "tcp"),
    ("ab", "auto"),
    ("aab", "auto"),
    ("aabb", "auto"),
];

fn job(act: &'static str, hosts: &str, transport: &str, case: usize) -> Job {
    Job::new(act, hosts.len()).hosts(hosts).env("HCOMM_TRANSPORT", transport).env(CASE, case)
}

fn host(hosts: &str, rank: usize) -> String {
    format!("host-{}", &hosts[rank..=rank])
}

/// Runs a test once for each case, all at the same time: they do little but wait.
fn all_at_once<T: Sync>(cases: &[T], test: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| cases.iter().for_each(|case| _ = scope.spawn(|| test(case))));
}

fn killed(act: &'static str) {
    // Where rank 0 serves the store, its death takes the store with it.
    for (hosts, transport, victim, rank_serves) in victims(&PLACES) {
        let job = job(act, hosts, transport, victim);
        let job = if rank_serves { job.rank_serves() } else { job };
        let running = job.start();
        let begun = Instant::now();
        let said = signalled(running, hosts.len(), victim, Some(Signal::SIGKILL));
        let elapsed = begun.elapsed();
        let named = format!("HC-E0005 rank {victim} on {} is lost: ", host(hosts, victim));
        let place = format!("{hosts} {transport} rank 0 serves: {rank_serves}");
        assert!(said.iter().all(|said| said.starts_with(&named)), "{place}: {named}: {said:#?}");
        assert!(elapsed < SOON, "{place}: {elapsed:?}");
    }
}

/// Places with one of their ranks, and whether rank 0 serves the store.
fn victims(places: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str, usize, bool)> {
    let mut cases = Vec::new();
    for &(hosts, transport) in places {
        for victim in [0, hosts.len() - 1] {
            cases.extend([false, true].map(|rank_serves| (hosts, transport, victim, rank_serves)));
        }
    }
    cases
}

fn stopped() {
    let cases = victims(&[("aa", "shm"), ("aaa", "tcp"), ("aab", "auto")]);
    all_at_once(&cases, |&(hosts, transport, victim, rank_serves)| {
        let job = job("looping", hosts, transport, victim).env("HCOMM_TIMEOUT", "2s");
        let job = if rank_serves { job.rank_serves() } else { job };
        let said = signalled(job.start(), hosts.len(), victim, Some(Signal::SIGSTOP));
        let place = format!("{hosts} {transport} rank 0 serves: {rank_serves}");
        assert!(said.iter().any(|said| said.starts_with("HC-E0006")), "{place}: {said:#?}");
        let named = format!("rank {victim} on {}", host(hosts, victim));
        assert!(said.iter().all(|said| said.contains(&named)), "{place}: {named}: {said:#?}");
    });
}

fn not_coming() {
    let acts = [
        ("absent", "its last call was #1 (barrier"),
        ("absent_from_a_message", "its last call was #1 (barrier"),
        ("absent_from_a_request", "its last call was #1 (all_reduce(1000 x u8, sum"),
    ];
    let places = [("aa", "shm"), ("aaa", "shm"), ("aaa", "tcp"), ("aab", "auto")];
    let cases: Vec<_> = acts.into_iter().flat_map(|act| places.map(|place| (act, place))).collect();
    all_at_once(&cases, |&((act, last), (hosts, transport))| {
        let victim = hosts.len() - 1;
        let job = job(act, hosts, transport, victim).env("HCOMM_TIMEOUT", "1s");
        let said = signalled(job.start(), hosts.len(), victim, None);
        assert!(said.iter().any(|said| said.starts_with("HC-E0006")), "{said:#?}");
        let named = format!("rank {victim} on {} has not come: ", host(hosts, victim));
        assert!(said.iter().all(|said| said.contains(&named) && said.contains(last)), "{hosts} {act}: {said:#?}");
        let others = (0..victim).map(|rank| format!("rank {rank} on {} has not come", host(hosts, rank)));
        assert!(!others.into_iter().any(|other| said.concat().contains(&other)), "{hosts} {act}: {said:#?}");
    });
}

fn not_coming_to_a_part() {
    for transport in ["shm", "tcp"] {
        let job = job("absent_from_a_part", "aaaa", transport, 3).env("HCOMM_TIMEOUT", "1s");
        let said = signalled(job.start(), 4, 3, None);
        // Whoever sees it first says it in its own words; the others quote that.
        let (of_all, of_part) = ("rank 3 on host-a has not come", "rank 1 (rank 3 of the job) on host-a has not come");
        let named = |said: &String| said.contains(of_all) || said.contains(of_part);
        assert!(said.iter().all(named), "{transport}: {said:#?}");
        let of_rank_1 = &said[1];
        assert!(
            of_rank_1.contains(of_part)
                || of_rank_1.contains("rank 0 of the job (not in this communicator)")
                || of_rank_1.contains("rank 2 of the job (not in this communicator)"),
            "{transport}: {said:#?}"
        );
    }
}

/// What rank 0 calls, and what all others do.
fn disagreements() -> Vec<[Call; 2]> {
    let call = Call {
        collective: Collective::AllReduce,
        counts: Counts::Even(1000),
        dtype: DataType::I32,
        op: ReduceOp::Sum,
        root: 0,
    };
    let broadcast = Call { collective: Collective::Broadcast, ..call.clone() };
    let large = |call: Call| Call { counts: Counts::Even(100_000), ..call };
    let gather = |counts: &[u64]| Call {
        collective: Collective::AllGather,
        counts: Counts::PerRank(counts.into()),
        ..call.clone()
    };
    vec![
        [call.clone(), Call { counts: Counts::Even(1001), ..call.clone() }],
        [call.clone(), Call { dtype: DataType::F32, ..call.clone() }],
        [call.clone(), Call { op: ReduceOp::Max, ..call.clone() }],
        [large(call.clone()), large(Call { op: ReduceOp::Max, ..call.clone() })],
        [call.clone(), large(call.clone())],
        [broadcast.clone(), Call { root: 1, ..broadcast.clone() }],
        [large(broadcast.clone()), large(Call { root: 1, ..broadcast.clone() })],
        [call.clone(), Call { collective: Collective::AllGather, ..call.clone() }],
        [
            Call { collective: Collective::AllGather, ..call.clone() },
            Call { collective: Collective::AllToAll, ..call.clone() },
        ],
        [call.clone(), broadcast.clone()],
        [broadcast, call.clone()],
        [Call { collective: Collective::Reduce, ..call.clone() }, call.clone()],
        [Call { collective: Collective::Barrier, counts: Counts::Even(0), ..call.clone() }, call.clone()],
        [gather(&[3, 4, 5]), gather(&[3, 5, 4])],
    ]
}

fn disagreeing() {
    let mut c = init();
    let call = &disagreements()[case()][usize::from(c.rank() > 0)];
    let (input, mut output) = (vec![0; 2 << 20], vec![0; 2 << 20]);
    // Who has done its part learns of it from the next call.
    let result = c.run(call, &input, &mut output).and_then(|()| c.barrier());
    report(c, result);
}

fn mismatches() {
    let places = [("aaa", "shm"), ("aab", "auto")];
    let cases: Vec<_> =
        disagreements().into_iter().enumerate().flat_map(|case| places.map(|p| (case.clone(), p))).collect();
    all_at_once(&cases, |((case, [first, second]), (hosts, transport))| {
        let ends = job("disagreeing", hosts, transport, *case).env("HCOMM_TIMEOUT", "20s").start().end();
        let said: Vec<String> = ends.into_iter().map(|end| end.said.concat()).collect();
        let what = format!("{hosts}: {first} and {second}: {said:#?}");
        assert!(said.iter().all(|said| said.starts_with("HC-E0007") || said.starts_with("HC-E0012")), "{what}");
        let names_both = |said: &String| {
            said.starts_with("HC-E0007") && said.contains(&first.to_string()) && said.contains(&second.to_string())
        };
        assert!(said.iter().any(names_both), "{what}");
    });
}

fn leaving_early() {
    let mut c = init();
    say("up");
    if c.rank() == case() {
        return;
    }
    let result = c.all_reduce_in_place(&mut [1; 1000], ReduceOp::Sum);
    report(c, result);
}

fn left_early() {
    let cases = victims(&[("aa", "shm"), ("aaa", "tcp"), ("aab", "auto")]);
    all_at_once(&cases, |&(hosts, transport, victim, rank_serves)| {
        let job = job("leaving_early", hosts, transport, victim);
        let job = if rank_serves { job.rank_serves() } else { job };
        let said = signalled(job.start(), hosts.len(), victim, None);
        let named = format!("HC-E0005 rank {victim} on {} is lost: ", host(hosts, victim));
        assert!(said.iter().all(|said| said.starts_with(&named)), "{hosts} {transport} {rank_serves}: {said:#?}");
    });
}

/// Rank 2 sends its part and leaves while rank 1 is busy with something else, for longer than any death takes to be seen.
fn done_early() {
    let mut c = init();
    let mut sum = [0];
    if c.rank() == 1 {
        std::thread::sleep(Duration::from_secs(3));
    }
    c.reduce(&[1], &mut sum, ReduceOp::Sum, 0).unwrap();
    assert_eq!(sum[0], if c.rank() == 0 { 3 } else { 0 });
}
