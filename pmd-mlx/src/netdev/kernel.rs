//! The interface of a real function.

use std::io;
use std::path::{Path, PathBuf};

use pollux_frame_io::FrameError;
use pollux_frame_io::interface::Interface;
use pollux_port::{Duplex, Link, MacAddress};
use pollux_uverbs::discovery;

use super::{Losses, Netdev};

/// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_stats.c`, `pport_802_3_stats_desc`.
const TOO_LONG: &str = "rx_oversize_pkts_phy";

/// An interface of the calling process's network namespace.
#[derive(Debug)]
pub struct KernelNetdev {
    interface: Interface,
    /// Where sysfs describes the interface, and the RDMA device.
    sysfs: PathBuf,
    rdma: Option<PathBuf>,
}

/// Why a device has no interface that can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetdevError {
    /// It has none in this namespace.
    #[error(
        "{device} has no interface in this network namespace; move it here with `ip link set dev NAME netns`, or load mlx5_core's \
         Ethernet half"
    )]
    None {
        /// The device.
        device: String,
    },
    /// It has several.
    #[error(
        "{device} has several interfaces, {interfaces}; a port with representors or of several functions is not driven"
    )]
    Several {
        /// The device.
        device: String,
        /// Their names.
        interfaces: String,
    },
    /// It is bonded with another.
    #[error(
        "{device} is the bond {bond}, whose queues are spread over two functions; name one of them by its PCI address after \
         `ip link set dev {slave} nomaster`"
    )]
    Bonded {
        /// The device.
        device: String,
        /// The bond's interface.
        bond: String,
        /// One of those in it.
        slave: String,
    },
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] FrameError),
}

impl KernelNetdev {
    /// Looks it up by name.
    ///
    /// # Errors
    /// [`FrameError::NoInterface`], [`FrameError::Interface`] when it is not Ethernet.
    pub fn find(name: &str) -> Result<Self, FrameError> {
        Ok(Self {
            interface: Interface::find(name)?,
            sysfs: Path::new("/sys/class/net").join(name),
            rdma: None,
        })
    }

    /// The interface of an RDMA device.
    ///
    /// # Errors
    /// [`NetdevError`]: it has none, several, or is a bond.
    pub fn of(device: &discovery::Device) -> Result<Self, NetdevError> {
        let class = device.sysfs.parent().and_then(Path::parent).map(|class| class.join("net"));
        let class = class.unwrap_or_else(|| PathBuf::from("/sys/class/net"));
        let master = |name: &String| {
            let link = std::fs::read_link(class.join(name).join("master")).ok()?;
            Some((name.clone(), link.file_name()?.to_string_lossy().into_owned()))
        };
        let named = || device.ibdev.clone();
        if device.ibdev.contains("bond")
            && let Some((slave, bond)) = device.netdevs.iter().find_map(master)
        {
            return Err(NetdevError::Bonded { device: named(), bond, slave });
        }
        match device.netdevs.as_slice() {
            [] => Err(NetdevError::None { device: named() }),
            [name] => Ok(Self { rdma: Some(device.sysfs.clone()), ..Self::find(name)? }),
            several => Err(NetdevError::Several { device: named(), interfaces: several.join(", ") }),
        }
    }

