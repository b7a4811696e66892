use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::Errno;

/// A root with the sysfs of some devices.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().expect("folder"));
        tree.write("sys/class/infiniband_verbs/abi_version", "6");
        fs::create_dir_all(tree.0.path().join("sys/class/infiniband")).expect("folder");
        tree
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(path, format!("{text}\n")).expect("file");
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        match symlink(target, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.expect("link"),
        }
    }

    /// A ConnectX as Linux shows it.
    fn connectx(&self, index: u32, pci: &str, netdev: &str) {
        let function = format!("sys/devices/pci0000:00/{pci}");
        let verbs = format!("{function}/infiniband_verbs/uverbs{index}");
        self.write(&format!("{verbs}/ibdev"), &format!("mlx5_{index}"));
        self.write(&format!("{verbs}/dev"), &format!("231:{}", 192 + index));
        self.write(&format!("{verbs}/abi_version"), "1");
        self.link(
            &format!("sys/class/infiniband_verbs/uverbs{index}"),
            &format!("../../devices/pci0000:00/{pci}/infiniband_verbs/uverbs{index}"),
        );
        let device = format!("{function}/infiniband/mlx5_{index}");
        self.write(&format!("{device}/node_guid"), "0242:acff:fe11:0002");
        self.write(&format!("{device}/fw_ver"), "22.41.1000");
        self.write(&format!("{device}/ports/1/state"), "4: ACTIVE");
        self.write(&format!("{device}/ports/1/link_layer"), "Ethernet");
        self.write(&format!("{device}/ports/1/rate"), "100 Gb/sec (4X EDR)");
        self.link(&format!("{device}/device"), "../..");
        self.link(
            &format!("sys/class/infiniband/mlx5_{index}"),
            &format!("../../devices/pci0000:00/{pci}/infiniband/mlx5_{index}"),
        );
        self.write(
            &format!("{function}/uevent"),
            &format!("DRIVER=mlx5_core\nPCI_SLOT_NAME={pci}\nPCI_ID=15B3:101D"),
        );
        self.write(&format!("{function}/vendor"), "0x15b3");
        self.write(&format!("{function}/device"), "0x101d");
        self.write(&format!("{function}/numa_node"), "1");
        self.write(&format!("{function}/net/{netdev}/ifindex"), "3");
        fs::create_dir_all(self.root().join("sys/bus/pci/drivers/mlx5_core")).expect("folder");
        self.link(&format!("{function}/driver"), "../../../bus/pci/drivers/mlx5_core");
    }

    /// A device in software: no parent, but the interface that it is over.
    fn rxe(&self, index: u32) {
        let verbs = format!("sys/class/infiniband_verbs/uverbs{index}");
        self.write(&format!("{verbs}/ibdev"), "rxe0");
        self.write(&format!("{verbs}/dev"), &format!("231:{}", 192 + index));
        self.write(&format!("{verbs}/abi_version"), "2");
        self.write("sys/class/infiniband/rxe0/parent", "veth0");
        self.write("sys/class/infiniband/rxe0/node_guid", "0000:0000:0000:0000");
        self.write("sys/class/infiniband/rxe0/fw_ver", "");
        self.write("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN");
    }
}

#[test]
fn a_connectx_is_described() {
    let tree = Tree::new();
    tree.connectx(0, "0000:03:00.0", "enp3s0");
    let device = find(tree.root(), "mlx5_0").expect("there");
    let root = tree.root();
    assert_eq!(
        device,
        Device {
            uverbs: "uverbs0".into(),
            ibdev: "mlx5_0".into(),
            file: root.join("dev/infiniband/uverbs0"),
            sysfs: root.join("sys/class/infiniband/mlx5_0"),
            number: (231, 192),
            abi_version: 1,
            driver: Some("mlx5_core".into()),
            pci: Some("0000:03:00.0".into()),
            pci_id: Some((0x15b3, 0x101d)),
            netdevs: vec!["enp3s0".into()],
            numa_node: Some(1),
            node_guid: Some(0x0242_acff_fe11_0002),
            firmware: Some("22.41.1000".into()),
            ports: vec![Port {
                number: 1,
                state: Some(PortState::ACTIVE),
                link_layer: Some(LinkLayer::ETHERNET),
                rate: Some("100 Gb/sec (4X EDR)".into()),
            }],
        }
    );
    assert_eq!(device.driver_id(), Some(driver::MLX5));
}

