//! The module in the port's cage: where the port's lanes are, and the module's memory (PMLP, MCIA).

use pollux_mlx5_abi::command::management::{LaneMapping, Mcia, Pmlp, module_address, module_status};

use crate::device::core::Core;

/// The number of the one module.
const NUMBER: u32 = 0;

impl Core {
    pub(super) fn lanes(&self, register: &mut [u8; Pmlp::BYTES]) {
        let lanes = u32::from(self.port.module.lanes);
        let rows = [
            Pmlp::LANE0_MODULE_MAPPING,
            Pmlp::LANE1_MODULE_MAPPING,
            Pmlp::LANE2_MODULE_MAPPING,
            Pmlp::LANE3_MODULE_MAPPING,
        ];
        for (lane, row) in (0..lanes).zip(rows) {
            let mut mapping = LaneMapping::ZERO;
            LaneMapping::MODULE.set(&mut mapping, NUMBER);
            LaneMapping::RX_LANE.set(&mut mapping, lane);
            LaneMapping::TX_LANE.set(&mut mapping, lane);
            row.set(register, u32::from_be_bytes(mapping));
        }
        Pmlp::WIDTH.set(register, lanes);
    }

    /// A piece of the module's memory, or why there is none.
    pub(super) fn module_memory(&self, register: &mut [u8; Mcia::BYTES]) {
        let (page, first) = (Mcia::PAGE_NUMBER.get(register), Mcia::DEVICE_ADDRESS.get(register) as usize);
        let bytes = Mcia::SIZE.get(register) as usize;
        let data = Mcia::DWORDS.of_mut(register);
        data.fill(0);
        let status = if Mcia::MODULE.get(register) != NUMBER {
            module_status::MODULE_NOT_CONNECTED
        } else if Mcia::I2C_DEVICE_ADDRESS.get(register) != module_address::LOW {
            module_status::NO_EEPROM_MODULE
        } else {
            let data = Mcia::DWORDS.of_mut(register);
            match (self.port.module.read(page, first, bytes), data.get_mut(..bytes)) {
                (Some(memory), Some(place)) => {
                    place.copy_from_slice(memory);
                    module_status::GOOD
                }
                _ => module_status::I2C_ERROR,
            }
        };
        Mcia::STATUS.set(register, status);
    }
}
