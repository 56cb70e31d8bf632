//! What the lock-free parts are made of: the real things, or loom's, under which every interleaving is tried.
//!
//! The fences come in an unequal pair. The side that runs for each message has [`light_fence`], which costs nothing: it
//! only keeps the compiler from reordering. The side that is about to sleep has [`heavy_fence`], which makes every
//! running thread of every hcomm process pass a full fence (`membarrier`), so that one of both sees what the other wrote.
//! A full fence on the light side would cost as much as a quarter of a small message.

#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Interior mutability with loom's interface.
#[cfg(not(loom))]
#[repr(transparent)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Orders this thread's earlier writes before its later reads, provided that the other side calls [`heavy_fence`].
#[inline]
pub(super) fn light_fence() {
    #[cfg(not(loom))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The other side of [`light_fence`]; `false` when the system has no `membarrier`, and nothing was ordered.
pub(super) fn heavy_fence() -> bool {
    #[cfg(not(loom))]
    let done = membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    #[cfg(loom)]
    let done = {
        fence(Ordering::SeqCst);
        true
    };
    done
}

/// Makes this process one of those that [`heavy_fence`] reaches; `false` when the system cannot.
pub(super) fn register_for_fences() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes integers only and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Runs a loom model with at most three preemptions in each execution, which keeps it to seconds; loom's authors find that two
/// or three suffice for nearly all faults.
#[cfg(all(test, loom))]
pub(super) fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}
