//! Point to point: send, receive, and both at once.
//!
//! These share the links of the collectives, so the order of calls matters between two ranks: what one sends first the other
//! receives first, and a collective in between is in between on both.
//!
//! Between ranks of one host a large message is not sent if the receiver can reach it: the sender says where it lies, the
//! receiver copies it from there and says so.

#![allow(unsafe_code)] // runs plans over slices that the caller lends, and copies from another rank's heap

use std::sync::Arc;

use hcomm_telemetry::Shape;

use super::Communicator;
use super::buffer::{bytes, bytes_mut};
use super::call::hash_of;
use super::drive::stamp;
use super::record;
use super::remote::Place;
use crate::engine::{Address, Aliasing, Buffers, Compiled, LaneFault, Stamps};
use crate::error::{Error, OperationName, Result};
use crate::plan::{Buffer, Range, RankPlan, Reach, Step};
use crate::reduce::{DataType, Element};

/// From here on a copy from the sender's memory beats two through a ring.
const DIRECT_BYTES: usize = 16 << 10;

/// From here on, if the sender has it in ordinary memory.
const READ_BYTES: usize = 32 << 10;

const PLACE_BYTES: usize = size_of::<Place>();

/// One side of a message.
#[derive(Clone, Copy)]
struct Side {
    peer: usize,
    len: usize,
    /// Numbers the messages of this direction between the two ranks.
    number: u64,
    stamp: u32,
}

impl Communicator {
    /// Sends `data` to `peer`; returns when `data` may be changed. `peer` receives as many elements of the same type.
    ///
    /// # Errors
    /// A rank out of range or this one; a peer that died, stayed silent, or called something else.
    pub fn send<T: Element>(&mut self, data: &[T], peer: usize) -> Result<()> {
        self.transfer::<T>(Some((bytes(data), peer)), None)
    }

