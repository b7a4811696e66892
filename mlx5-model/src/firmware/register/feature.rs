//! Which registers there are, and which features they have (PCAM, MCAM). What is listed here answers.

use pollux_mlx5_abi::command::management::{
    Mcam, McamFeatures, Pcam, PcamFeatures, feature_group, management_group, port_group,
};
use pollux_mlx5_abi::command::register::id;

use crate::device::core::Core;

/// Registers of the port that are announced.
const PORT: [u16; 7] = [id::PMLP, id::PMTU, id::PTYS, id::PAOS, id::PFCC, id::PPCNT, id::PCAM];
/// Registers of the management that are announced.
const MANAGEMENT: [u16; 4] = [id::MCIA, id::MCQS, id::MCQI, id::MCAM];

/// One bit a register, the last for the first of a group of 128. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `mlx5_ifc_pcam_regs_5000_to_507f_bits` with `ppcnt` at bit 8, `mlx5_ifc_mcam_access_reg_bits` with `mcqs` at bit 96; the
/// numbers by `include/linux/mlx5/driver.h`, `MLX5_REG_*`.
fn mask(registers: &[u16]) -> [u8; 16] {
    registers.iter().fold(0_u128, |mask, number| mask | 1 << (number & 0x7f)).to_be_bytes()
}

impl Core {
    pub(super) fn port_features(&self, register: &mut [u8; Pcam::BYTES]) {
        let (group, features) = (Pcam::ACCESS_REG_GROUP.get(register), Pcam::FEATURE_GROUP.get(register));
        let here = group == port_group::REGS_5000_TO_507F;
        Pcam::PORT_ACCESS_REG_CAP_MASK.set(register, if here { mask(&PORT) } else { [0; 16] });
        let mut can = PcamFeatures::ZERO;
        if features == feature_group::ENHANCED_FEATURES {
            PcamFeatures::PTYS_EXTENDED_ETHERNET.set(&mut can, (self.traits.link_modes.1 != 0).into());
            PcamFeatures::PTYS_CONNECTOR_TYPE.set(&mut can, 1);
        }
        Pcam::FEATURE_CAP_MASK.set(register, can);
    }
}

pub(super) fn of_management(register: &mut [u8; Mcam::BYTES]) {
    let (group, features) = (Mcam::ACCESS_REG_GROUP.get(register), Mcam::FEATURE_GROUP.get(register));
    let here = group == management_group::FIRST_128;
    Mcam::MNG_ACCESS_REG_CAP_MASK.set(register, if here { mask(&MANAGEMENT) } else { [0; 16] });
    let mut can = McamFeatures::ZERO;
    McamFeatures::MCIA_32DWORDS.set(&mut can, (features == feature_group::ENHANCED_FEATURES).into());
    Mcam::MNG_FEATURE_CAP_MASK.set(register, can);
}
