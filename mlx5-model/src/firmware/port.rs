//! Commands on the function's port.

use pollux_mlx5_abi::command::counter::{QueryVportCounterIn, QueryVportCounterOut, TrafficCounter};
use pollux_mlx5_abi::command::vport::{
    FieldSelect, ModifyNicVportContextIn, ModifyVportStateIn, NicVportContext, QueryHcaVportPkeyOut,
    QueryNicVportContextIn, QueryNicVportContextOut, QueryRoceAddressIn, QueryRoceAddressOut,
    QueryVportStateOut, SetRoceAddressIn, address_list, admin, state,
};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::field::mac_value;

use super::{Call, No, need, no};
use crate::device::core::Core;
use crate::device::joint::{BY_FUNCTION, FIRST_ID, Side};
use crate::port::{ADDRESSES_MAX, HEADER_BYTES_MAX, PortCounters, Traffic, Way};
use crate::rdma::path::SECOND_PORT;

/// The default partition's key, with full membership. Source: InfiniBand Architecture Specification, volume 1, 10.9.1.2.
const DEFAULT_PKEY: u32 = 0xffff;

fn mac(value: u64) -> [u8; 6] {
    let [_, _, mac @ ..] = value.to_be_bytes();
    mac
}

impl Core {
    pub(super) fn port_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        match opcode {
            op::QUERY_VPORT_STATE => {
                let up = self.port.is_up();
                let wanted = if self.port.admin_up { admin::UP } else { admin::DOWN };
                let out = call.output()?;
                QueryVportStateOut::ADMIN_STATE.set(out, wanted);
                QueryVportStateOut::STATE.set(out, if up { state::UP } else { state::DOWN });
            }
            op::MODIFY_VPORT_STATE => {
                self.port.admin_up = ModifyVportStateIn::ADMIN_STATE.get(call.input()?) != admin::DOWN;
            }
            op::QUERY_NIC_VPORT_CONTEXT => self.query_context(call)?,
            op::MODIFY_NIC_VPORT_CONTEXT => self.modify_context(call)?,
            op::QUERY_VPORT_COUNTER => {
                let clear = QueryVportCounterIn::CLEAR.is_set(call.input()?);
                let (counters, own) = (self.port.counters, self.port.loopback.counted);
                if clear {
                    // What the vport's environment counts is not of these.
                    self.port.counters = PortCounters {
                        steering_discards: counters.steering_discards,
                        rx_steering_ended: counters.rx_steering_ended,
                        tx_steering_ended: counters.tx_steering_ended,
                        sent_while_down: counters.sent_while_down,
                        arrived_while_down: counters.arrived_while_down,
                        ..PortCounters::default()
                    };
                    self.port.loopback.counted = Way::default();
                }
                put_counters(call.output()?, &counters, &own);
            }
            op::SET_ROCE_ADDRESS => {
                let input: &[u8; SetRoceAddressIn::BYTES] = call.input()?;
                let index = SetRoceAddressIn::ROCE_ADDRESS_INDEX.get(input);
                let block = SetRoceAddressIn::ROCE_ADDRESS.get(input);
                let second = self.is_second_port(SetRoceAddressIn::VHCA_PORT_NUM.get(input))?;
                need!(self.rdma.addresses(second).set(index as usize, block), IX_ERR, 16);
                if second && let Some(joint) = &self.joint {
                    joint.set_addresses(self.rdma.addresses(true).clone());
                }
            }
            op::QUERY_ROCE_ADDRESS => {
                let input = call.input()?;
                let index = QueryRoceAddressIn::ROCE_ADDRESS_INDEX.get(input);
                let second = self.is_second_port(QueryRoceAddressIn::VHCA_PORT_NUM.get(input))?;
                let Some(address) = self.rdma.addresses(second).block(index as usize) else {
                    return Err(no(status::IX_ERR, 16));
                };
                QueryRoceAddressOut::ROCE_ADDRESS.set(call.output()?, address);
            }
            op::QUERY_HCA_VPORT_PKEY => {
                call.output::<{ QueryHcaVportPkeyOut::BYTES }>()?;
                if let Some(first) =
                    call.output.get_mut(QueryHcaVportPkeyOut::BYTES..).and_then(|rest| rest.first_chunk_mut())
                {
                    *first = DEFAULT_PKEY.to_be_bytes();
                }
            }
            op::ADD_VXLAN_UDP_DPORT | op::DELETE_VXLAN_UDP_DPORT => {
                let head: &[u8; 16] = call.input()?;
                let port = u16::from_be_bytes([head[14], head[15]]);
                need!(self.traits.vxlan, BAD_OP_ERR, 16);
                need!(port != 0, BAD_PARAM_ERR, 18);
                let (done, refusal) = match opcode {
                    op::ADD_VXLAN_UDP_DPORT => (self.tunnels.add_vxlan_port(port), status::NO_RES_ERR),
                    _ => (self.tunnels.remove_vxlan_port(port), status::BAD_RES_ERR),
                };
                if !done {
                    return Err(no(refusal, 17));
                }
            }
            // The table in front of several functions' ports: this function's own addresses are in its context.
            _ => {}
        }
        Ok(())
    }

    fn query_context(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use NicVportContext as N;
        let kind = QueryNicVportContextIn::ALLOWED_LIST_TYPE.get(call.input()?);
        let port = &self.port;
        let entries: Vec<[u8; 8]> = match kind {
            address_list::UNICAST => port.unicast.iter().map(|mac| mac_value(*mac).to_be_bytes()).collect(),
            address_list::MULTICAST => {
                port.multicast.iter().map(|mac| mac_value(*mac).to_be_bytes()).collect()
            }
            _ => port.vlans.iter().map(|vlan| (u64::from(*vlan) << 32).to_be_bytes()).collect(),
        };
        let context = QueryNicVportContextOut::NIC_VPORT_CONTEXT.of_mut(call.output()?);
        N::MIN_WQE_INLINE_MODE.set(context, self.function.min_inline);
        N::ROCE_EN.set(context, self.function.roce_enabled.into());
        N::MTU.set(context, u32::from(port.mtu) + HEADER_BYTES_MAX as u32);
        N::SYSTEM_IMAGE_GUID.set(context, self.function.card_guid);
        N::PORT_GUID.set(context, self.function.guid);
        N::NODE_GUID.set(context, self.function.guid);
        N::DISABLE_UC_LOCAL_LB.set(context, (!port.loopback.unicast).into());
        N::DISABLE_MC_LOCAL_LB.set(context, (!port.loopback.multicast).into());
        N::PROMISC_UC.set(context, port.promiscuous_unicast.into());
        N::PROMISC_MC.set(context, port.promiscuous_multicast.into());
        N::PROMISC_ALL.set(context, port.promiscuous.into());
        N::ALLOWED_LIST_TYPE.set(context, kind);
        N::ALLOWED_LIST_SIZE.set(context, entries.len() as u32);
        // Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/vport.c`, `mlx5_query_nic_vport_qkey_viol_cntr`.
        N::QKEY_VIOLATION_COUNTER.set(context, port.qkey_violations.into());
        N::PERMANENT_ADDRESS.set(context, mac_value(port.permanent));
        if self.joint.as_ref().is_some_and(|joint| joint.side == Side::Second && joint.is_affiliated()) {
            N::AFFILIATION_CRITERIA.set(context, BY_FUNCTION);
            N::AFFILIATED_VHCA_ID.set(context, FIRST_ID);
        }
        let room = call.output.get_mut(QueryNicVportContextOut::BYTES..).unwrap_or_default();
        for (place, entry) in room.as_chunks_mut::<8>().0.iter_mut().zip(&entries) {
            *place = *entry;
        }
        Ok(())
    }

    fn modify_context(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use NicVportContext as N;
        let input: &[u8; ModifyNicVportContextIn::BYTES] = call.input()?;
        let fields = ModifyNicVportContextIn::FIELD_SELECT.get(input).to_be_bytes();
        let context = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of(input);
        need!(call.uid == 0, BAD_RES_ERR, 16);
        let list = call.behind::<{ ModifyNicVportContextIn::BYTES }>().as_chunks::<8>().0;
        if FieldSelect::MTU.is_set(&fields) {
            // As PMTU's, it counts the header too. Source: Linux
            // `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `mlx5e_set_mtu`.
            let wanted = N::MTU.get(context).saturating_sub(HEADER_BYTES_MAX as u32);
            need!(u16::try_from(wanted).is_ok_and(|mtu| self.port.set_mtu(mtu)), BAD_PARAM_ERR, 17);
        }
        if FieldSelect::PROMISC.is_set(&fields) {
            self.port.promiscuous = N::PROMISC_ALL.is_set(context);
            self.port.promiscuous_unicast = N::PROMISC_UC.is_set(context);
            self.port.promiscuous_multicast = N::PROMISC_MC.is_set(context);
        }
        if FieldSelect::DISABLE_UC_LOCAL_LB.is_set(&fields) {
            self.port.loopback.unicast = !N::DISABLE_UC_LOCAL_LB.is_set(context);
        }
        if FieldSelect::DISABLE_MC_LOCAL_LB.is_set(&fields) {
            self.port.loopback.multicast = !N::DISABLE_MC_LOCAL_LB.is_set(context);
        }
        if FieldSelect::PERMANENT_ADDRESS.is_set(&fields) {
            self.port.mac = mac(N::PERMANENT_ADDRESS.get(context));
            self.port.permanent = self.port.mac;
        }
        if FieldSelect::MIN_INLINE.is_set(&fields) {
            let mode = N::MIN_WQE_INLINE_MODE.get(context);
            need!(!self.traits.needs_inline_l2 && mode <= 3, BAD_PARAM_ERR, 18);
            self.function.min_inline = mode;
        }
        if FieldSelect::ROCE_EN.is_set(&fields) {
            self.function.roce_enabled = N::ROCE_EN.is_set(context);
        }
        if FieldSelect::AFFILIATION.is_set(&fields) {
            self.affiliate(context)?;
        }
        if FieldSelect::ADDRESSES_LIST.is_set(&fields) {
            let count = N::ALLOWED_LIST_SIZE.get(context) as usize;
            need!(count <= ADDRESSES_MAX, BAD_PARAM_ERR, 19);
            need!(list.len() >= count, BAD_INP_LEN_ERR, 20);
            let macs = || list[..count].iter().map(|entry| mac(u64::from_be_bytes(*entry))).collect();
            match N::ALLOWED_LIST_TYPE.get(context) {
                address_list::UNICAST => self.port.unicast = macs(),
                address_list::MULTICAST => self.port.multicast = macs(),
                _ => {
                    let vlan = |entry: &[u8; 8]| (u64::from_be_bytes(*entry) >> 32 & 0xfff) as u16;
                    self.port.vlans = list[..count].iter().map(vlan).collect();
                }
            }
        }
        Ok(())
    }
}

