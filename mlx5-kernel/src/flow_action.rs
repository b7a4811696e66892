//! What flows do to packets: lists of changes to headers, headers put in front or taken off. Source: Linux
//! `drivers/infiniband/hw/mlx5/fs.c`, `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER`,
//! `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`; rdma-core `providers/mlx5/verbs.c`, `_mlx5dv_create_flow_action_modify_header`,
//! `_mlx5dv_create_flow_action_packet_reformat`.

use pollux_mlx5_abi::caps::flow_table::FlowTableProperties;
use pollux_mlx5_abi::command::flow::table;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rewrite::{
    AllocModifyHeaderIn, AllocModifyHeaderOut, AllocPacketReformatOut, DeallocModifyHeaderIn,
    DeallocPacketReformatIn, PacketReformatContext, place, reformat,
};
use pollux_mlx5_abi::kernel::attribute::{create_modify_header as m, create_packet_reformat as r};
use pollux_mlx5_abi::kernel::verbs::{flow_table, packet_reformat};
use pollux_uverbs::{Call, Errno};

use crate::adapter::Adapter;
use crate::core::Core;
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::steering::PacketChange;

/// Bytes of a change.
const CHANGE_BYTES: usize = 8;

/// Something that flows may do to packets, as an object of a program's.
#[derive(Debug)]
pub(crate) struct FlowAction(PacketChange);

impl FlowAction {
    pub(crate) fn change(&self) -> PacketChange {
        self.0
    }
}

impl Object for FlowAction {
    fn kind(&self) -> ObjectKind {
        ObjectKind::FlowAction
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        match self.0 {
            PacketChange::Fields(number) => {
                let code = opcode::DEALLOC_MODIFY_HEADER_CONTEXT;
                let mut input: [u8; DeallocModifyHeaderIn::BYTES] = begin(code, 0, 0);
                DeallocModifyHeaderIn::MODIFY_HEADER_ID.set(&mut input, number);
                core.execute(&input, &mut [0; SHORT])
            }
            PacketChange::Reformat(number) => {
                let code = opcode::DEALLOC_PACKET_REFORMAT_CONTEXT;
                let mut input: [u8; DeallocPacketReformatIn::BYTES] = begin(code, 0, 0);
                DeallocPacketReformatIn::PACKET_REFORMAT_ID.set(&mut input, number);
                core.execute(&input, &mut [0; SHORT])
            }
            PacketChange::Decapsulate => Ok(()),
        }
    }
}

/// The firmware's number of the tables that a program names, and what the device can in them.
fn tables(adapter: &Adapter, named: u64) -> Result<(u32, &[u8; FlowTableProperties::BYTES]), Errno> {
    match named {
        flow_table::NIC_RX => Ok((table::NIC_RX, adapter.caps.receive())),
        flow_table::NIC_TX => Ok((table::NIC_TX, adapter.caps.transmit())),
        flow_table::FDB | flow_table::RDMA_RX | flow_table::RDMA_TX => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

impl Session {
    /// `FLOW_ACTION/CREATE_MODIFY_HEADER`.
    pub(crate) fn create_modify_header(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let list = call.input(m::ACTIONS_PRM).unwrap_or_default();
        if list.is_empty() || !list.len().is_multiple_of(CHANGE_BYTES) {
            return Err(Errno::EINVAL);
        }
        let (kind, able) = tables(&self.core, call.number(m::FT_TYPE)?)?;
        let count = u32::try_from(list.len() / CHANGE_BYTES).map_err(|_| Errno::EINVAL)?;
        if count > FlowTableProperties::MAX_MODIFY_HEADER_ACTIONS.get(able) {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut head: [u8; AllocModifyHeaderIn::BYTES] = begin(opcode::ALLOC_MODIFY_HEADER_CONTEXT, 0, 0);
        AllocModifyHeaderIn::TABLE_TYPE.set(&mut head, kind);
        AllocModifyHeaderIn::NUM_OF_ACTIONS.set(&mut head, count);
        let mut output = AllocModifyHeaderOut::ZERO;
        self.core.execute(&[head.as_slice(), list].concat(), &mut output)?;
        let number = AllocModifyHeaderOut::MODIFY_HEADER_ID.get(&output);
        let handle = self.handles.add(FlowAction(PacketChange::Fields(number)), &[]);
        call.create(m::HANDLE, handle)
    }

    /// `FLOW_ACTION/CREATE_PACKET_REFORMAT`.
    pub(crate) fn create_packet_reformat(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use FlowTableProperties as P;
        let (kind, named) = (call.number(r::TYPE)?, call.number(r::FT_TYPE)?);
        let caps = &self.core.caps;
        let (receives, sends) = (named == flow_table::NIC_RX, named == flow_table::NIC_TX);
        let (able, firmware) = match kind {
            packet_reformat::L2_TUNNEL_TO_L2 => (receives && P::DECAP.is_set(caps.receive()), None),
            packet_reformat::L2_TO_L2_TUNNEL => {
                (sends && caps.encapsulates(), Some(reformat::L2_TO_L2_TUNNEL))
            }
            packet_reformat::L3_TUNNEL_TO_L2 => {
                let able = receives && P::REFORMAT_L3_TUNNEL_TO_L2.is_set(caps.receive());
                (able, Some(reformat::L3_TUNNEL_TO_L2))
            }
            packet_reformat::L2_TO_L3_TUNNEL => {
                let able = sends && P::REFORMAT_L2_TO_L3_TUNNEL.is_set(caps.transmit());
                (able, Some(reformat::L2_TO_L3_TUNNEL))
            }
            _ => return Err(Errno::EINVAL),
        };
        if !able {
            return Err(Errno::EOPNOTSUPP);
        }
        let made = match firmware {
            None => PacketChange::Decapsulate,
            Some(kind) => {
                let header = call.input(r::DATA_BUF).ok_or(Errno::ENOENT)?;
                PacketChange::Reformat(self.reformat(kind, header)?)
            }
        };
        let handle = self.handles.add(FlowAction(made), &[]);
        call.create(r::HANDLE, handle)
    }

    /// Makes a context with this header.
    fn reformat(&self, kind: u32, header: &[u8]) -> Result<u32, Errno> {
        let mut context = PacketReformatContext::ZERO;
        let bytes = u32::try_from(header.len()).map_err(|_| Errno::EINVAL)?;
        if !PacketReformatContext::REFORMAT_DATA_SIZE.fits(bytes) {
            return Err(Errno::EINVAL);
        }
        PacketReformatContext::REFORMAT_TYPE.set(&mut context, kind);
        PacketReformatContext::REFORMAT_DATA_SIZE.set(&mut context, bytes);
        let head: [u8; place::CONTEXT] = begin(opcode::ALLOC_PACKET_REFORMAT_CONTEXT, 0, 0);
        let mut input = [head.as_slice(), &context[..place::DATA], header].concat();
        input.resize(input.len().next_multiple_of(4), 0);
        let mut output = AllocPacketReformatOut::ZERO;
        self.core.execute(&input, &mut output)?;
        Ok(AllocPacketReformatOut::PACKET_REFORMAT_ID.get(&output))
    }
}
