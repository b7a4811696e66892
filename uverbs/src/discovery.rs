//! Which RDMA devices there are, from sysfs.
//!
//! Everything is read below a root that is an argument: `/` on a machine, a folder in tests, what a container mounts. Files of
//! sysfs that are missing make a field `None`; the few that must be there make an error that names them. Source: rdma-core
//! `libibverbs/sysfs.c`, `libibverbs/init.c`; Linux `Documentation/ABI/stable/sysfs-class-infiniband`,
//! `sysfs-class-infiniband` (uverbs).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::UverbsError;
use crate::abi::flags::{LinkLayer, PortState};
use crate::abi::object::driver;
use crate::ioctl::KernelFile;

/// Version of the write commands' ABI that this crate speaks.
pub const ABI_VERSION: u32 = 6;

/// A device of sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of its file: `uverbs0`.
    pub uverbs: String,
    /// Its own name: `mlx5_0`.
    pub ibdev: String,
    /// The file: `/dev/infiniband/uverbs0`, below the root.
    pub file: PathBuf,
    /// Where sysfs describes it: `/sys/class/infiniband/mlx5_0`, below the root.
    pub sysfs: PathBuf,
    /// Major and minor number of the file.
    pub number: (u32, u32),
    /// Version of its driver's ABI.
    pub abi_version: u32,
    /// The kernel driver: `mlx5_core`. `None` for a device in software.
    pub driver: Option<String>,
    /// PCI address: `0000:03:00.0`.
    pub pci: Option<String>,
    /// PCI vendor and device.
    pub pci_id: Option<(u16, u16)>,
    /// Interfaces of the same PCI function, or the one under a device in software.
    pub netdevs: Vec<String>,
    /// NUMA node, if the machine has several.
    pub numa_node: Option<u32>,
    /// GUID of the node.
    pub node_guid: Option<u64>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// Its ports, by number from 1.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// Its state.
    pub state: Option<PortState>,
    /// What it is plugged into.
    pub link_layer: Option<LinkLayer>,
    /// Its rate as the kernel words it: `100 Gb/sec (4X EDR)`.
    pub rate: Option<String>,
}

impl Device {
    /// The kernel driver's number in the ABI, if it is one that is known here.
    #[must_use]
    pub fn driver_id(&self) -> Option<u32> {
        match self.driver.as_deref() {
            Some("mlx5_core") => Some(driver::MLX5),
            // Devices over an interface have a file that names it.
            None if self.sysfs.join("parent").exists() => Some(driver::RXE),
            _ => None,
        }
    }

    /// Opens the device's file.
    ///
    /// # Errors
    /// [`UverbsError::Open`] with what mends it, [`UverbsError::WrongFile`] when the file is another device.
    pub fn open(&self) -> Result<Arc<KernelFile>, UverbsError> {
        KernelFile::open(&self.file, Some(self.number)).map(Arc::new)
    }
}

/// All devices, by the number of their file. None is no error.
///
/// # Errors
/// [`UverbsError::NoKernel`] when the kernel has no uverbs, [`UverbsError::AbiVersion`] when its ABI is another one,
/// [`UverbsError::Sysfs`] for what cannot be read.
pub fn devices(root: &Path) -> Result<Vec<Device>, UverbsError> {
    let class = root.join("sys/class/infiniband_verbs");
    let entries = match fs::read_dir(&class) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(UverbsError::NoKernel { path: class });
        }
        Err(error) => return Err(sysfs(&class, error)),
    };
    let version = class.join("abi_version");
    let found = read(&version)?;
    if found.parse() != Ok(ABI_VERSION) {
        return Err(UverbsError::AbiVersion { path: version, found, known: ABI_VERSION });
    }
    let mut devices = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| sysfs(&class, error))?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with("uverbs")) else { continue };
        match device(root, &class.join(name), name) {
            Ok(device) => devices.push(device),
            // It went away while we looked.
            Err(_) if !class.join(name).exists() => {}
            Err(error) => return Err(error),
        }
    }
    devices.sort_by_key(|device| (device.uverbs.len(), device.uverbs.clone()));
    Ok(devices)
}

/// The device of that name (`mlx5_0`), file (`uverbs0`), PCI address (`0000:03:00.0`, `03:00.0`) or interface (`eth0`).
///
/// # Errors
/// [`UverbsError::NoDevice`] with those that are there, [`UverbsError::Ambiguous`] when several answer to it, and what
/// [`devices`] says.
pub fn find(root: &Path, wanted: &str) -> Result<Device, UverbsError> {
    let all = devices(root)?;
    let list =
        |devices: &[&Device]| devices.iter().map(|device| described(device)).collect::<Vec<_>>().join(", ");
    let named: Vec<&Device> =
        all.iter().filter(|device| device.ibdev == wanted || device.uverbs == wanted).collect();
    let named = if named.is_empty() {
        let lower = wanted.to_ascii_lowercase();
        let long = format!("0000:{lower}");
        all.iter()
            .filter(|device| {
                device.pci.as_ref().is_some_and(|pci| *pci == lower || *pci == long)
                    || device.netdevs.iter().any(|netdev| netdev == wanted)
            })
            .collect()
    } else {
        named
    };
    match named.as_slice() {
        [device] => Ok((*device).clone()),
        [] if all.is_empty() => {
            Err(UverbsError::NoDevice { wanted: wanted.into(), present: "is none at all".into() })
        }
        [] => {
            let present = format!("are {}", list(&all.iter().collect::<Vec<_>>()));
            Err(UverbsError::NoDevice { wanted: wanted.into(), present })
        }
        several => Err(UverbsError::Ambiguous { wanted: wanted.into(), present: list(several) }),
    }
}

