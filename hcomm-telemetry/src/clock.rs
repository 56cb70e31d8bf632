//! Clocks.

#![allow(unsafe_code)] // asks the clock for nanoseconds, which the standard library keeps to itself

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in every process of a host (clock_gettime(2)), read without a system
/// call where the kernel's vDSO can.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970 (`CLOCK_REALTIME`).
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the write; both clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What one reading costs here, in nanoseconds: the least of a few.
pub(crate) fn cost_ns() -> u64 {
    const READINGS: u64 = 8;
    let round = || {
        let start = monotonic_ns();
        (0..READINGS).for_each(|_| _ = std::hint::black_box(monotonic_ns()));
        (monotonic_ns() - start).div_ceil(READINGS + 1)
    };
    (0..8).map(|_| round()).min().unwrap_or(0).max(1)
}
