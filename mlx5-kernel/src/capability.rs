//! What the device can do, read once at the start.

use pollux_mlx5_abi::caps::ethernet::{EthernetCaps, inline_mode};
use pollux_mlx5_abi::caps::flow_table::{FlowTableFields, FlowTableNicCaps, FlowTableProperties};
use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::{AtomicCaps, DeviceMemoryCaps, OdpCaps, QosCaps, RoceCaps};
use pollux_mlx5_abi::caps::{self, QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn, kind};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::field::Field;
use pollux_mlx5_abi::paging;

use crate::error::KernelError;
use crate::firmware::{Firmware, SHORT, begin};

/// The blocks of capabilities. Those that the device does not have are zero.
#[derive(Clone, Debug)]
pub(crate) struct Caps {
    general: Box<[u8; GeneralCaps::BYTES]>,
    ethernet: Box<[u8; EthernetCaps::BYTES]>,
    roce: Box<[u8; RoceCaps::BYTES]>,
    qos: Box<[u8; QosCaps::BYTES]>,
    atomic: Box<[u8; AtomicCaps::BYTES]>,
    memory: Box<[u8; DeviceMemoryCaps::BYTES]>,
    paging: Box<[u8; OdpCaps::BYTES]>,
    encapsulates: bool,
    receive: [u8; FlowTableProperties::BYTES],
    transmit: [u8; FlowTableProperties::BYTES],
    receive_sniffer: [u8; FlowTableProperties::BYTES],
    transmit_sniffer: [u8; FlowTableProperties::BYTES],
}

impl Caps {
    /// Asks for all blocks that the general one says are there. The device has been initialized.
    pub(crate) fn read(firmware: &Firmware) -> Result<Self, KernelError> {
        let general: Box<[u8; GeneralCaps::BYTES]> = block(firmware, kind::GENERAL)?;
        let has = |field: Field<{ GeneralCaps::BYTES }>| field.is_set(&general);
        let ethernet = if has(GeneralCaps::ETH_NET_OFFLOADS) {
            block(firmware, kind::ETHERNET_OFFLOADS)?
        } else {
            Box::new(EthernetCaps::ZERO)
        };
        let roce =
            if has(GeneralCaps::ROCE) { block(firmware, kind::ROCE)? } else { Box::new(RoceCaps::ZERO) };
        let qos = if has(GeneralCaps::QOS) { block(firmware, kind::QOS)? } else { Box::new(QosCaps::ZERO) };
        let atomic = if has(GeneralCaps::ATOMIC) {
            block(firmware, kind::ATOMIC)?
        } else {
            Box::new(AtomicCaps::ZERO)
        };
        let memory = if has(GeneralCaps::DEVICE_MEMORY) {
            block(firmware, kind::DEV_MEM)?
        } else {
            Box::new(DeviceMemoryCaps::ZERO)
        };
        let paging = if has(GeneralCaps::PG) { block(firmware, kind::ODP)? } else { Box::new(OdpCaps::ZERO) };
        let (mut receive, mut transmit) = (FlowTableProperties::ZERO, FlowTableProperties::ZERO);
        let (mut receive_sniffer, mut transmit_sniffer) =
            (FlowTableProperties::ZERO, FlowTableProperties::ZERO);
        let mut encapsulates = false;
        if has(GeneralCaps::NIC_FLOW_TABLE) {
            let steering: Box<[u8; FlowTableNicCaps::BYTES]> = block(firmware, kind::FLOW_TABLE)?;
            receive = FlowTableNicCaps::FLOW_TABLE_PROPERTIES_NIC_RECEIVE.get(&steering);
            transmit = FlowTableNicCaps::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT.get(&steering);
            encapsulates = FlowTableNicCaps::ENCAP_GENERAL_HEADER.is_set(&steering);
            // TIRs of programs must be allowed in those tables. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`, `get_flow_table`.
            if FlowTableNicCaps::ALLOW_SNIFFER_AND_NIC_RX_SHARED_TIR.is_set(&steering) {
                receive_sniffer = FlowTableNicCaps::FLOW_TABLE_PROPERTIES_NIC_RECEIVE_SNIFFER.get(&steering);
                transmit_sniffer =
                    FlowTableNicCaps::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT_SNIFFER.get(&steering);
            }
        }
        Ok(Self {
            general,
            ethernet,
            roce,
            qos,
            atomic,
            memory,
            paging,
            encapsulates,
            receive,
            transmit,
            receive_sniffer,
            transmit_sniffer,
        })
    }

