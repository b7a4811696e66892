//! Enhanced connection establishment of a queue pair: what its two ends agreed on, as the firmware keeps it.
//!
//! Source: Linux `include/linux/mlx5/mlx5_ifc.h` (`ece` of the commands) and the commit "net/mlx5: Add ability to read and write
//! ECE options": CREATE_QP answers what is usual, changes what is in force; of queue pairs without a connection, options other
//! than those set before are refused. That those of a queue pair that sends are refused too is this model's own rule: what it
//! does with packets under way depends on them.

use pollux_mlx5_abi::command::ece::{BEGIN, SELECTIVE_REPEAT, VERSION_MAX, agree, version};

use super::state::{Service, State};

/// The options of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ece {
    /// What the device has for its service; 0: it has none of all this.
    has: u32,
    /// What its other end was said to have.
    asked: Option<u32>,
    /// In force.
    agreed: u32,
    /// Whether the device repeats selectively where nothing was agreed.
    selective: bool,
}

/// Options other than those that hold already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled;

impl Ece {
    /// Of a device that has the options, or not, and repeats selectively, or not. `options`: of CREATE_QP.
    pub(crate) fn new(is_there: bool, selective: bool, service: Service, options: u32) -> Self {
        if !is_there || service == Service::Keys {
            return Self { selective, ..Self::default() };
        }
        let repeat = if selective && service.is_reliable() { SELECTIVE_REPEAT } else { 0 };
        let has = VERSION_MAX << BEGIN.trailing_zeros() | repeat;
        match version(options) {
            0 => Self { has, asked: None, agreed: 0, selective },
            1 => Self { has, asked: None, agreed: has, selective },
            _ => Self { has, asked: Some(options), agreed: agree(has, options), selective },
        }
    }

    /// What is in force.
    pub(crate) fn agreed(&self) -> u32 {
        self.agreed
    }

    /// What a change asks for; 0 asks for nothing.
    pub(crate) fn ask(&mut self, options: u32, service: Service, from: State) -> Result<(), Settled> {
        if options == 0 || self.has == 0 {
            return Ok(());
        }
        let settled = !service.is_connected() || from == State::Send;
        if settled && self.asked.is_some_and(|before| before != options) {
            return Err(Settled);
        }
        (self.asked, self.agreed) = (Some(options), agree(self.has, options));
        Ok(())
    }

    /// Back in RESET, another peer may follow.
    pub(crate) fn reset(&mut self) {
        (self.asked, self.agreed) = (None, self.has);
    }

    /// Whether it repeats selectively: as agreed, or, where nothing was, as the device does.
    pub(crate) fn is_selective(&self) -> bool {
        if self.asked.is_some() { self.agreed & SELECTIVE_REPEAT != 0 } else { self.selective }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_begins_with_what_its_device_has() {
        let new = |selective, service, options| Ece::new(true, selective, service, options).agreed();
        assert_eq!(new(true, Service::Reliable, BEGIN), 0x3000_0001);
        assert_eq!(new(false, Service::Reliable, BEGIN), 0x3000_0000);
        assert_eq!(new(true, Service::Datagram, BEGIN), 0x3000_0000);
        assert_eq!(new(true, Service::Reliable, 0x2000_0001), 0x2000_0001);
        assert_eq!(new(true, Service::Reliable, 0), 0, "nobody asked");
        assert_eq!(Ece::new(false, true, Service::Reliable, BEGIN).agreed(), 0, "not there");
    }

    #[test]
    fn what_the_other_end_lacks_is_given_up() {
        let mut ece = Ece::new(true, true, Service::Reliable, BEGIN);
        assert!(ece.is_selective(), "as the device, until it is agreed on");
        assert_eq!(ece.ask(0, Service::Reliable, State::Init), Ok(()));
        assert!(ece.is_selective() && ece.agreed() == 0x3000_0001, "0 asks for nothing");
        assert_eq!(ece.ask(0x3000_0000, Service::Reliable, State::Init), Ok(()));
        assert!(!ece.is_selective() && ece.agreed() == 0x3000_0000);
        assert_eq!(ece.ask(0x3000_000f, Service::Reliable, State::Receive), Ok(()));
        assert!(ece.is_selective() && ece.agreed() == 0x3000_0001);
        ece.reset();
        assert_eq!(ece.agreed(), 0x3000_0001);
    }

    #[test]
    fn what_holds_is_not_asked_for_otherwise() {
        let mut one = Ece::new(true, true, Service::Datagram, BEGIN);
        assert_eq!(one.ask(0x3000_0001, Service::Datagram, State::Init), Ok(()), "the first time");
        assert_eq!(one.ask(0x3000_0001, Service::Datagram, State::Receive), Ok(()), "the same");
        assert_eq!(one.ask(0x2000_0001, Service::Datagram, State::Receive), Err(Settled));
        let mut two = Ece::new(true, true, Service::Reliable, BEGIN);
        assert_eq!(two.ask(0x3000_0001, Service::Reliable, State::Send), Ok(()), "the first time");
        assert_eq!(two.ask(0x3000_0000, Service::Reliable, State::Send), Err(Settled));
        assert!(two.is_selective(), "as before");
    }
}
