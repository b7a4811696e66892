//! Hairpin queues: what steering gives to a receive queue goes out of a send queue, and software sees nothing of it.
//!
//! ```text
//!   wire ─► steering ─► TIR ─► receive queue ─► its buffer ─► send queue ─► steering of what is sent ─► wire
//!                               │ no room: dropped, counted
//! ```
//!
//! Neither queue has a ring, a doorbell or a completion queue. Software says how many bytes and packets their buffer has room for, and
//! binds the two as each leaves RESET: it names the function and the queue of the other. Back in RESET a queue is bound to none.
//! Packets flow while both are ready and each names the other; they stay as steering made them. Source: Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/transobj.c`, `mlx5_core_hairpin_create`, `mlx5_core_hairpin_destroy`, and `en_tc.c`,
//! `mlx5e_hairpin_flow_add`, `mlx5e_hairpin_create_transport`; DPDK `drivers/net/mlx5/mlx5_devx.c`, `mlx5_rxq_obj_hairpin_new`,
//! `mlx5_txq_obj_hairpin_new`, and `mlx5_trigger.c`, `mlx5_hairpin_auto_bind`, `mlx5_hairpin_queue_peer_bind`,
//! `mlx5_hairpin_queue_peer_unbind`. Both bind the send queue first, and let go of the receive queue first; any order does here. DPDK's
//! send queues have a TIS, Linux's none.
//!
//! Packets without room are counted in the receive queue's set of counters (Linux `transobj.c`, `mlx5_hairpin_create_rq`; DPDK
//! `drivers/net/mlx5/mlx5.c`, `mlx5_enable_per_queue_hairpin_counter`) and in `internal_rq_out_of_buffer` of the vport (Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/en_stats.c`, "dev_internal_queue_oob"; DPDK
//! `drivers/net/mlx5/linux/mlx5_ethdev_os.c`, the same name).
//!
//! # What no source tells, or one alone
//! - A packet takes a quarter of the buffer at most: DPDK's guide `mlx5.rst`, `hp_buf_log_sz`, 512 bytes of 2^11 to 128 KiB of 2^19, and
//!   `drivers/net/mlx5/mlx5_defs.h`, `MLX5_HAIRPIN_JUMBO_LOG_SIZE`.
//! - Bytes are counted as they are, without what a card's strides leave over.
//! - The buffer is the receive queue's; what is said of the send queue's is checked, and nothing more. Drivers say the same of both.
//! - Tags of VLANs stay, whatever `vsd` says: there is no completion to carry one. Segments are not joined.
//! - A receive queue without room holds up no wire, even one that can be made to wait: two devices that forward to each other would
//!   wait for each other.
//! - Packets wait while the send queue is not ready or its rate lets none out; they are dropped when the receive queue leaves READY.
//! - Nothing of it is in the ledger: no packet crosses PCIe.
//!
//! # Bounds
//! A guest makes 2^[`LOG_QUEUES`] of each kind at most, of 2^[`LOG_BYTES_MAX`] bytes: 32 MiB, all full, and as much again that a ring
//! of bytes may have to spare. What is dropped gives its memory back.

use std::collections::VecDeque;

/// Queues of each kind: `log_max_hairpin_queues`. The model's own number; DPDK's `mlx5_hairpin_cap_get` does not ask the card.
pub(crate) const LOG_QUEUES: u32 = 6;
/// Bytes of a buffer: `log_min_hairpin_wq_data_sz`, `log_max_hairpin_wq_data_sz`. Source: DPDK's guide `mlx5.rst`, `hp_buf_log_sz`. Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/en_tc.c` takes 16, or what is nearest.
pub(crate) const LOG_BYTES_MIN: u32 = 11;
pub(crate) const LOG_BYTES_MAX: u32 = 19;
/// Packets of a buffer: `log_max_hairpin_num_packets`. Source: DPDK `drivers/net/mlx5/mlx5_ethdev.c`, `mlx5_hairpin_cap_get`, 8192; as
/// many as `LOG_STRIDE` makes of the largest buffer.
pub(crate) const LOG_PACKETS_MAX: u32 = 13;
/// Bytes that drivers reckon with for a packet. Source: DPDK `drivers/net/mlx5/mlx5_defs.h`, `MLX5_HAIRPIN_QUEUE_STRIDE`; Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/en_tc.c`, by `MLX5_MPWRQ_MIN_LOG_STRIDE_SZ`.
const LOG_STRIDE: u32 = 6;
/// Which part of a buffer one packet takes at most.
const LOG_PART: u32 = 2;

