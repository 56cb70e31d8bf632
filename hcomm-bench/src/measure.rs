//! How long an operation takes.
//!
//! Two loops, for two questions. The headline is the mean of operations back to back with the clock read only before and
//! after, as nccl-tests and the OSU benchmarks do: a clock read (20 to 50 ns) would be a fifth of a small message. The
//! distribution needs a clock read for each iteration, so it comes from a second loop, with the cost of the read taken off.
//! Where an iteration is long enough for the read not to matter, one loop serves both.
//!
//! In each iteration the slowest rank counts: samples are merged by their maximum over ranks. No barrier stands between
//! iterations (unless `-z` asks): it would take longer than a small message, and its own skew would be measured.

use std::time::{Duration, Instant};

use hcomm_core::Result;
use nix::sys::resource::{UsageWho, getrusage};

use crate::args::{Average, Effort};
use crate::group::Group;
use crate::results::Times;

/// Single iterations that are timed at most.
const MAX_SAMPLES: u64 = 10_000;

/// Iterations of at least so long are timed with the clock in the loop: a read is under 0.3 % of them.
const LONG: Duration = Duration::from_micros(20);

/// What `Effort::Auto` spends on a cell, and its bounds.
const AUTO_TIME: Duration = Duration::from_millis(50);
const AUTO_ITERATIONS: std::ops::RangeInclusive<u64> = 20..=10_000;

/// How to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// How many iterations.
    pub effort: Effort,
    /// Iterations before.
    pub warmup: u64,
    /// Operations an iteration.
    pub aggregate: u64,
    /// nccl-tests' `-z`.
    pub blocking: u8,
    /// Whose time is the headline.
    pub average: Average,
}

/// What was measured of one cell; equal on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Timed iterations.
    pub iterations: u64,
    /// Times of an operation.
    pub times: Times,
    /// CPU time of an operation in microseconds, mean of ranks.
    pub cpu_us: f64,
    /// Each rank's own mean, in microseconds.
    pub rank_us: Vec<f64>,
}

/// Measures `operation` on all ranks of `group` together.
pub fn measure<G: Group>(
    group: &mut G,
    method: &Method,
    mut operation: impl FnMut(&mut G) -> Result<()>,
) -> Result<Measured> {
    let estimate = warm_up(group, method, &mut operation)?;
    let iterations = iterations(method.effort, estimate);
    let mut samples = Vec::with_capacity(iterations.min(MAX_SAMPLES) as usize);

    let clocked = estimate >= LONG;
    group.barrier()?;
    let cpu = cpu_time();
    let mean = if clocked {
        timed_loop(group, method, iterations, Some(&mut samples), &mut operation)?
    } else {
        timed_loop(group, method, iterations, None, &mut operation)?
    };
    let cpu = (cpu_time() - cpu).as_secs_f64();
    if !clocked {
        group.barrier()?;
        timed_loop(group, method, iterations.min(MAX_SAMPLES), Some(&mut samples), &mut operation)?;
    }

    let operations = (iterations * method.aggregate) as f64;
    merge(group, method.average, iterations, mean.as_secs_f64() / operations, cpu / operations, &samples)
}

/// Warms caches, plans and connections up, and estimates the time of an iteration: of the slowest rank, so that all ranks
/// draw the same conclusions. Zero without warm-up.
fn warm_up<G: Group>(
    group: &mut G,
    method: &Method,
    operation: &mut impl FnMut(&mut G) -> Result<()>,
) -> Result<Duration> {
    // The first half makes plans and touches memory for the first time; the second half is the estimate.
    let counted = method.warmup.div_ceil(2);
    timed_loop(group, method, method.warmup - counted, None, operation)?;
    let total = timed_loop(group, method, counted, None, operation)?;
    let mine = total.as_nanos() as u64 / counted.max(1);
    let slowest = group.all_gather_u64(mine)?.into_iter().max().unwrap_or(mine);
    let estimate = Duration::from_nanos(slowest);
    if method.effort == Effort::Auto && method.warmup > 0 && estimate < LONG {
        timed_loop(group, method, 200, None, operation)?;
    }
    Ok(estimate)
}

/// How many iterations to time, from an estimate of one.
fn iterations(effort: Effort, estimate: Duration) -> u64 {
    let fit = |time: Duration| (time.as_nanos() / estimate.as_nanos().max(1)) as u64;
    match effort {
        Effort::Iterations(iterations) => iterations,
        Effort::Auto if estimate.is_zero() => *AUTO_ITERATIONS.start(),
        Effort::Auto => fit(AUTO_TIME).clamp(*AUTO_ITERATIONS.start(), *AUTO_ITERATIONS.end()),
        Effort::Time(_) if estimate.is_zero() => *AUTO_ITERATIONS.start(),
        Effort::Time(time) => fit(time).max(1),
    }
}

