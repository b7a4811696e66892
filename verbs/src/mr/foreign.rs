//! Regions of memory that is not this process's: none at all, the device's, another device's, or whoever's made it; and advice about
//! pages that come on demand.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use pollux_uverbs::MrHandle;
use pollux_uverbs::abi::flags::{Access, Advice};
use pollux_uverbs::abi::ioctl_verbs::Sge;
use pollux_uverbs::mr::MrRequest;

use super::{Memory, Mr, PIECE_BYTES};
use crate::dm::Dm;
use crate::pd::Pd;
use crate::provider::mlx5::hca::Hca;
use crate::{Context, VerbsError};

impl Mr {
    /// A region that reads and writes lead nowhere through; of this side alone.
    ///
    /// # Errors
    /// Where the device has none.
    pub fn null(pd: &Pd) -> Result<Self, VerbsError> {
        let key = pd.context().null_key().ok_or_else(|| VerbsError::Unsupported {
            what: "null memory region",
            why: "the kernel tells of no key for it".into(),
        })?;
        let bytes = 1 << 31;
        Ok(Self::made(pd, Memory::Null, None, (key, 0), 0, bytes, Access::LOCAL_WRITE))
    }

    /// Registers device memory. Its addresses begin at 0.
    ///
    /// # Errors
    /// Memory of another context ([`VerbsError::Foreign`]), or what the kernel says.
    pub fn of_device(pd: &Pd, dm: &Dm, range: Range<usize>, access: Access) -> Result<Self, VerbsError> {
        pd.context().admit("device memory", dm.context())?;
        let (start, bytes) = (range.start, range.end.saturating_sub(range.start));
        let made = pd
            .context()
            .uverbs()
            .reg_dm_mr(pd.handle(), dm.handle(), start as u64, bytes as u64, access)
            .map_err(VerbsError::kernel("register device memory"))?;
        let keys = (made.lkey, made.rkey);
        Ok(Self::made(pd, Memory::Device(dm.clone()), Some(made.handle), keys, 0, bytes, access))
    }

    /// Registers memory of another device, a part of what it shares by a file. Its addresses begin at `range.start`. The kernel keeps
    /// the file's memory as long as the region.
    ///
    /// # Errors
    /// A driver that takes none, as that of rxe; or what the kernel says.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn of_dmabuf(
        pd: &Pd,
        file: BorrowedFd<'_>,
        range: Range<usize>,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let (start, bytes) = (range.start as u64, range.end.saturating_sub(range.start));
        let request = MrRequest { pd: pd.handle(), start, length: bytes as u64, hca_va: start, access };
        let made = pd.context().uverbs().reg_dmabuf_mr(&request, file, start).map_err(|error| {
            if error.says_unsupported() {
                let why = "this device's driver takes none; copy what is there to memory of the host".into();
                return VerbsError::Unsupported { what: "memory of a dma-buf", why };
            }
            VerbsError::kernel("register memory of a dma-buf")(error)
        })?;
        let keys = (made.lkey, made.rkey);
        Ok(Self::made(pd, Memory::Foreign, Some(made.handle), keys, start, bytes, access))
    }

    /// A region that was made through another handle of the same file, as in the process that handed it over. It stays the other's:
    /// its rights and its memory are not changed from here, and it is not deregistered with this handle. Its keys are of no use
    /// any more once the other deregisters it.
    ///
    /// # Errors
    /// What the kernel says: there is no such region, or it is older than 5.7 and tells of none.
    ///
    /// # Safety
    /// The region's memory is not what this process has references into: what is posted with its keys reads and writes there.
    pub unsafe fn import(pd: &Pd, handle: MrHandle, access: Access) -> Result<Self, VerbsError> {
        let known =
            pd.context().uverbs().query_mr(handle).map_err(VerbsError::kernel("import a memory region"))?;
        let address = known.iova.ok_or_else(|| VerbsError::Unsupported {
            what: "imported memory region",
            why: "this kernel does not tell its address".into(),
        })?;
        let keys = (known.lkey, known.rkey);
        Ok(Self::made(pd, Memory::Foreign, None, keys, address, known.length as usize, access))
    }

    /// Advises the kernel what to do with the pages of a part, which were registered to come [on
    /// demand](Access::ON_DEMAND); to be there when the call returns, if `flush`.
    ///
    /// # Errors
    /// A part that is not inside it; a driver that has no paging on demand; or what the kernel says.
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise(&self, range: Range<usize>, advice: Advice, flush: bool) -> Result<(), VerbsError> {
        let Some(bytes) = self.length_of(&range) else {
            return Err(VerbsError::Range {
                what: "end of a part of a region",
                value: range.end as u64,
                allowed: format!("it has {} bytes", self.0.bytes),
            });
        };
        let pieces = pieces(self.0.address.wrapping_add(range.start as u64), bytes, self.0.lkey);
        let context = self.0.pd.context().uverbs();
        context.advise_mr(self.0.pd.handle(), advice, flush, &pieces).map_err(|error| {
            if error.says_unsupported() {
                let why =
                    "this device's driver pages nothing in on demand; what is registered is there".into();
                return VerbsError::Unsupported { what: "advice about pages", why };
            }
            VerbsError::kernel("advise about pages")(error)
        })
    }
}

/// A stretch of memory in pieces whose lengths the kernel can be told; one of no bytes is one piece.
fn pieces(address: u64, bytes: usize, lkey: u32) -> Vec<Sge> {
    let starts = (0..bytes.max(1)).step_by(PIECE_BYTES);
    let piece = |at: usize| Sge {
        addr: address.wrapping_add(at as u64),
        length: (bytes - at).min(PIECE_BYTES) as u32,
        lkey,
    };
    starts.map(piece).collect()
}

impl Context {
    fn null_key(&self) -> Option<u32> {
        self.driver().if_mlx5().and_then(Hca::null_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_advice_is_in_pieces_that_have_no_gap() {
        assert_eq!(pieces(100, 0, 7), [Sge { addr: 100, length: 0, lkey: 7 }]);
        assert_eq!(pieces(100, 4096, 7), [Sge { addr: 100, length: 4096, lkey: 7 }]);
        let all = pieces(100, (8 << 30) + 8, 7);
        assert_eq!(all.iter().map(|piece| u64::from(piece.length)).sum::<u64>(), (8 << 30) + 8);
        assert!(all.windows(2).all(|two| two[0].addr + u64::from(two[0].length) == two[1].addr), "{all:?}");
        assert_eq!(all.len(), 5);
    }
}
