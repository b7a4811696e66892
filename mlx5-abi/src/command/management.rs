//! Registers of the port and of the card's management that say which registers there are, which firmware runs, and what module is
//! plugged in; read by ACCESS_REG.

use crate::layout::layouts;

layouts! {
    /// Which registers of the port there are, by [`port_group`], and which features.
    Pcam = "pcam_reg" [80] {
        FEATURE_GROUP: field(0x00, 23, 16),
        ACCESS_REG_GROUP: field(0x00, 7, 0),
        /// One bit a register: the last is the first register of the group.
        PORT_ACCESS_REG_CAP_MASK: run(0x08, 16),
        FEATURE_CAP_MASK: run(0x28, 16),
    }

    /// Features of the port's registers.
    PcamFeatures = "pcam_enhanced_features" [16] {
        PTYS_EXTENDED_ETHERNET: field(0x0c, 13, 13),
        PTYS_CONNECTOR_TYPE: field(0x0c, 3, 3),
    }

    /// Which registers of the card's management there are, by [`management_group`], and which features.
    Mcam = "mcam_reg" [72] {
        FEATURE_GROUP: field(0x00, 23, 16),
        ACCESS_REG_GROUP: field(0x00, 7, 0),
        /// One bit a register: the last is the first register of the group.
        MNG_ACCESS_REG_CAP_MASK: run(0x08, 16),
        MNG_FEATURE_CAP_MASK: run(0x28, 16),
    }

    /// Features of the management's registers.
    McamFeatures = "mcam_enhanced_features" [16] {
        MCIA_32DWORDS: field(0x08, 2, 2),
    }

    /// On which module's lanes the port is.
    Pmlp = "pmlp_reg" [64] {
        RXTX: field(0x00, 31, 31),
        LOCAL_PORT: field(0x00, 23, 16),
        /// How many lanes.
        WIDTH: field(0x00, 7, 0),
        LANE0_MODULE_MAPPING: field(0x04, 31, 0),
        LANE1_MODULE_MAPPING: field(0x08, 31, 0),
        LANE2_MODULE_MAPPING: field(0x0c, 31, 0),
        LANE3_MODULE_MAPPING: field(0x10, 31, 0),
    }

    /// Where one lane of the port is.
    LaneMapping = "lane_2_module_mapping" [4] {
        RX_LANE: field(0x00, 27, 24),
        TX_LANE: field(0x00, 19, 16),
        MODULE: field(0x00, 7, 0),
    }

    /// A piece of a module's memory.
    Mcia = "mcia_reg" [144] {
        L: field(0x00, 31, 31),
        MODULE: field(0x00, 23, 16),
        /// One of [`module_status`].
        STATUS: field(0x00, 7, 0),
        I2C_DEVICE_ADDRESS: field(0x04, 31, 24),
        PAGE_NUMBER: field(0x04, 23, 16),
        DEVICE_ADDRESS: field(0x04, 15, 0),
        /// How many bytes.
        SIZE: field(0x08, 15, 0),
        DWORDS: run(0x10, 128),
    }

    /// Which component of the firmware an index is, and whether it is being replaced.
    Mcqs = "mcqs_reg" [16] {
        LAST_INDEX_FLAG: field(0x00, 31, 31),
        FW_DEVICE: field(0x00, 23, 16),
        COMPONENT_INDEX: field(0x00, 15, 0),
        /// One of [`component`].
        IDENTIFIER: field(0x04, 15, 0),
        COMPONENT_STATUS: field(0x08, 8, 4),
        /// 0: nothing is under way.
        COMPONENT_UPDATE_STATE: field(0x08, 3, 0),
        LAST_UPDATE_STATE_CHANGER_TYPE: field(0x0c, 31, 28),
        LAST_UPDATE_STATE_CHANGER_HOST_ID: field(0x0c, 27, 24),
    }

    /// What is asked of a component of the firmware; the answer follows.
    Mcqi = "mcqi_reg" [24] {
        READ_PENDING_COMPONENT: field(0x00, 31, 31),
        COMPONENT_INDEX: field(0x00, 15, 0),
        /// One of [`component_info`].
        INFO_TYPE: field(0x08, 4, 0),
        /// How long the whole is.
        INFO_SIZE: field(0x0c, 31, 0),
        OFFSET: field(0x10, 31, 0),
        /// How much of it is asked for.
        DATA_SIZE: field(0x14, 15, 0),
    }

    /// What can be asked of a component, and whether it can be replaced.
    McqiCap = "mcqi_cap" [20] {
        /// One bit a kind of [`component_info`].
        SUPPORTED_INFO_BITMASK: field(0x00, 31, 0),
        COMPONENT_SIZE: field(0x04, 31, 0),
        MAX_COMPONENT_SIZE: field(0x08, 31, 0),
    }

    /// A component's version.
    McqiVersion = "mcqi_version" [124] {
        BUILD_TIME_VALID: field(0x00, 29, 29),
        USER_DEFINED_TIME_VALID: field(0x00, 28, 28),
        VERSION_STRING_LENGTH: field(0x00, 7, 0),
        /// Major, minor and sub-minor, of 8, 8 and 16 bits.
        VERSION: field(0x04, 31, 0),
        BUILD_TIME: wide(0x08, 63, 0),
        VERSION_STRING: run(0x20, 92),
    }
}

