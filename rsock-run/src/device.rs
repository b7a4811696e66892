//! The RDMA devices, and their connection manager.

use std::net::IpAddr;
use std::path::Path;

use pollux_bringup::RdmaDevice;
use pollux_cm::{CmError, EventChannel, ManagementPort, Manager};
use pollux_eal::memory::Memory;
use pollux_verbs::{Context, Options, VerbsError};

/// See the module.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) manager: Manager,
    /// Of models; the kernel's are found by its connection manager.
    models: Vec<Context>,
    /// By which the manager works while nothing else asks it.
    channel: EventChannel,
}

impl Devices {
    /// Those of the command line, which are models; else the kernel's.
    ///
    /// # Errors
    /// One line: devices of both kinds, or no connection manager.
    pub(crate) fn open(devices: &[RdmaDevice], memory: &Memory) -> Result<Self, String> {
        let models = devices.iter().filter(|device| device.wire().is_some()).count();
        if models < devices.len() && models > 0 {
            return Err("a device model and a device of the kernel: name devices of one kind".into());
        }
        let open = || -> Result<Self, CmError> {
            if models == 0 {
                let options = Options { memory: memory.clone(), ..Options::default() };
                let manager = Manager::kernel(Path::new("/"), options)?;
                return Ok(Self { channel: manager.channel()?, manager, models: Vec::new() });
            }
            let ports = devices.iter().map(|device| ManagementPort::open(&device.context, 1));
            let manager = Manager::over(ports.collect::<Result<_, VerbsError>>()?);
            let models = devices.iter().map(|device| device.context.clone()).collect();
            Ok(Self { channel: manager.channel()?, manager, models })
        };
        open().map_err(|error| error.to_string())
    }

    /// Whether the kernel has these devices, and their addresses.
    pub(crate) fn are_kernels(&self) -> bool {
        self.models.is_empty()
    }

    /// Lets the connection manager do what is due.
    pub(crate) fn work(&self) {
        // The channel has no IDs, so that nothing comes by it.
        self.channel.next().ok();
    }

    /// Whether a model has the address, which the kernel does not have: at its first port, the connection manager's.
    pub(crate) fn own(&self, ip: IpAddr) -> bool {
        let gid = pollux_verbs::roce_gid(ip);
        self.models.iter().any(|context| {
            context.gids().is_ok_and(|gids| gids.iter().any(|own| own.port == 1 && own.gid == gid))
        })
    }
}