    pub(crate) fn general(&self, field: Field<{ GeneralCaps::BYTES }>) -> u32 {
        field.get(&self.general)
    }

    pub(crate) fn has(&self, field: Field<{ GeneralCaps::BYTES }>) -> bool {
        field.is_set(&self.general)
    }

    /// `1 << field`, for fields that are logarithms.
    pub(crate) fn count(&self, field: Field<{ GeneralCaps::BYTES }>) -> u32 {
        1_u32.checked_shl(self.general(field)).unwrap_or(u32::MAX)
    }

    pub(crate) fn ethernet(&self, field: Field<{ EthernetCaps::BYTES }>) -> u32 {
        field.get(&self.ethernet)
    }

    pub(crate) fn has_ethernet(&self, field: Field<{ EthernetCaps::BYTES }>) -> bool {
        field.is_set(&self.ethernet)
    }

    pub(crate) fn roce(&self, field: Field<{ RoceCaps::BYTES }>) -> u32 {
        field.get(&self.roce)
    }

    pub(crate) fn qos(&self, field: Field<{ QosCaps::BYTES }>) -> u32 {
        field.get(&self.qos)
    }

    pub(crate) fn atomic(&self, field: Field<{ AtomicCaps::BYTES }>) -> u32 {
        field.get(&self.atomic)
    }

    /// Whether the function's port is to become another's second one, so that it does no RDMA of its own. Source: Linux
    /// `include/linux/mlx5/driver.h`, `mlx5_core_is_mp_slave`.
    pub(crate) fn is_second_function(&self) -> bool {
        self.general(GeneralCaps::AFFILIATE_NIC_VPORT_CRITERIA) != 0
            && self.general(GeneralCaps::NUM_VHCA_PORTS) <= 1
    }

    /// Whether it asks for pages by key and address.
    pub(crate) fn pages_on_demand(&self) -> bool {
        self.has(GeneralCaps::PG) && paging::BY_MEMORY.is_set(&self.paging)
    }

    /// Whether all memory of a program can be under one key then. Source: Linux `drivers/infiniband/hw/mlx5/odp.c`,
    /// `mlx5_ib_internal_fill_odp_caps`.
    pub(crate) fn pages_all_memory(&self) -> bool {
        use GeneralCaps as G;
        let needed = [G::FIXED_BUFFER_SIZE, G::NULL_MKEY, G::UMR_EXTENDED_TRANSLATION_OFFSET];
        self.pages_on_demand()
            && needed.into_iter().all(|field| self.has(field))
            && !self.has(G::UMR_INDIRECT_MKEY_DISABLED)
    }

    /// What a transport may do that comes upon pages which are not there, of [`paging::service`].
    pub(crate) fn paged_services(&self, transport: Field<{ OdpCaps::BYTES }>) -> u32 {
        transport.get(&self.paging)
    }

    /// Whether it lends memory of its own.
    pub(crate) fn has_device_memory(&self) -> bool {
        DeviceMemoryCaps::MEMIC.is_set(&self.memory)
    }

    pub(crate) fn device_memory(&self, field: Field<{ DeviceMemoryCaps::BYTES }>) -> u32 {
        field.get(&self.memory)
    }

    /// Where that begins on the device's bus.
    pub(crate) fn device_memory_start(&self) -> u64 {
        DeviceMemoryCaps::MEMIC_BAR_START_ADDR.get(&self.memory)
    }

    pub(crate) fn receive(&self) -> &[u8; FlowTableProperties::BYTES] {
        &self.receive
    }

    /// Whether steering of what is sent puts any header in front.
    pub(crate) fn encapsulates(&self) -> bool {
        self.encapsulates
    }

    pub(crate) fn transmit(&self) -> &[u8; FlowTableProperties::BYTES] {
        &self.transmit
    }

