//! A port on the device model, for tests.

use std::io;
use std::sync::Arc;

use pollux_eal::memory::Memory;
use pollux_mlx5_model::Model;
use pollux_pmd_mlx::devargs::Arguments;
use pollux_pmd_mlx::eth::port::{Mlx5Port, PortSpec};
use pollux_pmd_mlx::netdev::Netdev;
use pollux_port::{Link, MacAddr};

/// The interface beside the model's port.
#[derive(Debug)]
pub(crate) struct ModelNetdev(pub(crate) Arc<Model>);

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
        let fits = u16::try_from(mtu).is_ok_and(|mtu| self.0.device().set_mtu(mtu));
        if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn mtu_limits(&self) -> Option<(u32, u32)> {
        Some((68, pollux_mlx5_model::MTU_MAX.into()))
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

/// A port on a model, whose address shift makes mistaken addresses lead nowhere.
pub(crate) fn port(model: &Arc<Model>, arguments: Arguments) -> Box<Mlx5Port> {
    let spec = PortSpec {
        arguments,
        address_shift_pages: 5,
        ..PortSpec::new(model.open(), Arc::new(ModelNetdev(Arc::clone(model))), Memory::ordinary())
    };
    Box::new(
        Mlx5Port::open(spec)
            .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error))),
    )
}
