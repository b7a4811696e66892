//! The second block of general capabilities, and the number that software gives the function.
//!
//! Of software's number Linux asks that the function have one (SET_HCA_CAP), and gives it as the function starts (INIT_HCA). Source:
//! Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c`, `handle_hca_cap_2`; `fw.c`, `mlx5_cmd_init_hca`; `vport.c`,
//! `mlx5_nic_vport_affiliate_multiport`, which reads it back; the places `include/linux/mlx5/mlx5_ifc.h`.

use pollux_mlx5_abi::caps::SetHcaCapIn;
use pollux_mlx5_abi::caps::general::GeneralCaps2;

use super::LOG_PAGE_MIN;
use crate::card::Traits;
use crate::device::function::SoftwareId;
use crate::firmware::{No, need};

impl SoftwareId {
    /// The function starts with this number.
    pub(in crate::firmware) fn start(&mut self, given: u32) -> Result<(), No> {
        need!(given == 0 || self.asked, BAD_PARAM_ERR, 17);
        self.given = given;
        Ok(())
    }

    /// What the function does, of what it could do.
    pub(super) fn now(self, most: &mut [u8; GeneralCaps2::BYTES]) {
        GeneralCaps2::SW_VHCA_ID_VALID.set(most, self.asked.into());
        GeneralCaps2::SW_VHCA_ID.set(most, self.given);
    }

    /// Software asks for what the function shall do: of what it could do, whether it has a number is software's choice.
    pub(super) fn ask(
        &mut self,
        most: &[u8; GeneralCaps2::BYTES],
        input: &[u8; SetHcaCapIn::BYTES],
    ) -> Result<(), No> {
        let mut wanted: [u8; GeneralCaps2::BYTES] = [0; GeneralCaps2::BYTES];
        wanted.copy_from_slice(&SetHcaCapIn::CAPABILITY.of(input)[..GeneralCaps2::BYTES]);
        let asked = GeneralCaps2::SW_VHCA_ID_VALID.is_set(&wanted);
        GeneralCaps2::SW_VHCA_ID_VALID.set(&mut wanted, 1);
        GeneralCaps2::SW_VHCA_ID.set(&mut wanted, 0);
        need!(wanted == *most, BAD_PARAM_ERR, 18);
        self.asked = asked;
        Ok(())
    }
}

impl Traits {
    /// What the function could do at most.
    pub(super) fn second(&self) -> [u8; GeneralCaps2::BYTES] {
        let mut caps = GeneralCaps2::ZERO;
        GeneralCaps2::SW_VHCA_ID_VALID.set(&mut caps, 1);
        GeneralCaps2::LOG_MIN_MKEY_ENTITY_SIZE.set(&mut caps, LOG_PAGE_MIN);
        caps
    }
}
