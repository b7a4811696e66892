//! Cards and their device files.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use pollux_uverbs::discovery::Device;

use crate::card::Card;
use crate::finding::{Check, Findings, Mend, quoted};
use crate::machine::Machine;
use crate::process::{Capability, Process};

/// Whether there is a card.
static PRESENT: Check = Check {
    id: "device.present",
    title: "ConnectX cards",
    why: "Without a card the device model and the software ports work, and no line rate is reached.",
    source: "Linux drivers/net/ethernet/mellanox/mlx5/core/main.c, mlx5_core_pci_table",
};

/// The kernel driver of each card.
static DRIVER: Check = Check {
    id: "device.driver",
    title: "kernel driver of the card",
    why: "The card is driven through the kernel's mlx5_core and mlx5_ib, which stay bound to it; a card that vfio-pci or no driver has cannot be opened.",
    source: "DPDK doc/guides/platform/mlx5.rst; Linux Documentation/ABI/testing/sysfs-bus-pci",
};

/// The RDMA device of each card.
static RDMA: Check = Check {
    id: "device.rdma",
    title: "RDMA device of the card",
    why: "The card is opened as an RDMA device, which mlx5_ib makes for each function of mlx5_core.",
    source: "Linux Documentation/ABI/stable/sysfs-class-infiniband; rdma-core libibverbs/sysfs.c",
};

/// The device file.
static FILE: Check = Check {
    id: "device.file",
    title: "device file /dev/infiniband/uverbsN",
    why: "Every call to the card goes through this file, which has to be open for reading and writing.",
    source: "Linux drivers/infiniband/core/uverbs_main.c (mode 0666); rdma-core libibverbs/device.c",
};

/// The firmware.
static FIRMWARE: Check = Check {
    id: "device.firmware",
    title: "firmware version",
    why: "DPDK names a version for each card below which it does not support it.",
    source: "DPDK doc/guides/platform/mlx5.rst",
};

pub(super) static ALL: &[&Check] = &[&PRESENT, &DRIVER, &RDMA, &FILE, &FIRMWARE];

/// Oldest firmware of each card, by the major number, which tells cards apart. Source: DPDK `doc/guides/platform/mlx5.rst`.
const OLDEST: &[(u32, u32, u32)] = &[
    (12, 21, 1000),
    (14, 21, 1000),
    (16, 21, 1000),
    (20, 27, 90),
    (22, 27, 90),
    (24, 28, 1002),
    (26, 27, 90),
    (28, 33, 2028),
    (32, 36, 3126),
    (40, 44, 1036),
];

pub(super) fn present(machine: &Machine, out: &mut Findings) {
    if let Some(error) = &machine.devices_error {
        let mend = Mend::action("`dmesg | grep -i infiniband` shows what the kernel says of it.");
        return out.problem(&RDMA, format!("RDMA devices cannot be listed: {error}."), mend);
    }
    if machine.cards.is_empty() {
        return match machine.root.names("sys/bus/pci/devices") {
            Err(gap) if !gap.is_missing() => out.gap(&PRESENT, &gap),
            _ => out.ok(
                &PRESENT,
                "No ConnectX card. The device model (mlx5_model0) and the software ports (net_null, net_ring, \
                 net_pcap, net_af_packet, net_tap) work without one.",
            ),
        };
    }
    let cards: Vec<String> = machine.cards.iter().map(|card| card.described(&machine.root)).collect();
    out.ok(&PRESENT, format!("{}.", cards.join("; ")));
}

pub(super) fn check(machine: &Machine, card: &Card, out: &mut Findings) {
    driver(machine, card, out);
    match &card.device {
        Some(device) => {
            out.ok(&RDMA, format!("The RDMA device is {}, its file {}.", device.ibdev, device.uverbs));
            file(machine, device, out);
            firmware(card, device, out);
        }
        // Without the driver there is none, and without mlx5_ib, which kernel.modules reports.
        None if card.driver.as_deref() == Some("mlx5_core") && super::kernel::has(machine, "mlx5_ib") => {
            let what = "mlx5_core has the card, but there is no RDMA device of it.";
            let mend = match &machine.container {
                Some(_) => {
                    "Start the container in the machine's network namespace, or give it the RDMA device: \
                            `rdma system` tells whether devices are shared or exclusive to a namespace."
                }
                None => {
                    "`rdma system` and `devlink dev param show` tell whether RDMA is exclusive to another network \
                         namespace or switched off, `dmesg | grep mlx5` whether the driver failed."
                }
            };
            out.problem(&RDMA, what, Mend::action(mend));
        }
        None => {}
    }
}

fn driver(machine: &Machine, card: &Card, out: &mut Findings) {
    let Some(pci) = &card.pci else {
        return out.unknown(&DRIVER, "The device is no PCI function; its driver is not known.");
    };
    let address = quoted(pci);
    let (pci_devices, pci_drivers) = ("/sys/bus/pci/devices", "/sys/bus/pci/drivers");
    match card.driver.as_deref() {
        Some("mlx5_core") => out.ok(&DRIVER, "mlx5_core has the card."),
        Some(other) => {
            let what = format!("{other} has the card at {pci}, not mlx5_core.");
            let mend = format!(
                "cd {pci_devices}/{address} && echo > driver_override && echo {address} > driver/unbind && \
                 echo {address} > {pci_drivers}/mlx5_core/bind"
            );
            out.problem(&DRIVER, what, Mend::root(mend));
        }
        None if super::kernel::has(machine, "mlx5_core") => {
            let mend = format!("echo {address} > {pci_drivers}/mlx5_core/bind");
            out.problem(&DRIVER, format!("No driver has the card at {pci}."), Mend::root(mend));
        }
        // kernel.modules says so.
        None => {}
    }
}

