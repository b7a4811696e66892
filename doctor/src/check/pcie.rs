//! The card's place on PCI Express.

use std::path::Path;

use crate::card::Card;
use crate::finding::{Check, Findings, Mend, quoted};
use crate::machine::Machine;
use crate::root::Root;

/// Width and speed of the link.
static LINK: Check = Check {
    id: "pcie.link",
    title: "PCI Express width and speed",
    why: "All packets cross this link; one that is narrower or slower than the card's own bounds their rate.",
    source: "Linux drivers/pci/pci-sysfs.c; DPDK doc/guides/linux_gsg/nic_perf_intel_platform.rst",
};

/// The largest read request.
static READ: Check = Check {
    id: "pcie.read_request",
    title: "PCI Express read request size",
    why: "The card fetches packets in reads of at most this size; DPDK found 1024 bytes better than less on some machines.",
    source: "DPDK doc/guides/nics/mlx5.rst; Linux include/uapi/linux/pci_regs.h, PCI_EXP_DEVCTL_READRQ",
};

/// The IOMMU.
static IOMMU: Check = Check {
    id: "pcie.iommu",
    title: "IOMMU",
    why: "Translation of the card's addresses costs time with each page; the card reaches registered memory alone in any case.",
    source: "Linux Documentation/ABI/testing/sysfs-kernel-iommu_groups; DPDK doc/guides/nics/mlx5.rst",
};

pub(super) static ALL: &[&Check] = &[&LINK, &READ, &IOMMU];

pub(super) fn check(machine: &Machine, card: &Card, out: &mut Findings) {
    let Some(folder) = card.folder() else { return };
    if card.model().is_some_and(|model| model.is_virtual) {
        out.ok(&LINK, "A virtual function shares the link of its card.");
    } else {
        link(machine, card, &folder, out);
        read_request(machine, card, &folder, out);
    }
    iommu(machine, &folder, out);
}

/// A link, or what one could be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Link {
    /// Lanes.
    width: u32,
    /// GT/s of each.
    speed: f64,
}

impl Link {
    /// What sysfs says under `current_` or `max_`.
    fn read(root: &Root, folder: &str, prefix: &str) -> Option<Self> {
        let width = root.number(&format!("{folder}/{prefix}_link_width")).ok()?;
        // `16.0 GT/s PCIe`, `8 GT/s`, `Unknown`.
        let speed = root.text(&format!("{folder}/{prefix}_link_speed")).ok()?;
        let speed: f64 = speed.split_once(" GT/s")?.0.parse().ok()?;
        // 0 and 255 stand for unknown (Linux `include/linux/pci.h`, `PCIE_LNK_WIDTH_UNKNOWN`).
        ((1..=32).contains(&width) && (2.5..=1024.0).contains(&speed)).then_some(Self { width, speed })
    }

    fn generation(self) -> u32 {
        (self.speed / 2.5).log2().ceil().max(0.0) as u32 + 1
    }

    /// Gbit/s after line coding: 8b/10b up to generation 2, 128b/130b after. Source: Linux `drivers/pci/pci.h`,
    /// `PCIE_SPEED2MBS_ENC`.
    fn gigabits(self) -> f64 {
        let coding = if self.speed < 8.0 { 0.8 } else { 128.0 / 130.0 };
        f64::from(self.width) * self.speed * coding
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "x{} Gen{} ({:.0} Gbit/s)", self.width, self.generation(), self.gigabits())
    }
}

fn link(machine: &Machine, card: &Card, folder: &str, out: &mut Findings) {
    let root = &machine.root;
    let (Some(now), Some(most)) = (Link::read(root, folder, "current"), Link::read(root, folder, "max"))
    else {
        return out.unknown(&LINK, "The kernel does not tell the width and speed of the link.");
    };
    if now.width >= most.width && now.speed >= most.speed {
        return out.ok(&LINK, format!("The link is {now}, all that the card can."));
    }
    let rates = card.interfaces(root).into_iter().filter_map(|name| {
        root.number::<f64>(&format!("sys/class/net/{name}/speed")).ok().filter(|rate| *rate > 0.0)
    });
    let port = rates.fold(0.0, f64::max) / 1000.0;
    let port = if port > now.gigabits() {
        format!(" It is slower than the port, which has {port} Gbit/s.")
    } else {
        String::new()
    };
    let what = |slot: &str| format!("The link is {now}; the card can do {most}.{slot}{port}");
    // The port above it, which is the slot's.
    let above = above(root, folder).and_then(|folder| Link::read(root, &folder, "max"));
    let address = card.pci.as_deref().map_or_else(String::new, quoted);
    let (slot, action) = match above {
        Some(slot) if slot.width < most.width || slot.speed < most.speed => (
            format!(" The slot can do {slot}."),
            format!("Move the card to a slot of x{} Gen{}.", most.width, most.generation()),
        ),
        Some(_) => (
            " The slot could do more.".to_owned(),
            format!(
                "Seat the card again, and look for lane splitting (bifurcation) and link speed in the machine's \
                 set-up; `lspci -vv -s {address}` shows LnkCap and LnkSta."
            ),
        ),
        None => (
            String::new(),
            format!(
                "Move the card to a slot of x{} Gen{}, or see why it trains lower: `lspci -vv -s {address}`.",
                most.width,
                most.generation()
            ),
        ),
    };
    out.advice(&LINK, what(&slot), Mend::action(action));
}

