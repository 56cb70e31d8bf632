//! What two processes say to each other on a stream: who they are ([`handshake`]), then messages in [`frame`]s.
//!
//! Both are fixed layouts that are read without trust: the bytes may come from anybody who reached the port. They know
//! nothing of sockets, so that they can be tested, and fuzzed, as functions of bytes.

pub(crate) mod frame;
pub(crate) mod handshake;
