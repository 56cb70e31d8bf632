//! Communicators of real processes. This program is the tests, and each rank that they start, by its environment.

mod bits;
mod collectives;
mod data;
mod failures;
mod job;
mod memory;
mod messages;
mod requests;
mod single_copy;
mod telemetry;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the ranks of a job do, and tests, by name.
type Named = (&'static str, fn());

const ACTS: &[&[Named]] = &[
    bits::ACTS,
    collectives::ACTS,
    failures::ACTS,
    memory::ACTS,
    messages::ACTS,
    requests::ACTS,
    single_copy::ACTS,
    telemetry::ACTS,
];
const TESTS: &[&[Named]] = &[
    collectives::TESTS,
    bits::TESTS,
    requests::TESTS,
    messages::TESTS,
    single_copy::TESTS,
    memory::TESTS,
    failures::TESTS,
    telemetry::TESTS,
];

/// Tests at a time: some of them only wait.
const ABREAST: usize = 4;

fn main() -> ExitCode {
    if let Some(act) = job::act() {
        let (_, act) = ACTS.iter().copied().flatten().find(|(name, _)| *name == act).expect("a known act");
        act();
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let fits = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    let tests: Vec<Named> = TESTS.iter().copied().flatten().copied().filter(|(name, _)| fits(name)).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..ABREAST {
            scope.spawn(|| {
                while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = std::time::Instant::now();
                    let good = catch_unwind(AssertUnwindSafe(test)).is_ok();
                    failed.fetch_add(usize::from(!good), Ordering::Relaxed);
                    let word = if good { "ok" } else { "FAILED" };
                    println!("test {name} ... {word} ({:.1} s)", start.elapsed().as_secs_f64());
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{} tests, {failed} failed", tests.len());
    ExitCode::from(u8::from(failed > 0))
}
