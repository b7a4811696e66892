//! The adapter itself, below all that is made on it: its commands, its memory, what it can do, who is told of its events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};

use pollux_uverbs::Errno;
use pollux_uverbs::event::AsyncKind;

use crate::capability::Caps;
use crate::device::DmaMemory;
use crate::event::Events;
use crate::firmware::{Failure, Firmware};

/// A device whose firmware runs.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) firmware: Firmware,
    pub(crate) memory: Arc<dyn DmaMemory>,
    pub(crate) caps: Caps,
    pub(crate) events: Arc<Events>,
    /// Whether queue pair 1 is somebody's.
    pub(crate) management: AtomicBool,
    /// Variable bits of the next memory key.
    pub(crate) key_variant: AtomicU8,
}

impl Adapter {
    /// Executes a command; a device that does not answer is dead from here on.
    pub(crate) fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        self.try_execute(input, output).map_err(Errno::from)
    }

    /// The same, with the firmware's own words.
    pub(crate) fn try_execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
        let result = self.firmware.execute(input, output);
        if matches!(result, Err(Failure::Gone)) {
            self.fail();
        }
        result
    }

    /// The device is dead: everybody is told, once.
    pub(crate) fn fail(&self) {
        if self.firmware.set_gone() {
            self.events.tell_everybody(AsyncKind::DEVICE_FATAL, 0);
        }
    }
}
