//! A device of this machine: found in sysfs, opened by its uverbs file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pollux_eal::topology::SocketId;
use pollux_pmd_mlx::netdev::{KernelNetdev, Netdev};
use pollux_port::PortError;
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::discovery::{self, Device};
use pollux_uverbs::{Channel, UverbsError};

use super::trace::traced;
use crate::openable::Openable;
use crate::telemetry::LiveTrace;

/// What a port needs of it.
pub(super) struct Found {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) netdev: Arc<dyn Netdev>,
    pub(super) socket: Option<SocketId>,
    pub(super) trace: Option<LiveTrace>,
}

/// Why a device that is there is not opened.
#[derive(Debug)]
struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// Finds and opens it.
pub(super) fn find(name: &str) -> Result<Found, PortError> {
    find_below(Path::new("/"), name)
}

fn find_below(root: &Path, name: &str) -> Result<Found, PortError> {
    let device = device(root, name)?;
    let netdev = KernelNetdev::of(&device).map_err(|error| PortError::device("find the interface", error))?;
    let channel = device.open().map_err(|error| PortError::device("open the device", error))?;
    let (channel, trace) = traced(channel, &device.ibdev)?;
    let socket = device.numa_node.and_then(|node| u16::try_from(node).ok()).map(SocketId);
    Ok(Found { channel, netdev: Arc::new(netdev), socket, trace })
}

/// A device of the kernel's that this driver drives.
pub(super) fn device(root: &Path, name: &str) -> Result<Device, PortError> {
    let device = discovery::find(root, name).map_err(|error| {
        if matches!(error, UverbsError::NoDevice { .. }) && !has_any(root) {
            let mend = "ConnectX devices appear once their driver is loaded: `modprobe mlx5_ib`";
            return PortError::device("find the device", Unfit(format!("{error}; {mend}")));
        }
        PortError::device("find the device", error)
    })?;
    check(&device).map_err(|error| PortError::device("open the device", error))?;
    Ok(device)
}

/// Whether any function of this driver's is there.
fn has_any(root: &Path) -> bool {
    discovery::devices(root).unwrap_or_default().iter().any(|device| check(device).is_ok())
}

/// Whether the driver drives this.
fn check(device: &Device) -> Result<(), Unfit> {
    let name = &device.ibdev;
    if device.driver_id() != Some(driver::MLX5) {
        let other = device.driver.as_deref().unwrap_or("software in the kernel");
        return Err(Unfit(format!(
            "{name} is bound to {other}, not to mlx5_core: use a ConnectX-4 Lx or newer"
        )));
    }
    Ok(())
}

/// What `-a` could open here.
pub(crate) fn openable(root: &Path) -> Vec<Openable> {
    let devices = discovery::devices(root).unwrap_or_default();
    let fit = devices.into_iter().filter(|device| check(device).is_ok() && KernelNetdev::of(device).is_ok());
    let named = |device: Device| match device.pci {
        Some(pci) => Openable { option: format!("-a {pci}"), also: Some(device.ibdev) },
        None => Openable { option: format!("-a {}", device.ibdev), also: None },
    };
    fit.map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, driver: Option<&str>) -> Device {
        Device {
            uverbs: "uverbs0".into(),
            ibdev: name.into(),
            file: "/nowhere/uverbs0".into(),
            sysfs: "/nowhere/sys".into(),
            number: (231, 192),
            abi_version: 1,
            driver: driver.map(str::to_owned),
            pci: Some("0000:03:00.0".into()),
            pci_id: Some((0x15b3, 0x101d)),
            netdevs: vec!["eth0".into()],
            numa_node: None,
            node_guid: None,
            firmware: None,
            ports: Vec::new(),
        }
    }

    #[test]
    fn a_device_of_another_driver_is_refused() {
        let line = |device: &Device| check(device).map_err(|error| error.to_string());
        assert_eq!(line(&device("mlx5_0", Some("mlx5_core"))), Ok(()));
        assert_eq!(
            line(&device("mlx4_0", Some("mlx4_core"))),
            Err("mlx4_0 is bound to mlx4_core, not to mlx5_core: use a ConnectX-4 Lx or newer".into())
        );
        assert!(line(&device("rxe0", None)).is_err_and(|error| error.contains("software in the kernel")));
    }

    #[test]
    fn a_machine_without_devices_says_so() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(openable(root.path()).is_empty());
        let error = find_below(root.path(), "mlx5_0").map(|_| ()).expect_err("nothing is there");
        let chain = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error} {chain}").contains("infiniband_verbs"), "{error}: {chain}");
    }

    #[test]
    fn a_kernel_without_mlx5_ib_is_told_of() {
        let root = tempfile::tempdir().expect("a folder");
        let class = root.path().join("sys/class/infiniband_verbs");
        std::fs::create_dir_all(&class).expect("a folder");
        std::fs::write(class.join("abi_version"), "6\n").expect("a file");
        let error = find_below(root.path(), "mlx5_0").map(|_| ()).expect_err("nothing is there");
        let chain = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(
            chain.starts_with("no RDMA device mlx5_0; there is none at all")
                && chain.contains("modprobe mlx5_ib"),
            "{error}: {chain}"
        );
    }
}
