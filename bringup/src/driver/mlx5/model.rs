//! A model as a port needs it: made from its keys, with the interface that a real function has.

use std::io;
use std::sync::Arc;

use pollux_mlx5_kernel::{DoorProfile, Kernel};
use pollux_mlx5_model::{Device, Model, ModelError, Traffic};
use pollux_pmd_mlx::netdev::{Losses, Lost, Netdev};
use pollux_port::{Link, MacAddress};

use super::keys::ModelKeys;

/// What IPv4 asks of a link at least (RFC 791).
const MTU_MIN: u32 = 68;

/// Makes the model.
pub(super) fn make(name: &str, keys: ModelKeys) -> Result<Arc<Model>, ModelError> {
    let mut builder = Model::builder(name)
        .profile(keys.profile)
        .traits(|card| *card = keys.card)
        // There is no kernel whose connection manager queue pair 1 is.
        .door(DoorProfile { management: true, ..keys.door })
        .wire(keys.wire)
        .impairments(keys.impairments)
        .faults(keys.faults)
        .pause(keys.pause)
        .process_memlock(keys.process_memlock);
    if let Some(mac) = keys.mac {
        builder = builder.mac(mac);
    }
    if let Some(wire) = keys.second_wire {
        builder = builder.second_wire(wire);
    }
    for address in keys.addresses {
        builder = builder.ip(address);
    }
    if let Some(core) = keys.core {
        builder = builder.core(core);
    }
    builder.build().map(Arc::new)
}

/// The interface that a kernel would have beside a model's port.
#[derive(Debug)]
pub struct ModelNetdev {
    device: Arc<Device>,
    kernel: Arc<Kernel>,
    speed_mbps: u32,
    virtual_function: bool,
    #[expect(dead_code, reason = "the model lives as long as its interface")]
    model: Option<Arc<Model>>,
}

impl ModelNetdev {
    /// Of that model, which lives as long as it does.
    #[must_use]
    pub fn new(model: &Arc<Model>) -> Self {
        let speed_mbps = model.profile().speed_mbps();
        let (device, kernel) = (Arc::clone(model.device()), Arc::clone(model.kernel()));
        Self { device, kernel, speed_mbps, virtual_function: false, model: Some(Arc::clone(model)) }
    }

    /// Of a virtual function, in front of which an embedded switch filters addresses: of a device that somebody else steps.
    #[must_use]
    pub fn of_virtual_function(device: &Arc<Device>, kernel: &Arc<Kernel>) -> Self {
        let (device, kernel) = (Arc::clone(device), Arc::clone(kernel));
        Self { device, kernel, speed_mbps: 100_000, virtual_function: true, model: None }
    }
}

impl Netdev for ModelNetdev {
    fn name(&self) -> String {
        self.device.name().to_owned()
    }

    fn mac(&self) -> io::Result<MacAddress> {
        Ok(self.device.mac().into())
    }

    fn set_mac(&self, mac: MacAddress) -> io::Result<()> {
        self.device.set_mac(mac.0);
        Ok(())
    }

    fn mtu(&self) -> io::Result<u32> {
        Ok(self.device.mtu().into())
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let fits = u16::try_from(mtu).is_ok_and(|mtu| u32::from(mtu) >= MTU_MIN && self.device.set_mtu(mtu));
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
        Ok(Link::fixed(self.device.link_is_up(), self.speed_mbps))
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

    fn set_further_mac(&self, mac: MacAddress, wanted: bool) -> io::Result<bool> {
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

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.device.set_link(up);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pollux_eal::memory::Memory;
    use pollux_mempool::{Burst, MbufPool};
    use pollux_pmd_mlx::devargs::Arguments;
    use pollux_pmd_mlx::eth::port::{Mlx5Port, Mlx5Spec};
    use pollux_port::{Port, PortConfig, PortId};

    use super::*;

    /// Opens a port as a program does, receives something, and tells the ways of receiving and sending.
    fn ways(text: &str) -> Result<(&'static str, &'static str), String> {
        let device = format!("mlx5_model0,{text}").parse().expect("a device");
        let (keys, rest) = ModelKeys::take(&device).expect(text);
        let arguments = Arguments::parse(&rest).expect(text);
        let model = make("mlx5_model0", keys).expect("a model");
        let netdev = Arc::new(ModelNetdev::new(&model));
        let spec = Mlx5Spec { arguments, ..Mlx5Spec::new(model.open(), netdev, Memory::ordinary()) };
        let told = |error: pollux_port::PortError| {
            let source = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
            format!("{error}: {source}")
        };
        let driver = Mlx5Port::open(spec).map_err(told)?;
        let mut port = Port::new(PortId(0), "mlx5_model0", Box::new(driver));
        let pool = MbufPool::builder("ways", 2047).build_anonymous().expect("a pool");
        let mut queues = port.bring_up(PortConfig::queues(1, 1, &pool)).map_err(told)?;
        let (mut burst, end) = (Burst::new(), std::time::Instant::now() + std::time::Duration::from_secs(10));
        while queues.rx[0].rx_burst(&mut burst, 32) == 0 {
            assert!(std::time::Instant::now() < end, "{text}: nothing comes");
            std::thread::yield_now();
        }
        assert!(queues.tx[0].tx_burst(&mut burst) > 0, "{text}");
        Ok((queues.rx[0].burst_mode(), queues.tx[0].burst_mode()))
    }

    #[test]
    fn what_is_taken_from_a_card_its_driver_does_without() {
        let (_, usual) = ways("device=cx6dx").expect("works");
        assert!(usual.starts_with("empw"), "{usual}");
        for text in ["has_empw=0", "inline_l2=1", "device=cx4lx", "device=cx4lx,has_empw=1"] {
            let (_, sends) = ways(text).expect(text);
            assert!(sends.starts_with("plain"), "{text}: {sends}");
        }
        let striding = "mprq_en=1,rxqs_min_mprq=1";
        assert_eq!(ways(striding).expect("works").0, "striding");
        assert_ne!(ways(&format!("has_mprq=0,{striding}")).expect("works").0, "striding");
        for text in [
            "has_devx=0",
            "has_bf=0",
            "has_dyn_uar=0",
            "has_uar_4k=0",
            "has_cqe_comp=0",
            "has_stride_idx=0,mprq_en=1,rxqs_min_mprq=1",
            "has_vlan_insert=0",
            "kernel=5.4,has_devx=0,has_bf=0",
            "cqe_size=128",
        ] {
            ways(text).expect(text);
        }
        ways("cqe_version=0").expect("queues of the firmware");
        // mlx5_ib makes no raw queue pairs on such a card.
        let refused = ways("cqe_version=0,dv_flow_en=0").expect_err("queues of the kernel");
        assert!(refused.contains("create an RSS queue: QP/CREATE: EINVAL"), "{refused}");
    }
}
