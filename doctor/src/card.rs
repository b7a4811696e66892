//! The ConnectX cards of the machine, whether or not a driver has them.
//!
//! A card is a PCI function of the mlx5 family, an RDMA device that mlx5_core drives, or, as a rule, both. RDMA devices are found by
//! `pollux_uverbs::discovery`. Sources: Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c`, `mlx5_core_pci_table`; DPDK
//! `drivers/common/mlx5/mlx5_common.h`, `PCI_DEVICE_ID_MELLANOX_*`.

use pollux_uverbs::UverbsError;
use pollux_uverbs::discovery::{self, Device};

use crate::root::Root;

const VENDOR: u16 = pollux_pmd_mlx::info::VENDOR;
const DRIVER: &str = "mlx5_core";
const FUNCTIONS: &str = "sys/bus/pci/devices";

/// A kind of card.
#[derive(Debug)]
pub(crate) struct Model {
    /// PCI device number.
    pub(crate) pci_device: u16,
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether it is a virtual function.
    pub(crate) is_virtual: bool,
    /// The profile of the device model that is like it, if there is one (`device=` of `mlx5_model0`).
    profile: Option<&'static str>,
}

const fn card(pci_device: u16, name: &'static str) -> Model {
    Model { pci_device, name, is_virtual: false, profile: None }
}

const fn modelled(pci_device: u16, name: &'static str, profile: &'static str) -> Model {
    Model { profile: Some(profile), ..card(pci_device, name) }
}

const fn virtual_function(pci_device: u16, name: &'static str) -> Model {
    Model { is_virtual: true, ..card(pci_device, name) }
}

const MODELS: &[Model] = &[
    card(0x1013, "ConnectX-4"),
    virtual_function(0x1014, "ConnectX-4 virtual function"),
    modelled(0x1015, "ConnectX-4 Lx", "cx4lx"),
    virtual_function(0x1016, "ConnectX-4 Lx virtual function"),
    modelled(0x1017, "ConnectX-5", "cx5"),
    virtual_function(0x1018, "ConnectX-5 virtual function"),
    modelled(0x1019, "ConnectX-5 Ex", "cx5"),
    virtual_function(0x101a, "ConnectX-5 Ex virtual function"),
    card(0x101b, "ConnectX-6"),
    virtual_function(0x101c, "ConnectX-6 virtual function"),
    modelled(0x101d, "ConnectX-6 Dx", "cx6dx"),
    virtual_function(0x101e, "ConnectX virtual function"),
    modelled(0x101f, "ConnectX-6 Lx", "cx6dx"),
    modelled(0x1021, "ConnectX-7", "cx7"),
    card(0x1023, "ConnectX-8"),
    card(0x1025, "ConnectX-9"),
    card(0xa2d2, "BlueField"),
    virtual_function(0xa2d3, "BlueField virtual function"),
    card(0xa2d6, "BlueField-2"),
    card(0xa2dc, "BlueField-3"),
    card(0xa2df, "BlueField-4"),
];

/// The kind of that number.
#[must_use]
pub(crate) fn model(pci_device: u16) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.pci_device == pci_device)
}

/// What a kind is called.
#[must_use]
pub(crate) fn model_name(pci_device: u16) -> Option<&'static str> {
    model(pci_device).map(|model| model.name)
}

/// The profile of the device model for a kind; of one that is not modelled the nearest that is.
#[must_use]
pub(crate) fn profile(pci_device: Option<u16>) -> &'static str {
    pci_device.and_then(model).and_then(|model| model.profile).unwrap_or("cx6dx")
}

/// A card.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    /// What findings call it: the RDMA device (`mlx5_0`), or the PCI address of a function that has none.
    pub(crate) name: String,
    /// PCI address.
    pub(crate) pci: Option<String>,
    /// PCI device number.
    pub(crate) pci_device: Option<u16>,
    /// The kernel driver that has it.
    pub(crate) driver: Option<String>,
    /// Its RDMA device.
    pub(crate) device: Option<Device>,
}