/// `access_reg_group` of PCAM. Source: Linux `include/linux/mlx5/device.h`, `enum mlx5_pcam_reg_groups`.
pub mod port_group {
    /// 0x5000 to 0x507f.
    pub const REGS_5000_TO_507F: u32 = 0x0;
}

/// `access_reg_group` of MCAM. Source: Linux `include/linux/mlx5/device.h`, `enum mlx5_mcam_reg_groups`.
pub mod management_group {
    /// 0x9000 to 0x907f.
    pub const FIRST_128: u32 = 0x0;
}

/// `feature_group` of PCAM and MCAM. Source: Linux `include/linux/mlx5/device.h`, `enum mlx5_pcam_feature_groups`,
/// `enum mlx5_mcam_feature_groups`.
pub mod feature_group {
    /// [`PcamFeatures`](super::PcamFeatures), [`McamFeatures`](super::McamFeatures).
    pub const ENHANCED_FEATURES: u32 = 0x0;
}

/// `identifier` of MCQS. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/fw.c`, `MCQS_IDENTIFIER_*`; Mellanox/mstflint
/// `fw_comps_mgr/fw_comps_mgr.h`, `comps_ids_t`.
pub mod component {
    /// The image that boots: the firmware itself.
    pub const BOOT_IMG: u32 = 0x1;
}

/// `info_type` of MCQI. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/fw.c`, `MCQI_INFO_TYPE_*`;
/// Mellanox/mstflint `fw_comps_mgr/fw_comps_mgr.h`, `comp_info_t`.
pub mod component_info {
    /// [`McqiCap`](super::McqiCap).
    pub const CAPABILITIES: u32 = 0x0;
    /// [`McqiVersion`](super::McqiVersion).
    pub const VERSION: u32 = 0x1;
}

/// `status` of MCIA. Source: Linux `drivers/net/ethernet/mellanox/mlxsw/reg.h`, `MLXSW_REG_MCIA_STATUS_*`, whose chips have the
/// register too; that 0 is well, `drivers/net/ethernet/mellanox/mlx5/core/port.c`, `mlx5_query_mcia`.
pub mod module_status {
    /// Well.
    pub const GOOD: u32 = 0x0;
    /// The module's memory does not answer.
    pub const NO_EEPROM_MODULE: u32 = 0x1;
    /// There is no module.
    pub const MODULE_NOT_CONNECTED: u32 = 0x3;
    /// The module refuses the address.
    pub const I2C_ERROR: u32 = 0x9;
}

/// `i2c_device_address` of MCIA. Source: Linux `include/linux/mlx5/port.h`, `MLX5_I2C_ADDR_*`.
pub mod module_address {
    /// What every module has.
    pub const LOW: u32 = 0x50;
    /// The diagnosis of SFP modules.
    pub const HIGH: u32 = 0x51;
}
