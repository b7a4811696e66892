//! Work that copies memory, without a peer.

use pollux_mlx5_abi::wqe::copy::Metadata;
use pollux_mlx5_abi::wqe::{Data, INLINE};
use zerocopy::FromBytes;

use super::Around;
use super::qp::Qp;
use super::request::Request;
use crate::failure::Failure;
use crate::memory_keys::{Access, read, write};

/// Bytes of one entry at most, base-2 logarithm: `log_dma_mmo_max_size`.
pub(crate) const LOG_BYTES_MAX: u32 = 20;
/// Bytes that are copied at once.
const RUN: usize = 4096;

/// Does what an entry asks for. Nothing is copied unless all of it may be.
pub(super) fn carry_out(pair: &Qp, around: &mut Around<'_, '_>, request: &Request) -> Result<(), Failure> {
    let who = pair.who();
    let (_, rest) = Metadata::ref_from_prefix(&request.segments).map_err(|_| Failure::SEGMENTS)?;
    let (from, rest) = Data::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)?;
    let (to, _) = Data::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)?;
    if (from.byte_count.get() | to.byte_count.get()) & INLINE != 0 {
        return Err(Failure::SEGMENTS);
    }
    let bytes = from.bytes();
    if bytes != to.bytes() || bytes > 1 << LOG_BYTES_MAX {
        return Err(Failure::LENGTH);
    }
    let ends = [(from, Access::Read), (to, Access::Write)];
    for (data, access) in ends {
        around.keys.check(data.lkey.get(), who, data.addr.get(), bytes, access)?;
    }
    let mut room = [0; RUN];
    let mut done = 0;
    while done < bytes {
        let run = &mut room[..((bytes - done) as usize).min(RUN)];
        let [source, target] = [from, to].map(|data| data.addr.get().wrapping_add(done));
        read(around.bus, around.keys, who, from.lkey.get(), source, Access::Read, run)?;
        write(around.bus, around.keys, who, to.lkey.get(), target, Access::Write, run)?;
        done += run.len() as u64;
    }
    Ok(())
}
