//! What a program with this driver tells of it (`pmdinfo`, DPDK's `dpdk-pmdinfo.py`).

use pollux_port::driver::{DriverInfo, PCI_ANY};

use crate::devargs::PARAMS;

/// The PCI vendor of all of them. Source: Linux `include/linux/pci_ids.h`, `PCI_VENDOR_ID_MELLANOX`.
pub const VENDOR: u16 = 0x15b3;

/// PCI device numbers of Ethernet functions that the kernel's mlx5_core takes; this driver takes what is bound to that. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/main.c`, `mlx5_core_pci_table`.
pub const DEVICES: [u16; 21] = [
    0x1013, 0x1014, 0x1015, 0x1016, 0x1017, 0x1018, 0x1019, 0x101a, 0x101b, 0x101c, 0x101d, 0x101e, 0x101f,
    0x1021, 0x1023, 0x1025, 0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc, 0xa2df,
];

const PCI_IDS: [[u16; 4]; DEVICES.len()] = {
    let mut ids = [[VENDOR, PCI_ANY, PCI_ANY, PCI_ANY]; DEVICES.len()];
    let mut at = 0;
    while at < DEVICES.len() {
        ids[at][1] = DEVICES[at];
        at += 1;
    }
    ids
};

/// The driver, under DPDK's name for it. Source: DPDK `drivers/net/mlx5/mlx5.h`, `MLX5_ETH_DRIVER_NAME`; its kernel modules are those of
/// `drivers/net/mlx5/mlx5.c`, `RTE_PMD_REGISTER_KMOD_DEP`.
pub const INFO: DriverInfo = DriverInfo {
    name: "mlx5_eth",
    params: PARAMS,
    kmod: "* ib_uverbs & mlx5_core & mlx5_ib",
    pci_ids: &PCI_IDS,
};

/// The text that programs carry.
pub(crate) static TEXT: [u8; INFO.text_bytes()] = INFO.text();
