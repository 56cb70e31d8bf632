//! Runs plans over links.
//!
//! [`Compiled`] is a plan turned into byte offsets with its hazards worked out, made once a shape. [`Run`] is one execution of
//! it: a state machine that moves what can be moved and returns, so that a blocking call drives it in the caller's thread and a
//! background thread drives several. [`Lane`] holds the links it runs over, [`Waiter`] is how a thread waits when nothing moves.
//!
//! The rejected way: a thread per channel with blocking links. It costs a wake-up per message, and a rank on a
//! shared core then waits for its own threads.

mod compile;
mod lane;
mod run;
mod wait;

pub(crate) use compile::{Aliasing, Compiled};
pub(crate) use lane::{Lane, LaneFault, LaneMemory, MAX_TRACKS};
pub(crate) use run::{Address, Buffers, Polled, Run, Stamps};
pub(crate) use wait::{Next, WaitPolicy, Waiter};
