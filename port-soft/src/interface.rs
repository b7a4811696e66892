//! What ports on Linux interfaces share: how long a frame may be, and what the kernel tells of a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pollux_frame_io::interface::Interface;
use pollux_port::{Duplex, Link};

/// The interface's MTU as the queues know it.
#[derive(Clone, Debug)]
pub(crate) struct Mtu(Arc<AtomicU32>);

impl Mtu {
    pub(crate) fn new(mtu: u32) -> Self {
        Self(Arc::new(AtomicU32::new(mtu)))
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, mtu: u32) {
        self.0.store(mtu, Ordering::Relaxed);
    }
}

/// Ethernet header and one tag: what a frame may have beside the MTU's payload (`is_skb_forwardable`, net/core/dev.c).
pub(crate) const BESIDE_MTU: u32 = 14 + 4;
/// How often a frame that the interface does not take makes us ask for its state again.
pub(crate) const AGE: Duration = Duration::from_millis(100);

/// Which frames a queue may send: those that the MTU allows.
#[derive(Debug)]
pub(crate) struct Longest {
    mtu: Mtu,
    asked: Option<Instant>,
    interface: Interface,
}

impl Longest {
    pub(crate) fn new(mtu: Mtu, interface: Interface) -> Self {
        Self { mtu, asked: None, interface }
    }

    #[inline]
    pub(crate) fn fits(&mut self, bytes: u32) -> bool {
        bytes <= self.mtu.get() + BESIDE_MTU || self.fits_after_all(bytes)
    }

    /// The MTU may have been raised behind our back.
    #[cold]
    fn fits_after_all(&mut self, bytes: u32) -> bool {
        if self.asked.is_none_or(|then| then.elapsed() > AGE) {
            self.asked = Some(Instant::now());
            if let Ok(state) = self.interface.state() {
                self.mtu.set(state.mtu);
            }
        }
        bytes <= self.mtu.get() + BESIDE_MTU
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }
}

/// What the kernel tells of an interface's link. Few drivers of interfaces in software tell more than that it is up.
pub(crate) fn link_of(interface: &Interface, up: bool) -> Link {
    let settings = interface.link_settings().ok();
    let half = settings.is_some_and(|settings| settings.half_duplex);
    Link {
        up,
        speed_mbps: settings.and_then(|settings| settings.speed_mbps),
        duplex: if half { Duplex::Half } else { Duplex::Full },
        autoneg: settings.is_some_and(|settings| settings.autoneg),
        // ETHTOOL_GLINKSETTINGS has no place for them.
        lanes: None,
    }
}
