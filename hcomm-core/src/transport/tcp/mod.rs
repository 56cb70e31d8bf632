//! Links over TCP, for ranks on different hosts.
//!
//! An [`Endpoint`] belongs to a process: it listens, and its one thread greets whoever connects. A [`TcpLink`] is made by
//! it without any traffic and connects when it is first used: the lower rank connects, the higher takes the socket that
//! the endpoint has greeted. From then on the link is alone with its sockets: the thread that uses the link makes
//! every system call of the data path itself.
//!
//! Sockets are non-blocking and polled. An event loop with its own thread was rejected: the hand-over between threads costs
//! more than a small message does.

#![allow(unsafe_code)] // receives straight into the caller's memory

mod connect;
mod endpoint;
mod link;
mod meter;
mod receive;
mod send;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use endpoint::{Endpoint, Options, PeerAddress};
pub(crate) use link::TcpLink;
pub(crate) use meter::Meters;
pub(crate) use socket::Tuning;
