//! Writing: one [`Recorder`] a process, one [`LaneWriter`] a thread that runs operations.

mod lane;
mod mapping;
mod paths;
mod recorder;

use crate::primitive::{AtomicU64, Ordering, fence};

pub use crate::layout::Calls;
pub use lane::{LaneWriter, Shape, Traffic};
pub use mapping::Part;
pub use paths::PathWriter;
pub use recorder::{LinkSample, Options, Recorder, Refused};

/// Writes the next record of a ring: whoever reads `done`, then records below it, then `begun`, knows which of those
/// records were being written over meanwhile. One thread at a time.
#[inline]
pub(crate) fn publish(begun: &AtomicU64, done: &AtomicU64, write: impl FnOnce()) {
    let next = done.load(Ordering::Relaxed) + 1;
    begun.store(next, Ordering::Relaxed);
    fence(Ordering::Release);
    write();
    done.store(next, Ordering::Release);
}

impl Calls {
    /// Calls that are remembered.
    pub const RECENT: usize = crate::layout::RECENT;

    /// A record of calls of its own, in no file.
    pub fn apart() -> Part<Calls> {
        let zero = || AtomicU64::new(0);
        let words = std::array::from_fn(|_| std::array::from_fn(|_| zero()));
        Part::apart(Calls { begun: zero(), ended: zero(), words })
    }

    /// Call `number`, counted from 1, begins; `words` say what it is.
    #[inline]
    pub fn begin(&self, number: u64, words: [u64; 4]) {
        for (slot, word) in self.words[number as usize % Self::RECENT].iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.begun.store(number, Ordering::Relaxed);
    }

    /// Call `number` has ended.
    #[inline]
    pub fn end(&self, number: u64) {
        self.ended.store(number, Ordering::Relaxed);
    }

    /// Forgets all calls.
    fn clear(&self) {
        let words = self.words.iter().flatten();
        words.chain([&self.begun, &self.ended]).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Numbers of the latest call that began and of the latest that ended.
    pub fn state(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
    }

    /// The words of call `number`, one of the latest [`Calls::RECENT`].
    pub fn words(&self, number: u64) -> [u64; 4] {
        let slot = &self.words[number as usize % Self::RECENT];
        std::array::from_fn(|at| slot[at].load(Ordering::Relaxed))
    }
}