fn file(machine: &Machine, device: &Device, out: &mut Findings) {
    let name = format!("/dev/infiniband/{}", device.uverbs);
    let metadata = match fs::metadata(&device.file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = format!("{name} is not there; the kernel has the device.");
            let (major, minor) = device.number;
            let make =
                format!("mkdir -p /dev/infiniband && mknod -m 0666 {} c {major} {minor}", quoted(&name));
            return out.problem(&FILE, what, given(machine, &name, Mend::root(make)));
        }
        Err(error) => return out.unknown(&FILE, format!("{name} cannot be looked at: {}.", error.kind())),
    };
    let is_device = metadata.file_type().is_char_device();
    // A copied tree has files in their place.
    if !is_device && (machine.root.is_own() || !metadata.is_file()) {
        let what = format!("{name} is no device file.");
        let (major, minor) = device.number;
        let path = quoted(&name);
        let mend = Mend::root(format!("rm -r {path}; mknod -m 0666 {path} c {major} {minor}"));
        return out.problem(&FILE, what, given(machine, &name, mend));
    }
    let mode = metadata.mode() & 0o777;
    match opens(&machine.process, metadata.uid(), metadata.gid(), mode) {
        None => return out.unknown(&FILE, format!("{name} has mode {mode:04o}; who asks is not known.")),
        Some(false) => {
            let what = format!("This user may not read and write {name} (mode {mode:04o}).");
            let mend = Mend::root(format!("chmod 0666 {}", quoted(&name)));
            return out.problem(&FILE, what, mend);
        }
        Some(true) => {}
    }
    if is_device
        && machine.root.is_own()
        && let Err(error) = device.open()
    {
        let mend = Mend::action("`dmesg | tail` shows what the kernel says of it.");
        let mend = given(machine, &name, mend);
        return out.problem(&FILE, format!("{error}."), mend);
    }
    out.ok(&FILE, format!("{name} opens for reading and writing."));
}

/// How a container gets a device; elsewhere, `otherwise`.
fn given(machine: &Machine, device: &str, otherwise: Mend) -> Mend {
    machine.started_with(
        &format!("--device={}", quoted(device)),
        "the resource of an RDMA device plugin (k8s-rdma-shared-dev-plugin, sriov-network-device-plugin) in resources.limits",
        &format!("the device {device}"),
        otherwise,
    )
}

/// Whether the process may read and write a file; `None` if it is not known who it is. Source: path_resolution(7).
fn opens(process: &Process, owner: u32, group: u32, mode: u32) -> Option<bool> {
    let user = *process.user.as_ref().ok()?;
    if process.may(Capability::DacOverride) == Ok(true) {
        return Some(true);
    }
    let bits = if user == owner {
        mode >> 6
    } else if process.groups.contains(&group) {
        mode >> 3
    } else {
        mode
    };
    Some(bits & 0o6 == 0o6)
}

fn firmware(card: &Card, device: &Device, out: &mut Findings) {
    let Some(text) = &device.firmware else {
        return out.unknown(&FIRMWARE, "The firmware's version cannot be read.");
    };
    let parts: Vec<Option<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    let &[Some(major), Some(minor), Some(sub)] = parts.as_slice() else {
        return out.unknown(&FIRMWARE, format!("The firmware's version is {text:?}, not three numbers."));
    };
    let oldest = OLDEST.iter().find(|oldest| oldest.0 == major);
    match oldest {
        Some(&oldest) if (major, minor, sub) < oldest => {
            let what =
                format!("Firmware {text}; DPDK asks for {}.{}.{:04} or newer.", oldest.0, oldest.1, oldest.2);
            let pci = quoted(card.pci.as_deref().unwrap_or("PCI_ADDRESS"));
            out.advice(&FIRMWARE, what, Mend::root(format!("mlxfwmanager --online --update -d {pci}")));
        }
        _ => out.ok(&FIRMWARE, format!("Firmware {text}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(user: u32, groups: &[u32], capabilities: u64) -> Process {
        let tree = tempfile::tempdir().expect("a folder");
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let text = format!(
            "Uid:\t{user}\t{user}\t{user}\t{user}\nGid:\t7\t7\t7\t7\nGroups:\t{}\nCapEff:\t{capabilities:016x}\n",
            groups.join(" ")
        );
        fs::create_dir_all(tree.path().join("proc/self")).expect("folders");
        fs::write(tree.path().join("proc/self/status"), text).expect("a file");
        Process::read(&crate::root::Root::new(tree.path()))
    }

    #[test]
    fn access_is_as_the_kernel_decides() {
        let user = process(1000, &[20, 30], 0);
        assert_eq!(opens(&user, 1000, 0, 0o600), Some(true));
        assert_eq!(opens(&user, 1000, 20, 0o066), Some(false), "the owner's bits alone count");
        assert_eq!(opens(&user, 0, 30, 0o660), Some(true));
        assert_eq!(opens(&user, 0, 7, 0o660), Some(true));
        assert_eq!(opens(&user, 0, 40, 0o660), Some(false));
        assert_eq!(opens(&user, 0, 0, 0o644), Some(false));
        assert_eq!(opens(&user, 0, 0, 0o666), Some(true));
        assert_eq!(opens(&process(0, &[], 1 << 1), 5, 5, 0o000), Some(true));
        assert_eq!(opens(&process(0, &[], 0), 5, 5, 0o660), Some(false), "root without the capability");
    }
}
