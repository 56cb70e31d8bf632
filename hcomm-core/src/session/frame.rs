//! The header before every run of payload bytes on a stream.
//!
//! A message is cut into one or more frames. Each says which message it belongs to and where in it, so any socket of a
//! link may carry it. The header has a fixed size and place for each field: a receiver knows where a header ends before
//! it has read one, and can ask the kernel for payload and next header in one call. A shorter, variable header was
//! rejected: 48 bytes cost nothing measurable beside a system call.
//!
//! `acknowledged` and `flags` are zero today: they are the room for a session that resends after a path has died.
//!
//! This file uses nothing of the crate, so that `fuzz/` can include it as it is.

use std::fmt;

/// Bytes of an encoded header.
pub(crate) const HEADER_BYTES: usize = 48;

/// Version of the layout; the handshake compares it as well.
pub(crate) const VERSION: u8 = 1;

const MAGIC: u16 = u16::from_le_bytes(*b"hC");
const KIND_DATA: u8 = 1;

/// One frame's header. Little endian on the wire, in this order after magic (2 bytes), version (1) and kind (1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    /// Reserved, zero.
    pub flags: u32,
    /// The stamp that the message was posted with.
    pub stamp: u32,
    /// Bytes of payload that follow.
    pub length: u32,
    /// Number of the message on its link, from 0.
    pub sequence: u64,
    /// Where in the message the payload goes.
    pub offset: u64,
    /// Bytes of the whole message.
    pub total: u64,
    /// Reserved for the session: messages that the sender of this frame has received.
    pub acknowledged: u64,
}

/// Why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// Not hcomm's, or the stream lost its place.
    Magic(u16),
    /// Another version of the layout.
    Version(u8),
    /// A kind or flags that this version does not know.
    Kind(u8, u32),
    /// The payload would lie outside its message, or carry nothing of a message that has bytes.
    Bounds {
        /// Start of the payload.
        offset: u64,
        /// Its bytes.
        length: u32,
        /// Bytes of the message.
        total: u64,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Magic(got) => write!(f, "frame begins with {got:#06x}, expected {MAGIC:#06x}"),
            FrameError::Version(got) => write!(f, "frame version {got}, expected {VERSION}"),
            FrameError::Kind(kind, flags) => write!(f, "unknown frame kind {kind} with flags {flags:#x}"),
            FrameError::Bounds { offset, length, total } => {
                write!(f, "frame of {length} bytes at {offset} in a message of {total} bytes")
            }
        }
    }
}

impl Header {
    /// The bytes that go on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = VERSION;
        bytes[3] = KIND_DATA;
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.total.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes
    }

    /// Reads a header. Whatever is accepted has `offset + length <= total` (without overflow), and a length of 0 only
    /// in a message of no bytes.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let magic = u16::from_le_bytes([bytes[0], bytes[1]]);
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        if bytes[2] != VERSION {
            return Err(FrameError::Version(bytes[2]));
        }
        let header = Header {
            flags: u32_at(bytes, 4),
            stamp: u32_at(bytes, 8),
            length: u32_at(bytes, 12),
            sequence: u64_at(bytes, 16),
            offset: u64_at(bytes, 24),
            total: u64_at(bytes, 32),
            acknowledged: u64_at(bytes, 40),
        };
        if bytes[3] != KIND_DATA || header.flags != 0 {
            return Err(FrameError::Kind(bytes[3], header.flags));
        }
        let Header { offset, length, total, .. } = header;
        let inside = offset.checked_add(u64::from(length)).is_some_and(|end| end <= total);
        if !inside || (length == 0 && total != 0) {
            return Err(FrameError::Bounds { offset, length, total });
        }
        Ok(header)
    }
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = Header> {
        (any::<u32>(), any::<u64>(), any::<u64>(), 0..=u64::MAX - u64::from(u32::MAX), any::<u32>(), any::<u64>())
            .prop_map(|(stamp, sequence, acknowledged, offset, length, slack)| {
                let end = offset + u64::from(length);
                let total = end.saturating_add(slack);
                // A frame of no bytes exists in a message of no bytes only.
                let (offset, total) = if length == 0 { (0, 0) } else { (offset, total) };
                Header { flags: 0, stamp, length, sequence, offset, total, acknowledged }
            })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(header in header()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn any_bytes_are_refused_or_lie_in_bounds(mut bytes in any::<[u8; HEADER_BYTES]>(), plausible in any::<bool>()) {
            if plausible {
                bytes[..8].copy_from_slice(&Header::default().encode()[..8]);
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert!(u128::from(header.offset) + u128::from(header.length) <= u128::from(header.total));
                prop_assert!(header.length > 0 || header.total == 0);
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }

    #[test]
    fn each_refusal_names_what_is_wrong() {
        let good = Header { length: 8, total: 8, ..Header::default() };
        let broken = |at: usize, value: u8| {
            let mut bytes = good.encode();
            bytes[at] = value;
            Header::decode(&bytes)
        };
        assert_eq!(broken(2, 9), Err(FrameError::Version(9)));
        assert_eq!(broken(3, 7), Err(FrameError::Kind(7, 0)));
        assert_eq!(broken(4, 1), Err(FrameError::Kind(KIND_DATA, 1)));
        assert!(matches!(broken(0, b'G'), Err(FrameError::Magic(_))));
        assert_eq!(broken(12, 9), Err(FrameError::Bounds { offset: 0, length: 9, total: 8 }));
        assert_eq!(broken(12, 0), Err(FrameError::Bounds { offset: 0, length: 0, total: 8 }));
        let overflow = Header { offset: u64::MAX, length: 2, total: 1, ..Header::default() };
        assert!(matches!(Header::decode(&overflow.encode()), Err(FrameError::Bounds { .. })));
    }
}
