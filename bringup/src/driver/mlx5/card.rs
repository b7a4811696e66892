//! A card as such: what opens contexts of it, and its interface. For programs that look at the device, and not through a port.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pollux_config::DeviceArg;
use pollux_mlx5_model::Model;
use pollux_pmd_mlx::netdev::{KernelNetdev, Netdev};
use pollux_port::PortError;
use pollux_uverbs::Channel;
use pollux_uverbs::discovery::Device;
use pollux_verbs::{Context, Options, Provider};

use super::keys::ModelKeys;
use super::{ModelNetdev, model, real};
use crate::driver::MODEL;
use crate::error::BringupError;

/// A ConnectX of this machine, or a model of one. Contexts and ports are opened of it; none is yet.
pub struct Mlx5Card {
    name: String,
    behind: Behind,
    netdev: Arc<dyn Netdev>,
}

enum Behind {
    Kernel(Box<Device>),
    Model(Arc<Model>),
}

impl fmt::Debug for Mlx5Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mlx5Card").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Mlx5Card {
    /// The card that a device argument names: `mlx5_0`, a PCI address or an interface for one of this machine, `mlx5_model0,device=cx5`
    /// for a model, which is made here. The driver's own keys are not taken.
    ///
    /// # Errors
    /// No such device, one of another driver, or a model that cannot be made.
    pub fn find(device: &DeviceArg) -> Result<Self, BringupError> {
        if device.name.starts_with(MODEL) {
            let (keys, rest) = ModelKeys::take(device)?;
            keys.check_core(device)?;
            rest.keys().finish()?;
            let made = model::make(&device.name, keys);
            return Ok(Self::of_model(&made.map_err(|error| PortError::device("create the model", error))?));
        }
        device.keys().finish()?;
        let found = real::device(Path::new("/"), &device.name)?;
        let netdev =
            KernelNetdev::of(&found).map_err(|error| PortError::device("find the interface", error))?;
        Ok(Self {
            name: found.ibdev.clone(),
            behind: Behind::Kernel(Box::new(found)),
            netdev: Arc::new(netdev),
        })
    }

    /// A model that somebody else made.
    #[must_use]
    pub fn of_model(model: &Arc<Model>) -> Self {
        let netdev = Arc::new(ModelNetdev::new(model));
        Self { name: model.name().to_owned(), behind: Behind::Model(Arc::clone(model)), netdev }
    }

    /// Whether the device argument names a model.
    #[must_use]
    pub fn is_model(device: &DeviceArg) -> bool {
        device.name.starts_with(MODEL)
    }

    /// Its name: of a card of the machine the RDMA device's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel tells of it; none of a model.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        match &self.behind {
            Behind::Kernel(device) => Some(device),
            Behind::Model(_) => None,
        }
    }

    /// The model, where it is one.
    #[must_use]
    pub fn model(&self) -> Option<&Arc<Model>> {
        match &self.behind {
            Behind::Kernel(_) => None,
            Behind::Model(model) => Some(model),
        }
    }

    /// The interface through which the kernel uses the same function.
    #[must_use]
    pub fn netdev(&self) -> &Arc<dyn Netdev> {
        &self.netdev
    }

    /// PCI device number; the vendor is 15b3.
    #[must_use]
    pub fn pci_device(&self) -> Option<u16> {
        match &self.behind {
            Behind::Kernel(device) => device.pci_id.map(|(_, device)| device),
            Behind::Model(model) => Some(model.profile().pci_device()),
        }
    }

    /// Opens its file once more: whatever is made through it goes with it.
    ///
    /// # Errors
    /// The file cannot be opened; the error says what mends it.
    pub fn channel(&self) -> Result<Arc<dyn Channel>, BringupError> {
        match &self.behind {
            Behind::Kernel(device) => {
                let opened = device.open().map_err(|error| PortError::device("open the device", error))?;
                Ok(opened)
            }
            Behind::Model(model) => Ok(model.open()),
        }
    }

    /// An RDMA context over such a [channel](Self::channel), or over one around it.
    ///
    /// # Errors
    /// What the device says.
    pub fn context(&self, channel: Arc<dyn Channel>, options: Options) -> Result<Context, BringupError> {
        Ok(match &self.behind {
            Behind::Kernel(device) => Context::open_device_over(device, channel, options)?,
            Behind::Model(_) => Context::open(channel, Provider::Mlx5, options)?,
        })
    }
}
