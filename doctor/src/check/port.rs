//! Ports of a card and the interfaces that the kernel keeps on them.

use pollux_uverbs::abi::flags::{LinkLayer, PortState};
use pollux_uverbs::discovery::Device;

use crate::card::Card;
use crate::finding::{Check, Findings, Mend, quoted};
use crate::machine::Machine;

/// Ethernet or InfiniBand.
static LAYER: Check = Check {
    id: "port.layer",
    title: "port type",
    why: "The driver sends and receives Ethernet frames; a port that is set to InfiniBand carries none.",
    source: "DPDK doc/guides/platform/mlx5.rst, Port Link; Linux Documentation/ABI/stable/sysfs-class-infiniband",
};

/// The kernel's interface.
static INTERFACE: Check = Check {
    id: "port.interface",
    title: "the kernel's interface of the card",
    why: "Address, MTU and link of a port are those of the kernel's interface, which the driver looks for.",
    source: "DPDK doc/guides/nics/mlx5.rst; Linux Documentation/ABI/testing/sysfs-class-net",
};

/// The link.
static LINK: Check = Check {
    id: "port.link",
    title: "link",
    why: "An interface that is down or has no carrier sends and receives nothing.",
    source: "DPDK doc/guides/platform/mlx5.rst, Linux Environment; Linux Documentation/ABI/testing/sysfs-class-net",
};

/// MTU and speed.
static MTU: Check = Check {
    id: "port.mtu",
    title: "MTU",
    why: "Longer frames are dropped by the card; RDMA uses the largest of 256 to 4096 bytes that fits.",
    source: "Linux Documentation/ABI/testing/sysfs-class-net; rdma-core libibverbs/verbs.h, enum ibv_mtu",
};

/// RDMA over Ethernet.
static ROCE: Check = Check {
    id: "port.roce",
    title: "RoCE v2 addresses",
    why: "RDMA programs connect by an address (GID) of type RoCE v2; forwarding does without.",
    source: "Linux Documentation/ABI/testing/sysfs-class-infiniband (gid_attrs); Documentation/networking/devlink/mlx5.rst",
};

pub(super) static ALL: &[&Check] = &[&LAYER, &INTERFACE, &LINK, &MTU, &ROCE];

/// Most addresses of a port that are looked at. Source: Linux `drivers/infiniband/core/roce_gid_mgmt.c` fills the first ones.
const GIDS_MAX: u32 = 256;

/// `IFF_UP`. Source: Linux `include/uapi/linux/if.h`.
const UP: u32 = 1;

pub(super) fn check(machine: &Machine, card: &Card, out: &mut Findings) {
    if let Some(device) = &card.device {
        let ethernet = layer(card, device, out);
        if !ethernet {
            return;
        }
        interface(machine, card, out);
        roce(machine, card, device, out);
    }
    for name in card.interfaces(&machine.root) {
        link(machine, card, &name, out);
        mtu(machine, &name, out);
    }
}

/// Whether the ports are Ethernet, or may be.
fn layer(card: &Card, device: &Device, out: &mut Findings) -> bool {
    let Some(port) = device.ports.first() else {
        out.unknown(&LAYER, "The RDMA device has no port that could be read.");
        return true;
    };
    match port.link_layer {
        Some(LinkLayer::ETHERNET) => {
            out.ok(&LAYER, "The port is Ethernet.");
            true
        }
        Some(LinkLayer::INFINIBAND) => {
            // Each function has a port of the card: the first P1.
            let function = card.pci.as_deref().and_then(|pci| pci.rsplit_once('.')?.1.parse::<u8>().ok());
            let number = function.unwrap_or(0).saturating_add(1);
            let pci = quoted(card.pci.as_deref().unwrap_or("PCI_ADDRESS"));
            let mend =
                format!("mlxconfig -d {pci} set LINK_TYPE_P{number}=2 && mlxfwreset -d {pci} -y reset");
            out.problem(&LAYER, "The port is set to InfiniBand.", Mend::root(mend));
            false
        }
        _ => {
            out.unknown(&LAYER, "The port's type cannot be read.");
            true
        }
    }
}

