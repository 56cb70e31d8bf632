//! What a rank holds beside the user's buffers.

use hcomm_core::plan::Counts;
use hcomm_core::{Call, Collective, Communicator, DataType, ReduceOp};

use super::job::Job;

pub const ACTS: &[(&str, fn())] = &[("traffic", traffic)];
pub const TESTS: &[(&str, fn())] = &[("a_rank_of_eight_stays_below_50_mb", || {
    for transport in ["shm", "tcp"] {
        Job::new("traffic", 8).env("HCOMM_TRANSPORT", transport).run();
    }
})];

/// Bytes of memory that are not of files.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let kb = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    1024 * (kb("RssAnon:") + kb("RssShmem:"))
}

const BYTES: usize = 1 << 20;
const MOST: u64 = 50_000_000;

fn traffic() {
    let mut c = Communicator::init().unwrap();
    let n = c.size();
    let mut registered = [c.alloc::<u8>(BYTES).unwrap(), c.alloc::<u8>(BYTES).unwrap()];
    let mut plain = [vec![0; BYTES], vec![0; BYTES]];
    // A peer's registered buffer counts here as well once it was read.
    let of_the_user = (2 * n + 2) * BYTES;
    for collective in Collective::ALL {
        for count in [8, BYTES / n / 4] {
            let counts = Counts::Even(if collective == Collective::Barrier { 0 } else { count as u64 });
            let call = Call { collective, counts, dtype: DataType::F32, op: ReduceOp::Sum, root: 1 };
            let [input, output] = &mut registered;
            c.run(&call, input, output).unwrap();
            let [input, output] = &mut plain;
            c.run(&call, input, output).unwrap();
        }
    }
    c.barrier().unwrap();
    let own = resident().saturating_sub(of_the_user as u64);
    assert!(own < MOST, "{own} bytes");
}
