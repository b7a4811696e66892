//! The network interface of each device: its name and number, and what `/sys` says of it.
//!
//! Programs that drive a ConnectX beside Linux ask its interface for the address, the MTU and the state of the port. The interface is
//! there for such questions alone: the kernel has none of this name, and no socket sends through it.
//!
//! Source of what is read: DPDK `drivers/net/mlx5/linux/mlx5_ethdev_os.c`, `drivers/common/mlx5/linux/mlx5_common_os.c`; Linux
//! `Documentation/ABI/testing/sysfs-class-net`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use pollux_mlx5_model::DeviceConfig;

use crate::plan::{DevicePlan, Plan, pci_address};

/// What all names begin with; the number of the device follows.
const NAME: &str = "mlx5run";
/// Number of the first interface, far from those that a kernel counts up to.
const FIRST_INDEX: u32 = 0x15b3_0000;

/// The name of a device's interface.
#[must_use]
pub fn name(number: usize) -> String {
    format!("{NAME}{number}")
}

/// Its number.
#[must_use]
pub fn index(number: usize) -> u32 {
    FIRST_INDEX + u32::try_from(number).unwrap_or(0)
}

/// The device whose interface has that name.
#[must_use]
pub fn by_name(plan: &Plan, name: &str) -> Option<usize> {
    let number = name.strip_prefix(NAME)?.parse().ok()?;
    (number < plan.devices.len() && self::name(number) == name).then_some(number)
}

/// The device whose interface has that number.
#[must_use]
pub fn by_index(plan: &Plan, index: u32) -> Option<usize> {
    let number = usize::try_from(index.checked_sub(FIRST_INDEX)?).ok()?;
    (number < plan.devices.len()).then_some(number)
}

/// An address as `/sys` writes it.
#[must_use]
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Writes the folders of the interfaces, and leads to those of the machine's own beside them.
///
/// # Errors
/// What the file system says.
pub fn write(plan: &Plan) -> io::Result<()> {
    let class = plan.sysfs.join("class/net");
    fs::create_dir_all(&class)?;
    for (number, device) in plan.devices.iter().enumerate() {
        describe(&plan.sysfs, number, device)?;
    }
    // Where a program lists all interfaces it finds both.
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        if by_name(plan, &entry.file_name().to_string_lossy()).is_none() {
            symlink(entry.path(), class.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn describe(root: &Path, number: usize, device: &DevicePlan) -> io::Result<()> {
    let (name, address) = (name(number), pci_address(number));
    let pci = root.join("bus/pci/devices").join(&address);
    let folder = pci.join("net").join(&name);
    fs::create_dir_all(folder.join("statistics"))?;
    let (mtu, index) = (DeviceConfig::default().mtu, index(number));
    let up = libc::IFF_UP | libc::IFF_BROADCAST | libc::IFF_MULTICAST;
    for (file, content) in [
        ("ifindex", index.to_string()),
        ("iflink", index.to_string()),
        ("address", mac_text(device.mac())),
        ("broadcast", mac_text([0xff; 6])),
        ("addr_len", "6".into()),
        // ARPHRD_ETHER.
        ("type", "1".into()),
        ("dev_id", "0x0".into()),
        ("dev_port", "0".into()),
        ("mtu", mtu.to_string()),
        ("flags", format!("{up:#x}")),
        ("carrier", "0".into()),
        ("operstate", "down".into()),
        ("speed", device.profile().speed_mbps().to_string()),
        ("duplex", "full".into()),
        ("uevent", format!("INTERFACE={name}\nIFINDEX={index}")),
        ("statistics/rx_packets", "0".into()),
        ("statistics/rx_bytes", "0".into()),
        ("statistics/tx_packets", "0".into()),
        ("statistics/tx_bytes", "0".into()),
    ] {
        fs::write(folder.join(file), format!("{content}\n"))?;
    }
    symlink("../..", folder.join("device"))?;
    let counters = pci.join("infiniband").join(crate::plan::device_name(number)).join("ports/1/hw_counters");
    fs::create_dir_all(&counters)?;
    fs::write(counters.join("out_of_buffer"), "0\n")?;
    symlink(format!("../../bus/pci/devices/{address}/net/{name}"), root.join("class/net").join(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs;

    fn plan(sysfs: &Path) -> Plan {
        let device = DevicePlan::of_a_test("cx5");
        Plan::of_a_test(sysfs, vec![device.clone(), device])
    }

    #[test]
    fn an_interface_is_known_by_its_name_and_number() {
        let plan = plan(Path::new("/nowhere"));
        assert_eq!(by_name(&plan, "mlx5run1"), Some(1));
        assert_eq!(by_index(&plan, index(1)), Some(1));
        for other in ["mlx5run2", "mlx5run", "mlx5run01", "mlx5run+1", "eth0"] {
            assert_eq!(by_name(&plan, other), None, "{other}");
        }
        assert_eq!((by_index(&plan, 1), by_index(&plan, index(2))), (None, None));
    }

    #[test]
    fn dpdk_finds_the_interface_below_the_device() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan(folder.path());
        sysfs::write(&plan).expect("written");
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).expect(path);
        assert_eq!(read("class/infiniband/mlx5_1/device/net/mlx5run1/dev_port"), "0\n");
        assert_eq!(read("class/net/mlx5run1/ifindex"), format!("{}\n", index(1)));
        assert_eq!(read("class/net/mlx5run0/address"), format!("{}\n", mac_text(plan.devices[0].mac())));
        assert!(read("class/net/mlx5run1/device/uevent").contains("PCI_SLOT_NAME=0000:c2:00.0\n"));
        assert_eq!(read("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer"), "0\n");
        assert!(folder.path().join("class/net/lo").exists(), "the machine's own");
        assert!(!folder.path().join("class/net/mlx5run0/phys_switch_id").exists(), "there is no e-switch");
    }
}
