//! A device that is told of each store and barrier of a driver in its own process, on the thread that makes it.

use std::sync::{Arc, Weak};

use pollux_eal::mmio::trace::{self, Observation, Observer, Store};

use super::core::Fence;
use super::{Device, Visibility};

/// Holds the watch in place.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Watched {
    _observation: Observation,
    device: Weak<Device>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.set_visibility(Visibility::AtOnce);
        }
    }
}

struct Watcher<F> {
    device: Weak<Device>,
    then: F,
}

fn fence(fence: trace::Fence) -> Fence {
    match fence {
        trace::Fence::None => Fence::None,
        trace::Fence::ToDevice => Fence::ToDevice,
        trace::Fence::Flush => Fence::Flush,
    }
}

impl<F: Fn(&Device) + Send + Sync> Observer for Watcher<F> {
    fn register(&self, store: Store<'_>) {
        if let Some(device) = self.device.upgrade()
            && device.ordered_store(store.address, store.bytes, fence(store.fence))
        {
            (self.then)(&device);
        }
    }

    fn record(&self, store: Store<'_>) -> bool {
        self.device.upgrade().is_some_and(|device| device.ordered_record(store.address, fence(store.fence)))
    }

    fn flushed(&self) {
        if let Some(device) = self.device.upgrade() {
            device.flush();
            (self.then)(&device);
        }
    }

    fn sees_device(&self) {
        if let Some(device) = self.device.upgrade() {
            device.sees_device();
        }
    }
}

/// Tells `device` of all that drivers in this process do until the answer is dropped: stores to write-combining pages arrive when
/// they are flushed, stores to records are looked at as they are made, completions become visible by pieces. `then` is called as
/// stores to registers arrive, to step the device, as hardware would begin to act there.
///
/// # Panics
/// When the device is watched already.
pub fn watch(device: &Arc<Device>, then: impl Fn(&Device) + Send + Sync + 'static) -> Watched {
    watch_as(device, Visibility::ReadyWordFirst, then)
}

/// The same, with what the device writes visible as `visibility` says.
///
/// # Panics
/// As [`watch`].
pub fn watch_as(
    device: &Arc<Device>,
    visibility: Visibility,
    then: impl Fn(&Device) + Send + Sync + 'static,
) -> Watched {
    let weak = Arc::downgrade(device);
    let observation = trace::watch(device.registers(), Watcher { device: weak.clone(), then });
    device.set_visibility(visibility);
    Watched { _observation: observation, device: weak }
}