    fn number(path: &Path) -> Option<u64> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Netdev for KernelNetdev {
    fn name(&self) -> String {
        self.interface.state().map_or_else(|_| self.interface.found_as().to_owned(), |state| state.name)
    }

    fn index(&self) -> Option<u32> {
        Some(self.interface.index())
    }

    fn mac(&self) -> io::Result<MacAddress> {
        Ok(self.interface.state()?.mac.into())
    }

    fn set_mac(&self, mac: MacAddress) -> io::Result<()> {
        self.interface.set_mac(mac.0)
    }

    fn mtu(&self) -> io::Result<u32> {
        Ok(self.interface.state()?.mtu)
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.interface.set_mtu(mtu)
    }

    fn link(&self) -> io::Result<Link> {
        let up = self.interface.state()?.running;
        let Ok(settings) = self.interface.link_settings() else { return Ok(Link { up, ..Link::default() }) };
        Ok(Link {
            up,
            speed_mbps: settings.speed_mbps,
            duplex: if settings.half_duplex { Duplex::Half } else { Duplex::Full },
            autoneg: settings.autoneg,
            ..Link::default()
        })
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.interface.set_up(up)
    }

    fn is_virtual_function(&self) -> bool {
        // A virtual function has a way to its physical one.
        self.sysfs.join("device/physfn").exists()
    }

    fn set_promiscuous(&self, on: bool) -> io::Result<()> {
        self.interface.set_promiscuous(on)
    }

    fn set_all_multicast(&self, on: bool) -> io::Result<()> {
        self.interface.set_all_multicast(on)
    }

    fn set_further_mac(&self, mac: MacAddress, wanted: bool) -> io::Result<bool> {
        self.interface.set_further_mac(mac.0, wanted)
    }

    fn counters(&self) -> io::Result<Vec<(String, u64)>> {
        self.interface.statistics()
    }

    fn losses(&self) -> Losses {
        // What a vport discards while it is down, the kernel tells of virtual functions alone, and to their physical one.
        let there = self.counters().unwrap_or_default();
        let long = there.iter().find(|(name, _)| name == TOO_LONG);
        Losses { rx_too_long: long.map_or(0, |(_, value)| *value), ..Losses::default() }
    }

    fn out_of_buffer(&self) -> Option<u64> {
        Self::number(&self.rdma.as_ref()?.join("ports/1/hw_counters/out_of_buffer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device as sysfs describes it under `root`.
    fn device(root: &Path, ibdev: &str, netdevs: &[&str]) -> discovery::Device {
        discovery::Device {
            uverbs: "uverbs0".into(),
            ibdev: ibdev.into(),
            file: root.join("dev/infiniband/uverbs0"),
            sysfs: root.join("sys/class/infiniband").join(ibdev),
            number: (231, 192),
            abi_version: 1,
            driver: Some("mlx5_core".into()),
            pci: Some("0000:03:00.0".into()),
            pci_id: None,
            netdevs: netdevs.iter().map(|name| (*name).to_owned()).collect(),
            numa_node: None,
            node_guid: None,
            firmware: None,
            ports: Vec::new(),
        }
    }

    #[test]
    fn a_device_without_one_interface_is_refused_by_name() {
        let root = std::env::temp_dir().join(format!("pollux-netdev-{}", std::process::id()));
        let net = root.join("sys/class/net");
        std::fs::create_dir_all(net.join("eth7")).expect("folder");
        std::os::unix::fs::symlink("../../net/bond3", net.join("eth7/master")).expect("link");
        let said = |ibdev: &str, netdevs: &[&str]| {
            KernelNetdev::of(&device(&root, ibdev, netdevs)).expect_err("refused").to_string()
        };
        let none = said("mlx5_0", &[]);
        assert!(none.starts_with("mlx5_0 has no interface in this network namespace"), "{none}");
        let several = said("mlx5_0", &["eth7", "eth8"]);
        assert!(several.starts_with("mlx5_0 has several interfaces, eth7, eth8"), "{several}");
        let bond = said("mlx5_bond_0", &["eth7", "eth8"]);
        assert!(bond.starts_with("mlx5_bond_0 is the bond bond3") && bond.contains("set dev eth7"), "{bond}");
        std::fs::remove_dir_all(&root).expect("folder");
    }

    #[test]
    fn what_found_no_buffer_is_read_beside_the_rdma_device() {
        let root = std::env::temp_dir().join(format!("pollux-missed-{}", std::process::id()));
        let device = device(&root, "mlx5_0", &["lo"]);
        let counters = device.sysfs.join("ports/1/hw_counters");
        std::fs::create_dir_all(&counters).expect("folder");
        let netdev = KernelNetdev::of(&device).expect("every namespace has one");
        assert_eq!(netdev.out_of_buffer(), None);
        std::fs::write(counters.join("out_of_buffer"), "7\n").expect("written");
        assert_eq!(netdev.out_of_buffer(), Some(7));
        std::fs::remove_dir_all(&root).expect("folder");
    }

    #[test]
    fn the_loopback_tells_what_it_is() {
        let netdev = KernelNetdev::find("lo").expect("every namespace has one");
        assert_eq!((netdev.name().as_str(), netdev.index().is_some()), ("lo", true));
        assert_eq!(netdev.mac().expect("state"), MacAddress([0; 6]));
        assert!(!netdev.is_virtual_function() && netdev.out_of_buffer().is_none());
        netdev.link().expect("state");
        KernelNetdev::find("no-such-interface").expect_err("not there");
    }
}
