//! Registers of the port: speed, MTU, state, counters. Those of the card's management and of its module are in modules.

mod component;
mod feature;
mod module;

use pollux_mlx5_abi::command::management::{Mcam, Mcia, Mcqs, Pcam, Pmlp};
use pollux_mlx5_abi::command::register::{
    AccessRegisterIn, AccessRegisterOut, Ieee8023Counters, Paos, Pmtu, Ppcnt, Ptys, Rfc2863Counters, access,
    counter_group, id, port_status, protocol,
};
use pollux_mlx5_abi::command::status;

use super::{Call, No, need, no};
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::port::{HEADER_BYTES_MAX, MTU_MAX};

/// `connector_type`: copper. Source: Linux `include/linux/mlx5/port.h`, `MLX5E_PORT_DA`.
const CONNECTOR: u32 = 6;

/// Bits of `eth_proto`, fastest first: 100, 56, 50, 40, 25, 20, 10, 1 Gbit/s and below. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/port.c`, `mlx5e_link_speed`.
const MODES: [u32; 26] =
    [23, 22, 21, 20, 8, 31, 30, 18, 16, 15, 7, 6, 29, 28, 27, 5, 26, 14, 13, 12, 4, 3, 2, 25, 1, 24];
/// Bits of the extended field, fastest first: 400, 200, 100, 50, 40, 25, 10 Gbit/s and below. Source: the same file,
/// `mlx5e_ext_link_speed`.
const EXTENDED_MODES: [u32; 15] = [16, 15, 13, 12, 11, 10, 9, 8, 7, 5, 6, 4, 3, 1, 0];

/// The fastest of the modes in a mask, alone.
fn fastest(mask: u32, order: &[u32]) -> u32 {
    order.iter().map(|bit| 1 << bit).find(|bit| mask & bit != 0).unwrap_or(0)
}

/// Bytes of the node's description. Source: Linux `include/rdma/ib_verbs.h`, `IB_DEVICE_NODE_DESC_MAX`.
const NODE_DESC_BYTES: usize = 64;
/// Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `struct mlx5_ifc_pfcc_reg_bits`.
const PFCC_BYTES: usize = 16;

impl Core {
    pub(super) fn register_command(&mut self, bus: &Bus<'_>, call: &mut Call<'_>) -> Result<(), No> {
        let input: &[u8; AccessRegisterIn::BYTES] = call.input()?;
        let number = AccessRegisterIn::REGISTER_ID.get(input) as u16;
        need!(call.op_mod <= access::READ, BAD_PARAM_ERR, 16);
        let write = call.op_mod == access::WRITE;
        need!(!write || call.uid == 0, BAD_RES_ERR, 17);
        let given = call.behind::<{ AccessRegisterIn::BYTES }>();
        match number {
            id::PTYS => {
                let mut register: [u8; Ptys::BYTES] = first(given)?;
                need!(Ptys::PROTO_MASK.get(&register) == protocol::EN, BAD_PARAM_ERR, 19);
                self.link_modes(&mut register);
                put(call, &register)
            }
            id::PMTU => {
                let mut register: [u8; Pmtu::BYTES] = first(given)?;
                // The wire's MTU counts the Ethernet header, too.
                let header = HEADER_BYTES_MAX as u32;
                if write {
                    let wanted = Pmtu::ADMIN_MTU.get(&register).saturating_sub(header);
                    need!(u16::try_from(wanted).is_ok_and(|mtu| self.port.set_mtu(mtu)), BAD_PARAM_ERR, 20);
                }
                let mtu = u32::from(self.port.mtu) + header;
                Pmtu::MAX_MTU.set(&mut register, u32::from(MTU_MAX) + header);
                Pmtu::ADMIN_MTU.set(&mut register, mtu);
                Pmtu::OPER_MTU.set(&mut register, mtu);
                put(call, &register)
            }
            id::PAOS => {
                let mut register: [u8; Paos::BYTES] = first(given)?;
                if write {
                    self.port.admin_up = Paos::ADMIN_STATUS.get(&register) == port_status::UP;
                    let up = self.port.is_up();
                    if up != self.port.told_up {
                        self.port.told_up = up;
                        self.events.port(bus, up);
                    }
                }
                let status = |up| if up { port_status::UP } else { port_status::DOWN };
                Paos::ADMIN_STATUS.set(&mut register, status(self.port.admin_up));
                Paos::OPER_STATUS.set(&mut register, status(self.port.is_up()));
                put(call, &register)
            }
            id::PPCNT => {
                let mut register: [u8; Ppcnt::BYTES] = first(given)?;
                let group = Ppcnt::GRP.get(&register);
                let set = Ppcnt::COUNTER_SET.of_mut(&mut register);
                set.fill(0);
                match group {
                    counter_group::IEEE_802_3 => self.count_frames(set),
                    counter_group::RFC_2863 => {
                        Rfc2863Counters::OUT_ERRORS.set(set, self.port.counters.sent_too_long);
                    }
                    _ => {}
                }
                put(call, &register)
            }
            // What the host says of itself, and names: accepted and kept by nobody, so that they read as nothing.
            id::NODE_DESC | id::HOST_ENDIANNESS if write => Ok(()),
            // Nobody is asked to pause, and nobody pauses.
            id::PFCC if write => {
                let asked = given.get(8..16).is_some_and(|bits| bits.iter().any(|byte| *byte != 0));
                need!(!asked, BAD_PARAM_ERR, 22);
                Ok(())
            }
            id::PFCC => put(call, &[0; PFCC_BYTES]),
            id::NODE_DESC => put(call, &[0; NODE_DESC_BYTES]),
            _ if write => Err(no(status::BAD_PARAM_ERR, 27)),
            id::PCAM => {
                let mut register: [u8; Pcam::BYTES] = first(given)?;
                self.port_features(&mut register);
                put(call, &register)
            }
            id::MCAM => {
                let mut register: [u8; Mcam::BYTES] = first(given)?;
                feature::of_management(&mut register);
                put(call, &register)
            }
            id::PMLP => {
                let mut register: [u8; Pmlp::BYTES] = first(given)?;
                self.lanes(&mut register);
                put(call, &register)
            }
            id::MCIA => {
                let mut register: [u8; Mcia::BYTES] = first(given)?;
                self.module_memory(&mut register);
                put(call, &register)
            }
            id::MCQS => {
                let mut register: [u8; Mcqs::BYTES] = first(given)?;
                component::state(&mut register)?;
                put(call, &register)
            }
            id::MCQI => self.component(call, first(given)?),
            _ => Err(no(status::BAD_PARAM_ERR, 21)),
        }
    }

