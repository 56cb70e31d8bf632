//! A sequence lock: one writer, which never waits; any number of readers, which copy and notice when the writer was there.
//!
//! Boehm, "Can seqlocks get along with programming language memory models?" (MSPC 2012): the data are relaxed atomics, the
//! number is odd while they change, and a fence on each side keeps them between its two values.
//!
//! Readers do not map the file, they read it by system call (a mapped file that is truncated kills its reader). The kernel
//! copies with ordinary loads in the caller's thread, so the fences order these too.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Changes what `sequence` guards. One thread at a time.
#[inline]
pub(crate) fn write(sequence: &AtomicU64, change: impl FnOnce()) {
    // A writer that was killed in between left an odd number; whoever goes on from there must not make it even.
    let odd = sequence.load(Ordering::Relaxed) | 1;
    sequence.store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    change();
    sequence.store(odd.wrapping_add(1), Ordering::Release);
}

/// What a reader got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copied<T> {
    pub value: T,
    /// Whether the value is of one moment. A writer that is stopped within a change never lets it be.
    pub whole: bool,
}

/// Copies what a sequence number guards, at most `tries` times. Both closures read the shared memory; the copy may come
/// out torn, and must bear that.
pub(crate) fn read<T, E>(
    tries: usize,
    mut sequence: impl FnMut() -> Result<u64, E>,
    mut copy: impl FnMut() -> Result<T, E>,
) -> Result<Copied<T>, E> {
    let mut before = sequence()?;
    let mut tried = 1;
    loop {
        fence(Ordering::Acquire);
        let value = copy()?;
        fence(Ordering::Acquire);
        let after = sequence()?;
        let whole = before == after && before.is_multiple_of(2);
        if whole || tried >= tries {
            return Ok(Copied { value, whole });
        }
        before = after;
        tried += 1;
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::convert::Infallible;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_a_whole_copy_is_of_one_moment() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let theirs = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                for value in 1..=2 {
                    write(&theirs.0, || theirs.1.iter().for_each(|word| word.store(value, Ordering::Relaxed)));
                }
            });
            let (sequence, words) = &*shared;
            let load = |word: &AtomicU64| Ok::<_, Infallible>(word.load(Ordering::Relaxed));
            let Ok(copied) = read(2, || load(sequence), || Ok([load(&words[0])?, load(&words[1])?]));
            if copied.whole {
                assert_eq!(copied.value[0], copied.value[1]);
            }
            writer.join().unwrap();
        });
    }

    /// The ring: `begun` is raised before a record is written over, `done` after it is written.
    #[test]
    fn loom_a_record_below_done_and_not_yet_begun_again_is_whole() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let theirs = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                for index in 0..2 {
                    // A ring of one record.
                    crate::write::publish(&theirs.0, &theirs.1, || {
                        theirs.2.iter().for_each(|word| word.store(index + 10, Ordering::Relaxed));
                    });
                }
            });
            let done = shared.1.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let words = [0, 1].map(|at: usize| shared.2[at].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let begun = shared.0.load(Ordering::Relaxed);
            if done > 0 && begun == done {
                assert_eq!(words, [done + 9; 2]);
            }
            writer.join().unwrap();
        });
    }
}
