//! Opcodes of work and of completions, as plain numbers: what a device writes is matched, never taken for an enum.

/// What a send entry asks for; bits 7 to 0 of its first dword. A completion of the sender repeats it.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_OPCODE_*`; Linux `include/linux/mlx5/device.h`; DPDK
/// `drivers/common/mlx5/mlx5_prm.h` for waiting.
pub mod send {
    /// Nothing.
    pub const NOP: u8 = 0x00;
    /// Send and have the peer invalidate a key.
    pub const SEND_INVAL: u8 = 0x01;
    /// RDMA write.
    pub const RDMA_WRITE: u8 = 0x08;
    /// RDMA write with immediate data.
    pub const RDMA_WRITE_IMM: u8 = 0x09;
    /// Send.
    pub const SEND: u8 = 0x0a;
    /// Send with immediate data.
    pub const SEND_IMM: u8 = 0x0b;
    /// Send a frame cut into packets (large send, TSO).
    pub const TSO: u8 = 0x0e;
    /// Wait for another queue, for data or for a time.
    pub const WAIT: u8 = 0x0f;
    /// RDMA read.
    pub const RDMA_READ: u8 = 0x10;
    /// Compare and swap.
    pub const ATOMIC_CS: u8 = 0x11;
    /// Fetch and add.
    pub const ATOMIC_FA: u8 = 0x12;
    /// Compare and swap with masks.
    pub const ATOMIC_MASKED_CS: u8 = 0x14;
    /// Fetch and add with masks.
    pub const ATOMIC_MASKED_FA: u8 = 0x15;
    /// Let another queue run.
    pub const SEND_EN: u8 = 0x17;
    /// Invalidate a local key.
    pub const LOCAL_INVAL: u8 = 0x1b;
    /// Configure, on a queue of its own.
    pub const CONFIG_CMD: u8 = 0x1f;
    /// Set a signature variable.
    pub const SET_PSV: u8 = 0x20;
    /// Read data that nobody wants.
    pub const DUMP: u8 = 0x23;
    /// Change a memory key.
    pub const UMR: u8 = 0x25;
    /// Tag matching.
    pub const TAG_MATCHING: u8 = 0x28;
    /// Many frames in one entry (enhanced multi-packet write).
    pub const ENHANCED_MPSW: u8 = 0x29;
    /// Change a steering table.
    pub const FLOW_TBL_ACCESS: u8 = 0x2c;
    /// Work on an object in order with the queue.
    pub const ACCESS_ASO: u8 = 0x2d;
    /// Move memory.
    pub const MMO: u8 = 0x2f;

    /// The name that `opcode` has in the C headers, without prefix.
    #[must_use]
    pub const fn name(opcode: u8) -> Option<&'static str> {
        Some(match opcode {
            NOP => "NOP",
            SEND_INVAL => "SEND_INVAL",
            RDMA_WRITE => "RDMA_WRITE",
            RDMA_WRITE_IMM => "RDMA_WRITE_IMM",
            SEND => "SEND",
            SEND_IMM => "SEND_IMM",
            TSO => "TSO",
            WAIT => "WAIT",
            RDMA_READ => "RDMA_READ",
            ATOMIC_CS => "ATOMIC_CS",
            ATOMIC_FA => "ATOMIC_FA",
            ATOMIC_MASKED_CS => "ATOMIC_MASKED_CS",
            ATOMIC_MASKED_FA => "ATOMIC_MASKED_FA",
            SEND_EN => "SEND_EN",
            LOCAL_INVAL => "LOCAL_INVAL",
            CONFIG_CMD => "CONFIG_CMD",
            SET_PSV => "SET_PSV",
            DUMP => "DUMP",
            UMR => "UMR",
            TAG_MATCHING => "TAG_MATCHING",
            ENHANCED_MPSW => "ENHANCED_MPSW",
            FLOW_TBL_ACCESS => "FLOW_TBL_ACCESS",
            ACCESS_ASO => "ACCESS_ASO",
            MMO => "MMO",
            _ => return None,
        })
    }
}

/// What a completion reports; bits 7 to 4 of its last byte.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_CQE_*`.
pub mod completion {
    /// Work that was sent is done.
    pub const REQUESTER: u8 = 0;
    /// Received: RDMA write with immediate data.
    pub const RESPONDER_RDMA_WRITE_IMM: u8 = 1;
    /// Received: send, or a frame.
    pub const RESPONDER_SEND: u8 = 2;
    /// Received: send with immediate data.
    pub const RESPONDER_SEND_IMM: u8 = 3;
    /// Received: send that invalidated a key.
    pub const RESPONDER_SEND_INVAL: u8 = 4;
    /// The queue goes on in its new ring.
    pub const RESIZE_CQ: u8 = 5;
    /// Something that no packet made.
    pub const NO_PACKET: u8 = 6;
    /// A signature did not fit.
    pub const SIGNATURE_ERROR: u8 = 12;
    /// Work that was sent failed.
    pub const REQUESTER_ERROR: u8 = 13;
    /// A receive failed.
    pub const RESPONDER_ERROR: u8 = 14;
    /// Nothing yet: what software writes into a fresh ring.
    pub const INVALID: u8 = 15;

    /// The name that `opcode` has in the C headers, without prefix.
    #[must_use]
    pub const fn name(opcode: u8) -> Option<&'static str> {
        Some(match opcode {
            REQUESTER => "REQ",
            RESPONDER_RDMA_WRITE_IMM => "RESP_WR_IMM",
            RESPONDER_SEND => "RESP_SEND",
            RESPONDER_SEND_IMM => "RESP_SEND_IMM",
            RESPONDER_SEND_INVAL => "RESP_SEND_INV",
            RESIZE_CQ => "RESIZE_CQ",
            NO_PACKET => "NO_PACKET",
            SIGNATURE_ERROR => "SIG_ERR",
            REQUESTER_ERROR => "REQ_ERR",
            RESPONDER_ERROR => "RESP_ERR",
            INVALID => "INVALID",
            _ => return None,
        })
    }
}