/// The folder of the port that a function hangs on: the one around it.
fn above(root: &Root, folder: &str) -> Option<String> {
    let real = std::fs::canonicalize(root.join(folder)).ok()?;
    let top = std::fs::canonicalize(root.path()).ok()?;
    let parent = real.parent()?.strip_prefix(&top).ok()?;
    Path::to_str(parent).map(str::to_owned)
}

/// Bytes of configuration space that every function has; root alone reads past the first 64.
const SPACE_BYTES: u64 = 256;
/// Source: Linux `include/uapi/linux/pci_regs.h`: `PCI_STATUS`, `PCI_CAPABILITY_LIST`, `PCI_CAP_ID_EXP`, `PCI_EXP_DEVCTL`.
const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u8 = 0x10;
const CAPABILITY_LIST: usize = 0x34;
const EXPRESS: u8 = 0x10;
const DEVICE_CONTROL: usize = 8;
/// What DPDK's guide writes: 3, for 1024 bytes.
const ADVISED_BYTES: u32 = 1024;

fn read_request(machine: &Machine, card: &Card, folder: &str, out: &mut Findings) {
    let space = match machine.root.bytes(&format!("{folder}/config"), SPACE_BYTES) {
        Ok(space) => space,
        Err(gap) => return out.gap(&READ, &gap),
    };
    if space.len() <= 64 {
        return out.unknown(&READ, "Root alone can read it: run doctor as root.");
    }
    let Some(control) = device_control(&space) else {
        return out.unknown(&READ, "The card's configuration space does not tell it.");
    };
    // Bits 12 to 14: 128 bytes, shifted.
    let bytes = 128u32 << (control >> 12 & 7);
    if bytes >= ADVISED_BYTES {
        return out.ok(&READ, format!("Reads of up to {bytes} bytes."));
    }
    let address = quoted(card.pci.as_deref().unwrap_or_default());
    let mend = Mend::root(format!("setpci -s {address} CAP_EXP+8.w=3000:7000"));
    out.advice(&READ, format!("Reads of up to {bytes} bytes."), mend);
}

/// The Device Control register of a function on PCI Express.
fn device_control(space: &[u8]) -> Option<u16> {
    if space.get(STATUS)? & STATUS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(*space.get(CAPABILITY_LIST)? & 0xfc);
    // A list that runs in a circle ends too: no more capabilities fit.
    for _ in 0..SPACE_BYTES / 4 {
        if at < 0x40 {
            return None;
        }
        if *space.get(at)? == EXPRESS {
            let register = space.get(at + DEVICE_CONTROL..at + DEVICE_CONTROL + 2)?;
            return Some(u16::from_le_bytes([register[0], register[1]]));
        }
        at = usize::from(*space.get(at + 1)? & 0xfc);
    }
    None
}

fn iommu(machine: &Machine, folder: &str, out: &mut Findings) {
    let root = &machine.root;
    let kind = match root.text(&format!("{folder}/iommu_group/type")) {
        Ok(kind) => kind,
        Err(gap) if gap.is_missing() => {
            let groups = root.names("sys/kernel/iommu_groups").is_ok_and(|groups| !groups.is_empty());
            return if groups || root.has(&format!("{folder}/iommu_group")) {
                out.unknown(&IOMMU, "An IOMMU is in use; the kernel does not tell how for this card.")
            } else {
                out.ok(&IOMMU, "No IOMMU translates for the card.")
            };
        }
        Err(gap) => return out.gap(&IOMMU, &gap),
    };
    match kind.as_str() {
        "identity" => out.ok(&IOMMU, "The IOMMU passes the card's addresses through."),
        "DMA" | "DMA-FQ" => out.advice(
            &IOMMU,
            format!("The IOMMU translates each address of the card ({kind})."),
            super::boot(root, "iommu=pt"),
        ),
        other => out.unknown(&IOMMU, format!("The IOMMU's mode for the card is {other:?}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_compared_by_what_they_carry() {
        let link = |width, speed| Link { width, speed };
        assert_eq!(link(16, 16.0).to_string(), "x16 Gen4 (252 Gbit/s)");
        assert_eq!(link(8, 8.0).to_string(), "x8 Gen3 (63 Gbit/s)");
        assert_eq!(link(4, 5.0).to_string(), "x4 Gen2 (16 Gbit/s)");
        assert_eq!(link(1, 2.5).to_string(), "x1 Gen1 (2 Gbit/s)");
        assert_eq!(link(16, 32.0).generation(), 5);
        assert_eq!(link(16, 64.0).generation(), 6);
    }

    #[test]
    fn the_register_is_found_and_a_circle_ends() {
        let mut space = vec![0; 256];
        assert_eq!(device_control(&space), None, "no list");
        space[STATUS] = STATUS_CAPABILITIES;
        space[CAPABILITY_LIST] = 0x60;
        space[0x60] = 0x11;
        space[0x61] = 0x9c;
        space[0x9c] = 0x03;
        space[0x9d] = 0x60;
        assert_eq!(device_control(&space), None, "a circle");
        space[0x9c] = EXPRESS;
        space[0xa4] = 0x36;
        space[0xa5] = 0x29;
        assert_eq!(device_control(&space), Some(0x2936));
        space[0x61] = 0xf8;
        space[0xf8] = EXPRESS;
        assert_eq!(device_control(&space), None, "past the end");
    }
}
