//! (to come)
use super::{LinkError, Recv};
pub(crate) struct ShmLink;
#[allow(unused_variables, clippy::missing_safety_doc, clippy::unused_self)]
impl ShmLink {
    pub unsafe fn post_send(&mut self, src: *const u8, len: usize, stamp: u32) -> Result<bool, LinkError> {
        unimplemented!()
    }
    pub fn sends_posted(&self) -> u64 {
        unimplemented!()
    }
    pub fn sends_done(&self) -> u64 {
        unimplemented!()
    }
    pub fn progress(&mut self) -> Result<bool, LinkError> {
        unimplemented!()
    }
    pub unsafe fn poll_recv(&mut self, recv: &mut Recv<'_>) -> Result<bool, LinkError> {
        unimplemented!()
    }
}