impl Core {
    /// The port of a card's second function becomes the second one of the first, or is that no more.
    fn affiliate(&mut self, context: &[u8; NicVportContext::BYTES]) -> Result<(), No> {
        use NicVportContext as N;
        let joint = self.joint.as_ref().filter(|joint| joint.side == Side::Second);
        let Some(joint) = joint else { return Err(no(status::BAD_PARAM_ERR, 21)) };
        let criteria = N::AFFILIATION_CRITERIA.get(context);
        if criteria == 0 {
            joint.affiliate(false);
            return Ok(());
        }
        need!(criteria == BY_FUNCTION, BAD_PARAM_ERR, 22);
        let (number, by_software) = (N::AFFILIATED_VHCA_ID.get(context), N::VHCA_ID_TYPE.is_set(context));
        need!(joint.is_first(number, by_software), BAD_PARAM_ERR, 23);
        // Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/vport.c`, `mlx5_nic_vport_affiliate_multiport`: RoCE first.
        need!(self.function.roce_enabled, BAD_PARAM_ERR, 24);
        joint.affiliate(true);
        Ok(())
    }

    /// Whether a port that a command names is the function's second; 0 is the first, too.
    pub(super) fn is_second_port(&self, number: u32) -> Result<bool, No> {
        match (number, &self.joint) {
            (0 | 1, _) => Ok(false),
            (SECOND_PORT, Some(joint)) if joint.side == Side::First => Ok(true),
            _ => Err(no(status::BAD_PARAM_ERR, 15)),
        }
    }
}

