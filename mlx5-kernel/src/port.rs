//! A function's port: its addresses, its state, its counters, its GIDs.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::RoceCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::register::{
    AccessRegisterIn, AccessRegisterOut, Ptys, access, ext_link_mode as ext, id, link_mode as mode, protocol,
};
use pollux_mlx5_abi::command::start::{AdapterParameters, QueryAdapterOut};
use pollux_mlx5_abi::command::vport::{
    FieldSelect, ModifyNicVportContextIn, NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut,
    QueryVportStateIn, QueryVportStateOut, state,
};
use pollux_uverbs::Errno;
use pollux_uverbs::abi::device::QueryPortResp;
use pollux_uverbs::abi::flags::{LinkLayer, PortState};
use pollux_uverbs::abi::ioctl_verbs::QueryPortRespEx;

use crate::adapter::Adapter;
use crate::capability::Caps;
use crate::error::KernelError;
use crate::firmware::{Failure, Firmware, SHORT, begin};
use crate::gid::Gids;
use crate::loopback;
use crate::neighbour::InterfaceAddress;
use crate::queue_counters::QueueCounters;

/// The number of the function's own port.
pub(crate) const PORT: u64 = 1;

/// Bytes of a frame's headers that RoCE needs, taken off the MTU. Source: Linux `include/rdma/ib_addr.h`, `iboe_get_mtu`.
const ROCE_HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// What does not change while the device runs.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) mac: [u8; 6],
    pub(crate) node_guid: u64,
    pub(crate) system_guid: u64,
    pub(crate) vendor: u32,
    /// Headers that must stand in a send entry, as the virtual port's context says.
    pub(crate) min_inline: u32,
    /// Counters of the queues of verbs.
    pub(crate) counters: QueueCounters,
    /// Addresses of the kernel's network there, beside the link-local one.
    pub(crate) addresses: Vec<InterfaceAddress>,
    /// None where the function does no RDMA of its own.
    pub(crate) gids: Gids,
    roce: bool,
}

impl Port {
    pub(crate) fn start(
        firmware: &Firmware,
        caps: &Caps,
        addresses: &[InterfaceAddress],
    ) -> Result<Self, KernelError> {
        loopback::turn(firmware, caps, false)
            .map_err(|failure| failure.of(opcode::MODIFY_NIC_VPORT_CONTEXT))?;
        let mut output = QueryNicVportContextOut::ZERO;
        let query: [u8; SHORT] = begin(opcode::QUERY_NIC_VPORT_CONTEXT, 0, 0);
        firmware.must(&query, &mut output)?;
        let context = QueryNicVportContextOut::NIC_VPORT_CONTEXT.of(&output);
        let mut output = QueryAdapterOut::ZERO;
        let query: [u8; SHORT] = begin(opcode::QUERY_ADAPTER, 0, 0);
        firmware.must(&query, &mut output)?;
        let adapter = QueryAdapterOut::QUERY_ADAPTER_STRUCT.of(&output);
        // 16 reserved bits, and the 6 bytes.
        let [_, _, mac @ ..] = NicVportContext::PERMANENT_ADDRESS.get(context).to_be_bytes();
        let mut port = Self {
            mac,
            node_guid: NicVportContext::NODE_GUID.get(context),
            system_guid: NicVportContext::SYSTEM_IMAGE_GUID.get(context),
            vendor: AdapterParameters::IEEE_VENDOR_ID.get(adapter),
            min_inline: NicVportContext::MIN_WQE_INLINE_MODE.get(context),
            // From here on nothing fails that would leave it behind.
            counters: QueueCounters::make(firmware),
            addresses: addresses.to_vec(),
            gids: Gids::default(),
            roce: false,
        };
        if caps.has(GeneralCaps::ROCE) {
            port.roce = enable_roce(firmware, true).is_ok();
            if port.roce && !caps.is_second_function() {
                port.gids = Gids::make(firmware, caps, PORT as u32, mac, addresses);
            }
        }
        Ok(port)
    }

    /// The reverse of [`start`](Self::start).
    pub(crate) fn end(&self, firmware: &Firmware, caps: &Caps) {
        self.gids.clear(firmware, caps);
        self.counters.end(firmware);
        if self.roce {
            let _ = enable_roce(firmware, false);
        }
    }

    /// Entries of the GID table.
    pub(crate) fn gid_table_len(&self, caps: &Caps) -> u32 {
        if self.roce { caps.roce(RoceCaps::ROCE_ADDRESS_TABLE_SIZE) } else { 0 }
    }

