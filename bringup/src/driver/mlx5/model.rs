//! A model as a port needs it: made from its keys, with the interface that a real function has.

use std::io;
use std::sync::Arc;

use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::{Model, ModelError};
use pollux_pmd_mlx::netdev::Netdev;
use pollux_port::{Link, MacAddr};

use super::keys::ModelKeys;

/// What IPv4 asks of a link at least (RFC 791).
const MTU_MIN: u32 = 68;

/// Makes the model.
pub(super) fn make(name: &str, keys: ModelKeys) -> Result<Arc<Model>, ModelError> {
    let door = if keys.old_kernel { DoorProfile::linux_5_4() } else { DoorProfile::default() };
    let mut builder = Model::builder(name)
        .profile(keys.profile)
        .door(door)
        .wire(keys.wire)
        .impairments(keys.impairments)
        .faults(keys.faults)
        .pause(keys.pause);
    if let Some(mac) = keys.mac {
        builder = builder.mac(mac);
    }
    if let Some(core) = keys.core {
        builder = builder.core(core);
    }
    builder.build().map(Arc::new)
}

/// The interface that a kernel would have beside a model's port. The model lives as long as it does.
#[derive(Debug)]
pub struct ModelNetdev(Arc<Model>);

impl ModelNetdev {
    /// Of that model.
    #[must_use]
    pub fn new(model: &Arc<Model>) -> Self {
        Self(Arc::clone(model))
    }
}

impl Netdev for ModelNetdev {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn mac(&self) -> io::Result<MacAddr> {
        Ok(self.0.device().mac().into())
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.0.device().set_mac(mac.0);
        Ok(())
    }

    fn mtu(&self) -> io::Result<u32> {
        Ok(self.0.device().mtu().into())
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let fits =
            u16::try_from(mtu).is_ok_and(|mtu| u32::from(mtu) >= MTU_MIN && self.0.device().set_mtu(mtu));
        if fits {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "out of the device's range"))
        }
    }

    fn mtu_limits(&self) -> Option<(u32, u32)> {
        Some((MTU_MIN, pollux_mlx5_model::MTU_MAX.into()))
    }

    fn link(&self) -> io::Result<Link> {
        Ok(Link::fixed(self.0.device().link_is_up(), self.0.profile().speed_mbps()))
    }

    fn out_of_buffer(&self) -> Option<u64> {
        self.0.kernel().out_of_buffer().ok().map(u64::from)
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.0.device().set_link(up);
        Ok(())
    }
}