    fn link_modes(&self, register: &mut [u8; Ptys::BYTES]) {
        let (modes, extended) = self.traits.link_modes;
        let up = self.port.is_up();
        let now = |mask, order: &[u32]| if up { fastest(mask, order) } else { 0 };
        Ptys::ETH_PROTO_CAPABILITY.set(register, modes);
        Ptys::ETH_PROTO_ADMIN.set(register, modes);
        Ptys::ETH_PROTO_OPER.set(register, now(modes, &MODES));
        Ptys::EXT_ETH_PROTO_CAPABILITY.set(register, extended);
        Ptys::EXT_ETH_PROTO_ADMIN.set(register, extended);
        Ptys::EXT_ETH_PROTO_OPER.set(register, now(extended, &EXTENDED_MODES));
        Ptys::CONNECTOR_TYPE.set(register, CONNECTOR);
    }

    fn count_frames(&self, set: &mut [u8; 248]) {
        use Ieee8023Counters as C;
        let counters = &self.port.counters;
        let (sent, received) = (counters.sent.all(), counters.received.all());
        for (field, value) in [
            (C::FRAMES_TRANSMITTED_OK, sent.packets),
            (C::OCTETS_TRANSMITTED_OK, sent.bytes),
            (C::MULTICAST_FRAMES_XMITTED_OK, counters.sent.multicast.packets),
            (C::BROADCAST_FRAMES_XMITTED_OK, counters.sent.broadcast.packets),
            (C::FRAMES_RECEIVED_OK, received.packets),
            (C::OCTETS_RECEIVED_OK, received.bytes),
            (C::MULTICAST_FRAMES_RECEIVED_OK, counters.received.multicast.packets),
            (C::BROADCAST_FRAMES_RECEIVED_OK, counters.received.broadcast.packets),
            (C::FRAME_TOO_LONG_ERRORS, counters.too_long),
        ] {
            field.set(set, value);
        }
    }
}

/// The register that a command brought.
fn first<const N: usize>(given: &[u8]) -> Result<[u8; N], No> {
    given.first_chunk().copied().ok_or(no(status::BAD_INP_LEN_ERR, 18))
}

fn put(call: &mut Call<'_>, register: &[u8]) -> Result<(), No> {
    let room = call.output.get_mut(AccessRegisterOut::BYTES..).unwrap_or_default();
    need!(room.len() >= register.len(), BAD_OUTP_LEN_ERR, 22);
    room[..register.len()].copy_from_slice(register);
    Ok(())
}
