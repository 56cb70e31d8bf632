//! A blocking call: drives a run in the caller's thread, and turns what goes wrong into errors that name ranks.

#![allow(unsafe_code)] // polls a run over buffers that the caller lent for the call

use std::sync::Arc;

use hcomm_telemetry::{LaneWriter, Shape};

use super::call::Prepared;
use super::group::Group;
use super::record::Log;
use super::remote::Exchange;
use super::watch::Watch;
use super::world::World;
use crate::control::Activity;
use crate::engine::{Buffers, Compiled, Lane, Next, Polled, Run, Stamps, Waiter};
use crate::error::Result;
use crate::plan::Reach;

/// Told of each movement of a run: lets a run make way for others.
pub(super) trait Hold {
    /// Something moved; may wait a while.
    fn moved(&mut self);
}

/// A blocking call makes way for nothing.
pub(super) struct NoHold;

impl Hold for NoHold {
    #[inline]
    fn moved(&mut self) {}
}

/// What one thread needs to run calls: a lane, and what is kept from call to call.
pub(super) struct Context {
    lane: Lane,
    run: Run,
    /// The exchange of addresses before a remote plan; made at first use.
    exchange: Option<Exchange>,
    /// Where the calls of this lane are written down, for the others to see where this rank is.
    activity: Arc<Activity>,
    activity_key: u64,
    /// Where they are counted and timed.
    writer: Option<LaneWriter>,
    /// The message under way, outside of any collective.
    message: Option<(u64, Arc<Shape>)>,
    number: u32,
    /// How the latest call moved its data.
    pub ran: Reach,
}

impl Context {
    /// For lane `number` of `group`.
    pub fn new(world: &World, group: &Group, number: u32, lane: Lane) -> Self {
        let activity_key = group.id ^ u64::from(number);
        let (activity, writer) = world.write_down(activity_key, group, number);
        Self {
            lane,
            run: Run::default(),
            exchange: None,
            activity,
            activity_key,
            writer,
            message: None,
            number,
            ran: Reach::Messages,
        }
    }

    /// A call under way, for questions about it.
    pub fn watch<'a>(
        &self,
        world: &'a World,
        group: &'a Group,
        name: &'a crate::error::OperationName,
        number: u64,
    ) -> Watch<'a> {
        Watch { world, group, activity: self.activity_key, name, number, only: Vec::new() }
    }

    /// Runs a prepared call to its end.
    ///
    /// The buffers hold what the call needs, and are lent (or given) to it until this returns; after an error the lane must
    /// not be used again, as its links may still name them.
    pub fn execute(
        &mut self,
        world: &World,
        group: &Group,
        prepared: &Prepared,
        buffers: Buffers,
        number: u64,
        hold: &mut impl Hold,
    ) -> Result<()> {
        self.activity.begin(number, prepared.words);
        if let Some(writer) = &mut self.writer {
            writer.begin(number, &prepared.shape);
        }
        let result = self.run_prepared(world, group, prepared, buffers, number, hold);
        match result {
            Ok(()) => self.activity.end(number),
            Err(_) => world.heap.give_up(),
        }
        if let Some(writer) = &mut self.writer {
            let shape = prepared.way(self.ran).1;
            match result {
                Ok(()) => writer.end(number, shape),
                Err(_) => writer.fail(number, shape),
            }
        }
        result
    }

    #[inline]
    fn run_prepared(
        &mut self,
        world: &World,
        group: &Group,
        prepared: &Prepared,
        buffers: Buffers,
        number: u64,
        hold: &mut impl Hold,
    ) -> Result<()> {
        let watch = self.watch(world, group, &prepared.name, number);
        let stamp = stamp(prepared.hash, u64::from(self.number) << 48 | number);
        let Self { lane, run, exchange, ran, writer, .. } = self;
        *ran = Reach::Messages;
        let mut log = Log { writer: writer.as_mut(), number, shape: Some(&prepared.shape) };
        if prepared.mapped.is_some() || prepared.read.is_some() {
            let exchange = exchange.get_or_insert_with(|| Exchange::new(group));
            *ran = prepared.nearest(exchange.run(&watch, &mut log, prepared, buffers, stamp, (lane, run))?);
        }
        let (plan, _) = prepared.way(*ran);
        run.begin(plan, lane, buffers, stamp.into());
        if let (Reach::Read | Reach::ReadWrite, Some(exchange)) = (*ran, exchange) {
            run.set_remote(exchange.addresses());
        }
        // SAFETY: the buffers are lent for this call, those of other ranks by their own calls until the plan's last notes.
        unsafe { drive(lane, run, plan, &watch, &mut log, hold)? };
        if *ran != Reach::Messages {
            (0..group.size()).try_for_each(|rank| watch.stands(rank))?;
        }
        if let (Some(reducer), true) = (&plan.reducer, prepared.finish_count > 0) {
            // SAFETY: the output holds `finish_count` elements of the reducer's type.
            unsafe { reducer.finish(buffers.output, prepared.finish_count, group.size()) };
        }
        Ok(())
    }

    /// A message begins, outside of any collective; `number` is its own among those of its direction.
    pub fn begin_message(&mut self, number: u64, shape: Arc<Shape>) {
        if let Some(writer) = &mut self.writer {
            writer.begin_message(number, &shape);
            self.message = Some((number, shape));
        }
    }

    /// It has ended.
    pub fn end_message(&mut self, good: bool) {
        if let (Some(writer), Some((number, shape))) = (&mut self.writer, self.message.take()) {
            match good {
                true => writer.end(number, &shape),
                false => writer.fail(number, &shape),
            }
        }
    }

    /// Runs one plan over messages, outside of any collective.
    ///
    /// # Safety
    /// As for [`Run::poll`].
    pub unsafe fn exchange_messages(
        &mut self,
        watch: &Watch<'_>,
        plan: &Compiled,
        buffers: Buffers,
        stamps: Stamps,
    ) -> Result<()> {
        let Self { lane, run, writer, message, .. } = self;
        run.begin(plan, lane, buffers, stamps);
        let (number, shape) = message.as_ref().map_or((0, None), |(number, shape)| (*number, Some(shape)));
        let mut log = Log { writer: writer.as_mut(), number, shape };
        // SAFETY: the caller's promise.
        unsafe { drive(lane, run, plan, watch, &mut log, &mut NoHold) }
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
pub(super) unsafe fn drive(
    lane: &mut Lane,
    run: &mut Run,
    plan: &Compiled,
    watch: &Watch<'_>,
    log: &mut Log<'_>,
    hold: &mut impl Hold,
) -> Result<()> {
    let mut waiter = Waiter::new(lane.policy());
    // Allocates only when it comes to a sleep.
    let mut awaited = Vec::new();
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
                hold.moved();
            }
            Ok(Polled::Stuck) => match waiter.stuck() {
                Next::Poll => {}
                Next::Arm => lane.arm(),
                Next::Sleep(nap) => {
                    run.awaited(plan, lane, &mut awaited);
                    log.sleeps(&waiter, watch.group, awaited.iter().map(|&(link, _)| lane.peer(link)), lane.unsent());
                    lane.sleep(nap, &awaited);
                    let senders = awaited.iter().map(|&(link, _)| lane.peer(link));
                    watch.check(waiter.since(), senders.chain(lane.unsent()))?;
                }
            },
            Err(fault) => return Err(watch.fault(fault, waiter.since())),
        }
    }
}