fn interface(machine: &Machine, card: &Card, out: &mut Findings) {
    let names = card.interfaces(&machine.root);
    if !names.is_empty() {
        return out.ok(&INTERFACE, format!("{}.", names.join(", ")));
    }
    let what = "No interface of the card is in this network namespace.";
    let mend = Mend::action(
        "Run where the interface is: `lsns -t net` lists network namespaces, `nsenter --net=FILE` enters one.",
    );
    out.problem(
        &INTERFACE,
        what,
        machine.started_with(
            "--network=host",
            "`hostNetwork: true`, or an annotation for a network of the host-device or SR-IOV plugin",
            "the network namespace of the machine, or with the interface",
            mend,
        ),
    );
}

fn link(machine: &Machine, card: &Card, name: &str, out: &mut Findings) {
    let file = |attribute: &str| format!("sys/class/net/{name}/{attribute}");
    // `0x1003`
    let flags = machine
        .root
        .text(&file("flags"))
        .map(|text| u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16));
    let is_up = match flags {
        Ok(Ok(flags)) => flags & UP != 0,
        Ok(Err(_)) => return out.unknown(&LINK, format!("The flags of {name} are no number.")),
        Err(gap) => return out.gap(&LINK, &gap),
    };
    let interface = quoted(name);
    if !is_up {
        let mend = Mend::root(format!("ip link set dev {interface} up"));
        return out.problem(&LINK, format!("The interface {name} is down."), mend);
    }
    // Reading it fails while the interface is down, and is 0 or 1 otherwise.
    match machine.root.number::<u8>(&file("carrier")) {
        Ok(1) => {}
        Ok(_) => {
            let mend = Mend::action(format!(
                "Check the cable, the module and the other end; `ethtool {interface}` and `ethtool -m {interface}` show \
                 what the card sees of them."
            ));
            return out.problem(&LINK, format!("The interface {name} is up and has no carrier."), mend);
        }
        Err(gap) => return out.gap(&LINK, &gap),
    }
    let port = card.device.as_ref().and_then(|device| device.ports.first());
    if let Some(state) = port.and_then(|port| port.state).filter(|state| *state != PortState::ACTIVE) {
        let what = format!("The interface {name} has a carrier, and the RDMA port is in state {}.", state.0);
        let mend = Mend::root(format!("ip link set dev {interface} down && ip link set dev {interface} up"));
        return out.advice(&LINK, what, mend);
    }
    // -1 where the speed is not known.
    let speed = machine.root.number::<i64>(&file("speed")).ok().filter(|speed| *speed > 0);
    let speed = speed.map_or("a carrier".to_owned(), |speed| format!("{} Gbit/s", speed as f64 / 1000.0));
    out.ok(&LINK, format!("{name} is up, {speed}."));
}

fn mtu(machine: &Machine, name: &str, out: &mut Findings) {
    match machine.root.number::<u32>(&format!("sys/class/net/{name}/mtu")) {
        Ok(mtu) => out.ok(&MTU, format!("The MTU of {name} is {mtu}.")),
        Err(gap) => out.gap(&MTU, &gap),
    }
}

fn roce(machine: &Machine, card: &Card, device: &Device, out: &mut Findings) {
    let Some(port) = device.ports.first() else { return };
    let folder = format!("sys/class/infiniband/{}/ports/{}/gid_attrs/types", device.ibdev, port.number);
    if let Err(gap) = machine.root.names(&folder) {
        return out.gap(&ROCE, &gap);
    }
    let is_v2 = |index: &u32| {
        // An entry that is not in use cannot be read.
        machine.root.text(&format!("{folder}/{index}")).is_ok_and(|kind| kind == "RoCE v2")
    };
    match (0..GIDS_MAX).find(is_v2) {
        Some(index) => out.ok(&ROCE, format!("GID {index} is of type RoCE v2.")),
        None => {
            let pci = quoted(card.pci.as_deref().unwrap_or("PCI_ADDRESS"));
            let mend = format!(
                "devlink dev param set pci/{pci} name enable_roce value true cmode driverinit && \
                 devlink dev reload pci/{pci}"
            );
            out.advice(&ROCE, "The port has no GID of type RoCE v2.", Mend::root(mend));
        }
    }
}
