//! hcomm-core: collective communication for distributed AI training.

pub mod communicator;
pub mod config;
pub mod control;
mod engine;
mod error;
pub mod launch;
pub mod plan;
pub use hcomm_reduce as reduce;
mod session;
pub mod topology;
mod transport;
pub mod tuner;
pub mod units;

pub use communicator::{Buffer, Call, Communicator, Request};
pub use error::{Error, OperationName, Result};
pub use plan::{Algorithm, Collective};
pub use reduce::{DataType, Element, ReduceOp};