/// A device in a few words: `mlx5_0 (0000:03:00.0, eth0)`.
fn described(device: &Device) -> String {
    let more: Vec<&str> =
        device.pci.iter().map(String::as_str).chain(device.netdevs.iter().map(String::as_str)).collect();
    if more.is_empty() { device.ibdev.clone() } else { format!("{} ({})", device.ibdev, more.join(", ")) }
}

fn device(root: &Path, folder: &Path, uverbs: &str) -> Result<Device, UverbsError> {
    let ibdev = read(&folder.join("ibdev"))?;
    if ibdev.is_empty() || ibdev.contains('/') || ibdev.starts_with('.') {
        return Err(problem(&folder.join("ibdev"), format!("{ibdev:?} is no name of a device")));
    }
    let dev = folder.join("dev");
    let text = read(&dev)?;
    let number = text
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| problem(&dev, format!("{text:?} is not MAJOR:MINOR")))?;
    let version = folder.join("abi_version");
    let text = read(&version)?;
    let abi_version = text.parse().map_err(|_| problem(&version, format!("{text:?} is no number")))?;
    let class = root.join("sys/class/infiniband").join(&ibdev);
    let parent = class.join("device");
    let pci = pci_address(&parent);
    Ok(Device {
        uverbs: uverbs.to_owned(),
        file: root.join("dev/infiniband").join(uverbs),
        number,
        abi_version,
        driver: link_name(&parent.join("driver")),
        pci_id: hex(&parent.join("vendor")).zip(hex(&parent.join("device"))),
        netdevs: netdevs(&class, &parent),
        // -1 where there is one node alone.
        numa_node: optional(&parent.join("numa_node")).and_then(|text| text.parse().ok()),
        node_guid: optional(&class.join("node_guid")).and_then(|text| guid(&text)),
        firmware: optional(&class.join("fw_ver")).filter(|text| !text.is_empty()),
        ports: ports(&class)?,
        sysfs: class,
        ibdev,
        pci,
    })
}

/// The PCI address: told in the parent's `uevent`, else by its name.
fn pci_address(parent: &Path) -> Option<String> {
    let told = optional(&parent.join("uevent")).and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=").map(str::to_owned))
    });
    told.or_else(|| link_name(parent)).filter(|name| is_pci_address(name))
}

/// `0000:03:00.0`.
fn is_pci_address(text: &str) -> bool {
    let hex =
        |part: &str, digits: usize| part.len() >= digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = text.split(':');
    let (Some(domain), Some(bus), Some(slot), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let Some((device, function)) = slot.split_once('.') else { return false };
    hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1)
}

fn netdevs(class: &Path, parent: &Path) -> Vec<String> {
    let mut names: Vec<String> = match fs::read_dir(parent.join("net")) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
        Err(_) => optional(&class.join("parent")).into_iter().collect(),
    };
    names.sort();
    names
}

fn ports(class: &Path) -> Result<Vec<Port>, UverbsError> {
    let folder = class.join("ports");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(sysfs(&folder, error)),
    };
    let mut ports: Vec<Port> = entries
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            let number = folder.file_name().and_then(OsStr::to_str)?.parse().ok()?;
            Some(Port {
                number,
                // "4: ACTIVE"
                state: optional(&folder.join("state"))
                    .and_then(|text| text.split(':').next()?.trim().parse().ok())
                    .map(PortState),
                link_layer: optional(&folder.join("link_layer")).map(|text| match text.as_str() {
                    "InfiniBand" => LinkLayer::INFINIBAND,
                    "Ethernet" => LinkLayer::ETHERNET,
                    _ => LinkLayer::UNSPECIFIED,
                }),
                rate: optional(&folder.join("rate")),
            })
        })
        .collect();
    ports.sort_by_key(|port| port.number);
    Ok(ports)
}

/// `0000:00ff:fe00:000a`.
fn guid(text: &str) -> Option<u64> {
    let mut value = 0;
    let mut groups = text.split(':');
    for _ in 0..4 {
        let group = groups
            .next()
            .filter(|group| group.len() == 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        value = value << 16 | u64::from_str_radix(group, 16).ok()?;
    }
    groups.next().is_none().then_some(value)
}

fn hex(path: &Path) -> Option<u16> {
    u16::from_str_radix(optional(path)?.strip_prefix("0x")?, 16).ok()
}

/// Name of what a link leads to.
fn link_name(path: &Path) -> Option<String> {
    fs::canonicalize(path).ok()?.file_name()?.to_str().map(str::to_owned)
}

fn optional(path: &Path) -> Option<String> {
    pollux_eal::sysfs::read(path).ok().map(|text| text.trim_end().to_owned())
}

fn read(path: &Path) -> Result<String, UverbsError> {
    match pollux_eal::sysfs::read(path) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(error) => Err(sysfs(path, error)),
    }
}

fn sysfs(path: &Path, error: io::Error) -> UverbsError {
    problem(path, error.to_string())
}

fn problem(path: &Path, problem: String) -> UverbsError {
    UverbsError::Sysfs { path: path.to_owned(), problem }
}

#[cfg(test)]
mod tests;
