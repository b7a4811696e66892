//! Work that comes upon pages that are not there, and goes on when the host brought them.
//!
//! A sender stands still. A receiver says nothing, as if the packet were lost, and asks for it again afterwards; what it
//! fetched itself it asks for again when it is late. Source: Linux `drivers/infiniband/hw/mlx5/odp.c`,
//! `mlx5_ib_mr_memory_pfault_handler`, for what is asked and answered; InfiniBand Architecture Specification, volume 1, 9.7.5
//! for packets that are lost.

use super::Around;
use super::state::Service;
use crate::memory_keys::absent::Absent;

/// What a queue pair waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paging {
    /// What it has to send is not all there.
    pub(super) sender_waits: bool,
    /// Where a packet was to go was not all there.
    pub(super) receiver_waits: bool,
    /// The next entry was begun, and waits for what it needs by itself.
    pub(super) begun: bool,
    /// What the host will not bring, until work comes upon it: no more than questions that the pair asked.
    refused: Vec<Absent>,
}

impl Paging {
    /// An access of queue pair `number` failed; true when it came upon a page that is not there and the host was asked for it.
    pub(super) fn asks(&mut self, around: &mut Around<'_, '_>, service: Service, number: u32) -> bool {
        let Some(absent) = around.keys.absent.take_found() else { return false };
        // No capability says that such pages may be used over dynamic connections.
        if service.is_dynamic() {
            return false;
        }
        if let Some(at) = self.refused.iter().position(|refused| *refused == absent) {
            self.refused.swap_remove(at);
            return false;
        }
        around.keys.absent.ask(around.bus, around.events, absent, number)
    }

    /// The host answered: work goes on. True when a receiver waited.
    pub(super) fn answered(&mut self, absent: Absent, refused: bool) -> bool {
        self.refused.retain(|known| *known != absent);
        if refused {
            self.refused.push(absent);
        }
        self.sender_waits = false;
        std::mem::take(&mut self.receiver_waits)
    }
}
