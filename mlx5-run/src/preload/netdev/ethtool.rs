//! The ioctl of ethtool(8): what the driver is, how the link is, what the port counted.
//!
//! Source: Linux `include/uapi/linux/ethtool.h`, `net/ethtool/ioctl.c`.

use pollux_mlx5_abi::command::register::link_mode;
use pollux_uverbs::Errno;

use super::super::client::Client;
use super::Netdev;
use super::statistic::{ALL, NAME_BYTES};
use crate::plan::pci_address;

/// Commands, by their numbers.
mod command {
    pub(super) const GDRVINFO: u32 = 0x03;
    pub(super) const GLINK: u32 = 0x0a;
    pub(super) const GPAUSEPARAM: u32 = 0x12;
    pub(super) const GSTRINGS: u32 = 0x1b;
    pub(super) const GSTATS: u32 = 0x1d;
    pub(super) const GPERMADDR: u32 = 0x20;
    pub(super) const GPFLAGS: u32 = 0x27;
    pub(super) const GSSET_INFO: u32 = 0x37;
    pub(super) const GLINKSETTINGS: u32 = 0x4c;
}

/// Of sets of names, that of statistics, and that of the driver's own flags, of which there are none.
const STATISTICS: u32 = 1;
const DRIVER_FLAGS: u32 = 2;

/// What there is of the link's settings in front of its modes, and words of a mask of modes.
const LINK_SETTINGS: usize = 48;
const MODE_WORDS: usize = 4;
/// `SPEED_UNKNOWN`, `DUPLEX_FULL`, `DUPLEX_UNKNOWN`, `PORT_DA`.
const SPEED_UNKNOWN: u32 = u32::MAX;
const FULL: u8 = 1;
const DUPLEX_UNKNOWN: u8 = 0xff;
const DIRECT_ATTACH: u8 = 5;

/// Modes of the device, and the numbers that ethtool has for them. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/en_ethtool.c`, `mlx5e_build_ptys2ethtool_map`.
const MODES: [(u32, usize); 3] =
    [(link_mode::MODE_40GBASE_CR4, 24), (link_mode::MODE_25GBASE_CR, 31), (link_mode::MODE_100GBASE_CR4, 38)];
/// `ETHTOOL_LINK_MODE_Autoneg_BIT`, and the mode of a card that its older field has no name for.
const AUTONEGOTIATION: usize = 6;
const MODE_200GBASE_CR4: usize = 66;

