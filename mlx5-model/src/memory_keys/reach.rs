//! Copies in and out of the memory behind keys, for queue pairs and for lists of entries.

use super::{Access, KeyError, Keys, Who, signature};
use crate::device::bus::Bus;
use crate::ledger::Crossing;

/// Reads memory behind a key.
pub(crate) fn read(
    bus: &Bus<'_>,
    keys: &Keys,
    who: Who,
    key: u32,
    at: u64,
    access: Access,
    into: &mut [u8],
) -> Result<(), KeyError> {
    if keys.has_signatures(key) {
        return signature::gather(bus, keys, who, key, at, access, into);
    }
    let mut done = 0;
    keys.walk_for(key, who, at, into.len() as u64, access, &mut |address, run| {
        let piece = &mut into[done..done + run];
        match address {
            Some(address) => {
                bus.read(Crossing::SendPayload, address, piece).map_err(|_| KeyError::Unpinned)?;
            }
            None => piece.fill(0),
        }
        done += run;
        Ok(())
    })
}

/// Writes memory behind a key.
pub(crate) fn write(
    bus: &Bus<'_>,
    keys: &Keys,
    who: Who,
    key: u32,
    at: u64,
    access: Access,
    data: &[u8],
) -> Result<(), KeyError> {
    if keys.has_signatures(key) {
        return signature::scatter(bus, keys, who, key, at, access, data);
    }
    let mut done = 0;
    keys.walk_for(key, who, at, data.len() as u64, access, &mut |address, run| {
        if let Some(address) = address {
            bus.write(Crossing::ReceivePayload, address, &data[done..done + run])
                .map_err(|_| KeyError::Unpinned)?;
        }
        done += run;
        Ok(())
    })
}
