//! Memory keys as the firmware makes them, for regions, windows and device memory. Source: Linux `drivers/infiniband/hw/mlx5/mr.c`.

use std::sync::atomic::Ordering;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, MkeyContext};
use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::Access;

use crate::adapter::Adapter;
use crate::firmware::{SHORT, begin};

/// Ends a key.
pub(crate) fn destroy_key(adapter: &Adapter, index: u32) -> Result<(), Errno> {
    let mut input: [u8; DestroyMkeyIn::BYTES] = begin(opcode::DESTROY_MKEY, 0, 0);
    DestroyMkeyIn::MKEY_INDEX.set(&mut input, index);
    adapter.execute(&input, &mut [0; SHORT])
}

/// Sets what a key allows, and to which domain.
pub(crate) fn set_rights(adapter: &Adapter, context: &mut [u8; 64], pdn: u32, access: Access) {
    let caps = &adapter.caps;
    let relaxed = access.contains(Access::RELAXED_ORDERING);
    for (field, on) in [
        (MkeyContext::A, access.contains(Access::REMOTE_ATOMIC)),
        (MkeyContext::RW, access.contains(Access::REMOTE_WRITE)),
        (MkeyContext::RR, access.contains(Access::REMOTE_READ)),
        (MkeyContext::LW, access.contains(Access::LOCAL_WRITE)),
        (MkeyContext::LR, true),
        (MkeyContext::RELAXED_ORDERING_WRITE, relaxed && caps.has(GeneralCaps::RELAXED_ORDERING_WRITE)),
        (MkeyContext::RELAXED_ORDERING_READ, relaxed && caps.has(GeneralCaps::RELAXED_ORDERING_READ)),
    ] {
        field.set(context, on.into());
    }
    MkeyContext::PD.set(context, pdn);
}

/// Makes a key with this context, and this translation behind it: index, and the key with its variable bits.
pub(crate) fn make_key(
    adapter: &Adapter,
    head: &mut [u8; CreateMkeyIn::BYTES],
    translation: &[u8],
) -> Result<(u32, u32), Errno> {
    let variant = adapter.key_variant.fetch_add(1, Ordering::Relaxed);
    MkeyContext::MKEY_7_0.set(CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(head), variant.into());
    let mut input = head.to_vec();
    input.extend_from_slice(translation);
    // The list is a whole number of octwords.
    input.resize(input.len().next_multiple_of(16), 0);
    let mut output = CreateMkeyOut::ZERO;
    adapter.execute(&input, &mut output)?;
    let index = CreateMkeyOut::MKEY_INDEX.get(&output);
    Ok((index, index << 8 | u32::from(variant)))
}
