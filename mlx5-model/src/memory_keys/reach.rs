//! Copies in and out of the memory behind keys, for queue pairs and for lists of entries.

use super::copy::{reader, writer};
use super::signature::Signed;
use super::{Access, KeyError, Keys, Who};
use crate::device::bus::Bus;

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
    let bytes = into.len() as u64;
    if keys.has_signatures(key) {
        return Signed::new(bus, keys, who, key, at, access, bytes)?.read_out(into);
    }
    keys.walk_for(key, who, at, bytes, access, &mut reader(bus, into))
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
    let bytes = data.len() as u64;
    if keys.has_signatures(key) {
        return Signed::new(bus, keys, who, key, at, access, bytes)?.take_in(data);
    }
    keys.walk_for(key, who, at, bytes, access, &mut writer(bus, data))
}
