//! Registers of the port, read and written by ACCESS_REG.

use crate::layout::layouts;

layouts! {
    /// The register follows; op_mod is an [`access`], the number one of [`id`].
    AccessRegisterIn = "access_register_in" [16] {
        REGISTER_ID: field(0x08, 15, 0),
        ARGUMENT: field(0x0c, 31, 0),
    }

    /// The register follows.
    AccessRegisterOut = "access_register_out" [16] {
    }

    /// Port type and speed: each mask has one bit a link mode.
    Ptys = "ptys_reg" [64] {
        AN_DISABLE_ADMIN: field(0x00, 30, 30),
        AN_DISABLE_CAP: field(0x00, 29, 29),
        LOCAL_PORT: field(0x00, 23, 16),
        PROTO_MASK: field(0x00, 2, 0),
        AN_STATUS: field(0x04, 31, 28),
        DATA_RATE_OPER: field(0x04, 15, 0),
        EXT_ETH_PROTO_CAPABILITY: field(0x08, 31, 0),
        ETH_PROTO_CAPABILITY: field(0x0c, 31, 0),
        IB_LINK_WIDTH_CAPABILITY: field(0x10, 31, 16),
        IB_PROTO_CAPABILITY: field(0x10, 15, 0),
        EXT_ETH_PROTO_ADMIN: field(0x14, 31, 0),
        ETH_PROTO_ADMIN: field(0x18, 31, 0),
        IB_LINK_WIDTH_ADMIN: field(0x1c, 31, 16),
        IB_PROTO_ADMIN: field(0x1c, 15, 0),
        EXT_ETH_PROTO_OPER: field(0x20, 31, 0),
        ETH_PROTO_OPER: field(0x24, 31, 0),
        IB_LINK_WIDTH_OPER: field(0x28, 31, 16),
        IB_PROTO_OPER: field(0x28, 15, 0),
        CONNECTOR_TYPE: field(0x2c, 3, 0),
        ETH_PROTO_LP_ADVERTISE: field(0x30, 31, 0),
    }

    /// Largest, wanted and current MTU of the wire.
    Pmtu = "pmtu_reg" [16] {
        LOCAL_PORT: field(0x00, 23, 16),
        MAX_MTU: field(0x04, 31, 16),
        ADMIN_MTU: field(0x08, 31, 16),
        OPER_MTU: field(0x0c, 31, 16),
    }

    /// Port up or down: what is wanted, what is.
    Paos = "paos_reg" [16] {
        SWID: field(0x00, 31, 24),
        LOCAL_PORT: field(0x00, 23, 16),
        ADMIN_STATUS: field(0x00, 11, 8),
        OPER_STATUS: field(0x00, 3, 0),
        ASE: field(0x04, 31, 31),
        EE: field(0x04, 30, 30),
        E: field(0x04, 1, 0),
    }

    /// Counters of the port; `grp` is a [`counter_group`].
    Ppcnt = "ppcnt_reg" [256] {
        SWID: field(0x00, 31, 24),
        LOCAL_PORT: field(0x00, 23, 16),
        PNAT: field(0x00, 15, 14),
        GRP: field(0x00, 5, 0),
        CLR: field(0x04, 31, 31),
        PRIO_TC: field(0x04, 2, 0),
        COUNTER_SET: run(0x08, 248),
    }

    /// The counters of group 0.
    Ieee8023Counters = "eth_802_3_cntrs_grp_data_layout" [248] {
        FRAMES_TRANSMITTED_OK as "a_frames_transmitted_ok_high..a_frames_transmitted_ok_low": wide(0x00, 63, 0),
        FRAMES_RECEIVED_OK as "a_frames_received_ok_high..a_frames_received_ok_low": wide(0x08, 63, 0),
        FRAME_CHECK_SEQUENCE_ERRORS as "a_frame_check_sequence_errors_high..a_frame_check_sequence_errors_low": wide(0x10, 63, 0),
        ALIGNMENT_ERRORS as "a_alignment_errors_high..a_alignment_errors_low": wide(0x18, 63, 0),
        OCTETS_TRANSMITTED_OK as "a_octets_transmitted_ok_high..a_octets_transmitted_ok_low": wide(0x20, 63, 0),
        OCTETS_RECEIVED_OK as "a_octets_received_ok_high..a_octets_received_ok_low": wide(0x28, 63, 0),
        MULTICAST_FRAMES_XMITTED_OK as "a_multicast_frames_xmitted_ok_high..a_multicast_frames_xmitted_ok_low": wide(0x30, 63, 0),
        BROADCAST_FRAMES_XMITTED_OK as "a_broadcast_frames_xmitted_ok_high..a_broadcast_frames_xmitted_ok_low": wide(0x38, 63, 0),
        MULTICAST_FRAMES_RECEIVED_OK as "a_multicast_frames_received_ok_high..a_multicast_frames_received_ok_low": wide(0x40, 63, 0),
        BROADCAST_FRAMES_RECEIVED_OK as "a_broadcast_frames_received_ok_high..a_broadcast_frames_received_ok_low": wide(0x48, 63, 0),
        IN_RANGE_LENGTH_ERRORS as "a_in_range_length_errors_high..a_in_range_length_errors_low": wide(0x50, 63, 0),
        OUT_OF_RANGE_LENGTH_FIELD as "a_out_of_range_length_field_high..a_out_of_range_length_field_low": wide(0x58, 63, 0),
        FRAME_TOO_LONG_ERRORS as "a_frame_too_long_errors_high..a_frame_too_long_errors_low": wide(0x60, 63, 0),
        SYMBOL_ERROR_DURING_CARRIER as "a_symbol_error_during_carrier_high..a_symbol_error_during_carrier_low": wide(0x68, 63, 0),
        MAC_CONTROL_FRAMES_TRANSMITTED as "a_mac_control_frames_transmitted_high..a_mac_control_frames_transmitted_low": wide(0x70, 63, 0),
        MAC_CONTROL_FRAMES_RECEIVED as "a_mac_control_frames_received_high..a_mac_control_frames_received_low": wide(0x78, 63, 0),
        UNSUPPORTED_OPCODES_RECEIVED as "a_unsupported_opcodes_received_high..a_unsupported_opcodes_received_low": wide(0x80, 63, 0),
        PAUSE_MAC_CTRL_FRAMES_RECEIVED as "a_pause_mac_ctrl_frames_received_high..a_pause_mac_ctrl_frames_received_low": wide(0x88, 63, 0),
        PAUSE_MAC_CTRL_FRAMES_TRANSMITTED as "a_pause_mac_ctrl_frames_transmitted_high..a_pause_mac_ctrl_frames_transmitted_low": wide(0x90, 63, 0),
    }

    /// The counters of group 1 that say of losses.
    Rfc2863Counters = "eth_2863_cntrs_grp_data_layout" [248] {
        IN_DISCARDS as "if_in_discards_high..if_in_discards_low": wide(0x10, 63, 0),
        OUT_DISCARDS as "if_out_discards_high..if_out_discards_low": wide(0x38, 63, 0),
        OUT_ERRORS as "if_out_errors_high..if_out_errors_low": wide(0x40, 63, 0),
    }
}

