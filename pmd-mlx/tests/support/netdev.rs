//! The interface that a kernel would have beside a model's port. `bringup`, which may depend on this crate and not the other
//! way round, has the one for programs.

use std::io;
use std::sync::Arc;

use pollux_mlx5_kernel::Kernel;
use pollux_mlx5_model::{Device, Model, Traffic};
use pollux_pmd_mlx::Netdev;
use pollux_pmd_mlx::netdev::{Losses, Lost};
use pollux_port::{Link, MacAddr};

#[derive(Debug)]
pub(crate) struct ModelNetdev {
    pub(crate) device: Arc<Device>,
    pub(crate) kernel: Arc<Kernel>,
    /// It filters addresses as an embedded switch does, and lets in more when it is told.
    pub(crate) virtual_function: bool,
    /// What steps the device lives as long as the port, where nobody else holds it.
    pub(crate) _model: Option<Arc<Model>>,
}

impl Netdev for ModelNetdev {
    fn name(&self) -> String {
        self.device.name().to_owned()
    }

    fn mac(&self) -> io::Result<MacAddr> {
        Ok(self.device.mac().into())
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.device.set_mac(mac.0);
        Ok(())
    }

    fn mtu(&self) -> io::Result<u32> {
        Ok(self.device.mtu().into())
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let fits = u16::try_from(mtu).is_ok_and(|mtu| self.device.set_mtu(mtu));
        if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn mtu_limits(&self) -> Option<(u32, u32)> {
        Some((68, pollux_mlx5_model::MTU_MAX.into()))
    }

    fn link(&self) -> io::Result<Link> {
        Ok(Link::fixed(self.device.link_is_up(), 100_000))
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.device.set_link(up);
        Ok(())
    }

    fn is_virtual_function(&self) -> bool {
        self.virtual_function
    }

    fn set_promiscuous(&self, on: bool) -> io::Result<()> {
        self.device.set_promiscuous(on);
        Ok(())
    }

    fn set_all_multicast(&self, on: bool) -> io::Result<()> {
        self.device.set_all_multicast(on);
        Ok(())
    }

    fn set_further_mac(&self, mac: MacAddr, wanted: bool) -> io::Result<bool> {
        Ok(self.device.set_further_mac(mac.0, wanted))
    }

    fn losses(&self) -> Losses {
        let counters = self.device.port_counters();
        let lost = |traffic: Traffic| Lost { packets: traffic.packets, bytes: traffic.bytes };
        Losses {
            rx_too_long: counters.too_long,
            tx_link_down: lost(counters.down),
            tx_refused: lost(counters.refused),
        }
    }

    fn out_of_buffer(&self) -> Option<u64> {
        self.kernel.out_of_buffer().ok().map(u64::from)
    }
}
