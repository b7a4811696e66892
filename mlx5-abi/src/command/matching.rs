//! What steering looks at in a packet: masks in groups, values in entries, of one layout.

use crate::layout::layouts;

layouts! {
    /// All parts, 64 bytes each; which of them count is a mask of [`criteria`](super::flow::criteria).
    MatchParameters = "fte_match_param" [512] {
        OUTER_HEADERS: run(0x00, 64),
        MISC_PARAMETERS: run(0x40, 64),
        INNER_HEADERS: run(0x80, 64),
        MISC_PARAMETERS_2: run(0xc0, 64),
        MISC_PARAMETERS_3: run(0x100, 64),
        MISC_PARAMETERS_4: run(0x140, 64),
        MISC_PARAMETERS_5: run(0x180, 64),
    }

    /// Layers 2 to 4, of the packet itself or of the one in its tunnel.
    MatchHeaders = "fte_match_set_lyr_2_4" [64] {
        ETHERTYPE: field(0x04, 15, 0),
        FIRST_PRIO: field(0x0c, 15, 13),
        FIRST_CFI: field(0x0c, 12, 12),
        FIRST_VID: field(0x0c, 11, 0),
        IP_PROTOCOL: field(0x10, 31, 24),
        IP_DSCP: field(0x10, 23, 18),
        IP_ECN: field(0x10, 17, 16),
        CVLAN_TAG: field(0x10, 15, 15),
        SVLAN_TAG: field(0x10, 14, 14),
        FRAG: field(0x10, 13, 13),
        IP_VERSION: field(0x10, 12, 9),
        TCP_FLAGS: field(0x10, 8, 0),
        TCP_SPORT: field(0x14, 31, 16),
        TCP_DPORT: field(0x14, 15, 0),
        IPV4_IHL: field(0x18, 15, 12),
        TTL_HOPLIMIT: field(0x18, 7, 0),
        UDP_SPORT: field(0x1c, 31, 16),
        UDP_DPORT: field(0x1c, 15, 0),
        SMAC as "smac_47_16..smac_15_0": wide(0x00, 63, 16),
        DMAC as "dmac_47_16..dmac_15_0": wide(0x08, 63, 16),
        SRC_IPV6 as "src_ipv4_src_ipv6.ipv6_layout.ipv6": run(0x20, 16),
        DST_IPV6 as "dst_ipv4_dst_ipv6.ipv6_layout.ipv6": run(0x30, 16),
        SRC_IPV4 as "src_ipv4_src_ipv6.ipv4_layout.ipv4": field(0x2c, 31, 0),
        DST_IPV4 as "dst_ipv4_dst_ipv6.ipv4_layout.ipv4": field(0x3c, 31, 0),
    }

    /// Where the packet comes from, second VLAN tags, tunnels, the RDMA header.
    MatchMisc = "fte_match_set_misc" [64] {
        GRE_C_PRESENT: field(0x00, 31, 31),
        GRE_K_PRESENT: field(0x00, 29, 29),
        GRE_S_PRESENT: field(0x00, 28, 28),
        SOURCE_VHCA_PORT: field(0x00, 27, 24),
        SOURCE_SQN: field(0x00, 23, 0),
        SOURCE_ESWITCH_OWNER_VHCA_ID: field(0x04, 31, 16),
        SOURCE_PORT: field(0x04, 15, 0),
        OUTER_SECOND_PRIO: field(0x08, 31, 29),
        OUTER_SECOND_CFI: field(0x08, 28, 28),
        OUTER_SECOND_VID: field(0x08, 27, 16),
        INNER_SECOND_PRIO: field(0x08, 15, 13),
        INNER_SECOND_CFI: field(0x08, 12, 12),
        INNER_SECOND_VID: field(0x08, 11, 0),
        OUTER_SECOND_CVLAN_TAG: field(0x0c, 31, 31),
        INNER_SECOND_CVLAN_TAG: field(0x0c, 30, 30),
        OUTER_SECOND_SVLAN_TAG: field(0x0c, 29, 29),
        INNER_SECOND_SVLAN_TAG: field(0x0c, 28, 28),
        GRE_PROTOCOL: field(0x0c, 15, 0),
        VXLAN_VNI: field(0x14, 31, 8),
        BTH_OPCODE: field(0x14, 7, 0),
        GENEVE_VNI: field(0x18, 31, 8),
        GENEVE_TLV_OPTION_0_EXIST: field(0x18, 1, 1),
        GENEVE_OAM: field(0x18, 0, 0),
        OUTER_IPV6_FLOW_LABEL: field(0x1c, 19, 0),
        INNER_IPV6_FLOW_LABEL: field(0x20, 19, 0),
        GENEVE_OPT_LEN: field(0x24, 21, 16),
        GENEVE_PROTOCOL_TYPE: field(0x24, 15, 0),
        BTH_DST_QP: field(0x28, 23, 0),
        OUTER_ESP_SPI: field(0x30, 31, 0),
        GRE_KEY_H as "gre_key.nvgre.hi": field(0x10, 31, 8),
        GRE_KEY_L as "gre_key.nvgre.lo": field(0x10, 7, 0),
    }

    /// First entries of MPLS label stacks as they stand in packets, metadata registers.
    MatchMisc2 = "fte_match_set_misc2" [64] {
        OUTER_FIRST_MPLS: run(0x00, 4),
        INNER_FIRST_MPLS: run(0x04, 4),
        OUTER_FIRST_MPLS_OVER_GRE: run(0x08, 4),
        OUTER_FIRST_MPLS_OVER_UDP: run(0x0c, 4),
        METADATA_REG_C_7: field(0x10, 31, 0),
        METADATA_REG_C_6: field(0x14, 31, 0),
        METADATA_REG_C_5: field(0x18, 31, 0),
        METADATA_REG_C_4: field(0x1c, 31, 0),
        METADATA_REG_C_3: field(0x20, 31, 0),
        METADATA_REG_C_2: field(0x24, 31, 0),
        METADATA_REG_C_1: field(0x28, 31, 0),
        METADATA_REG_C_0: field(0x2c, 31, 0),
        METADATA_REG_A: field(0x30, 31, 0),
    }

    /// TCP numbers, ICMP, GPE tunnels.
    MatchMisc3 = "fte_match_set_misc3" [64] {
        OUTER_TCP_SEQ_NUM: field(0x04, 31, 0),
        OUTER_TCP_ACK_NUM: field(0x0c, 31, 0),
        INNER_TCP_SEQ_NUM: field(0x00, 31, 0),
        INNER_TCP_ACK_NUM: field(0x08, 31, 0),
        OUTER_VXLAN_GPE_VNI: field(0x10, 23, 0),
        OUTER_VXLAN_GPE_NEXT_PROTOCOL: field(0x14, 31, 24),
        OUTER_VXLAN_GPE_FLAGS: field(0x14, 23, 16),
        ICMP_HEADER_DATA: field(0x18, 31, 0),
        ICMPV6_HEADER_DATA: field(0x1c, 31, 0),
        ICMP_TYPE: field(0x20, 31, 24),
        ICMP_CODE: field(0x20, 23, 16),
        ICMPV6_TYPE: field(0x20, 15, 8),
        ICMPV6_CODE: field(0x20, 7, 0),
    }
}
