//! Message buffers: pinned, or on demand.

use pollux_bringup::RdmaDevice;
use pollux_verbs::{Access, Advice, AllMemory, Mr, OdpService, Pd, QpKind};

use super::options::Paging;
use crate::rdma::{Failure, paging};

/// Zeroed memory for the messages of queue pairs of this kind, which do `services` with it.
///
/// # Errors
/// No memory, what the kernel says, or that the device does not do what `wanted` asks for.
pub fn allocate(
    device: &RdmaDevice,
    pd: &Pd,
    bytes: usize,
    wanted: Paging,
    kind: QpKind,
    services: OdpService,
) -> Result<Mr, Failure> {
    let Some(option) = wanted.on_demand() else { return Ok(Mr::allocate(pd, bytes, Access::LOCAL_WRITE)?) };
    paging::check(device, option, kind, services)?;
    let mr = if wanted.iodp {
        paging::check_implicit(device, option, "-o")?;
        AllMemory::register(pd)?.allocate(bytes)?
    } else {
        Mr::allocate(pd, bytes, Access::LOCAL_WRITE | Access::ON_DEMAND)?
    };
    if wanted.prefetch {
        mr.advise(0..bytes, Advice::PREFETCH_WRITE, true)?;
    }
    Ok(mr)
}
