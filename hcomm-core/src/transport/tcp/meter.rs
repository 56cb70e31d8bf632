//! What the kernel knows of the sockets to each peer, for telemetry: read from time to time by a thread that is not the data path.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hcomm_telemetry::{LinkSample, PathFigures, PathSample};

use crate::session::handshake::LinkId;

/// The sockets of all links of a process, by the rank of the peer.
///
/// Whoever reads a descriptor holds the lock, and a link takes its own off the list before it closes them: so none is kept alive by being
/// measured, and none is read that the system has given to somebody else. The data path comes here when a link is connected and when it
/// ends.
#[derive(Default)]
pub(crate) struct Meters(Mutex<State>);

#[derive(Default)]
struct State {
    peers: BTreeMap<usize, Peer>,
    /// Number of the next socket.
    next: u64,
}

struct Peer {
    sockets: Vec<Watched>,
    /// Segments sent again on sockets that are closed; `None` once that could not be read of one.
    closed: Option<u64>,
}

impl Default for Peer {
    fn default() -> Self {
        Self { sockets: Vec::new(), closed: Some(0) }
    }
}

/// A socket on the list.
struct Watched {
    id: u64,
    fd: RawFd,
    link: LinkId,
    /// In its link.
    number: u32,
}

/// A sum of which a part is unknown is unknown.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

/// Keeps the sockets of a link on the list. To be dropped before they are closed.
pub(crate) struct Measured {
    meters: Arc<Meters>,
    peer: usize,
    ids: std::ops::Range<u64>,
}

/// What was read of the sockets to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Rank of the peer in the job.
    pub peer: usize,
    /// All its sockets together.
    pub link: LinkSample,
    /// Each that is open; the interface is not looked up.
    pub paths: Vec<PathSample>,
}

impl Meters {
    /// Puts the sockets of a link to `peer` on the list.
    pub fn watch(self: &Arc<Self>, peer: usize, link: LinkId, sockets: Vec<RawFd>) -> Measured {
        let mut state = self.state();
        let first = state.next;
        state.next += sockets.len() as u64;
        let ids = first..state.next;
        let watched =
            sockets.into_iter().zip(0..).map(|(fd, at)| Watched { id: first + u64::from(at), fd, link, number: at });
        state.peers.entry(peer).or_default().sockets.extend(watched);
        drop(state);
        Measured { meters: Arc::clone(self), peer, ids }
    }

    /// Reads the sockets to every peer that had some. `transport` is what they are to be called.
    pub fn read(&self, transport: u8) -> Vec<Reading> {
        let ranks: Vec<usize> = self.state().peers.keys().copied().collect();
        // The lock is taken anew for each, so that a link that connects or ends waits for a few calls at most.
        let one = |rank: usize| Some(self.state().peers.get(&rank)?.read(rank, transport));
        ranks.into_iter().filter_map(one).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn read(&self, peer: usize, transport: u8) -> Reading {
        let paths: Vec<PathSample> = self.sockets.iter().map(|socket| socket.sample(peer, transport)).collect();
        let figures = || paths.iter().map(|path| &path.figures);
        // The shortest round trip, since the others queue behind their own bytes; the sums of the rest.
        let link = LinkSample {
            round_trip_ns: figures().filter_map(|figures| figures.round_trip_ns).min(),
            retransmits: figures().map(|figures| figures.retransmits).fold(self.closed, sum),
            queued_bytes: figures().map(|figures| figures.queued_bytes).fold(Some(0), sum),
        };
        Reading { peer, link, paths }
    }
}

impl Watched {
    fn sample(&self, peer: usize, transport: u8) -> PathSample {
        let info = kernel::tcp_info(self.fd);
        let figures = info.map_or_else(PathFigures::default, |info| info.figures);
        PathSample {
            id: self.id,
            peer: peer as u32,
            transport,
            communicator: self.link.communicator,
            lane: self.link.lane,
            number: self.number,
            interface: String::new(),
            addresses: kernel::addresses(self.fd),
            state: info.map(|info| info.state),
            figures: PathFigures { queued_bytes: kernel::unacknowledged(self.fd), ..figures },
        }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let mut state = self.meters.state();
        let Some(peer) = state.peers.get_mut(&self.peer) else { return };
        let closed = &mut peer.closed;
        peer.sockets.retain(|socket| {
            let is_other = !self.ids.contains(&socket.id);
            if !is_other {
                let info = kernel::tcp_info(socket.fd);
                *closed = sum(*closed, info.and_then(|info| info.figures.retransmits));
            }
            is_other
        });
    }
}

/// Questions to the kernel.
mod kernel {
    use std::mem::{offset_of, zeroed};
    use std::net::SocketAddr;
    use std::os::fd::RawFd;

    use hcomm_telemetry::PathFigures;
    use libc::tcp_info;
    use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};

    #[derive(Debug, Clone, Copy)]
    pub struct TcpInfo {
        pub state: u8,
        /// All but the queue.
        pub figures: PathFigures,
    }

