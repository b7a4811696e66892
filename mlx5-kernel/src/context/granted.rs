//! What a context is on the device.

use crate::core::Core;
use crate::loopback::User;
use crate::pieces::Pieces;
use crate::start;
use crate::uar::map::Maps;
use crate::uar::register::StaticRegisters;

/// A context.
#[derive(Debug)]
pub(crate) struct Granted {
    /// The user context of the firmware; 0 without DevX.
    pub(crate) uid: u16,
    /// Its transport domain.
    pub(crate) domain: u32,
    pub(super) has_domain: bool,
    pub(crate) cqe_version: u8,
    /// BlueFlame registers of the static kind; none where UARs are allocated one by one.
    pub(crate) registers: Option<StaticRegisters>,
    pub(crate) maps: Maps,
    pub(super) pieces: Pieces,
}

impl Granted {
    /// Ends the context on the device; its objects are gone.
    pub(crate) fn end(mut self, core: &Core) {
        self.pieces.abandon(core);
        if self.has_domain {
            core.loopback.leave(core, User::Context);
        }
        if let Some(registers) = &self.registers {
            registers.end(core, self.uid);
        }
        if self.uid != 0 {
            start::destroy_user_context(&core.firmware, self.uid);
        }
    }
}
