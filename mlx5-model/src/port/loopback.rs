//! Frames that come back to the function that sent them, past the wire.
//!
//! A unicast frame comes back when it is to the address that it is from, or to the function's own, and does not go out then; a
//! frame to a group goes out and comes back, where the function would let it in from the wire. Each kind can be turned off for the whole
//! function. Of the receivers, a TIR of the sender's own transport domain takes a frame only if it was told to. Source:
//! Linux commit c85023e153e3 ("IB/mlx5: Add raw ethernet local loopback support"),
//! `drivers/net/ethernet/mellanox/mlx5/core/vport.c`, `mlx5_nic_vport_update_local_lb`, and
//! `drivers/net/ethernet/mellanox/mlx5/core/en_common.c`, `mlx5e_refresh_tirs`; DPDK `drivers/net/mlx5/mlx5_devx.c`,
//! `mlx5_devx_tir_attr_set` (`lpbk_mode`); of the own address Linux `drivers/net/ethernet/mellanox/mlx5/core/en_selftest.c`,
//! `mlx5e_test_get_udp_skb`, whose frame is from no address; of groups that no context lists rdma-core `tests/test_flow.py`, which sends to one.

use std::collections::VecDeque;

use super::{Origin, Port, Way};
use crate::spare::Spare;

/// Most frames that wait to be received; the sender waits while there are so many.
const WAITING_MAX: usize = 256;

/// Which frames come back, and those on their way.
#[derive(Debug)]
pub(crate) struct Loopback {
    /// `disable_uc_local_lb` is off, as it is from the first: Linux turns it on when it starts.
    pub(crate) unicast: bool,
    /// `disable_mc_local_lb`, likewise.
    pub(crate) multicast: bool,
    /// Frames, with the transport domain of their senders.
    waiting: VecDeque<(Vec<u8>, u32)>,
    spare: Spare,
    /// Frames that came back.
    pub(crate) counted: Way,
}

impl Default for Loopback {
    fn default() -> Self {
        Self {
            unicast: true,
            multicast: true,
            waiting: VecDeque::new(),
            spare: Spare::default(),
            counted: Way::default(),
        }
    }
}

impl Loopback {
    pub(crate) fn is_pending(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next frame, and the transport domain that it is from.
    pub(crate) fn take(&mut self) -> Option<(Vec<u8>, u32)> {
        let (frame, domain) = self.waiting.pop_front()?;
        self.counted.add(&frame, frame.len());
        Some((frame, domain))
    }

    /// Room that a frame needs no more.
    pub(crate) fn give_back(&mut self, room: Vec<u8>) {
        self.spare.give_back(room);
    }

    fn push(&mut self, frame: &[u8], domain: u32) {
        self.waiting.push_back((self.spare.copy(frame), domain));
    }
}

/// Whether a frame is to a group.
pub(crate) fn is_group(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 1 == 1)
}

impl Port {
    /// Sends a frame of an Ethernet queue of this transport domain: as [`send`](Self::send), and to the function itself.
    #[inline]
    pub(crate) fn send_from(&mut self, frame: &[u8], origin: Origin, domain: u32) -> bool {
        if !self.comes_back(frame) {
            return self.send(frame, origin);
        }
        if self.loopback.waiting.len() >= WAITING_MAX {
            return false;
        }
        // What goes nowhere while software holds the link down does not come back either.
        let goes_out = is_group(frame) || self.is_held_down();
        if goes_out && !self.send(frame, origin) {
            return false;
        }
        if !self.is_held_down() {
            self.loopback.push(frame, domain);
        }
        true
    }

    #[inline]
    fn comes_back(&self, frame: &[u8]) -> bool {
        let Some((destination, rest)) = frame.split_first_chunk::<6>() else { return false };
        if is_group(frame) {
            return self.loopback.multicast && self.lets_in(destination);
        }
        self.loopback.unicast && (rest.first_chunk::<6>() == Some(destination) || *destination == self.mac)
    }
}