/// The function's counters: what went over the wire, and what came back to it, `own`. Of the latter, frames to groups went
/// out as well and are counted there. Source: Linux `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`,
/// vPort counters.
fn put_counters(out: &mut [u8; QueryVportCounterOut::BYTES], counters: &PortCounters, own: &Way) {
    use QueryVportCounterOut as V;
    let block = |traffic: Traffic| {
        let mut block = TrafficCounter::ZERO;
        TrafficCounter::PACKETS.set(&mut block, traffic.packets);
        TrafficCounter::OCTETS.set(&mut block, traffic.bytes);
        block
    };
    let errors = |packets| Traffic { packets, bytes: 0 };
    V::RECEIVED_ERRORS.set(out, block(errors(counters.too_long + counters.too_short)));
    V::TRANSMIT_ERRORS.set(out, block(errors(counters.sent_while_down)));
    V::RECEIVED_ETH_BROADCAST.set(out, block(counters.received.broadcast + own.broadcast));
    V::RECEIVED_ETH_UNICAST.set(out, block(counters.received.unicast + own.unicast));
    V::RECEIVED_ETH_MULTICAST.set(out, block(counters.received.multicast + own.multicast));
    V::TRANSMITTED_ETH_BROADCAST.set(out, block(counters.sent.broadcast));
    V::TRANSMITTED_ETH_UNICAST.set(out, block(counters.sent.unicast + own.unicast));
    V::TRANSMITTED_ETH_MULTICAST.set(out, block(counters.sent.multicast));
}
