//! A folder that stands for `/sys`, as far as RDMA programs read it there.
//!
//! Source of what is read: rdma-core `libibverbs/init.c`, `libibverbs/sysfs.c`, `libibverbs/device.c`, `providers/mlx5/mlx5.c` (the
//! table of PCI devices).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pollux_uverbs::abi::connection;

use crate::interface;
use crate::plan::{DevicePlan, Plan, device_name, pci_address};

/// Version of the uverbs interface, and of mlx5's part of it. Source: Linux `include/uapi/rdma/ib_user_verbs.h`,
/// `IB_USER_VERBS_ABI_VERSION`; `include/uapi/rdma/mlx5-abi.h`, `MLX5_IB_UVERBS_ABI_VERSION`.
const ABI_VERSION: &str = "6";
const DRIVER_ABI_VERSION: &str = "1";
/// Vendor of the PCI device.
const VENDOR: u16 = 0x15b3;
/// The only partition key: the default one, of a full member.
const PKEY: &str = "0xffff";

/// Writes what describes the devices of a plan into its folder, which is empty.
///
/// # Errors
/// What the file system says.
pub fn write(plan: &Plan) -> io::Result<()> {
    let root = &plan.sysfs;
    for class in
        ["class/infiniband", "class/infiniband_verbs", "bus/pci/devices", "bus/pci/drivers/mlx5_core"]
    {
        fs::create_dir_all(root.join(class))?;
    }
    put(&root.join("class/infiniband_verbs"), "abi_version", ABI_VERSION)?;
    // Source: rdma-core `librdmacm/cma.c`, `check_abi_version_sysfs`.
    put(&root.join("class/misc/rdma_cm"), "abi_version", &connection::ABI_VERSION.to_string())?;
    plan.devices.iter().enumerate().try_for_each(|(number, device)| describe(root, number, device))?;
    interface::write(plan)
}

fn put(folder: &Path, name: &str, content: &str) -> io::Result<()> {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, format!("{content}\n"))
}

fn describe(root: &Path, number: usize, device: &DevicePlan) -> io::Result<()> {
    let (name, address, profile) = (device_name(number), pci_address(number), device.profile());
    let uverbs = format!("uverbs{number}");
    let below = PathBuf::from(format!("devices/pci0000:{}/{address}", &address[5..7]));
    let pci = root.join(&below);
    let file = pci.join("infiniband_verbs").join(&uverbs);
    let rdma = pci.join("infiniband").join(&name);
    let (vendor, id) = (VENDOR, profile.pci_device());
    let modalias = format!("pci:v{vendor:08X}d{id:08X}sv{vendor:08X}sd{id:08X}bc02sc00i00");
    for (name, content) in [
        ("vendor", format!("{vendor:#06x}")),
        ("device", format!("{id:#06x}")),
        ("subsystem_vendor", format!("{vendor:#06x}")),
        ("subsystem_device", format!("{id:#06x}")),
        ("class", "0x020000".into()),
        ("numa_node", "-1".into()),
        ("max_vfs", "0".into()),
        ("resource", ["0x0000000000000000 0x0000000000000000 0x0000000000000000"; 13].join("\n")),
        ("modalias", modalias.clone()),
        (
            "uevent",
            format!(
                "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID={vendor:04X}:{id:04X}\nPCI_SLOT_NAME={address}\nMODALIAS={modalias}"
            ),
        ),
    ] {
        put(&pci, name, &content)?;
    }
    symlink("../../../bus/pci/drivers/mlx5_core", pci.join("driver"))?;
    symlink(format!("../../../{}", below.display()), root.join("bus/pci/devices").join(&address))?;

    let (major, first) = Plan::FIRST_FILE;
    put(&file, "ibdev", &name)?;
    put(&file, "abi_version", DRIVER_ABI_VERSION)?;
    put(&file, "dev", &format!("{major}:{}", first as usize + number))?;
    symlink("../..", file.join("device"))?;
    symlink(
        format!("../../{}/infiniband_verbs/{uverbs}", below.display()),
        root.join("class/infiniband_verbs").join(&uverbs),
    )?;

    let (fw_major, fw_minor, fw_sub) = profile.firmware();
    let guid = guid(device.mac());
    for (name, content) in [
        ("node_type", "1: CA".to_owned()),
        ("node_guid", guid.clone()),
        ("sys_image_guid", guid),
        ("node_desc", name.clone()),
        ("fw_ver", format!("{fw_major}.{fw_minor}.{fw_sub:04}")),
        ("hca_type", format!("MT{id}")),
        ("hw_rev", "0".into()),
        ("board_id", profile.board().into()),
    ] {
        put(&rdma, name, &content)?;
    }
    for port in 1..=device.ports() {
        let folder = rdma.join(format!("ports/{port}"));
        for (name, content) in [
            ("state", "4: ACTIVE".into()),
            ("phys_state", "5: LinkUp".into()),
            ("link_layer", "Ethernet".into()),
            ("rate", format!("{} Gb/sec", profile.speed_mbps() / 1000)),
            ("lid", "0x0".into()),
            ("sm_lid", "0x0".into()),
            ("lid_mask_count", "0".into()),
            ("sm_sl", "0".into()),
            ("cap_mask", "0x04010000".into()),
            ("pkeys/0", PKEY.to_owned()),
        ] {
            put(&folder, name, &content)?;
        }
    }
    symlink("../..", rdma.join("device"))?;
    symlink(format!("../../{}/infiniband/{name}", below.display()), root.join("class/infiniband").join(&name))
}

/// The number of a node, made from the address of its port, as Linux writes it. Source: Linux `include/net/addrconf.h`,
/// `addrconf_addr_eui48`.
fn guid([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PortPlan;

    #[test]
    fn guids_are_made_as_linux_makes_them() {
        assert_eq!(guid([0x0c, 0x42, 0xa1, 0x01, 0x02, 0x03]), "0e42:a1ff:fe01:0203");
    }

    #[test]
    fn links_lead_where_libibverbs_follows_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = DevicePlan::of_a_test("cx5");
        let second = PortPlan { end: "b".into(), wire: "null".into(), ip: None };
        let two = DevicePlan { second: Some(second), ..device.clone() };
        let plan = Plan::of_a_test(folder.path(), vec![device, two]);
        write(&plan).expect("written");
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).expect(path);
        assert_eq!(read("class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(read("class/infiniband/mlx5_1/ports/2/state"), "4: ACTIVE\n");
        assert!(!folder.path().join("class/infiniband/mlx5_0/ports/2").exists());
        assert!(
            read("class/infiniband_verbs/uverbs0/device/modalias").starts_with("pci:v000015B3d00001017sv")
        );
        assert_eq!(read("class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/ibdev"), "mlx5_0\n");
        assert!(read("bus/pci/devices/0000:c2:00.0/uevent").contains("PCI_SLOT_NAME=0000:c2:00.0\n"));
    }
}