/// Runs iterations and returns the time they took; with `samples`, reads the clock after each and stores the time of an
/// operation in picoseconds.
fn timed_loop<G: Group>(
    group: &mut G,
    method: &Method,
    iterations: u64,
    mut samples: Option<&mut Vec<u64>>,
    operation: &mut impl FnMut(&mut G) -> Result<()>,
) -> Result<Duration> {
    let clock_ns = if samples.is_some() { clock_cost().as_nanos() as u64 } else { 0 };
    let barrier_apart = method.blocking == 3;
    let mut apart = Duration::ZERO;
    let start = Instant::now();
    let mut last = start;
    for _ in 0..iterations {
        for _ in 0..method.aggregate {
            operation(group)?;
            if method.blocking == 1 {
                group.barrier()?;
            }
        }
        if let Some(samples) = samples.as_mut().filter(|samples| samples.len() < MAX_SAMPLES as usize) {
            let now = Instant::now();
            let nanoseconds = (now.duration_since(last).as_nanos() as u64).saturating_sub(clock_ns);
            // In picoseconds: the mean of -m operations is not to be rounded to nanoseconds.
            samples.push(nanoseconds * 1000 / method.aggregate);
            last = now;
        }
        if barrier_apart {
            let before = Instant::now();
            group.barrier()?;
            last = Instant::now();
            apart += last.duration_since(before);
        }
    }
    Ok(start.elapsed() - apart)
}

/// Puts the ranks' figures together: the same on every rank.
fn merge<G: Group>(
    group: &mut G,
    average: Average,
    iterations: u64,
    mean: f64,
    cpu: f64,
    samples: &[u64],
) -> Result<Measured> {
    let figures = group.all_gather_u64s(&[(mean * 1e6).to_bits(), (cpu * 1e6).to_bits()])?;
    let rank_us: Vec<f64> = figures.iter().map(|f| f64::from_bits(f[0])).collect();
    let cpu_us = figures.iter().map(|f| f64::from_bits(f[1])).sum::<f64>() / figures.len() as f64;
    let headline = match average {
        Average::Rank0 => rank_us[0],
        Average::Mean => rank_us.iter().sum::<f64>() / rank_us.len() as f64,
        Average::Min => rank_us.iter().copied().fold(f64::INFINITY, f64::min),
        Average::Max => rank_us.iter().copied().fold(0.0, f64::max),
    };
    let all = group.all_gather_u64s(samples)?;
    let slowest = (0..samples.len()).map(|i| all.iter().map(|rank| rank[i]).max().unwrap_or(0) as f64 / 1e3);
    Ok(Measured { iterations, times: Times::new(headline, &slowest.collect::<Vec<f64>>()), cpu_us, rank_us })
}

/// The least time between two reads of the clock.
fn clock_cost() -> Duration {
    (0..50).map(|_| Instant::now().elapsed()).min().unwrap_or_default()
}

/// CPU time of this process so far: all threads, user and system.
fn cpu_time() -> Duration {
    let seconds = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec().unsigned_abs(), time.tv_usec().unsigned_abs() as u32 * 1000)
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| seconds(usage.user_time()) + seconds(usage.system_time()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_threads;

    fn method(effort: Effort) -> Method {
        Method { effort, warmup: 5, aggregate: 1, blocking: 0, average: Average::Max }
    }

    #[test]
    fn every_operation_of_every_loop_is_run_and_ranks_agree() {
        for (blocking, aggregate, warmup) in [(0, 1, 5), (1, 3, 0), (3, 2, 1)] {
            let method = Method { blocking, aggregate, warmup, ..method(Effort::Iterations(7)) };
            let results = run_threads(3, None, |group| {
                let mut calls = 0;
                let measured = measure(group, &method, |group| {
                    calls += 1;
                    group.barrier()
                });
                (calls, measured.unwrap())
            });
            assert!(results.iter().all(|result| *result == results[0]), "ranks differ");
            let (calls, measured) = &results[0];
            assert_eq!(measured.iterations, 7);
            assert_eq!(measured.rank_us.len(), 3);
            let once = (warmup + 7) * aggregate;
            assert!([once, once + 7 * aggregate].contains(calls), "{calls} calls");
        }
    }

    #[test]
    fn effort_becomes_iterations() {
        let us = Duration::from_micros;
        assert_eq!(iterations(Effort::Iterations(3), us(1)), 3);
        assert_eq!(iterations(Effort::Auto, us(100_000)), 20);
        assert_eq!(iterations(Effort::Auto, us(1000)), 50);
        assert_eq!(iterations(Effort::Auto, Duration::from_nanos(200)), 10_000);
        assert_eq!(iterations(Effort::Auto, Duration::ZERO), 20);
        assert_eq!(iterations(Effort::Time(us(1_000_000)), us(10)), 100_000);
        assert_eq!(iterations(Effort::Time(us(1)), us(10)), 1);
    }

    #[test]
    fn the_slowest_rank_of_each_iteration_counts() {
        let merged = run_threads(2, None, |group| {
            let samples: &[u64] = if group.rank() == 0 { &[1_000_000, 5_000_000] } else { &[3_000_000, 2_000_000] };
            let mean = if group.rank() == 0 { 4e-6 } else { 2e-6 };
            [Average::Rank0, Average::Mean, Average::Min, Average::Max]
                .map(|average| merge(group, average, 2, mean, 0.0, samples).unwrap())
        });
        let times = &merged[1][3].times;
        assert_eq!((times.min, times.max), (3.0, 5.0));
        let headlines = merged[1].each_ref().map(|measured| measured.times.mean.round());
        assert_eq!(headlines, [4.0, 3.0, 2.0, 4.0]);
    }
}
