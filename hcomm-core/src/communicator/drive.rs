//! A blocking call: drives a run in the caller's thread, and turns what goes wrong into errors that name ranks.

#![allow(unsafe_code)] // polls a run over buffers that the caller lent for the call

use std::rc::Rc;
use std::time::Instant;

use super::Communicator;
use super::call::Prepared;
use super::group::Group;
use super::world::World;
use crate::engine::{Buffers, Compiled, Lane, LaneFault, Next, Polled, Run, Waiter};
use crate::error::{Error, OperationName, Result};
use crate::transport::LinkError;

/// What a waiting call looks at, and what it says when it fails.
pub(crate) struct Watch<'a> {
    pub world: &'a World,
    pub group: &'a Group,
    pub name: &'a OperationName,
    pub number: u64,
}

impl Communicator {
    pub(super) fn drive_call(&mut self, prepared: &Rc<Prepared>, buffers: Buffers) -> Result<()> {
        let watch = Watch { world: &self.world, group: &self.group, name: &prepared.name, number: self.calls };
        watch.world.note_call(&self.group, self.calls, prepared);
        let stamp = stamp(prepared.hash, self.calls);
        let mut plan = &prepared.plan;
        let mut remote = None;
        if let Some(remote_plan) = &prepared.remote {
            let exchange = self.addresses.get_or_insert_with(|| super::remote::Exchange::new(&self.group));
            if exchange.all_registered(&watch, prepared, buffers, stamp, &mut self.lane, &mut self.run)? {
                plan = remote_plan;
                remote = Some(exchange);
            }
        }
        self.run.begin(plan, &mut self.lane, buffers, stamp);
        if let Some(exchange) = &remote {
            self.run.set_remote(exchange.addresses());
        }
        // SAFETY: the caller's slices live through this call, registered memory of other ranks is lent by their own
        // calls until the plan's last notes; an error leaves the communicator broken, so no link sends from these
        // buffers afterwards.
        unsafe { drive(&mut self.lane, &mut self.run, plan, &watch)? };
        if prepared.finish_count > 0 {
            if let Some(reducer) = &plan.reducer {
                // SAFETY: the output was checked to hold `finish_count` elements of the reducer's type.
                unsafe { reducer.finish(buffers.output, prepared.finish_count, self.group.size()) };
            }
        }
        // The transport of a remote plan is that of any plan here: only its chunks and algorithm differ.
        if self.last_info != prepared.info {
            self.last_info = prepared.info.clone();
        }
        if remote.is_some() {
            self.last_info.algorithm = crate::plan::Algorithm::Direct;
            self.last_info.chunk_bytes = 0;
        }
        Ok(())
    }
}

/// 32 bits that two ranks share only when they are in the same call of the same communicator.
pub(super) fn stamp(hash: u64, number: u64) -> u32 {
    // Fibonacci hashing (Knuth, TAOCP 3, 6.4) spreads the call number over all bits.
    let mixed = hash ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32 ^ mixed as u32
}

/// Polls until the run is done, waiting as the lane's policy says.
///
/// # Safety
/// As for [`Run::poll`].
pub(super) unsafe fn drive(lane: &mut Lane, run: &mut Run, plan: &Compiled, watch: &Watch<'_>) -> Result<()> {
    let mut waiter = Waiter::new(lane.policy());
    loop {
        // SAFETY: the caller's promise.
        match unsafe { run.poll(plan, lane) } {
            Ok(Polled::Done) => {
                if waiter.moved() {
                    lane.disarm();
                }
                return Ok(());
            }
            Ok(Polled::Moved) => {
                if waiter.moved() {
                    lane.disarm();
                }
            }
            Ok(Polled::Stuck) => match waiter.stuck() {
                Next::Poll => {}
                Next::Arm => lane.arm(),
                Next::Sleep(nap) => {
                    lane.sleep(nap);
                    watch.check(waiter.since())?;
                }
            },
            Err(fault) => return Err(watch.fault(fault, waiter.since())),
        }
    }
}

impl Watch<'_> {
    /// Looks at what the control plane knows and at the deadline.
    fn check(&self, since: Option<Instant>) -> Result<()> {
        let waited = since.map(|since| since.elapsed()).unwrap_or_default();
        if let Some(error) = self.world.failure(self.group, self.name, waited) {
            return Err(error);
        }
        if waited > self.world.config.timeout {
            let missing = self.world.missing(self.group, self.number);
            let error = Error::Timeout { operation: self.name.clone(), waited, missing };
            return Err(self.world.abort(self.group, self.name, error));
        }
        Ok(())
    }

    /// The error behind a link's fault, agreed with the other ranks.
    fn fault(&self, fault: LaneFault, since: Option<Instant>) -> Error {
        let waited = since.map(|since| since.elapsed()).unwrap_or_default();
        match fault.error {
            LinkError::Closed(cause) => self.world.lost(self.group, self.name, fault.peer, cause, waited),
            LinkError::Stamp { .. } | LinkError::Length { .. } => {
                let theirs = self.world.call_of(self.group, fault.peer, self.number);
                let error = Error::Mismatch {
                    rank: self.group.me,
                    mine: self.name.clone(),
                    peer: fault.peer,
                    theirs: OperationName(theirs),
                };
                self.world.abort(self.group, self.name, error)
            }
            LinkError::Protocol(what) => {
                let peer = format!("rank {} on {}", fault.peer, self.group.ranks[fault.peer].host);
                self.world.abort(self.group, self.name, Error::Protocol { peer, what })
            }
        }
    }
}
