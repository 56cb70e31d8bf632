//! What the kernel knows of the sockets to each peer, for telemetry: read from time to time by a thread that is not the data path.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hcomm_telemetry::LinkSample;

/// The sockets of all links of a process, by the rank of the peer.
///
/// Whoever reads a descriptor holds the lock, and a link takes its own off the list before it closes them: so none is kept alive by being
/// measured, and none is read that the system has given to somebody else. The data path comes here when a link is connected and when it
/// ends.
#[derive(Default)]
pub(crate) struct Meters(Mutex<BTreeMap<usize, Peer>>);

struct Peer {
    /// By link.
    sockets: Vec<(u64, Vec<RawFd>)>,
    next: u64,
    /// Segments sent again on sockets that are closed; `None` once that could not be read of one.
    closed: Option<u64>,
}

impl Default for Peer {
    fn default() -> Self {
        Self { sockets: Vec::new(), next: 0, closed: Some(0) }
    }
}

/// A sum of which a part is unknown is unknown.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

/// Keeps the sockets of a link on the list. To be dropped before they are closed.
pub(crate) struct Measured {
    meters: Arc<Meters>,
    peer: usize,
    link: u64,
}

impl Meters {
    /// Puts the sockets of a link to `peer` on the list.
    pub fn watch(self: &Arc<Self>, peer: usize, sockets: Vec<RawFd>) -> Measured {
        let mut peers = self.peers();
        let entry = peers.entry(peer).or_default();
        let link = entry.next;
        entry.next += 1;
        entry.sockets.push((link, sockets));
        drop(peers);
        Measured { meters: Arc::clone(self), peer, link }
    }

    /// Reads the sockets to every peer that had some.
    pub fn read(&self) -> Vec<(usize, LinkSample)> {
        let ranks: Vec<usize> = self.peers().keys().copied().collect();
        // The lock is taken anew for each, so that a link that connects or ends waits for a few calls at most.
        ranks.into_iter().filter_map(|rank| Some((rank, self.peers().get(&rank)?.sample()))).collect()
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<usize, Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Of all sockets: the shortest round trip, since the others queue behind their own bytes; the sums of the rest.
    fn sample(&self) -> LinkSample {
        let mut retransmits = self.closed;
        let (mut round_trip_ns, mut queued_bytes) = (None::<u64>, Some(0_u64));
        for &fd in self.sockets.iter().flat_map(|(_, sockets)| sockets) {
            let info = kernel::tcp_info(fd);
            retransmits = sum(retransmits, info.map(|info| info.retransmits));
            let round_trip = info.and_then(|info| info.round_trip_ns);
            round_trip_ns = round_trip_ns.into_iter().chain(round_trip).min();
            queued_bytes = sum(queued_bytes, kernel::unacknowledged(fd));
        }
        LinkSample { round_trip_ns, retransmits, queued_bytes }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let mut peers = self.meters.peers();
        let Some(peer) = peers.get_mut(&self.peer) else { return };
        let Some(at) = peer.sockets.iter().position(|(link, _)| *link == self.link) else { return };
        for fd in peer.sockets.swap_remove(at).1 {
            peer.closed = sum(peer.closed, kernel::tcp_info(fd).map(|info| info.retransmits));
        }
    }
}

/// Two questions to the kernel.
mod kernel {
    use std::mem::{offset_of, zeroed};
    use std::os::fd::RawFd;

    use libc::tcp_info;

    #[derive(Debug, Clone, Copy)]
    pub struct TcpInfo {
        /// Smoothed; `None` before the first measurement.
        pub round_trip_ns: Option<u64>,
        pub retransmits: u64,
    }

    /// `TCP_INFO`, tcp(7): `tcpi_rtt` in microseconds, `tcpi_total_retrans` in segments (`linux/tcp.h`).
    pub fn tcp_info(fd: RawFd) -> Option<TcpInfo> {
        let mut length = size_of::<tcp_info>() as libc::socklen_t;
        // SAFETY: the structure is made of integers, for which zeros are a value.
        let mut info: tcp_info = unsafe { zeroed() };
        // SAFETY: the kernel writes `length` bytes at most, which `info` has; it refuses a descriptor that is no TCP socket.
        let result =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut length) };
        // An old kernel knows fewer fields, and says where it ended.
        let known = length as usize >= offset_of!(tcp_info, tcpi_total_retrans) + size_of::<u32>();
        (result == 0 && known).then(|| TcpInfo {
            round_trip_ns: (info.tcpi_rtt > 0).then(|| u64::from(info.tcpi_rtt) * 1000),
            retransmits: info.tcpi_total_retrans.into(),
        })
    }

    /// `SIOCOUTQ`, tcp(7), which is `TIOCOUTQ` by another name: bytes that were written and that the other end has not acknowledged.
    pub fn unacknowledged(fd: RawFd) -> Option<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one int.
        let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
        (result == 0).then(|| u64::try_from(bytes).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn closed_sockets_count_on_and_unreadable_ones_make_a_sum_unknown() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let meters = Arc::new(Meters::default());
        assert_eq!(meters.read(), []);
        let first = meters.watch(3, vec![open.as_raw_fd()]);
        meters.peers().get_mut(&3).unwrap().closed = Some(7);
        let second = meters.watch(3, Vec::new());
        let [(3, sample)] = meters.read()[..] else { panic!("one peer") };
        assert_eq!((sample.retransmits, sample.queued_bytes), (Some(7), Some(0)));
        // The handshake was measured.
        assert!(sample.round_trip_ns.is_some_and(|ns| (1..1_000_000_000).contains(&ns)), "{sample:?}");
        drop((first, second));
        let gone = LinkSample { round_trip_ns: None, retransmits: Some(7), queued_bytes: Some(0) };
        assert_eq!(meters.read(), [(3, gone)]);
        let no_socket = meters.watch(3, vec![-1]);
        assert_eq!(meters.read(), [(3, LinkSample::default())]);
        drop(no_socket);
        assert_eq!(meters.read(), [(3, LinkSample { retransmits: None, ..gone })], "what was missed stays unknown");
    }
}
