//! What this machine is made of: the processors that may be used ([`cpus`]) the network interfaces ([`interfaces`]), and what is next to
//! which memory ([`local`]). Read
//! from files under a root where that can be, so that another machine's tree can be read as well.

pub mod cpus;
pub mod interfaces;
pub mod local;
