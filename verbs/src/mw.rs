//! Memory windows: parts of regions opened to peers by a request, and closed by another.

use pollux_uverbs::mw::MwType;
use pollux_uverbs::{Driver, MwHandle};

use crate::pd::Pd;
use crate::{Context, Mr, VerbsError};

/// A memory window. It keeps the regions that it was bound to.
#[derive(Debug)]
pub struct Mw {
    pd: Pd,
    handle: MwHandle,
    kind: MwType,
    rkey: u32,
    bound: Vec<Mr>,
}

/// The key after `rkey`, which differs in its low 8 bits. Source: rdma-core `libibverbs/verbs.h`, `ibv_inc_rkey`.
#[must_use]
pub const fn next_rkey(rkey: u32) -> u32 {
    rkey & 0xffff_ff00 | rkey.wrapping_add(1) & 0xff
}

impl Mw {
    /// A window of a domain.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn new(pd: &Pd, kind: MwType) -> Result<Self, VerbsError> {
        let made = pd.context().uverbs().alloc_mw(pd.handle(), kind, Driver::none());
        let made = made.map_err(VerbsError::kernel("allocate a memory window"))?;
        Ok(Self { pd: pd.clone(), handle: made.handle, kind, rkey: made.rkey, bound: Vec::new() })
    }

    /// Its key, as the last bind made it.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MwType {
        self.kind
    }

    /// The device.
    pub(crate) fn context(&self) -> &Context {
        self.pd.context()
    }

    /// Notes that a request binds it.
    pub(crate) fn bind(&mut self, mr: &Mr, rkey: u32) {
        if !self.bound.iter().any(|known| known.number() == mr.number()) {
            self.bound.push(mr.clone());
        }
        self.rkey = rkey;
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if let Err(error) = self.pd.context().uverbs().dealloc_mw(self.handle) {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.pd.context().name());
            // Its peers may still reach what it was bound to.
            std::mem::forget(std::mem::take(&mut self.bound));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_go_round_in_their_low_byte() {
        assert_eq!([0x1234_5600, 0x1234_56ff].map(super::next_rkey), [0x1234_5601, 0x1234_5600]);
    }
}
