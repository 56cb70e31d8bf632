//! The first bytes on each new connection: the side that connects says who it is and what the connection is for
//! ([`Hello`]); the side that accepts answers ([`Reply`]).
//!
//! Both have a fixed size, so that neither side ever reads past them into the frames that follow. A job is known by a
//! hash of its id: enough to keep jobs apart that meet by accident, no proof against malice. The field for that proof
//! (an HMAC with the job's secret) is there and zero.

use std::fmt;

/// Version of the handshake and of the frames after it.
pub(crate) const PROTOCOL: u16 = 1;

/// Bytes of an encoded [`Hello`].
pub(crate) const HELLO_BYTES: usize = 80;

/// Bytes of an encoded [`Reply`].
pub(crate) const REPLY_BYTES: usize = 48;

const HELLO_MAGIC: [u8; 8] = *b"HCOMM\r\n\0";
const REPLY_MAGIC: [u8; 8] = *b"hcomm\r\n\0";

/// A lane of a communicator: what all sockets of one link have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LinkId {
    /// Communicator, the same number on all its ranks.
    pub communicator: u64,
    /// Lane in it.
    pub lane: u32,
}

/// Who connects to whom, and for which link. On the wire, little endian: magic (8 bytes), protocol (2), sockets (2),
/// socket (2), zero (2), job (8), from (4), to (4), communicator (8), lane (4), frame bytes (4), authentication (32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Protocol version of the sender.
    pub protocol: u16,
    /// Hash of the job's id, see [`job_hash`].
    pub job: u64,
    /// Rank that connects, numbered as in the job.
    pub from: u32,
    /// Rank that it means to reach.
    pub to: u32,
    /// The link.
    pub link: LinkId,
    /// Which of the link's sockets this is.
    pub socket: u16,
    /// How many sockets the link has; equal on both sides.
    pub sockets: u16,
    /// Largest frame of a link with several sockets, in bytes; equal on both sides.
    pub frame_bytes: u32,
}

/// Why a connection is refused; its number travels in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Refusal {
    /// Not hcomm's handshake, cut short, or too slow. (Nobody is there to be told; no reply is sent.)
    Stranger = 1,
    /// Another protocol version.
    Protocol = 2,
    /// Another job.
    Job = 3,
    /// Not the rank it means to reach, or a rank that the job does not have.
    Rank = 4,
    /// Sockets or frame size differ: the two sides have different settings.
    Settings = 5,
    /// More connections than this side is ready to hold.
    Busy = 6,
}

/// The answer. On the wire: magic (8 bytes), protocol (2), status (2; 0 is ok, else a [`Refusal`]), zero (4),
/// authentication (32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Protocol version of the sender.
    pub protocol: u16,
    /// `None` is ok.
    pub refusal: Option<Refusal>,
}

impl Refusal {
    const ALL: [Refusal; 6] =
        [Refusal::Stranger, Refusal::Protocol, Refusal::Job, Refusal::Rank, Refusal::Settings, Refusal::Busy];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Stranger => "no hcomm handshake",
            Refusal::Protocol => "another protocol version",
            Refusal::Job => "another job",
            Refusal::Rank => "another rank",
            Refusal::Settings => "other sockets or frame size settings",
            Refusal::Busy => "too many connections",
        })
    }
}

/// FNV-1a, 64 bits, of a job's id: <http://www.isthe.com/chongo/tech/comp/fnv/>. Stable across versions and machines.
pub(crate) fn job_hash(job: &str) -> u64 {
    job.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Hello {
    /// The bytes that go on the wire.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[0..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..10].copy_from_slice(&self.protocol.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.sockets.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.socket.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.job.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.from.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.to.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.link.communicator.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.link.lane.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.frame_bytes.to_le_bytes());
        bytes
    }

    /// Reads a hello. Another version is told from a stranger, so that it can be answered.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Refusal> {
        if bytes[0..8] != HELLO_MAGIC {
            return Err(Refusal::Stranger);
        }
        let protocol = u16::from_le_bytes(array(bytes, 8));
        if protocol != PROTOCOL {
            return Err(Refusal::Protocol);
        }
        Ok(Hello {
            protocol,
            sockets: u16::from_le_bytes(array(bytes, 10)),
            socket: u16::from_le_bytes(array(bytes, 12)),
            job: u64::from_le_bytes(array(bytes, 16)),
            from: u32::from_le_bytes(array(bytes, 24)),
            to: u32::from_le_bytes(array(bytes, 28)),
            link: LinkId {
                communicator: u64::from_le_bytes(array(bytes, 32)),
                lane: u32::from_le_bytes(array(bytes, 40)),
            },
            frame_bytes: u32::from_le_bytes(array(bytes, 44)),
        })
    }
}

impl Reply {
    /// The bytes that go on the wire.
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[0..8].copy_from_slice(&REPLY_MAGIC);
        bytes[8..10].copy_from_slice(&self.protocol.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.refusal.map_or(0, |refusal| refusal as u16).to_le_bytes());
        bytes
    }

    /// Reads a reply; `None` when it is no reply of hcomm's.
    pub fn decode(bytes: &[u8; REPLY_BYTES]) -> Option<Self> {
        if bytes[0..8] != REPLY_MAGIC {
            return None;
        }
        let status = u16::from_le_bytes(array(bytes, 10));
        let refusal = match status {
            0 => None,
            _ => Some(Refusal::ALL.into_iter().find(|refusal| *refusal as u16 == status)?),
        };
        Some(Reply { protocol: u16::from_le_bytes(array(bytes, 8)), refusal })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hello_survives_the_wire(job: u64, from: u32, to: u32, communicator: u64, lane: u32, socket: u16, sockets: u16, frame_bytes: u32) {
            let link = LinkId { communicator, lane };
            let hello = Hello { protocol: PROTOCOL, job, from, to, link, socket, sockets, frame_bytes };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn any_bytes_are_read_without_panic(hello in proptest::collection::vec(any::<u8>(), HELLO_BYTES), magic in any::<bool>()) {
            let mut bytes = [0; HELLO_BYTES];
            bytes.copy_from_slice(&hello);
            if magic {
                bytes[..8].copy_from_slice(&HELLO_MAGIC);
            }
            prop_assert_eq!(Hello::decode(&bytes) == Err(Refusal::Stranger), bytes[..8] != HELLO_MAGIC);
            let mut reply = [0; REPLY_BYTES];
            reply.copy_from_slice(&bytes[..REPLY_BYTES]);
            if magic {
                reply[..8].copy_from_slice(&REPLY_MAGIC);
            }
            let _ = Reply::decode(&reply);
        }
    }

    #[test]
    fn replies_carry_each_refusal() {
        for refusal in Refusal::ALL.map(Some).into_iter().chain([None]) {
            let reply = Reply { protocol: PROTOCOL, refusal };
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn another_version_is_told_from_a_stranger() {
        let link = LinkId { communicator: 0, lane: 0 };
        let hello =
            Hello { protocol: PROTOCOL + 1, job: 1, from: 0, to: 1, link, socket: 0, sockets: 1, frame_bytes: 1 };
        assert_eq!(Hello::decode(&hello.encode()), Err(Refusal::Protocol));
    }

    #[test]
    fn job_hash_is_the_published_function() {
        assert_eq!(job_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(job_hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