    /// `TCP_INFO`, tcp(7); the fields are described in `linux/tcp.h`. Times there are in microseconds.
    pub fn tcp_info(fd: RawFd) -> Option<TcpInfo> {
        let mut length = size_of::<tcp_info>() as libc::socklen_t;
        // SAFETY: the structure is made of integers, for which zeros are a value.
        let mut info: tcp_info = unsafe { zeroed() };
        // SAFETY: the kernel writes `length` bytes at most, which `info` has; it refuses a descriptor that is no TCP socket.
        let result =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut length) };
        // An old kernel knows fewer fields, and says where it ended.
        macro_rules! known {
            ($field:ident) => {
                (length as usize >= offset_of!(tcp_info, $field) + size_of_val(&info.$field))
                    .then(|| u64::from(info.$field))
            };
        }
        // A round trip of 0 is one that was not measured yet.
        let round_trip_ns = known!(tcpi_rtt).filter(|&us| us > 0).map(|us| us * 1000);
        (result == 0).then(|| TcpInfo {
            state: info.tcpi_state,
            figures: PathFigures {
                round_trip_ns,
                round_trip_deviation_ns: round_trip_ns.and(known!(tcpi_rttvar)).map(|us| us * 1000),
                retransmits: known!(tcpi_total_retrans),
                segments_sent: known!(tcpi_data_segs_out),
                segments_received: known!(tcpi_data_segs_in),
                acknowledged_bytes: known!(tcpi_bytes_acked),
                received_bytes: known!(tcpi_bytes_received),
                queued_bytes: None,
            },
        })
    }

    /// `SIOCOUTQ`, tcp(7), which is `TIOCOUTQ` by another name: bytes that were written and that the other end has not acknowledged.
    pub fn unacknowledged(fd: RawFd) -> Option<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one int.
        let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
        (result == 0).then(|| u64::try_from(bytes).ok()).flatten()
    }

    /// Of this end and the other.
    pub fn addresses(fd: RawFd) -> Option<(SocketAddr, SocketAddr)> {
        let of = |storage: SockaddrStorage| {
            let v4 = storage.as_sockaddr_in().map(|address| SocketAddr::V4((*address).into()));
            v4.or_else(|| storage.as_sockaddr_in6().map(|address| SocketAddr::V6((*address).into())))
        };
        Some((of(getsockname(fd).ok()?)?, of(getpeername(fd).ok()?)?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    const LINK: LinkId = LinkId { communicator: 5, lane: 2 };

    fn read(meters: &Meters) -> Vec<(usize, LinkSample)> {
        meters.read(2).into_iter().map(|reading| (reading.peer, reading.link)).collect()
    }

    #[test]
    fn closed_sockets_count_on_and_unreadable_ones_make_a_sum_unknown() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let meters = Arc::new(Meters::default());
        assert_eq!(meters.read(2), []);
        let first = meters.watch(3, LINK, vec![open.as_raw_fd()]);
        meters.state().peers.get_mut(&3).unwrap().closed = Some(7);
        let second = meters.watch(3, LINK, Vec::new());
        let [(3, sample)] = read(&meters)[..] else { panic!("one peer") };
        assert_eq!((sample.retransmits, sample.queued_bytes), (Some(7), Some(0)));
        // The handshake was measured.
        assert!(sample.round_trip_ns.is_some_and(|ns| (1..1_000_000_000).contains(&ns)), "{sample:?}");
        drop((first, second));
        let gone = LinkSample { round_trip_ns: None, retransmits: Some(7), queued_bytes: Some(0) };
        assert_eq!(meters.read(2), [Reading { peer: 3, link: gone, paths: Vec::new() }]);
        let no_socket = meters.watch(3, LINK, vec![-1]);
        assert_eq!(read(&meters), [(3, LinkSample::default())]);
        drop(no_socket);
        assert_eq!(read(&meters), [(3, LinkSample { retransmits: None, ..gone })], "what was missed stays unknown");
    }

    #[test]
    fn a_socket_is_told_with_its_addresses_and_what_it_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let meters = Arc::new(Meters::default());
        let other = meters.watch(8, LINK, vec![far.as_raw_fd()]);
        let _measured = meters.watch(3, LINK, vec![near.as_raw_fd()]);
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[7; 10]).unwrap();
        near.read_exact(&mut [0; 10]).unwrap();
        let readings = meters.read(2);
        let path = &readings.iter().find(|reading| reading.peer == 3).unwrap().paths[0];
        assert_eq!((path.id, path.communicator, path.lane, path.number), (1, 5, 2, 0));
        assert_eq!(path.addresses, Some((near.local_addr().unwrap(), near.peer_addr().unwrap())));
        assert_eq!(path.state, Some(1), "TCP_ESTABLISHED");
        let figures = &path.figures;
        assert_eq!((figures.received_bytes, figures.retransmits), (Some(10), Some(0)));
        assert!(figures.segments_sent >= Some(1) && figures.segments_received >= Some(1), "{figures:?}");
        // The answer acknowledged them; the opening counts as one.
        assert!([Some(1000), Some(1001)].contains(&figures.acknowledged_bytes), "{figures:?}");
        drop(other);
        assert_eq!(meters.read(2).iter().map(|reading| reading.paths.len()).collect::<Vec<_>>(), [1, 0]);
    }
}
