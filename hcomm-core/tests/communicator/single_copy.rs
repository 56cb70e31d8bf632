//! Ordinary buffers that are read where they lie, and systems that do not let them be.

#![allow(unsafe_code)] // gives up a privilege, which no crate here can

use hcomm_core::{Communicator, Error};
use nix::sys::prctl;
use nix::sys::signal::{Signal, raise};

use super::data::mix;
use super::job::{Job, say};

pub const ACTS: &[(&str, fn())] = &[
    ("gather", gather),
    ("gather_beside_a_shut_rank", beside_a_shut_rank),
    ("changing", changing),
    ("late_receiver", late_receiver),
];
pub const TESTS: &[(&str, fn())] = &[
    ("single_copy_is_taken_where_it_may_be", || {
        for (setting, whole) in [("auto", "true"), ("on", "true"), ("off", "false")] {
            let said = Job::new("gather", 3).env("HCOMM_SINGLE_COPY", setting).run();
            assert!(said.iter().all(|said| said == &[whole]), "{setting}: {said:?}");
        }
    }),
    ("one_rank_without_single_copy_is_enough_for_all_to_do_without", || {
        let said = Job::new("gather_beside_a_shut_rank", 3).run();
        assert!(said.iter().all(|said| said == &["false"]), "{said:?}");
    }),
    ("single_copy_that_is_asked_for_and_refused_is_an_error", || {
        let said = Job::new("gather_beside_a_shut_rank", 2).env("HCOMM_SINGLE_COPY", "on").run();
        for said in said {
            let [error] = &said[..] else { panic!("{said:?}") };
            assert!(
                error.contains("HCOMM_SINGLE_COPY") && error.contains("cannot read the memory of rank 1"),
                "{error}"
            );
        }
    }),
    ("a_message_whose_sender_gave_up_is_no_message", sender_gave_up),
    ("a_buffer_is_read_before_its_rank_writes_to_it_again", || {
        for size in [2, 4] {
            Job::new("changing", size).env("HCOMM_SINGLE_COPY", "on").run();
        }
    }),
];

fn word(rank: usize, round: usize) -> u64 {
    mix((rank as u64) << 32 | round as u64)
}

/// Gathers, checks, and says whether the messages were whole.
fn gather() {
    gather_with(Communicator::init().unwrap());
}

fn gather_with(mut c: Communicator) {
    const COUNT: usize = 100_000;
    let mut all = vec![0; COUNT * c.size()];
    c.all_gather(&vec![word(c.rank(), 0); COUNT], &mut all).unwrap();
    assert!(all.chunks(COUNT).enumerate().all(|(rank, block)| block.iter().all(|&w| w == word(rank, 0))));
    say(c.last_run().chunk_bytes == 0);
}

/// Rank 1 is a process that others may not look into.
fn beside_a_shut_rank() {
    drop_ptrace_privilege();
    if std::env::var("HCOMM_RANK").unwrap() == "1" {
        prctl::set_dumpable(false).unwrap();
    }
    match Communicator::init() {
        Ok(c) => gather_with(c),
        Err(error @ Error::Setting { .. }) => say(error),
        Err(error) => panic!("{error}"),
    }
}

/// Without CAP_SYS_PTRACE a process that is not dumpable cannot be read, which root could otherwise.
fn drop_ptrace_privilege() {
    // capset(2): version 3 has two words of 32 bits for each set; a header and effective, permitted, inheritable.
    const VERSION: u32 = 0x2008_0522;
    const CAP_SYS_PTRACE: u32 = 19;
    let header = [VERSION, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: the kernel reads the header and fills in the six words.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0, "capget");
    sets[..2].iter_mut().for_each(|set| *set &= !(1 << CAP_SYS_PTRACE));
    // SAFETY: the kernel reads the header and the six words.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(done, 0, "capset");
}

/// The receiver comes when the sender has waited too long and has its buffer back.
fn sender_gave_up() {
    for single_copy in ["on", "off"] {
        let mut job =
            Job::new("late_receiver", 2).env("HCOMM_SINGLE_COPY", single_copy).env("HCOMM_TIMEOUT", "2s").start();
        job.await_line(1, "stops");
        job.await_line(0, "HC-E0006");
        job.signal(1, Signal::SIGCONT);
        let end = job.end_of(&[1]).remove(0);
        assert!(end.status.success() && end.said == ["refused"], "{single_copy}: {:?}", end.said);
    }
}

fn late_receiver() {
    let mut c = Communicator::init().unwrap();
    c.barrier().unwrap();
    let mut data = vec![c.rank() as u64; 100_000];
    if c.rank() == 0 {
        say(c.send(&data, 1).unwrap_err().code());
        data.fill(9);
        loop {
            std::thread::park();
        }
    }
    say("stops");
    raise(Signal::SIGSTOP).unwrap();
    // Either the message as it was sent or an error.
    match c.receive(&mut data, 0) {
        Ok(()) if data.iter().all(|&word| word == 0) => say("came"),
        Ok(()) => say("another message came"),
        Err(_) => say("refused"),
    }
}

/// Each rank writes to its buffers as soon as a call gives them back.
fn changing() {
    const COUNT: usize = 10_000;
    let mut c = Communicator::init().unwrap();
    let (rank, n) = (c.rank(), c.size());
    let (mut mine, mut many) = (vec![0; COUNT], vec![0; COUNT * n]);
    let uniform = |words: &[u64], from: usize, round: usize| words.iter().all(|&w| w == word(from, round));
    for round in 0..300 {
        let root = round % n;
        mine.fill(word(rank, round));
        c.all_gather(&mine, &mut many).unwrap();
        mine.fill(0);
        assert!(many.chunks(COUNT).enumerate().all(|(from, block)| uniform(block, from, round)), "all_gather {round}");
        mine.fill(word(rank, round));
        c.broadcast(&mut mine, root).unwrap();
        assert!(uniform(&mine, root, round), "broadcast {round}");
        mine.fill(word(rank, round));
        c.gather(&mine, &mut many, root).unwrap();
        mine.fill(0);
        let good = many.chunks(COUNT).enumerate().all(|(from, block)| uniform(block, from, round));
        assert!(good || rank != root, "gather {round}");
        many.fill(word(rank, round));
        c.scatter(&many, &mut mine, root).unwrap();
        many.fill(0);
        assert!(uniform(&mine, root, round), "scatter {round}");
        let input = vec![word(rank, round); COUNT * n];
        c.all_to_all(&input, &mut many, COUNT).unwrap();
        drop(input);
        let good = many.chunks(COUNT).enumerate().all(|(from, block)| uniform(block, from, round));
        assert!(good, "all_to_all {round}");
        mine.fill(word(rank, round));
        c.send_receive(&mine, (rank + 1) % n, &mut many[..COUNT], (rank + n - 1) % n).unwrap();
        mine.fill(0);
        assert!(uniform(&many[..COUNT], (rank + n - 1) % n, round), "send_receive {round}");
    }
}
