//! Components of the firmware: which there are, and their versions (MCQS, MCQI).
//!
//! There is one, the image that boots, and none can be replaced: what is stored is what runs.

use pollux_mlx5_abi::command::management::{Mcqi, McqiCap, McqiVersion, Mcqs, component, component_info};
use pollux_mlx5_abi::command::status;

use crate::device::core::Core;
use crate::firmware::{Call, No, need, no};

/// The index of the image that boots, and of the last component.
const BOOT: u32 = 0;

/// The state of a component.
pub(super) fn state(register: &mut [u8; Mcqs::BYTES]) -> Result<(), No> {
    need!(Mcqs::COMPONENT_INDEX.get(register) == BOOT, BAD_PARAM_ERR, 23);
    *register = Mcqs::ZERO;
    Mcqs::COMPONENT_INDEX.set(register, BOOT);
    Mcqs::LAST_INDEX_FLAG.set(register, 1);
    Mcqs::IDENTIFIER.set(register, component::BOOT_IMG);
    Ok(())
}

impl Core {
    /// What a component says of itself, as far as it is asked for.
    pub(super) fn component(&self, call: &mut Call<'_>, mut head: [u8; Mcqi::BYTES]) -> Result<(), No> {
        need!(Mcqi::COMPONENT_INDEX.get(&head) == BOOT, BAD_PARAM_ERR, 24);
        let whole: &[u8] = match Mcqi::INFO_TYPE.get(&head) {
            component_info::CAPABILITIES => &capabilities(),
            component_info::VERSION => &self.version(),
            _ => return Err(no(status::BAD_PARAM_ERR, 25)),
        };
        let (first, bytes) = (Mcqi::OFFSET.get(&head) as usize, Mcqi::DATA_SIZE.get(&head) as usize);
        let Some(rest) = whole.get(first..) else { return Err(no(status::BAD_PARAM_ERR, 26)) };
        let data = &rest[..bytes.min(rest.len())];
        Mcqi::INFO_SIZE.set(&mut head, whole.len() as u32);
        Mcqi::DATA_SIZE.set(&mut head, data.len() as u32);
        super::put(call, &[&head[..], data].concat())
    }

    fn version(&self) -> [u8; McqiVersion::BYTES] {
        let (major, minor, sub) = self.traits.firmware();
        let mut version = McqiVersion::ZERO;
        // Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/devlink.c`, `mlx5_fw_ver_major` and its like.
        McqiVersion::VERSION
            .set(&mut version, u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(sub));
        let text = format!("{major}.{minor}.{sub:04}");
        McqiVersion::VERSION_STRING_LENGTH.set(&mut version, text.len() as u32);
        McqiVersion::VERSION_STRING.of_mut(&mut version)[..text.len()].copy_from_slice(text.as_bytes());
        version
    }
}

fn capabilities() -> [u8; McqiCap::BYTES] {
    let mut caps = McqiCap::ZERO;
    let kinds = 1 << component_info::CAPABILITIES | 1 << component_info::VERSION;
    McqiCap::SUPPORTED_INFO_BITMASK.set(&mut caps, kinds);
    caps
}