impl Card {
    /// Its kind in words.
    #[must_use]
    pub(crate) fn model(&self) -> Option<&'static Model> {
        self.pci_device.and_then(model)
    }

    /// Where sysfs describes the function, below a root.
    #[must_use]
    pub(crate) fn folder(&self) -> Option<String> {
        self.pci.as_ref().map(|pci| format!("{FUNCTIONS}/{pci}"))
    }

    /// Its interfaces, without those that stand for virtual functions.
    #[must_use]
    pub(crate) fn interfaces(&self, root: &Root) -> Vec<String> {
        let all = match (&self.device, self.folder()) {
            (Some(device), _) => device.netdevs.clone(),
            (None, Some(folder)) => root.names(&format!("{folder}/net")).unwrap_or_default(),
            (None, None) => Vec::new(),
        };
        // `p0` is a port, `pf0vf3` stands for a virtual function. Source: Linux `Documentation/networking/representors.rst`.
        let is_port = |name: &String| {
            root.text(&format!("sys/class/net/{name}/phys_port_name"))
                .map_or(true, |port| !port.starts_with("pf") && !port.starts_with("c1"))
        };
        all.into_iter().filter(is_port).collect()
    }

    /// The NUMA node that it is plugged in at, if the machine tells.
    #[must_use]
    pub(crate) fn node(&self, root: &Root) -> Option<u16> {
        match (self.folder(), &self.device) {
            (Some(folder), _) => root.number(&format!("{folder}/numa_node")).ok(),
            (None, Some(device)) => device.numa_node.and_then(|node| node.try_into().ok()),
            (None, None) => None,
        }
    }

    /// Whether `name` means it: `mlx5_0`, `uverbs0`, `0000:03:00.0`, `03:00.0` or an interface.
    #[must_use]
    pub(crate) fn answers_to(&self, name: &str, root: &Root) -> bool {
        let lower = name.to_ascii_lowercase();
        let long = format!("0000:{lower}");
        self.name == name
            || self.device.as_ref().is_some_and(|device| device.uverbs == name)
            || self.pci.as_ref().is_some_and(|pci| *pci == lower || *pci == long)
            || self.interfaces(root).iter().any(|interface| interface == name)
    }

    /// In a few words: `mlx5_0 (ConnectX-6 Dx, 0000:03:00.0, eth0)`.
    #[must_use]
    pub(crate) fn described(&self, root: &Root) -> String {
        let model = self.model().map(|model| model.name.to_owned());
        let pci = self.pci.clone().filter(|pci| *pci != self.name);
        let more: Vec<String> = model.into_iter().chain(pci).chain(self.interfaces(root)).collect();
        if more.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, more.join(", ")) }
    }
}

/// All cards, those with an RDMA device first, and what made RDMA devices impossible to list.
#[must_use]
pub(crate) fn all(root: &Root) -> (Vec<Card>, Option<UverbsError>) {
    let (devices, error) = match discovery::devices(root.path()) {
        Ok(devices) => (devices, None),
        Err(UverbsError::NoKernel { .. }) => (Vec::new(), None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut cards: Vec<Card> = devices
        .into_iter()
        .filter(|device| device.driver.as_deref() == Some(DRIVER) || device.ibdev.starts_with("mlx5_"))
        .map(|device| Card {
            name: device.ibdev.clone(),
            pci: device.pci.clone(),
            pci_device: device.pci_id.map(|(_, device)| device),
            driver: device.driver.clone(),
            device: Some(device),
        })
        .collect();
    for pci in root.names(FUNCTIONS).unwrap_or_default() {
        let folder = format!("{FUNCTIONS}/{pci}");
        if id(root, &format!("{folder}/vendor")) != Some(VENDOR) || cards.iter().any(|card| card.has(&pci)) {
            continue;
        }
        let pci_device = id(root, &format!("{folder}/device"));
        let driver = root.link(&format!("{folder}/driver")).ok();
        let known = MODELS.iter().any(|model| Some(model.pci_device) == pci_device);
        if known || driver.as_deref() == Some(DRIVER) {
            cards.push(Card { name: pci.clone(), pci: Some(pci), pci_device, driver, device: None });
        }
    }
    (cards, error)
}

impl Card {
    /// Whether `pci` is its function, or one that is bonded into it: such a device has the functions of one slot.
    fn has(&self, pci: &str) -> bool {
        let slot = |address: &str| address.rsplit_once('.').map(|(slot, _)| slot.to_owned());
        self.pci.as_deref() == Some(pci)
            || self.name.starts_with("mlx5_bond") && self.pci.as_deref().and_then(slot) == slot(pci)
    }
}

fn id(root: &Root, file: &str) -> Option<u16> {
    u16::from_str_radix(root.text(file).ok()?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_the_driver_tells_of() {
        let told = pollux_pmd_mlx::info::DEVICES;
        assert!(MODELS.iter().map(|model| model.pci_device).eq(told));
    }
}