#[test]
fn a_device_in_software_is_described_by_what_there_is() {
    let tree = Tree::new();
    tree.rxe(0);
    let device = find(tree.root(), "rxe0").expect("there");
    assert_eq!((device.driver_id(), device.pci.as_deref()), (Some(driver::RXE), None));
    assert_eq!(
        (&device.netdevs[..], device.numa_node, device.firmware),
        (&["veth0".to_owned()][..], None, None)
    );
    assert_eq!((device.ports[0].state, device.ports[0].link_layer), (Some(PortState::DOWN), None));
}

#[test]
fn devices_are_found_by_each_of_their_names() {
    let tree = Tree::new();
    tree.connectx(0, "0000:03:00.0", "enp3s0");
    tree.connectx(10, "0000:AF:00.1".to_ascii_lowercase().as_str(), "enp175s0");
    tree.connectx(2, "10000:01:00.0", "vmd0");
    let names = ["mlx5_10", "uverbs10", "0000:af:00.1", "af:00.1", "0000:AF:00.1", "enp175s0"];
    for name in names {
        assert_eq!(find(tree.root(), name).expect(name).ibdev, "mlx5_10");
    }
    assert_eq!(find(tree.root(), "10000:01:00.0").expect("a long domain").ibdev, "mlx5_2");
    let order: Vec<String> =
        devices(tree.root()).expect("all").into_iter().map(|device| device.uverbs).collect();
    assert_eq!(order, ["uverbs0", "uverbs2", "uverbs10"]);
}

#[test]
fn a_name_that_is_not_there_tells_those_that_are() {
    let tree = Tree::new();
    let error = find(tree.root(), "mlx5_0").expect_err("nothing");
    assert_eq!(error.to_string(), "no RDMA device mlx5_0; there is none at all");
    tree.connectx(0, "0000:03:00.0", "enp3s0");
    tree.rxe(1);
    let error = find(tree.root(), "0000:04:00.0").expect_err("another");
    assert_eq!(
        error.to_string(),
        "no RDMA device 0000:04:00.0; there are mlx5_0 (0000:03:00.0, enp3s0), rxe0 (veth0)"
    );
}

#[test]
fn a_function_with_two_devices_must_be_named_by_device() {
    let tree = Tree::new();
    tree.connectx(0, "0000:03:00.0", "enp3s0");
    tree.connectx(1, "0000:03:00.0", "enp3s0np1");
    let error = find(tree.root(), "03:00.0").expect_err("two");
    assert!(error.to_string().starts_with("03:00.0 has several RDMA devices: mlx5_0 ("), "{error}");
    assert_eq!(find(tree.root(), "mlx5_1").expect("one").uverbs, "uverbs1");
}

#[test]
fn a_kernel_without_uverbs_says_so() {
    let folder = tempfile::tempdir().expect("folder");
    let error = devices(folder.path()).expect_err("no class");
    assert!(matches!(error, UverbsError::NoKernel { .. }));
    assert!(error.to_string().contains("modprobe ib_uverbs"), "{error}");
    fs::create_dir_all(folder.path().join("sys/class/infiniband_verbs")).expect("folder");
    fs::write(folder.path().join("sys/class/infiniband_verbs/abi_version"), "6\n").expect("file");
    assert_eq!(devices(folder.path()).expect("none").len(), 0);
}

#[test]
fn an_abi_that_is_not_known_is_refused() {
    for found in ["7", "5", "", "six"] {
        let tree = Tree::new();
        tree.write("sys/class/infiniband_verbs/abi_version", found);
        let error = devices(tree.root()).expect_err("another ABI");
        assert!(
            error.to_string().ends_with(&format!("says that the ABI is version {found}; 6 is known")),
            "{error}"
        );
    }
}

