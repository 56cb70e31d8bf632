//! Shared memory: the ranks of one host.
//!
//! Each process owns one [`Heap`] (a memfd) that every other process of its host maps ([`Domain`]). Rings, doorbells and
//! registered buffers are parts of heaps, named by offsets; so a new link costs no descriptor and no system call but
//! the reservation of its memory. [`ShmLink`] carries messages through a [`ring`], and a thread that waits sleeps on its
//! [`Doorbell`]. What lies elsewhere in a peer is read through [`PeerProcess`].
//!
//! A memfd and not a file in `/dev/shm`: nothing is left behind when processes are killed, no mount is needed and no
//! quota of one is hit. Memory is reserved before it is used, so a full machine is an error and not a SIGBUS.

mod domain;
mod doorbell;
mod heap;
mod link;
mod primitive;
mod process;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use domain::Domain;
pub(crate) use doorbell::Doorbell;
pub(crate) use heap::{Heap, HeapRange};
pub(crate) use link::{Channel, Parts, ShmLink};
pub(crate) use process::PeerProcess;