    /// What steering of copies for sniffers can do; nothing where rules of programs may not lead there.
    pub(crate) fn receive_sniffer(&self) -> &[u8; FlowTableProperties::BYTES] {
        &self.receive_sniffer
    }

    pub(crate) fn transmit_sniffer(&self) -> &[u8; FlowTableProperties::BYTES] {
        &self.transmit_sniffer
    }

    /// What rules of receive steering can match.
    pub(crate) fn matched(&self) -> &[u8; FlowTableFields::BYTES] {
        FlowTableProperties::FT_FIELD_SUPPORT.of(&self.receive)
    }

    /// How much of a frame must stand in the send entry, in the numbers of the firmware. `in_context` is what the virtual
    /// port says. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/vport.c`, `mlx5_query_min_inline`.
    pub(crate) fn min_inline(&self, in_context: u32) -> u8 {
        match self.ethernet(EthernetCaps::WQE_INLINE_MODE) {
            inline_mode::L2 => 1,
            inline_mode::VPORT_CONTEXT => in_context as u8,
            _ => 0,
        }
    }

    /// Whether time stamps of real time can be asked for: format "real time" (1) or both (2).
    pub(crate) const fn real_time(format: u32) -> bool {
        matches!(format, 1 | 2)
    }
}

/// Reads the block of a kind, as it is now.
pub(crate) fn block<const N: usize>(firmware: &Firmware, kind: u16) -> Result<Box<[u8; N]>, KernelError> {
    read(firmware, kind, caps::NOW)
}

fn read<const N: usize>(firmware: &Firmware, kind: u16, when: u16) -> Result<Box<[u8; N]>, KernelError> {
    let input: [u8; QueryHcaCapIn::BYTES] = begin(opcode::QUERY_HCA_CAP, 0, caps::op_mod(kind, when));
    let mut output = Box::new(QueryHcaCapOut::ZERO);
    firmware.must(&input, output.as_mut_slice())?;
    let mut block = Box::new([0; N]);
    block.copy_from_slice(&QueryHcaCapOut::CAPABILITY.of(&output)[..N]);
    Ok(block)
}

/// Before the device is initialized: tells it which of its abilities are wanted. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/main.c`, `handle_hca_cap`.
pub(crate) fn settle(firmware: &Firmware) -> Result<(), KernelError> {
    let mut wanted: Box<[u8; GeneralCaps::BYTES]> = block(firmware, kind::GENERAL)?;
    let most: Box<[u8; GeneralCaps::BYTES]> = read(firmware, kind::GENERAL, caps::AT_MOST)?;
    GeneralCaps::CMDIF_CHECKSUM.set(&mut wanted, 0);
    // Pages of the host are of 4 KiB: one UAR each.
    GeneralCaps::LOG_UAR_PAGE_SZ.set(&mut wanted, 0);
    let queues = GeneralCaps::LOG_MAX_QP;
    queues.set(&mut wanted, queues.get(&most).min(LOG_QUEUE_PAIRS));
    let mut input: Box<[u8; SetHcaCapIn::BYTES]> =
        Box::new(begin(opcode::SET_HCA_CAP, 0, caps::op_mod(kind::GENERAL, caps::AT_MOST)));
    SetHcaCapIn::CAPABILITY.of_mut(&mut input)[..GeneralCaps::BYTES].copy_from_slice(wanted.as_slice());
    firmware.must(input.as_slice(), &mut [0; SHORT])
}

/// Queue pairs that are asked for, as a logarithm. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/main.c`,
/// `LOG_MAX_SUPPORTED_QPS`.
const LOG_QUEUE_PAIRS: u32 = 18;

/// Logarithms that would overflow what they are the logarithm of.
pub(crate) fn sane(caps: &Caps) -> Result<(), KernelError> {
    let logarithms = [
        ("log_max_cq_sz", GeneralCaps::LOG_MAX_CQ_SZ),
        ("log_max_qp_sz", GeneralCaps::LOG_MAX_QP_SZ),
        ("log_max_srq_sz", GeneralCaps::LOG_MAX_SRQ_SZ),
    ];
    for (what, field) in logarithms {
        let value = caps.general(field);
        if value > 24 {
            return Err(KernelError::Unfit { what, value: value.into(), wanted: "at most 24" });
        }
    }
    Ok(())
}
