//! What each way of sending and receiving costs on PCIe, counted by hand, for packets of 64 bytes in bursts of 32.
//!
//! An entry is made of segments of 16 bytes. The device reads whole blocks of four. A packet's bytes, where they
//! are not in the entry, are read beside it. Numbers are for one packet; fractions are of a burst (1/32) or of a ring's round.
//! The device model's ledger counts the same crossings; a test holds its count against these constants.
//!
//! | sending | segments of an entry | entry bytes | payload bytes | MMIO writes | records read | completion bytes |
//! |---|---|---|---|---|---|---|
//! | plain | control, Ethernet, pointer: 3 | 64 | 64 | 1/32 of 8 bytes | 1/32 | 64/32 = 2 |
//! | plain, inlined | control; Ethernet with the first 2 bytes; 62 bytes in 4: 6 | 128 | 0 | 1/32 | 1/32 | 2 |
//! | 18 bytes of header inlined | control; Ethernet with 2 bytes; 16 bytes in 1; pointer: 4 | 64 | 46 | 1/32 | 1/32 | 2 |
//! | eMPW by pointers | control, Ethernet, 32 pointers for 32 packets: 34 | 576/32 = 18 | 64 | 1/32 | 1/32 | 2 |
//! | eMPW inlined | 4 + 64 bytes in 5 a packet; 58 of 60 are left by control and Ethernet: 11, 11 and 10 packets: 57 + 57 + 52 | (960 + 960 + 832)/32 = 86 | 0 | 1/32 | 1/32 | 2 |
//!
//! | receiving | an entry | entry bytes | payload bytes | MMIO writes | records read | completion bytes |
//! |---|---|---|---|---|---|---|
//! | one mbuf a packet | pointer: 1 segment | 16 | 64 | 0 | 1/ring | 64 |
//! | the same, compressed | as above | 16 | 64 | 0 | 1/ring | (64 + 32 * 8) / 32 = 10 |
//! | scattered over 4 mbufs at most | 4 pointers | 64 | 64 | 0 | 1/ring | 64 |
//! | striding, 64 strides a buffer | a link and a pointer: 2 segments for 64 packets | 32/64 = 0.5 | 64 | 0 | 1/ring | 64 |
//!
//! **Records.** A doorbell tells the device to read the send record: once a burst. Records of receive queues and completion
//! queues are read when the device believes its ring empty, or full: once a round, if software keeps up. (How often silicon
//! looks is its own business; this is the least.) A compressed session is as long as the device makes it; here, a burst.
//!
//! **No more than DPDK.** Its driver posts the same segments. Source: DPDK `drivers/net/mlx5/mlx5_tx.h`: plain,
//! `mlx5_tx_burst_single_send`, 3 segments; inlined, the same, `(64 + 3 * 16 - 18 + 15) / 16` = 6; header inlined, the same,
//! `(16 + 16 + 16 + 18 - 18 + 16 + 15) / 16` = 4; eMPW by pointers, `mlx5_tx_burst_empw_simple`, 2 + 32, for
//! `MLX5_EMPW_MAX_PACKETS` is 32; eMPW inlined, `mlx5_tx_burst_empw_inline`, whose room is `960 / 64 * 64 - 32` = 928 bytes, 11
//! packets of 80. One doorbell a burst (`mlx5_tx_dbrec_cond_wmb`) and a completion for 32 packets (`MLX5_TX_COMP_THRESH`).
//! Receiving: `drivers/net/mlx5/mlx5_rx.c`, `mlx5_rxq_initialize`, a `struct mlx5_wqe_data_seg` (16 bytes) a segment, or a
//! `struct mlx5_wqe_mprq` (32 bytes) for `1 << MLX5_MPRQ_DEFAULT_LOG_STRIDE_NUM` = 64 packets.

/// Packets of a burst.
pub const BURST: u64 = 32;
/// Bytes of a packet, FCS not counted.
pub const PACKET: u64 = 64;
/// A segment of an entry. Source: [`pollux_mlx5_abi::wqe`].
const SEGMENT: u64 = 16;
/// Segments that are read at once.
const BLOCK: u64 = 4;
/// A completion.
const COMPLETION: u64 = 64;
/// A short completion inside a compressed one.
const MINI: u64 = 8;
/// A doorbell's value.
const DOORBELL: u64 = 8;

