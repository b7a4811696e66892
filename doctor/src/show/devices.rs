//! Network devices on the PCI bus and what drives them.

use std::fmt::Write;

use crate::finding::printable;
use crate::root::{Gap, Root};

const BUS: &str = "sys/bus/pci/devices";

/// Drivers that give a device to a program. Source: DPDK `usertools/dpdk-devbind.py`, `dpdk_drivers`.
const USER_DRIVERS: [&str; 4] = ["vfio-pci", "igb_uio", "uio_pci_generic", "vfio_pci"];
/// The vendor of ConnectX.
const MELLANOX: u16 = 0x15b3;

/// A function of class network: Ethernet, InfiniBand and others.
struct Function {
    address: String,
    ids: (u16, u16),
    driver: Option<String>,
    interfaces: Vec<(String, bool)>,
    rdma: Vec<String>,
    node: Option<i32>,
}

pub(super) fn text(root: &Root) -> Result<String, Gap> {
    let all: Vec<Function> =
        root.names(BUS)?.into_iter().filter_map(|address| Function::read(root, address)).collect();
    let mut out = String::new();
    let users = |function: &&Function| {
        function.driver.as_deref().is_some_and(|driver| USER_DRIVERS.contains(&driver))
    };
    let kernels = |function: &&Function| function.driver.is_some() && !users(function);
    section(&mut out, "Network devices using DPDK-compatible driver", all.iter().filter(users));
    section(&mut out, "Network devices using kernel driver", all.iter().filter(kernels));
    section(&mut out, "Other Network devices", all.iter().filter(|function| function.driver.is_none()));
    if out.is_empty() {
        out = "No 'Network' devices detected\n".into();
    }
    if all.iter().any(|function| function.ids.0 == MELLANOX && !kernels(&function)) {
        out += "\nA ConnectX stays with mlx5_core: its driver here works beside the kernel's\n";
    }
    Ok(out)
}

fn section<'a>(out: &mut String, title: &str, functions: impl Iterator<Item = &'a Function>) {
    let lines: Vec<String> = functions.map(Function::text).collect();
    if lines.is_empty() {
        return;
    }
    let gap = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{gap}{title}\n{}\n{}", "=".repeat(title.len()), lines.join("\n"));
}

impl Function {
    /// `None`: it is of another class.
    fn read(root: &Root, address: String) -> Option<Self> {
        let folder = format!("{BUS}/{address}");
        let hex = |name: &str| {
            let text = root.text(&format!("{folder}/{name}")).ok()?;
            u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        // Source: Linux `include/linux/pci_ids.h`, `PCI_BASE_CLASS_NETWORK`; InfiniBand was of the serial busses once.
        let class = hex("class")? >> 8;
        if class >> 8 != 0x02 && class != 0x0c06 {
            return None;
        }
        let ids = (hex("vendor")? as u16, hex("device")? as u16);
        let names = |name: &str| root.names(&format!("{folder}/{name}")).unwrap_or_default();
        let interfaces = names("net").into_iter().map(|interface| {
            let up =
                root.text(&format!("{folder}/net/{interface}/operstate")).is_ok_and(|state| state == "up");
            (interface, up)
        });
        let interfaces = interfaces.collect();
        Some(Self {
            driver: root.link(&format!("{folder}/driver")).ok(),
            interfaces,
            rdma: names("infiniband"),
            node: root.number(&format!("{folder}/numa_node")).ok(),
            ids,
            address,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{} [{:04x}:{:04x}]", self.address, self.ids.0, self.ids.1);
        for (interface, _) in &self.interfaces {
            let _ = write!(text, " if={interface}");
        }
        if let Some(driver) = &self.driver {
            let _ = write!(text, " drv={driver}");
        }
        for device in &self.rdma {
            let _ = write!(text, " rdma={device}");
        }
        if let Some(node) = self.node.filter(|node| *node >= 0) {
            let _ = write!(text, " numa_node={node}");
        }
        if self.interfaces.iter().any(|(_, up)| *up) {
            text += " *Active*";
        }
        printable(&text)
    }
}