#[test]
fn files_that_make_no_sense_are_named() {
    for (file, text, says) in [
        ("dev", "nonsense", "is not MAJOR:MINOR"),
        ("dev", "231", "is not MAJOR:MINOR"),
        ("ibdev", "../../etc", "is no name of a device"),
        ("ibdev", "", "is no name of a device"),
        ("abi_version", "x", "is no number"),
    ] {
        let tree = Tree::new();
        tree.rxe(0);
        tree.write(&format!("sys/class/infiniband_verbs/uverbs0/{file}"), text);
        let error = devices(tree.root()).expect_err(file);
        assert!(
            error.to_string().contains(&format!("uverbs0/{file}")) && error.to_string().contains(says),
            "{error}"
        );
    }
    let tree = Tree::new();
    tree.rxe(0);
    fs::remove_file(tree.root().join("sys/class/infiniband_verbs/uverbs0/dev")).expect("removed");
    let error = devices(tree.root()).expect_err("missing");
    assert!(error.to_string().contains("uverbs0/dev: No such file"), "{error}");
}

#[test]
fn a_device_without_a_file_says_what_may_be_wrong() {
    let tree = Tree::new();
    tree.rxe(0);
    let device = find(tree.root(), "rxe0").expect("there");
    let error = device.open().map(|_| ()).expect_err("no file");
    assert_eq!(error.errno(), Some(Errno::ENOENT));
    tree.write("dev/infiniband/uverbs0", "no device");
    let error = device.open().map(|_| ()).expect_err("no device");
    assert!(matches!(error, UverbsError::WrongFile { .. }), "{error}");
}

proptest! {
    // Each case writes a tree of files.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in the files, there is an answer or an error.
    #[test]
    fn no_text_in_sysfs_does_harm(
        file in prop::sample::select(vec![
            "sys/class/infiniband_verbs/abi_version", "sys/class/infiniband_verbs/uverbs0/ibdev",
            "sys/class/infiniband_verbs/uverbs0/dev", "sys/class/infiniband_verbs/uverbs0/abi_version",
            "sys/class/infiniband/rxe0/node_guid", "sys/class/infiniband/rxe0/ports/1/state",
            "sys/class/infiniband/rxe0/ports/1/link_layer", "sys/class/infiniband/rxe0/ports/x/state",
            "sys/class/infiniband/rxe0/device/uevent", "sys/class/infiniband/rxe0/device/numa_node",
            "sys/class/infiniband/rxe0/device/vendor",
        ]),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            "[0-9a-f:x. -]{0,40}".prop_map(String::into_bytes),
            "PCI_SLOT_NAME=[0-9a-f:.]{0,20}".prop_map(String::into_bytes),
        ],
    ) {
        let tree = Tree::new();
        tree.rxe(0);
        tree.write(file, "");
        fs::write(tree.root().join(file), &bytes).expect("file");
        match devices(tree.root()) {
            Ok(devices) => prop_assert_eq!(devices.len(), 1),
            Err(error) => prop_assert!(!error.to_string().contains('\n') || bytes.contains(&b'\n')),
        }
    }
}

#[test]
fn addresses_and_guids_are_parsed_strictly() {
    for good in ["0000:03:00.0", "10000:e1:00.7", "0000:ff:1f.7"] {
        assert!(is_pci_address(good), "{good}");
    }
    for bad in
        ["", "03:00.0", "0000:03:00", "0000:03:00.", "0000:0x:00.0", "0000:03:00.0:1", "virtio0", "..."]
    {
        assert!(!is_pci_address(bad), "{bad}");
    }
    assert_eq!(guid("0242:acff:fe11:0002"), Some(0x0242_acff_fe11_0002));
    for bad in ["", "0242:acff:fe11", "0242:acff:fe11:0002:0", "242:acff:fe11:0002", "+242:acff:fe11:0002"] {
        assert_eq!(guid(bad), None, "{bad}");
    }
}
