//! Two functions of a card of which one does RDMA on both ports.
//!
//! ```text
//!   first ── its RDMA ──┬── its port ──────────── wire
//!                       └── Joint ── second ── its port ── second wire
//! ```
//!
//! The first says that it has two ports (`num_vhca_ports`), each function which of them is its own (`native_port_num`). Once software has
//! affiliated the second with the first, packets of the first's second port go out where the second's frames do, and RoCE to that port's
//! addresses is handed to the first; all else of the port stays the second's. Source: Linux `include/linux/mlx5/driver.h`,
//! `mlx5_core_is_mp_master`, `mlx5_core_is_mp_slave`; `drivers/net/ethernet/mellanox/mlx5/core/vport.c`,
//! `mlx5_nic_vport_affiliate_multiport`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_mlx5_abi::caps::general::GeneralCaps;

use crate::rdma::path::{Addresses, SECOND_PORT};
use crate::spare::Spare;

/// Frames that wait on either way at most.
const WAITING_MAX: usize = 1024;

/// What stands for an affiliation by the number of a function: `affiliate_nic_vport_criteria`.
pub(crate) const BY_FUNCTION: u32 = 1;

/// Which of the two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    First,
    Second,
}

/// What both functions have of each other.
#[derive(Debug, Default)]
struct Lane {
    /// The second function is affiliated with the first.
    is_affiliated: bool,
    /// The number that software gave the first function; 0 for none.
    software_id: u32,
    /// Addresses of the second port.
    addresses: Addresses,
    to_wire: VecDeque<Vec<u8>>,
    from_wire: VecDeque<Vec<u8>>,
    spare: Spare,
}

impl Lane {
    /// A frame for the first function. Where too many wait it is lost, as on a wire.
    fn hand_over(&mut self, frame: &[u8]) {
        if self.from_wire.len() < WAITING_MAX {
            let copy = self.spare.copy(frame);
            self.from_wire.push_back(copy);
        }
    }

    fn lose_all(&mut self) {
        self.to_wire.clear();
        self.from_wire.clear();
    }
}

/// One function's end of the joint.
#[derive(Clone, Debug)]
pub struct Joint {
    lane: Arc<Mutex<Lane>>,
    pub(crate) side: Side,
    /// Address that the card's GUID is made of.
    pub(crate) card: [u8; 6],
}

impl Joint {
    /// The ends for the first function, whose port's address this is, and for the second.
    #[must_use]
    pub fn pair(card: [u8; 6]) -> (Self, Self) {
        let first = Self { lane: Arc::default(), side: Side::First, card };
        let second = Self { side: Side::Second, ..first.clone() };
        (first, second)
    }

    fn lane(&self) -> MutexGuard<'_, Lane> {
        // Nothing is half done there.
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function's number on its card.
    pub(crate) fn vhca_id(&self) -> u32 {
        match self.side {
            Side::First => FIRST_ID,
            Side::Second => FIRST_ID + 1,
        }
    }

    /// What the capabilities say of it.
    pub(crate) fn tell(&self, caps: &mut [u8; GeneralCaps::BYTES]) {
        let (ports, own) = match self.side {
            Side::First => (2, 1),
            Side::Second => (1, SECOND_PORT),
        };
        GeneralCaps::VHCA_ID.set(caps, self.vhca_id());
        GeneralCaps::NUM_VHCA_PORTS.set(caps, ports);
        GeneralCaps::NATIVE_PORT_NUM.set(caps, own);
        GeneralCaps::AFFILIATE_NIC_VPORT_CRITERIA.set(caps, BY_FUNCTION);
    }

    pub(crate) fn is_affiliated(&self) -> bool {
        self.lane().is_affiliated
    }

    /// Software gives the first function a number.
    pub(crate) fn set_software_id(&self, number: u32) {
        self.lane().software_id = number;
    }

    /// Whether the first function has this number of software's, or of its card's.
    pub(crate) fn is_first(&self, number: u32, by_software: bool) -> bool {
        let own = if by_software { self.lane().software_id } else { FIRST_ID };
        number != 0 && number == own
    }

    /// Begins or ends the affiliation; with its end what waits is lost.
    pub(crate) fn affiliate(&self, on: bool) {
        let mut lane = self.lane();
        lane.is_affiliated = on;
        if !on {
            lane.lose_all();
        }
    }

    /// The function forgets all that it was told; what waits is lost.
    pub(crate) fn reset(&self) {
        let mut lane = self.lane();
        match self.side {
            Side::First => (lane.software_id, lane.addresses) = (0, Addresses::default()),
            Side::Second => lane.is_affiliated = false,
        }
        lane.lose_all();
    }

    /// The function is gone: nothing goes either way any more.
    pub(crate) fn part(&self) {
        self.reset();
        self.affiliate(false);
    }

    /// Sets the addresses that RoCE is handed over for.
    pub(crate) fn set_addresses(&self, addresses: Addresses) {
        self.lane().addresses = addresses;
    }

    /// Hands a frame from the second port's wire to the first function.
    pub(crate) fn hand_over(&self, frame: &[u8]) {
        let mut lane = self.lane();
        if lane.is_affiliated {
            lane.hand_over(frame);
        }
    }

    /// The same, if the address is the first function's, and whether it is. As at its own port, the MAC is that of any of its addresses.
    pub(crate) fn hand_over_to(
        &self,
        frame: &[u8],
        destination: &[u8; 16],
        mac: &[u8; 6],
        vlan: Option<u16>,
    ) -> bool {
        let mut lane = self.lane();
        let addresses = &lane.addresses;
        let wanted = lane.is_affiliated && addresses.has(destination, vlan) && addresses.has_mac(mac);
        if wanted {
            lane.hand_over(frame);
        }
        wanted
    }

    /// The next frame that was handed over.
    pub(crate) fn take_received(&self) -> Option<Vec<u8>> {
        self.lane().from_wire.pop_front()
    }

    /// Whether a frame could be sent now.
    pub(crate) fn is_ready(&self) -> bool {
        self.lane().to_wire.len() < WAITING_MAX
    }

    /// Sends a frame out of the second port; without a second function there it is lost. `false`: not now.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        let mut lane = self.lane();
        let fits = lane.to_wire.len() < WAITING_MAX;
        if fits && lane.is_affiliated {
            let copy = lane.spare.copy(frame);
            lane.to_wire.push_back(copy);
        }
        fits
    }

    /// The next frame that is to go out of the second port.
    pub(crate) fn take_sent(&self) -> Option<Vec<u8>> {
        self.lane().to_wire.pop_front()
    }

    /// A frame's room, for the next one.
    pub(crate) fn give_back(&self, frame: Vec<u8>) {
        self.lane().spare.give_back(frame);
    }

    /// Whether frames wait on either way.
    pub(crate) fn is_pending(&self) -> bool {
        let lane = self.lane();
        !(lane.to_wire.is_empty() && lane.from_wire.is_empty())
    }
}

/// The number of a card's first function.
pub(crate) const FIRST_ID: u32 = 1;
