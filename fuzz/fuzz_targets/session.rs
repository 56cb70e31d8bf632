//! Bytes of strangers: whatever the decoders accept must lie in bounds and be encoded to the same bytes.

#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../hcomm-core/src/session/frame.rs"]
mod frame;
#[path = "../../hcomm-core/src/session/handshake.rs"]
mod handshake;

use frame::{HEADER_BYTES, Header};
use handshake::{HELLO_BYTES, Hello, REPLY_BYTES, Reply};

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<HEADER_BYTES>() {
        if let Ok(header) = Header::decode(bytes) {
            assert!(u128::from(header.offset) + u128::from(header.length) <= u128::from(header.total));
            assert!(header.length > 0 || header.total == 0);
            assert_eq!(header.encode(), *bytes);
        }
    }
    if let Some(bytes) = data.first_chunk::<HELLO_BYTES>() {
        if let Ok(hello) = Hello::decode(bytes) {
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }
    if let Some(bytes) = data.first_chunk::<REPLY_BYTES>() {
        if let Some(reply) = Reply::decode(bytes) {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }
});
