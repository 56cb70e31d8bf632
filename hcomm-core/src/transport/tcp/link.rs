//! A link over one or several TCP sockets: what the engine sees.

use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::Socket;

use super::connect::Connector;
use super::meter::Measured;
use super::receive::{Placement, ReceiveError, WireReceive};
use super::send::{SendQueue, TURN_BYTES, WireSend};
use super::socket;
use crate::transport::{LinkError, Recv};

/// One socket with what is under way on it.
struct Wire {
    socket: Socket,
    remote: String,
    send: WireSend,
    receive: WireReceive,
    /// The peer has closed it in good order; what it sent by the others may still be on the way.
    ended: bool,
}

/// Messages to and from one peer on one lane.
pub(crate) struct TcpLink {
    /// Until all sockets are there.
    connector: Option<Box<Connector>>,
    /// Goes before the sockets do.
    measured: Option<Measured>,
    wires: Vec<Wire>,
    peer: usize,
    queue: SendQueue,
    place: Placement,
    /// Messages up to this size come by socket 0 alone.
    single: usize,
    /// What ended the link; said again at each further call.
    failed: Option<LinkError>,
}

impl TcpLink {
    pub(super) fn new(connector: Connector) -> Self {
        let options = connector.options();
        let stripe = (connector.sockets() > 1).then_some(options.frame_bytes as usize);
        let queue = SendQueue::new(options.queue, stripe);
        let peer = connector.peer();
        TcpLink {
            connector: Some(Box::new(connector)),
            measured: None,
            wires: Vec::new(),
            peer,
            queue,
            place: Placement::default(),
            single: stripe.unwrap_or(usize::MAX),
            failed: None,
        }
    }

    /// # Safety
    /// As for `Link::post_send`.
    pub unsafe fn post_send(&mut self, src: *const u8, len: usize, stamp: u32) -> Result<bool, LinkError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // SAFETY: the caller's promise is the one that the queue asks for.
        if !unsafe { self.queue.push(src, len, stamp) } {
            return Ok(false);
        }
        self.progress()?;
        Ok(true)
    }

    /// Messages queued since the link was made.
    pub fn sends_posted(&self) -> u64 {
        self.queue.posted()
    }

    /// Messages, in order, that the kernel has taken.
    pub fn sends_done(&self) -> u64 {
        self.queue.done()
    }

    /// Moves queued bytes out; whether anything moved.
    pub fn progress(&mut self) -> Result<bool, LinkError> {
        // Asked with nothing to send, a link that was never used stays so.
        if (self.connector.is_some() && self.queue.is_empty()) || !self.ready()? {
            return Ok(false);
        }
        let mut moved = false;
        let turn = TURN_BYTES / self.wires.len();
        for (index, wire) in self.wires.iter_mut().enumerate() {
            match wire.send.flush(wire.socket.as_raw_fd(), index, turn, &mut self.queue) {
                Ok(some) => moved |= some,
                Err(error) => {
                    let error = ReceiveError::System(error);
                    return Err(self.fail(index, error));
                }
            }
        }
        Ok(moved)
    }

    /// # Safety
    /// As for `Link::poll_recv`.
    pub unsafe fn poll_recv(&mut self, recv: &mut Recv<'_>) -> Result<bool, LinkError> {
        if !self.ready()? {
            return Ok(false);
        }
        let count = self.carriers(recv.len);
        let mut moved = false;
        let (mut ahead, mut ended) = (0, 0);
        for index in 0..count {
            let wire = &mut self.wires[index];
            if wire.ended {
                ended += 1;
                continue;
            }
            // SAFETY: the caller's promise.
            match unsafe { wire.receive.pull(wire.socket.as_raw_fd(), recv, &mut self.place) } {
                Ok(some) => moved |= some,
                Err(ReceiveError::End) => {
                    wire.ended = true;
                    ended += 1;
                    continue;
                }
                Err(error) => return Err(self.fail(index, error)),
            }
            if self.place.complete(recv.len) {
                recv.done = recv.len;
                self.place.advance();
                return Ok(true);
            }
            ahead += usize::from(wire.receive.ahead(self.place.sequence));
        }
        recv.done = self.place.prefix();
        if ended > 0 && ended + ahead == count {
            return Err(self.fail(0, ReceiveError::End));
        }
        if ahead == count {
            let what = LinkError::Protocol(format!("message {} was left out", self.place.sequence));
            return Err(self.fail(0, ReceiveError::Link(what)));
        }
        Ok(moved)
    }

    /// Adds what this link sleeps on, for `poll(2)`; `awaited` is the length of the message that is to come next, if one is
    /// awaited. Returns after how long the link must be looked at again even so. To be called right after `poll_recv`
    /// found nothing: what has been read already wakes nobody.
    pub fn sleep(&self, awaited: Option<usize>, fds: &mut Vec<libc::pollfd>) -> Option<Duration> {
        if let Some(connector) = &self.connector {
            return connector.sleep(fds);
        }
        let readers = awaited.map_or(0, |len| self.carriers(len));
        for (index, wire) in self.wires.iter().enumerate() {
            let mut events = 0;
            if index < readers && !wire.ended && !wire.receive.ahead(self.place.sequence) {
                events |= libc::POLLIN;
            }
            if wire.send.pending() {
                events |= libc::POLLOUT;
            }
            if events != 0 {
                fds.push(libc::pollfd { fd: wire.socket.as_raw_fd(), events, revents: 0 });
            }
        }
        None
    }

    /// The path of each socket, `local -> remote`; empty before the link is connected.
    #[cfg(test)]
    pub fn paths(&self) -> Vec<String> {
        let path = |wire: &Wire| format!("{} -> {}", socket::address_text(&wire.socket, true), wire.remote);
        self.wires.iter().map(path).collect()
    }

    /// How many sockets, from the first, carry a message of `len` bytes.
    fn carriers(&self, len: usize) -> usize {
        if len <= self.single { 1 } else { self.wires.len() }
    }

    /// Whether the sockets are there; goes on making them if not.
    fn ready(&mut self) -> Result<bool, LinkError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(connector) = &mut self.connector else { return Ok(true) };
        match connector.step() {
            Ok(None) => Ok(false),
            Ok(Some(sockets)) => {
                if sockets.len() > 1 {
                    let unsent = 2 * connector.options().frame_bytes;
                    sockets.iter().for_each(|socket| socket::limit_unsent(socket, unsent));
                }
                self.measured = Some(connector.measure(&sockets));
                self.wires = sockets.into_iter().map(Wire::new).collect();
                self.connector = None;
                Ok(true)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Ends the link for what was seen on one of its sockets.
    fn fail(&mut self, wire: usize, error: ReceiveError) -> LinkError {
        let remote = &self.wires[wire].remote;
        let error = match error {
            ReceiveError::End => LinkError::Closed(format!("rank {} at {remote} closed the connection", self.peer)),
            ReceiveError::System(error) => LinkError::Closed(format!("rank {} at {remote}: {error}", self.peer)),
            ReceiveError::Link(error) => error,
        };
        self.failed = Some(error.clone());
        error
    }
}

impl Wire {
    fn new(socket: Socket) -> Self {
        let remote = socket::address_text(&socket, false);
        Wire { socket, remote, send: WireSend::new(), receive: WireReceive::new(), ended: false }
    }
}
