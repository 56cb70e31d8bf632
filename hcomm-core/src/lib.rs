//! Collective communication for distributed AI training, over shared memory and TCP.
//!
//! The processes of a job, its *ranks*, all run the same program and call the same operations in the same order. An
//! all_reduce in ten lines:
//!
//! ```
//! use hcomm_core::{Communicator, ReduceOp};
//!
//! fn main() -> hcomm_core::Result<()> {
//!     let mut ranks = Communicator::init()?;
//!     let mut gradient = ranks.alloc::<f32>(1 << 20)?;
//!     gradient.fill(ranks.rank() as f32 + 1.0);
//!     ranks.all_reduce_in_place(&mut gradient, ReduceOp::Sum)?;
//!     let n = ranks.size();
//!     assert_eq!(gradient[0], (n * (n + 1) / 2) as f32); // 1 + 2 + ... + n
//!     Ok(())
//! }
//! ```
//!
//! # From one rank to many
//!
//! Started as it is, that program is a job of one rank. The same program becomes many ranks when a launcher starts it:
//! `torchrun --no-python`, `srun`, `mpirun`, a Kubernetes indexed job. [`Communicator::init`] reads its place from the variables that
//! these set ([`launch::detect`]). By hand, three variables say it:
//!
//! ```sh
//! for rank in 0 1; do
//!     HCOMM_RANK=$rank HCOMM_WORLD_SIZE=2 HCOMM_STORE=tcp://127.0.0.1:29500 target/release/train &
//! done; wait
//! ```
//!
//! Or the program starts its own ranks, on this host or on others: see [`launch`].
//!
//! # Concepts
//!
//! **Communicator.** A [`Communicator`] connects the ranks of a job. A process joins its job once; [`Communicator::split`] makes
//! communicators of some of its ranks. Every operation takes `&mut self`: one communicator is used by one thread at a time.
//! Operations are methods on slices ([`Communicator::all_reduce`] and its like), or a [`Call`] that is typed at run time
//! ([`Communicator::run`]). Ten element types ([`DataType`]), five operations ([`ReduceOp`]), 64-bit counts. Any number of
//! ranks, counts that they do not divide, and counts of 0 are fine.
//!
//! **Registered buffers.** A [`Buffer`] from [`Communicator::alloc`] lies in memory that all ranks of the host have mapped. When all ranks
//! of a communicator are on one host and pass such buffers, each reads and writes the others' data where it lies. Any other slice
//! works too, and is copied.
//!
//! **Plans and algorithms.** A call becomes a [`plan`]: for each rank the steps to take, a pure function of the call and of what all ranks
//! know alike. Each [`Algorithm`] (ring, tree, direct, ...) makes other plans. The [`tuner`] chooses; a setting or
//! [`Communicator::force`] overrules it, and [`Communicator::last_run`] tells what ran. Plans are kept, so the next call of the same
//! shape makes none. [`plan::verify`] proves plans without a network.
//!
//! **Transports.** Ranks of one host talk through shared memory, others over TCP. Who shares a host is decided by facts and not by
//! what a launcher says. A waiting thread spins for a short time and then sleeps.
//!
//! **Requests.** [`Communicator::start`] runs an operation in the background, while the caller computes. It takes the buffers and
//! [`Request::wait`] gives them back. Several are under way at once; those of [`communicator::Priority::High`] overtake.
//!
//! ```
//! # use hcomm_core::{Communicator, ReduceOp};
//! # fn main() -> hcomm_core::Result<()> {
//! # let mut ranks = Communicator::init()?;
//! let gradient = ranks.alloc::<f32>(1000)?;
//! let request = ranks.start_all_reduce(gradient, ReduceOp::Avg)?;
//! // ... the next layer's gradient is computed here ...
//! let gradient = request.wait()?.input;
//! # assert_eq!(gradient.len(), 1000);
//! # Ok(())
//! # }
//! ```
//!
//! **Point to point.** [`Communicator::send`], [`Communicator::receive`] and [`Communicator::send_receive`].
//!
//! # When something fails
//!
//! Every failure is an [`Error`] with a stable [code](Error::code); each has a section in `docs/errors.md`. Nothing waits for ever:
//!
//! - A rank that dies ends the current operation of every other rank within seconds, with [`Error::PeerLost`]. All name the same rank.
//! - A rank that is stopped or late ends it after `HCOMM_TIMEOUT` with [`Error::Timeout`], which lists who has not come and at which call
//!   each is. The ranks that hear of it from another one get [`Error::Aborted`].
//! - Ranks that call different things get [`Error::Mismatch`], which names both calls.
//! - Bad arguments ([`Error::Argument`], [`Error::Unsuited`]) are found before anything is sent, and the communicator stays good.
//!
//! After a failure in the middle of an operation the ranks no longer agree on what was done: every further call is refused with
//! [`Error::Broken`], and the job is to be started again.
//!
//! # The same bits
//!
//! After an all_reduce every rank holds the same bits, and another run of the same build with the same ranks, placement, calls
//! and settings gives them again. All processors give the same, whatever their instruction set. The order of a floating-point
//! reduction *can* differ between sizes, placements and versions, as the tuner may choose another algorithm.
//! `HCOMM_DETERMINISTIC=1` fixes one order, by rank. Integers, minima and maxima never depend on the order. The user
//! guide, `docs/guide.md`, has the whole contract.
//!
//! # Settings
//!
//! [`config::Config`] holds them: defaults, then a TOML file, then `HCOMM_*` variables. [`config::SETTINGS`] lists each with its default
//! and meaning, as does the user guide. [`Communicator::join`] takes a `Config` made by the program.

pub mod communicator;
pub mod config;
pub mod control;
mod engine;
mod error;
pub mod launch;
pub mod plan;
pub use hcomm_reduce as reduce;
pub use hcomm_telemetry as telemetry;
mod session;
pub mod topology;
mod transport;
pub mod tuner;
pub mod units;

pub use communicator::{Buffer, Call, Communicator, Request};
pub use error::{Error, OperationName, RankName, Result};
pub use plan::{Algorithm, Collective};
pub use reduce::{DataType, Element, ReduceOp};