/// op_mod of ACCESS_REG. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_ACCESS_REGISTER_IN_OP_MOD_*`.
pub mod access {
    /// Write.
    pub const WRITE: u16 = 0x0;
    /// Read.
    pub const READ: u16 = 0x1;
}

/// Numbers of registers. Source: Linux `include/linux/mlx5/driver.h`, `MLX5_REG_*`.
pub mod id {
    /// Port capabilities of RDMA.
    pub const PCAP: u16 = 0x5001;
    /// MTU.
    pub const PMTU: u16 = 0x5003;
    /// Type and speed.
    pub const PTYS: u16 = 0x5004;
    /// Up or down.
    pub const PAOS: u16 = 0x5006;
    /// Pause frames.
    pub const PFCC: u16 = 0x5007;
    /// Counters.
    pub const PPCNT: u16 = 0x5008;
    /// Buffers.
    pub const PBMC: u16 = 0x500c;
    /// Module mapping.
    pub const PMLP: u16 = 0x5002;
    /// Checks of received frames.
    pub const PCMR: u16 = 0x5041;
    /// Link diagnosis.
    pub const PDDR: u16 = 0x5031;
    /// Which port features there are.
    pub const PCAM: u16 = 0x507f;
    /// Name of the node.
    pub const NODE_DESC: u16 = 0x6001;
    /// Byte order of the host.
    pub const HOST_ENDIANNESS: u16 = 0x7004;
    /// Which management features there are.
    pub const MCAM: u16 = 0x907f;
    /// Cable EEPROM.
    pub const MCIA: u16 = 0x9014;
    /// Counters of PCI Express.
    pub const MPCNT: u16 = 0x9051;
    /// A component of the firmware.
    pub const MCQS: u16 = 0x9060;
    /// What a component says of itself.
    pub const MCQI: u16 = 0x9061;
}