    /// Receives into `data` what `peer` sends.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn receive<T: Element>(&mut self, data: &mut [T], peer: usize) -> Result<()> {
        self.transfer::<T>(None, Some((bytes_mut(data), peer)))
    }

    /// Sends to one rank and receives from another (or the same) at once, as neighbours in a ring do.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn send_receive<T: Element>(&mut self, data: &[T], to: usize, into: &mut [T], from: usize) -> Result<()> {
        self.transfer::<T>(Some((bytes(data), to)), Some((bytes_mut(into), from)))
    }

    fn transfer<T: Element>(
        &mut self,
        send: Option<(&[u8], usize)>,
        receive: Option<(&mut [u8], usize)>,
    ) -> Result<()> {
        self.check_whole()?;
        for peer in [send.as_ref().map(|s| s.1), receive.as_ref().map(|r| r.1)].into_iter().flatten() {
            if peer >= self.size() || peer == self.rank() {
                let reason = format!("peer {peer} is not another rank of this communicator (0 to {})", self.size() - 1);
                return Err(Error::Argument { call: "send_receive", reason });
            }
        }
        let me = self.rank();
        self.messages.resize(self.size(), (0, 0));
        let side = |from: usize, to: usize, len: usize, number: u64| Side {
            peer: if from == me { to } else { from },
            len,
            number,
            stamp: stamp(hash_of(&("message", T::TYPE, len, from, to)), number),
        };
        let (mut input, mut output) = (std::ptr::null(), std::ptr::null_mut());
        let outgoing = send.map(|(data, to)| {
            input = data.as_ptr();
            self.messages[to].0 += 1;
            side(me, to, data.len(), self.messages[to].0)
        });
        let incoming = receive.map(|(data, from)| {
            output = data.as_mut_ptr();
            self.messages[from].1 += 1;
            side(from, me, data.len(), self.messages[from].1)
        });
        let (number, shape) = self.message_shape(outgoing, incoming, T::TYPE);
        self.context.begin_message(number, shape);
        let result = self.exchange(outgoing, incoming, Buffers { input, output });
        if result.is_err() {
            self.world.heap.give_up();
        }
        self.context.end_message(result.is_ok());
        result.map_err(|error| self.fail(error))
    }

    /// The number of a message and what telemetry counts it as; the latest one's is kept.
    fn message_shape(&mut self, outgoing: Option<Side>, incoming: Option<Side>, dtype: DataType) -> (u64, Arc<Shape>) {
        let side = |side: Option<Side>| side.map(|side| (side.peer, side.len as u64));
        let shape = record::message(&self.group, side(outgoing), side(incoming), dtype, self.message_shape.take());
        self.message_shape = Some(Arc::clone(&shape));
        (outgoing.or(incoming).map_or(0, |side| side.number), shape)
    }

    fn exchange(&mut self, outgoing: Option<Side>, incoming: Option<Side>, buffers: Buffers) -> Result<()> {
        let by_address = |side: Option<Side>| side.filter(|s| s.len >= DIRECT_BYTES && self.group.shared[s.peer]);
        let (offer, take) = (by_address(outgoing), by_address(incoming));
        let mut notes = [Place::NOWHERE; 2];
        if let Some(side) = offer {
            let open = &self.group.open;
            let open = side.len >= READ_BYTES && open[self.group.me] && open[side.peer];
            notes[0] = Place::of(&self.world, buffers.input, side.len, open);
        }
        // Both directions at once in each round, or two ranks that send to each other would wait for each other.
        self.round(offer.map(|s| (s, PLACE_BYTES)), take.map(|s| (s, PLACE_BYTES)), note_buffers(&mut notes))?;
        let offered = offer.is_some() && notes[0].reach() != Reach::Messages;
        let taken = take.filter(|_| notes[1].reach() != Reach::Messages);
        let whole = |side: Option<Side>, done: bool| side.filter(|_| !done).map(|s| (s, s.len));
        self.round(whole(outgoing, offered), whole(incoming, taken.is_some()), buffers)?;
        if let Some(side) = taken {
            self.take(side, notes[1], buffers.output)?;
        }
        let done = |side: Option<Side>, yes: bool| side.filter(|_| yes).map(|s| (s, 0));
        self.round(done(taken, true), done(offer, offered), note_buffers(&mut notes))
    }

    /// Copies a message from where its sender has it.
    fn take(&self, side: Side, place: Place, output: *mut u8) -> Result<()> {
        let rank = self.group.world_ranks[side.peer];
        let name = OperationName(format!("receive from rank {} ({} bytes)", side.peer, side.len));
        let watch = self.context.watch(&self.world, &self.group, &name, self.calls);
        match place.resolve(&self.world, rank, side.len) {
            // SAFETY: the peer lends these bytes until it is told that they are taken; `output` holds `len` bytes of this rank
            // alone, which cannot be the peer's memory.
            Some(Address::Mapped(from)) => unsafe { std::ptr::copy_nonoverlapping(from, output, side.len) },
            // SAFETY: as above.
            Some(Address::Process(process, from)) => unsafe {
                let read = process.read(from, output, side.len);
                read.map_err(|error| watch.fault(LaneFault { peer: side.peer, error }, None))?;
            },
            None => {
                let what = format!("offers {} bytes of its memory that are not there", side.len);
                return Err(Error::Protocol { peer: format!("rank {}", side.peer), what });
            }
        }
        watch.stands(side.peer)
    }

    /// Sends and receives one message each way, of the given lengths in bytes.
    fn round(&mut self, send: Option<(Side, usize)>, receive: Option<(Side, usize)>, buffers: Buffers) -> Result<()> {
        if send.is_none() && receive.is_none() {
            return Ok(());
        }
        let range = |buffer, len: usize| Range { buffer, offset: 0, count: len as u64 };
        // A send only queues, so that the receive does not wait for it.
        let mut steps = Vec::with_capacity(2);
        steps.extend(send.map(|(side, len)| Step::Send { peer: side.peer, src: range(Buffer::Input, len) }));
        steps.extend(receive.map(|(side, len)| Step::Recv { peer: side.peer, dst: range(Buffer::Output, len) }));
        let plan = RankPlan { tracks: vec![steps], scratch: 0, remote: false };
        let plan = Compiled::new(&plan, 1, None, Aliasing::Apart);
        let text = |what: &str, side: Side| {
            format!("{what} rank {} ({} bytes, message #{})", side.peer, side.len, side.number)
        };
        let name = [send.map(|(s, _)| text("send to", s)), receive.map(|(s, _)| text("receive from", s))];
        let name = OperationName(name.into_iter().flatten().collect::<Vec<_>>().join(", "));
        let (world, group) = (std::sync::Arc::clone(&self.world), std::sync::Arc::clone(&self.group));
        let mut watch = self.context.watch(&world, &group, &name, self.calls);
        watch.only = [send, receive].into_iter().flatten().map(|(side, _)| side.peer).collect();
        let stamp = |side: Option<(Side, usize)>| side.map_or(0, |(side, _)| side.stamp);
        let stamps = Stamps { sent: stamp(send), received: stamp(receive) };
        // SAFETY: the slices behind `buffers` are lent for this call and hold the lengths in the plan.
        unsafe { self.context.exchange_messages(&watch, &plan, buffers, stamps) }
    }
}

fn note_buffers(notes: &mut [Place; 2]) -> Buffers {
    let base = notes.as_mut_ptr();
    Buffers { input: base.cast_const().cast(), output: base.wrapping_add(1).cast() }
}