/// What crosses the bus for one burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The way.
    pub name: &'static str,
    /// Stores to the device, each of 8 bytes.
    pub mmio_writes: u64,
    /// Bytes of these.
    pub mmio_bytes: u64,
    /// Work entries, read by the device.
    pub entries: u64,
    /// Work entries of DPDK's driver for the same burst.
    pub entries_of_dpdk: u64,
    /// Bytes of packets, read or written by the device.
    pub payload: u64,
    /// Completions, written by the device.
    pub completions: u64,
    /// Records read at each doorbell.
    pub doorbell_records: u64,
    /// Completions after which the completion queue moves on by so many places: what one round of its record is counted in.
    pub completion_places: u64,
}

/// Bytes read of so many entries of so many segments each.
const fn read(entries: &[(u64, u64)]) -> u64 {
    let (mut bytes, mut at) = (0, 0);
    while at < entries.len() {
        let (count, segments) = entries[at];
        bytes += count * segments.div_ceil(BLOCK) * BLOCK * SEGMENT;
        at += 1;
    }
    bytes
}

impl Bytes {
    /// `entries` and `dpdk`: how many of so many segments each.
    const fn sending(name: &'static str, entries: &[(u64, u64)], dpdk: &[(u64, u64)], payload: u64) -> Self {
        Self {
            name,
            mmio_writes: 1,
            mmio_bytes: DOORBELL,
            entries: read(entries),
            entries_of_dpdk: read(dpdk),
            payload,
            // One for the last entry of the burst.
            completions: COMPLETION,
            doorbell_records: 1,
            completion_places: 1,
        }
    }

    const fn receiving(name: &'static str, entries: u64, entries_of_dpdk: u64, completions: u64) -> Self {
        Self {
            name,
            mmio_writes: 0,
            mmio_bytes: 0,
            entries,
            entries_of_dpdk,
            payload: BURST * PACKET,
            completions,
            doorbell_records: 0,
            // A compressed one takes as many places as plain ones would.
            completion_places: BURST,
        }
    }
}

/// Control, Ethernet, pointer.
pub const PLAIN: Bytes = Bytes::sending("plain", &[(BURST, 1 + 1 + 1)], &[(BURST, 3)], BURST * PACKET);

/// Control; Ethernet, which has room for 2 bytes of the packet; the other 62 in 4.
pub const PLAIN_INLINE: Bytes = Bytes::sending(
    "plain, inlined",
    &[(BURST, 1 + 1 + (PACKET - 2).div_ceil(SEGMENT))],
    &[(BURST, (PACKET + 3 * SEGMENT - 18).div_ceil(SEGMENT))],
    0,
);

/// Control; Ethernet with 2 bytes, 16 behind it; pointer.
pub const HEADER_INLINE: Bytes = Bytes::sending(
    "18 bytes of header inlined",
    &[(BURST, 1 + 1 + 1 + 1)],
    &[(BURST, (3 * SEGMENT + 18 - 18 + SEGMENT).div_ceil(SEGMENT))],
    BURST * (PACKET - 18),
);

/// Control, Ethernet, 32 pointers.
pub const MPW: Bytes =
    Bytes::sending("eMPW by pointers", &[(1, 1 + 1 + BURST)], &[(1, 2 + 32)], BURST * PACKET);

/// Packets with their length in front in 5 segments each; 11 fit beside control and Ethernet into 60.
pub const MPW_INLINE: Bytes = Bytes::sending(
    "eMPW inlined",
    &[(2, 2 + 11 * 5), (1, 2 + 10 * 5)],
    &[(2, 2 + 11 * 80 / 16), (1, 2 + 10 * 80 / 16)],
    0,
);

/// A pointer a packet.
pub const SINGLE: Bytes =
    Bytes::receiving("one mbuf a packet", BURST * SEGMENT, BURST * 16, BURST * COMPLETION);

/// The same; a title and 8 bytes for each packet.
pub const COMPRESSED: Bytes =
    Bytes::receiving("compressed", BURST * SEGMENT, BURST * 16, COMPLETION + BURST * MINI);

/// Four pointers a packet, of which one is used.
pub const SCATTERED: Bytes =
    Bytes::receiving("scattered", BURST * 4 * SEGMENT, BURST * 4 * 16, BURST * COMPLETION);

/// A link and a pointer for two bursts.
pub const STRIDING: Bytes =
    Bytes::receiving("striding", 2 * SEGMENT * BURST / 64, 32 * BURST / 64, BURST * COMPLETION);
