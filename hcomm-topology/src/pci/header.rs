//! The first 64 bytes of a function's configuration space (PCI Local Bus Specification 3.0, section 6.1).

/// What a header says. All zeros or all ones in a field are no identity (a function that does not answer reads so).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub vendor: Option<u16>,
    pub device: Option<u16>,
    pub class: Option<u32>,
    pub subsystem_vendor: Option<u16>,
    pub subsystem_device: Option<u16>,
    /// Whether it is laid out as a bridge's (types 1 and 2).
    pub bridge: bool,
}

impl Header {
    /// Reads a header that may be cut short: what is missing is unknown.
    pub fn read(bytes: &[u8]) -> Header {
        let byte = |at: usize| bytes.get(at).copied();
        let half = |at: usize| {
            let value = u16::from_le_bytes([byte(at)?, byte(at + 1)?]);
            (value != 0 && value != u16::MAX).then_some(value)
        };
        let class = || Some(u32::from_le_bytes([byte(0x09)?, byte(0x0a)?, byte(0x0b)?, 0]));
        let kind = byte(0x0e).filter(|kind| *kind != u8::MAX).map(|kind| kind & 0x7f);
        // Only plain functions have the card's identity in the header itself.
        let card = |at| if kind == Some(0) { half(at) } else { None };
        Header {
            vendor: half(0x00),
            device: half(0x02),
            class: class().filter(|class| *class != 0 && *class != 0xff_ffff),
            subsystem_vendor: card(0x2c),
            subsystem_device: card(0x2e),
            bridge: matches!(kind, Some(1 | 2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut header = vec![0; 64];
        for (at, field) in fields {
            header[*at..at + field.len()].copy_from_slice(field);
        }
        header
    }

    #[test]
    fn fields_lie_where_the_specification_says() {
        let card = bytes(&[
            (0x00, &[0xde, 0x10, 0x30, 0x23]),
            (0x09, &[0x00, 0x02, 0x03]),
            (0x0e, &[0x80]),
            (0x2c, &[0xde, 0x10, 0xc1, 0x16]),
        ]);
        let expected = Header {
            vendor: Some(0x10de),
            device: Some(0x2330),
            class: Some(0x03_0200),
            subsystem_vendor: Some(0x10de),
            subsystem_device: Some(0x16c1),
            bridge: false,
        };
        assert_eq!(Header::read(&card), expected);
        let bridge = Header::read(&bytes(&[(0x00, &[0x86, 0x80]), (0x0e, &[0x01]), (0x2c, &[0x34, 0x12])]));
        assert!(bridge.bridge);
        assert_eq!((bridge.subsystem_vendor, bridge.device, bridge.class), (None, None, None));
    }

    #[test]
    fn short_and_absent_headers_are_unknown() {
        assert_eq!(Header::read(&[]), Header::default());
        assert_eq!(Header::read(&[0xff; 64]), Header::default());
        assert_eq!(Header::read(&[0x86, 0x80, 0x30]), Header { vendor: Some(0x8086), ..Header::default() });
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = Header::read(&bytes);
        }
    }
}