    /// Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_query_port_roce`. There is no interface of the kernel's
    /// behind the port: its state is the virtual port's, its MTU the one of the virtual port's context.
    pub(crate) fn query(&self, adapter: &Adapter) -> Result<QueryPortRespEx, Errno> {
        let (width, speed) = speed(adapter)?;
        let mut vport = QueryNicVportContextOut::ZERO;
        let query: [u8; QueryNicVportContextIn::BYTES] = begin(opcode::QUERY_NIC_VPORT_CONTEXT, 0, 0);
        adapter.execute(&query, &mut vport)?;
        let context = QueryNicVportContextOut::NIC_VPORT_CONTEXT.of(&vport);
        let mtu = NicVportContext::MTU.get(context);
        let mut answer = QueryVportStateOut::ZERO;
        let query: [u8; QueryVportStateIn::BYTES] = begin(opcode::QUERY_VPORT_STATE, 0, 0);
        adapter.execute(&query, &mut answer)?;
        let up = QueryVportStateOut::STATE.get(&answer) == state::UP;
        let legacy_resp = QueryPortResp {
            // CM is supported. Source: Linux `include/rdma/ib_verbs.h`, `IB_PORT_CM_SUP`, and `IB_UVERBS_PCF_IP_BASED_GIDS`.
            port_cap_flags: if self.roce { 1 << 16 | 1 << 26 } else { 0 },
            max_msg_sz: 1_u32.checked_shl(adapter.caps.general(GeneralCaps::LOG_MAX_MSG)).unwrap_or(u32::MAX),
            qkey_viol_cntr: NicVportContext::QKEY_VIOLATION_COUNTER.get(context),
            gid_tbl_len: self.gid_table_len(&adapter.caps),
            pkey_tbl_len: 1,
            state: if up { PortState::ACTIVE } else { PortState::DOWN }.0,
            max_mtu: 5,
            active_mtu: roce_mtu(mtu),
            active_width: width,
            active_speed: u8::try_from(speed).unwrap_or(0),
            // Link up, or disabled. Source: Linux `include/rdma/ib_verbs.h`, `IB_PORT_PHYS_STATE_*`.
            phys_state: if up { 5 } else { 3 },
            link_layer: LinkLayer::ETHERNET.0,
            // Addresses are always global.
            flags: u8::from(self.roce),
            ..QueryPortResp::default()
        };
        Ok(QueryPortRespEx { legacy_resp, active_speed_ex: speed.into(), ..QueryPortRespEx::default() })
    }

    /// What the port carries now, in units of 100 Mbit/s. Source: Linux `drivers/infiniband/hw/mlx5/main.c`,
    /// `mlx5_ib_query_port_speed_from_port`: that is what is told of a virtual port whose firmware sets it no speed of its own,
    /// as the model's does not.
    pub(crate) fn speed(&self, adapter: &Adapter) -> Result<u64, Errno> {
        let told = self.query(adapter)?;
        if told.legacy_resp.state == PortState::DOWN.0 {
            return Ok(0);
        }
        rate(told.legacy_resp.active_width, told.active_speed_ex).ok_or(Errno::EINVAL)
    }
}

/// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/vport.c`, `mlx5_nic_vport_update_roce_state`.
fn enable_roce(firmware: &Firmware, on: bool) -> Result<(), Failure> {
    let mut input: [u8; ModifyNicVportContextIn::BYTES] = begin(opcode::MODIFY_NIC_VPORT_CONTEXT, 0, 0);
    let mut select = FieldSelect::ZERO;
    FieldSelect::ROCE_EN.set(&mut select, 1);
    ModifyNicVportContextIn::FIELD_SELECT.set(&mut input, u32::from_be_bytes(select));
    let context = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(&mut input);
    NicVportContext::ROCE_EN.set(context, on.into());
    firmware.execute(&input, &mut [0; SHORT])
}

/// The MTU that RoCE has on an interface, as its code.
const fn roce_mtu(mtu: u32) -> u8 {
    match mtu.saturating_sub(ROCE_HEADERS) {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        256.. => 1,
        _ => 0,
    }
}

/// Codes of widths and speeds. Source: Linux `include/rdma/ib_verbs.h`, `enum ib_port_width`, `enum ib_port_speed`.
const WIDTH_1X: u8 = 1;
const WIDTH_2X: u8 = 16;
const WIDTH_4X: u8 = 2;
const SDR: u16 = 1;
const DDR: u16 = 2;
const QDR: u16 = 4;
const FDR: u16 = 16;
const EDR: u16 = 32;
const HDR: u16 = 64;
const NDR: u16 = 128;

/// Width times speed, in units of 100 Mbit/s, of those that [`speed`] tells. Source: Linux `drivers/infiniband/core/verbs.c`,
/// `ib_port_attr_to_speed_info`, and `include/rdma/ib_verbs.h`, `ib_width_enum_to_int`.
fn rate(width: u8, speed: u32) -> Option<u64> {
    let lanes = match width {
        WIDTH_1X => 1,
        WIDTH_2X => 2,
        WIDTH_4X => 4,
        _ => return None,
    };
    let lane = match u16::try_from(speed).ok()? {
        SDR => 25,
        DDR => 50,
        QDR => 100,
        FDR => 140,
        EDR => 250,
        HDR => 500,
        NDR => 1000,
        _ => return None,
    };
    Some(lanes * lane)
}