/// `proto_mask` of PTYS. Source: Linux `include/linux/mlx5/port.h`, `MLX5_PTYS_*`.
pub mod protocol {
    /// InfiniBand.
    pub const IB: u32 = 1 << 0;
    /// Ethernet.
    pub const EN: u32 = 1 << 2;
}

/// `admin_status` and `oper_status` of PAOS. Source: Linux `include/linux/mlx5/port.h`, `MLX5_PORT_*`.
pub mod port_status {
    /// Up.
    pub const UP: u32 = 1;
    /// Down.
    pub const DOWN: u32 = 2;
}

/// `grp` of PPCNT. Source: Linux `include/linux/mlx5/device.h`, `MLX5_*_COUNTERS_GROUP`.
pub mod counter_group {
    /// Of the Ethernet standard.
    pub const IEEE_802_3: u32 = 0x0;
    /// RFC 2863.
    pub const RFC_2863: u32 = 0x1;
    /// RFC 2819.
    pub const RFC_2819: u32 = 0x2;
    /// RFC 3635.
    pub const RFC_3635: u32 = 0x3;
    /// The vendor's own.
    pub const ETHERNET_EXTENDED: u32 = 0x5;
    /// By priority.
    pub const PER_PRIORITY: u32 = 0x10;
    /// By traffic class.
    pub const PER_TRAFFIC_CLASS: u32 = 0x11;
    /// Of the wire.
    pub const PHYSICAL_LAYER: u32 = 0x12;
}

/// Bits of `eth_proto_*` of PTYS, one a link mode. Source: Linux `include/linux/mlx5/port.h`, `enum mlx5e_link_mode`.
pub mod link_mode {
    /// `1000BASE_CX_SGMII`, 1 Gbit/s.
    pub const MODE_1000BASE_CX_SGMII: u32 = 1 << 0;
    /// `1000BASE_KX`, 1 Gbit/s.
    pub const MODE_1000BASE_KX: u32 = 1 << 1;
    /// `10GBASE_CX4`, 10 Gbit/s.
    pub const MODE_10GBASE_CX4: u32 = 1 << 2;
    /// `10GBASE_KX4`, 10 Gbit/s.
    pub const MODE_10GBASE_KX4: u32 = 1 << 3;
    /// `10GBASE_KR`, 10 Gbit/s.
    pub const MODE_10GBASE_KR: u32 = 1 << 4;
    /// `20GBASE_KR2`, 20 Gbit/s.
    pub const MODE_20GBASE_KR2: u32 = 1 << 5;
    /// `40GBASE_CR4`, 40 Gbit/s.
    pub const MODE_40GBASE_CR4: u32 = 1 << 6;
    /// `40GBASE_KR4`, 40 Gbit/s.
    pub const MODE_40GBASE_KR4: u32 = 1 << 7;
    /// `56GBASE_R4`, 56 Gbit/s.
    pub const MODE_56GBASE_R4: u32 = 1 << 8;
    /// `10GBASE_CR`, 10 Gbit/s.
    pub const MODE_10GBASE_CR: u32 = 1 << 12;
    /// `10GBASE_SR`, 10 Gbit/s.
    pub const MODE_10GBASE_SR: u32 = 1 << 13;
    /// `10GBASE_ER`, 10 Gbit/s.
    pub const MODE_10GBASE_ER: u32 = 1 << 14;
    /// `40GBASE_SR4`, 40 Gbit/s.
    pub const MODE_40GBASE_SR4: u32 = 1 << 15;
    /// `40GBASE_LR4`, 40 Gbit/s.
    pub const MODE_40GBASE_LR4: u32 = 1 << 16;
    /// `50GBASE_SR2`, 50 Gbit/s.
    pub const MODE_50GBASE_SR2: u32 = 1 << 18;
    /// `100GBASE_CR4`, 100 Gbit/s.
    pub const MODE_100GBASE_CR4: u32 = 1 << 20;
    /// `100GBASE_SR4`, 100 Gbit/s.
    pub const MODE_100GBASE_SR4: u32 = 1 << 21;
    /// `100GBASE_KR4`, 100 Gbit/s.
    pub const MODE_100GBASE_KR4: u32 = 1 << 22;
    /// `100GBASE_LR4`, 100 Gbit/s.
    pub const MODE_100GBASE_LR4: u32 = 1 << 23;
    /// `100BASE_TX`, 100 Mbit/s.
    pub const MODE_100BASE_TX: u32 = 1 << 24;
    /// `1000BASE_T`, 1 Gbit/s.
    pub const MODE_1000BASE_T: u32 = 1 << 25;
    /// `10GBASE_T`, 10 Gbit/s.
    pub const MODE_10GBASE_T: u32 = 1 << 26;
    /// `25GBASE_CR`, 25 Gbit/s.
    pub const MODE_25GBASE_CR: u32 = 1 << 27;
    /// `25GBASE_KR`, 25 Gbit/s.
    pub const MODE_25GBASE_KR: u32 = 1 << 28;
    /// `25GBASE_SR`, 25 Gbit/s.
    pub const MODE_25GBASE_SR: u32 = 1 << 29;
    /// `50GBASE_CR2`, 50 Gbit/s.
    pub const MODE_50GBASE_CR2: u32 = 1 << 30;
    /// `50GBASE_KR2`, 50 Gbit/s.
    pub const MODE_50GBASE_KR2: u32 = 1 << 31;
}

