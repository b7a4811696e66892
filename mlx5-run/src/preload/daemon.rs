//! The devices of a process that runs no program: it has them for programs that are attached to it.

use std::os::fd::OwnedFd;

use super::{opened, planned, service};
use crate::plan::Plan;

/// Devices for other processes, made and not answered yet.
#[derive(Debug)]
pub struct Daemon(());

impl Daemon {
    /// Makes the devices. One for a process.
    ///
    /// # Errors
    /// A line that says which device cannot be made, and why.
    pub fn new(plan: Plan) -> Result<Self, String> {
        let plan = planned::serve(plan).ok_or("this process serves devices already")?;
        let daemon = Self(());
        (0..plan.devices.len()).try_for_each(|number| opened::built(plan, number).map(drop))?;
        Ok(daemon)
    }

    /// Answers whoever connects to a listener of packets that does not wait, until that is shut down.
    pub fn answer(&self, listener: OwnedFd) {
        service::listen(listener);
    }
}

impl Drop for Daemon {
    /// Ends the devices, and tells what they saw.
    fn drop(&mut self) {
        opened::end_all();
    }
}