/// Lanes and speed of the link. Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `translate_eth_proto_oper`.
fn speed(adapter: &Adapter) -> Result<(u8, u16), Errno> {
    let mut head: [u8; AccessRegisterIn::BYTES] = begin(opcode::ACCESS_REG, 0, access::READ);
    AccessRegisterIn::REGISTER_ID.set(&mut head, id::PTYS.into());
    let mut register = Ptys::ZERO;
    Ptys::LOCAL_PORT.set(&mut register, 1);
    Ptys::PROTO_MASK.set(&mut register, protocol::EN);
    let input = [head.as_slice(), &register].concat();
    let mut output = [0; AccessRegisterOut::BYTES + Ptys::BYTES];
    adapter.execute(&input, &mut output)?;
    register.copy_from_slice(&output[AccessRegisterOut::BYTES..]);
    let extended = Ptys::EXT_ETH_PROTO_CAPABILITY.is_set(&register);
    let operating =
        if extended { Ptys::EXT_ETH_PROTO_OPER.get(&register) } else { Ptys::ETH_PROTO_OPER.get(&register) };
    Ok(if extended { extended_speed(operating) } else { legacy_speed(operating) })
}

/// What is told for a mode that is not known, such as none.
const UNKNOWN: (u8, u16) = (WIDTH_4X, QDR);

const fn legacy_speed(operating: u32) -> (u8, u16) {
    match operating {
        mode::MODE_1000BASE_CX_SGMII
        | mode::MODE_1000BASE_KX
        | mode::MODE_100BASE_TX
        | mode::MODE_1000BASE_T => (WIDTH_1X, SDR),
        mode::MODE_10GBASE_T
        | mode::MODE_10GBASE_CX4
        | mode::MODE_10GBASE_KX4
        | mode::MODE_10GBASE_KR
        | mode::MODE_10GBASE_CR
        | mode::MODE_10GBASE_SR
        | mode::MODE_10GBASE_ER => (WIDTH_1X, QDR),
        mode::MODE_25GBASE_CR | mode::MODE_25GBASE_KR | mode::MODE_25GBASE_SR => (WIDTH_1X, EDR),
        mode::MODE_40GBASE_CR4 | mode::MODE_40GBASE_KR4 | mode::MODE_40GBASE_SR4 | mode::MODE_40GBASE_LR4 => {
            (WIDTH_4X, QDR)
        }
        mode::MODE_50GBASE_CR2 | mode::MODE_50GBASE_KR2 | mode::MODE_50GBASE_SR2 => (WIDTH_1X, HDR),
        mode::MODE_56GBASE_R4 => (WIDTH_4X, FDR),
        mode::MODE_100GBASE_CR4
        | mode::MODE_100GBASE_SR4
        | mode::MODE_100GBASE_KR4
        | mode::MODE_100GBASE_LR4 => (WIDTH_4X, EDR),
        _ => UNKNOWN,
    }
}

const fn extended_speed(operating: u32) -> (u8, u16) {
    match operating {
        ext::SGMII_100M | ext::MODE_1000BASE_X_SGMII => (WIDTH_1X, SDR),
        ext::MODE_5GBASE_R => (WIDTH_1X, DDR),
        ext::MODE_10GBASE_XFI_XAUI_1 => (WIDTH_1X, QDR),
        ext::MODE_40GBASE_XLAUI_4_XLPPI_4 => (WIDTH_4X, QDR),
        ext::MODE_25GAUI_1_25GBASE_CR_KR => (WIDTH_1X, EDR),
        ext::MODE_50GAUI_2_LAUI_2_50GBASE_CR2_KR2 => (WIDTH_2X, EDR),
        ext::MODE_50GAUI_1_LAUI_1_50GBASE_CR_KR => (WIDTH_1X, HDR),
        ext::CAUI_4_100GBASE_CR4_KR4 => (WIDTH_4X, EDR),
        ext::MODE_100GAUI_2_100GBASE_CR2_KR2 => (WIDTH_2X, HDR),
        ext::MODE_100GAUI_1_100GBASE_CR_KR => (WIDTH_1X, NDR),
        ext::MODE_200GAUI_4_200GBASE_CR4_KR4 => (WIDTH_4X, HDR),
        ext::MODE_200GAUI_2_200GBASE_CR2_KR2 => (WIDTH_2X, NDR),
        ext::MODE_400GAUI_4_400GBASE_CR4_KR4 => (WIDTH_4X, NDR),
        _ => UNKNOWN,
    }
}