/// Answers a command that stands at that address of the client's.
pub(super) fn carry_out(netdev: &Netdev, client: Client, address: u64) -> Result<(), Errno> {
    match word(client, address)? {
        command::GDRVINFO => client.write(address + 4, &driver(netdev)[4..]),
        command::GLINK => client.write(address + 4, &u32::from(netdev.is_running()).to_ne_bytes()),
        command::GLINKSETTINGS => link_settings(netdev, client, address),
        // Nobody pauses, and nobody agrees on it. The driver has no flags of its own.
        command::GPAUSEPARAM => client.write(address + 4, &[0; 12]),
        command::GPFLAGS => client.write(address + 4, &[0; 4]),
        command::GSTRINGS => names(client, address),
        command::GSTATS => statistics(netdev, client, address),
        command::GPERMADDR => permanent(netdev, client, address),
        command::GSSET_INFO => sets(client, address),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn word(client: Client, address: u64) -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    client.read(address, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// `struct ethtool_drvinfo`.
fn driver(netdev: &Netdev) -> [u8; 196] {
    let mut told = [0; 196];
    let profile = netdev.described.profile();
    let (major, minor, sub) = profile.firmware();
    let firmware = format!("{major}.{minor}.{sub:04} ({})", profile.board());
    for (at, text) in [
        (4, "mlx5_core"),
        (36, env!("CARGO_PKG_VERSION")),
        (68, firmware.as_str()),
        (100, pci_address(netdev.number).as_str()),
    ] {
        told[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    told[180..184].copy_from_slice(&count().to_ne_bytes());
    told
}

fn count() -> u32 {
    u32::try_from(ALL.len()).unwrap_or(0)
}

/// `struct ethtool_link_settings`. Who does not know how long masks are is told, as a negative number, and asks again.
fn link_settings(netdev: &Netdev, client: Client, address: u64) -> Result<(), Errno> {
    const WORDS_AT: usize = 15;
    let mut given = [0; LINK_SETTINGS];
    client.read(address, &mut given)?;
    let mut told = [0; LINK_SETTINGS + 3 * 4 * MODE_WORDS];
    told[..4].copy_from_slice(&given[..4]);
    let words = i8::try_from(MODE_WORDS).unwrap_or(0);
    if given[WORDS_AT] != words.cast_unsigned() {
        told[WORDS_AT] = (-words).cast_unsigned();
        return client.write(address, &told[..LINK_SETTINGS]);
    }
    let profile = netdev.described.profile();
    let running = netdev.is_running();
    let speed = if running { profile.speed_mbps() } else { SPEED_UNKNOWN };
    told[4..8].copy_from_slice(&speed.to_ne_bytes());
    told[8] = if running { FULL } else { DUPLEX_UNKNOWN };
    told[9] = DIRECT_ATTACH;
    told[11] = 1;
    told[WORDS_AT] = words.cast_unsigned();
    let supported = modes(profile.traits().link_modes.0, profile.speed_mbps());
    let bytes: Vec<u8> = supported.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // Supported, and advertised; nothing of the other end is known.
    for mask in 0..2 {
        let at = LINK_SETTINGS + mask * bytes.len();
        told[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    client.write(address, &told)
}

fn modes(device: u32, speed_mbps: u32) -> [u32; MODE_WORDS] {
    let mut mask = [0; MODE_WORDS];
    let known = MODES.into_iter().filter(|(mode, _)| device & mode != 0).map(|(_, bit)| bit);
    let fastest = (speed_mbps == 200_000).then_some(MODE_200GBASE_CR4);
    for bit in known.chain(fastest).chain([AUTONEGOTIATION]) {
        mask[bit / 32] |= 1 << (bit % 32);
    }
    mask
}

/// `struct ethtool_gstrings`.
fn names(client: Client, address: u64) -> Result<(), Errno> {
    match word(client, address + 4)? {
        STATISTICS => {
            client.write(address + 8, &count().to_ne_bytes())?;
            let mut names = vec![0; ALL.len() * NAME_BYTES];
            for (place, (name, _)) in names.chunks_exact_mut(NAME_BYTES).zip(ALL) {
                place[..name.len()].copy_from_slice(name.as_bytes());
            }
            client.write(address + 12, &names)
        }
        DRIVER_FLAGS => client.write(address + 8, &[0; 4]),
        _ => Err(Errno::EINVAL),
    }
}

/// `struct ethtool_stats`.
fn statistics(netdev: &Netdev, client: Client, address: u64) -> Result<(), Errno> {
    let port = netdev.model.device().port_counters();
    let values: Vec<u8> = ALL.iter().flat_map(|(_, value)| value(&port).to_ne_bytes()).collect();
    client.write(address + 4, &count().to_ne_bytes())?;
    client.write(address + 8, &values)
}

/// `struct ethtool_perm_addr`.
fn permanent(netdev: &Netdev, client: Client, address: u64) -> Result<(), Errno> {
    let mac = netdev.described.mac();
    if word(client, address + 4)? < mac.len() as u32 {
        return Err(Errno::EINVAL);
    }
    client.write(address + 4, &(mac.len() as u32).to_ne_bytes())?;
    client.write(address + 8, &mac)
}

/// `struct ethtool_sset_info`: of the sets that are asked for, which there are, and how many names each has.
fn sets(client: Client, address: u64) -> Result<(), Errno> {
    let mut asked = [0; 8];
    client.read(address + 8, &mut asked)?;
    let asked = u64::from_ne_bytes(asked);
    let there =
        [(STATISTICS, count()), (DRIVER_FLAGS, 0)].into_iter().filter(|(set, _)| asked & 1 << set != 0);
    let (mask, counts) = there.fold((0_u64, Vec::new()), |(mask, mut counts), (set, count)| {
        counts.extend_from_slice(&count.to_ne_bytes());
        (mask | 1 << set, counts)
    });
    client.write(address + 8, &mask.to_ne_bytes())?;
    client.write(address + 16, &counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the numbers that DPDK `drivers/net/mlx5/linux/mlx5_ethdev_os.c` has for kernels that name none.
    #[test]
    fn modes_have_the_numbers_of_ethtool() {
        let all = link_mode::MODE_25GBASE_CR | link_mode::MODE_40GBASE_CR4 | link_mode::MODE_100GBASE_CR4;
        assert_eq!(modes(all, 100_000), [1 << 31 | 1 << 24 | 1 << 6, 1 << 6, 0, 0]);
        assert_eq!(modes(link_mode::MODE_100GBASE_CR4, 200_000), [1 << 6, 1 << 6, 1 << 2, 0]);
    }
}