/// What a buffer has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    bytes: usize,
    packets: usize,
}

impl Sizes {
    /// As contexts say them. `None` for those that are not offered. Without a number of packets the device chooses one. Source: Linux
    /// commit 4d533e0f8695, "net/mlx5: Enable setting hairpin queue size".
    pub(crate) fn of(log_bytes: u32, log_packets: u32) -> Option<Self> {
        let offered = (LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log_bytes) && log_packets <= LOG_PACKETS_MAX;
        let log_packets = if log_packets == 0 { log_bytes.saturating_sub(LOG_STRIDE) } else { log_packets };
        offered.then(|| Self { bytes: 1 << log_bytes, packets: 1 << log_packets })
    }
}

/// A send queue's side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Egress {
    /// The receive queue that it is bound to.
    pub(crate) peer: Option<u32>,
}

/// A receive queue's side: packets that are to be sent, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Buffer {
    sizes: Sizes,
    bytes: VecDeque<u8>,
    lengths: VecDeque<usize>,
    /// The send queue that it is bound to.
    pub(crate) peer: Option<u32>,
}

impl Buffer {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self { sizes, bytes: VecDeque::new(), lengths: VecDeque::new(), peer: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Takes a packet; false when there is no room for it.
    pub(crate) fn take(&mut self, packet: &[u8]) -> bool {
        let fits = packet.len() <= self.sizes.bytes >> LOG_PART
            && self.bytes.len() + packet.len() <= self.sizes.bytes
            && self.lengths.len() < self.sizes.packets;
        if fits {
            self.bytes.extend(packet);
            self.lengths.push_back(packet.len());
        }
        fits
    }

    /// Copies the first packet; false when there is none.
    pub(crate) fn first(&self, into: &mut Vec<u8>) -> bool {
        let Some(&length) = self.lengths.front() else { return false };
        let (front, back) = self.bytes.as_slices();
        let in_front = front.len().min(length);
        into.clear();
        into.extend_from_slice(&front[..in_front]);
        into.extend_from_slice(&back[..length - in_front]);
        true
    }

    /// The first packet is sent.
    pub(crate) fn sent(&mut self) {
        if let Some(length) = self.lengths.pop_front() {
            self.bytes.drain(..length);
        }
    }

    /// All that waits is dropped, and its memory goes back.
    pub(crate) fn forget(&mut self) {
        (self.bytes, self.lengths) = (VecDeque::new(), VecDeque::new());
    }

    /// It is bound to none.
    pub(crate) fn unbind(&mut self) {
        self.forget();
        self.peer = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_is_offered() {
        assert_eq!(Sizes::of(11, 0), Some(Sizes { bytes: 2048, packets: 32 }));
        assert_eq!(Sizes::of(19, 0), Some(Sizes { bytes: 1 << 19, packets: 1 << LOG_PACKETS_MAX }));
        assert_eq!(Sizes::of(19, 1), Some(Sizes { bytes: 1 << 19, packets: 2 }));
        assert_eq!([Sizes::of(10, 4), Sizes::of(20, 4), Sizes::of(16, 14), Sizes::of(0, 0)], [None; 4]);
    }

    /// Against a queue of packets, over the end of the ring of bytes many times.
    #[test]
    fn packets_leave_as_they_came_and_in_order() {
        let mut buffer = Buffer::new(Sizes::of(11, 3).expect("offered"));
        let (mut oracle, mut room) = (VecDeque::<Vec<u8>>::new(), Vec::new());
        for turn in 0..2000_usize {
            let packet: Vec<u8> = (0..14 + turn * 37 % 600).map(|index| (turn + index) as u8).collect();
            let waiting: usize = oracle.iter().map(Vec::len).sum();
            let fits = packet.len() <= 512 && waiting + packet.len() <= 2048 && oracle.len() < 8;
            assert_eq!(buffer.take(&packet), fits, "turn {turn}");
            if fits {
                oracle.push_back(packet);
            }
            if turn % 3 > 0 {
                assert_eq!(buffer.first(&mut room).then_some(&room), oracle.front(), "turn {turn}");
                buffer.sent();
                oracle.pop_front();
            }
            assert_eq!(buffer.is_empty(), oracle.is_empty());
        }
        buffer.take(&[1; 60]);
        buffer.forget();
        assert!(buffer.is_empty() && !buffer.first(&mut room));
    }
}