/// Bits of `ext_eth_proto_*` of PTYS. Source: Linux `include/linux/mlx5/port.h`, `enum mlx5e_ext_link_mode`.
pub mod ext_link_mode {
    /// `SGMII_100M`, 100 Mbit/s.
    pub const SGMII_100M: u32 = 1 << 0;
    /// `1000BASE_X_SGMII`, 1 Gbit/s.
    pub const MODE_1000BASE_X_SGMII: u32 = 1 << 1;
    /// `5GBASE_R`, 5 Gbit/s.
    pub const MODE_5GBASE_R: u32 = 1 << 3;
    /// `10GBASE_XFI_XAUI_1`, 10 Gbit/s.
    pub const MODE_10GBASE_XFI_XAUI_1: u32 = 1 << 4;
    /// `40GBASE_XLAUI_4_XLPPI_4`, 40 Gbit/s.
    pub const MODE_40GBASE_XLAUI_4_XLPPI_4: u32 = 1 << 5;
    /// `25GAUI_1_25GBASE_CR_KR`, 25 Gbit/s.
    pub const MODE_25GAUI_1_25GBASE_CR_KR: u32 = 1 << 6;
    /// `50GAUI_2_LAUI_2_50GBASE_CR2_KR2`, 50 Gbit/s.
    pub const MODE_50GAUI_2_LAUI_2_50GBASE_CR2_KR2: u32 = 1 << 7;
    /// `50GAUI_1_LAUI_1_50GBASE_CR_KR`, 50 Gbit/s.
    pub const MODE_50GAUI_1_LAUI_1_50GBASE_CR_KR: u32 = 1 << 8;
    /// `CAUI_4_100GBASE_CR4_KR4`, 100 Gbit/s.
    pub const CAUI_4_100GBASE_CR4_KR4: u32 = 1 << 9;
    /// `100GAUI_2_100GBASE_CR2_KR2`, 100 Gbit/s.
    pub const MODE_100GAUI_2_100GBASE_CR2_KR2: u32 = 1 << 10;
    /// `100GAUI_1_100GBASE_CR_KR`, 100 Gbit/s.
    pub const MODE_100GAUI_1_100GBASE_CR_KR: u32 = 1 << 11;
    /// `200GAUI_4_200GBASE_CR4_KR4`, 200 Gbit/s.
    pub const MODE_200GAUI_4_200GBASE_CR4_KR4: u32 = 1 << 12;
    /// `200GAUI_2_200GBASE_CR2_KR2`, 200 Gbit/s.
    pub const MODE_200GAUI_2_200GBASE_CR2_KR2: u32 = 1 << 13;
    /// `400GAUI_8`, 400 Gbit/s.
    pub const MODE_400GAUI_8: u32 = 1 << 15;
    /// `400GAUI_4_400GBASE_CR4_KR4`, 400 Gbit/s.
    pub const MODE_400GAUI_4_400GBASE_CR4_KR4: u32 = 1 << 16;
}
