//! The GIDs of a port: entries of the firmware's table of RoCE addresses, all of version 2. Source: Linux
//! `drivers/infiniband/hw/mlx5/main.c`, `set_roce_addr`; `drivers/net/ethernet/mellanox/mlx5/core/lib/gid.c`, `mlx5_core_roce_gid_set`.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::RoceCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::vport::{RoceAddress, SetRoceAddressIn, roce_l3, roce_version};
use pollux_mlx5_abi::field::mac_value;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::GidType;
use pollux_uverbs::abi::ioctl_verbs::GidEntry;

use crate::capability::Caps;
use crate::firmware::{Firmware, SHORT, begin};
use crate::neighbour::{InterfaceAddress, link_local};

/// The entries of one port.
#[derive(Debug, Default)]
pub(crate) struct Gids(Vec<GidEntry>);

impl Gids {
    /// An entry for the link-local address that follows from the port's MAC, and one for each other address, as far as there is room.
    pub(crate) fn make(
        firmware: &Firmware,
        caps: &Caps,
        port: u32,
        mac: [u8; 6],
        addresses: &[InterfaceAddress],
    ) -> Self {
        let mut gids = Self::default();
        let link_local = (link_local(mac).octets(), roce_l3::IPV6);
        let others = addresses.iter().map(|own| {
            let l3 = if own.address.is_ipv4() { roce_l3::IPV4 } else { roce_l3::IPV6 };
            (own.gid(), l3)
        });
        for (index, (gid, l3)) in (0_u32..).zip(std::iter::once(link_local).chain(others)) {
            if index >= caps.roce(RoceCaps::ROCE_ADDRESS_TABLE_SIZE) {
                break;
            }
            let mut input = entry(caps, port, index);
            let address = SetRoceAddressIn::ROCE_ADDRESS.of_mut(&mut input);
            RoceAddress::SOURCE_L3_ADDRESS.set(address, gid);
            RoceAddress::SOURCE_MAC.set(address, mac_value(mac));
            RoceAddress::ROCE_VERSION.set(address, roce_version::V2);
            RoceAddress::ROCE_L3_TYPE.set(address, l3);
            if firmware.execute(&input, &mut [0; SHORT]).is_err() {
                break;
            }
            gids.0.push(GidEntry {
                gid: zerocopy::transmute!(gid),
                gid_index: index,
                port_num: port,
                gid_type: GidType::ROCE_V2.0,
                netdev_ifindex: 0,
            });
        }
        gids
    }

    /// The reverse of [`make`](Self::make).
    pub(crate) fn clear(&self, firmware: &Firmware, caps: &Caps) {
        for own in &self.0 {
            let _ = firmware.execute(&entry(caps, own.port_num, own.gid_index), &mut [0; SHORT]);
        }
    }

    /// An entry; `ENODATA` when it is empty, `EINVAL` beyond the `length` of the table.
    pub(crate) fn get(&self, length: u32, index: u64) -> Result<GidEntry, Errno> {
        if index >= u64::from(length) {
            return Err(Errno::EINVAL);
        }
        let entry = usize::try_from(index).ok().and_then(|index| self.0.get(index));
        entry.copied().ok_or(Errno::ENODATA)
    }

    /// All entries that are not empty.
    pub(crate) fn entries(&self) -> &[GidEntry] {
        &self.0
    }
}

/// The command that sets an entry, here to nothing. A port is named where the card tells that there may be several.
fn entry(caps: &Caps, port: u32, index: u32) -> [u8; SetRoceAddressIn::BYTES] {
    let mut input: [u8; SetRoceAddressIn::BYTES] = begin(opcode::SET_ROCE_ADDRESS, 0, 0);
    SetRoceAddressIn::ROCE_ADDRESS_INDEX.set(&mut input, index);
    if caps.general(GeneralCaps::NUM_VHCA_PORTS) > 0 {
        SetRoceAddressIn::VHCA_PORT_NUM.set(&mut input, port);
    }
    input
}
