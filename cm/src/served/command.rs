//! The commands.

use std::net::SocketAddr;
use std::time::Duration;

use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, Accept, Bind, BindIp, Connect, CreateId, CreateIdResp, DestroyId, DestroyIdResp,
    Disconnect, GetEvent, IP_BYTES, InitQpAttr, JoinIpMcast, JoinMcast, Listen, MigrateId, MigrateResp,
    Notify, QUERY_ADDR, QUERY_GID, QUERY_PATH, QpAttr, Query, QueryAddrResp, QueryPathResp, QueryRouteResp,
    Reject, ResolveAddr, ResolveIp, ResolveRoute, SetOption, command, join, option, space,
};
use pollux_uverbs::abi::flags::QpState;
use pollux_verbs::{AsyncKind, Errno};
use zerocopy::{FromBytes, IntoBytes};

use super::answer::{self, Room};
use super::{Entry, Membership, State, errno};
use crate::abi::{address, heard};
use crate::error::CmError;
use crate::parameters::{IdOptions, private_data};
use crate::service::{PortSpace, gid_of};

/// What is told of a route: all but the device's number, which is younger and not told, as in [`query`].
const ROUTE_LEAST: usize = std::mem::offset_of!(QueryRouteResp, ibdev_index);

/// A body, which older programs write shorter.
fn read<T: FromBytes + IntoBytes>(body: &[u8]) -> T {
    let mut command = T::new_zeroed();
    crate::message::fill(command.as_mut_bytes(), body);
    command
}

/// An address, of which a program said how long it is, as its family has it.
fn check_size(bytes: &[u8; 128], said: u16) -> Result<(), Errno> {
    if address::size(bytes) == Some(said) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn decoded(bytes: &[u8; 128]) -> Result<SocketAddr, Errno> {
    address::decode(bytes).ok_or(Errno::EINVAL)
}

/// An address of a command that takes those of IP alone. Source: Linux `drivers/infiniband/core/addr.c`, `rdma_addr_size_in6`.
fn ip(bytes: &[u8; IP_BYTES]) -> Result<[u8; ADDRESS_BYTES], Errno> {
    let wide = address::widen(bytes);
    match address::size(&wide) {
        Some(size) if usize::from(size) <= IP_BYTES => Ok(wide),
        _ => Err(Errno::EINVAL),
    }
}

/// An ID of a file.
fn own(state: &mut State, file: u64, id: u32) -> Result<&mut Entry, Errno> {
    let entry = state.ids.get_mut(&id).ok_or(Errno::ENOENT)?;
    if entry.file == file { Ok(entry) } else { Err(Errno::EINVAL) }
}

/// The same, with its space of ports.
fn known(state: &mut State, file: u64, id: u32) -> Result<(&mut Entry, PortSpace), Errno> {
    let entry = own(state, file, id)?;
    let space = entry.space.ok_or(Errno::EINVAL)?;
    Ok((entry, space))
}

pub(super) fn carry_out(
    state: &mut State,
    file: u64,
    (number, body): (u32, &[u8]),
    room: &Room<'_>,
) -> Result<(), Errno> {
    match number {
        command::CREATE_ID => create(state, file, &read(body), room),
        command::DESTROY_ID => {
            room.check(size_of::<DestroyIdResp>())?;
            let destroy: DestroyId = read(body);
            own(state, file, destroy.id)?;
            let answer = DestroyIdResp { events_reported: state.forget(destroy.id) };
            room.put(destroy.response, answer.as_bytes(), size_of::<DestroyIdResp>())
        }
        command::BIND => {
            let bind: Bind = read(body);
            if bind.reserved != 0 {
                return Err(Errno::EINVAL);
            }
            check_size(&bind.addr, bind.addr_size)?;
            self::bind(state, file, bind.id, &bind.addr)
        }
        command::BIND_IP => {
            let bind: BindIp = read(body);
            self::bind(state, file, bind.id, &ip(&bind.addr)?)
        }
        command::RESOLVE_ADDR => {
            let resolve: ResolveAddr = read(body);
            if resolve.reserved != 0 {
                return Err(Errno::EINVAL);
            }
            let source = (resolve.src_size != 0).then_some(&resolve.src_addr);
            if let Some(source) = source {
                check_size(source, resolve.src_size)?;
            }
            check_size(&resolve.dst_addr, resolve.dst_size)?;
            self::resolve(state, file, resolve.id, (source, &resolve.dst_addr), resolve.timeout_ms)
        }
        command::RESOLVE_IP => {
            let resolve: ResolveIp = read(body);
            let source = if resolve.src_addr[..2] == [0; 2] { None } else { Some(ip(&resolve.src_addr)?) };
            let destination = ip(&resolve.dst_addr)?;
            self::resolve(state, file, resolve.id, (source.as_ref(), &destination), resolve.timeout_ms)
        }
        command::RESOLVE_ROUTE => {
            let resolve: ResolveRoute = read(body);
            known(state, file, resolve.id)?;
            state.software.resolve_route(resolve.id.into()).map_err(errno)
        }
        command::QUERY => query(state, file, &read(body), room),
        command::QUERY_ROUTE => {
            room.check(ROUTE_LEAST)?;
            let query: Query = read(body);
            own(state, file, query.id)?;
            let answer = answer::route(state, query.id)?;
            room.put(query.response, &answer.as_bytes()[..ROUTE_LEAST], ROUTE_LEAST)
        }
        command::LISTEN => {
            let listen: Listen = read(body);
            known(state, file, listen.id)?;
            state.software.listen(listen.id.into(), listen.backlog).map_err(errno)
        }
        command::CONNECT => connect(state, file, &read(body)),
        command::ACCEPT => accept(state, file, &read(body)),
        command::REJECT => {
            let reject: Reject = read(body);
            known(state, file, reject.id)?;
            let private = &reject.private_data[..reject.private_data_len.into()];
            private_data::check(private, private_data::REJECT).map_err(errno)?;
            state.software.reject(reject.id.into(), private).map_err(errno)
        }
        command::DISCONNECT => {
            let disconnect: Disconnect = read(body);
            known(state, file, disconnect.id)?;
            state.software.disconnect(disconnect.id.into()).map_err(errno)
        }
        command::INIT_QP_ATTR => {
            room.check(size_of::<QpAttr>())?;
            let init: InitQpAttr = read(body);
            let to = u8::try_from(init.qp_state).map(QpState).map_err(|_| Errno::EINVAL)?;
            if to.0 > QpState::ERR.0 {
                return Err(Errno::EINVAL);
            }
            known(state, file, init.id)?;
            let attributes = state.software.qp_attributes(init.id.into(), to).map_err(errno)?;
            let answer = answer::attributes(&attributes);
            room.put(init.response, answer.as_bytes(), answer.as_bytes().len())
        }
        command::GET_EVENT => event(state, file, &read(body), room),
        command::NOTIFY => notify(state, file, &read(body)),
        command::SET_OPTION => set_option(state, file, &read(body), room),
        command::JOIN_MCAST => {
            room.check(size_of::<CreateIdResp>())?;
            let join: JoinMcast = read(body);
            check_size(&join.addr, join.addr_size)?;
            join_group(state, file, &join, room)
        }
        command::JOIN_IP_MCAST => {
            let JoinIpMcast { response, uid, addr, id } = read(body);
            let (addr, join_flags) = (ip(&addr)?, join::FULLMEMBER);
            room.check(size_of::<CreateIdResp>())?;
            join_group(state, file, &JoinMcast { response, uid, id, addr_size: 0, join_flags, addr }, room)
        }
        command::LEAVE_MCAST => {
            room.check(size_of::<DestroyIdResp>())?;
            let leave: DestroyId = read(body);
            let of = state.memberships.get(&leave.id).ok_or(Errno::ENOENT)?.id;
            own(state, file, of)?;
            let membership = state.memberships.remove(&leave.id).ok_or(Errno::ENOENT)?;
            // Who left by itself has left.
            state.software.leave(membership.id.into(), membership.group).unwrap_or_default();
            let answer = DestroyIdResp { events_reported: membership.reported };
            room.put(leave.response, answer.as_bytes(), size_of::<DestroyIdResp>())
        }
        command::MIGRATE_ID => {
            room.check(size_of::<MigrateResp>())?;
            let migrate: MigrateId = read(body);
            // Which file it is of is known here: the descriptor tells the same.
            let entry = state.ids.get_mut(&migrate.id).ok_or(Errno::ENOENT)?;
            entry.file = file;
            let answer = MigrateResp { events_reported: entry.reported };
            state.software.migrate(migrate.id.into(), file).map_err(errno)?;
            room.put(migrate.response, answer.as_bytes(), size_of::<MigrateResp>())
        }
        // One that Linux has a number for and never carried out.
        number if number <= command::JOIN_MCAST => Err(Errno::ENOSYS),
        _ => Err(Errno::EINVAL),
    }
}

fn bind(state: &mut State, file: u64, id: u32, address: &[u8; ADDRESS_BYTES]) -> Result<(), Errno> {
    let is_native = own(state, file, id)?.space.is_none();
    if is_native && answer::is_of_infiniband(address) {
        return Ok(());
    }
    let (_, space) = known(state, file, id)?;
    let address = decoded(address)?;
    state.software.bind(id.into(), address).map_err(|error| match error {
        // Where one of both means all addresses. Source: Linux `drivers/infiniband/core/cma.c`, `cma_check_port`.
        CmError::PortInUse { port, .. }
            if address.ip().is_unspecified() || state.software.is_held_for_all(space, port) =>
        {
            Errno::EADDRNOTAVAIL
        }
        other => errno(other),
    })
}

/// Finds the device that leads from an address, if one is given, to another.
fn resolve(
    state: &mut State,
    file: u64,
    id: u32,
    (source, destination): (Option<&[u8; ADDRESS_BYTES]>, &[u8; ADDRESS_BYTES]),
    timeout_ms: u32,
) -> Result<(), Errno> {
    known(state, file, id)?;
    let source = source.map(decoded).transpose()?;
    let destination = decoded(destination)?;
    let timeout = Duration::from_millis(timeout_ms.into());
    state.software.resolve_address(id.into(), source, destination, timeout).map_err(errno)
}

fn create(state: &mut State, file: u64, create: &CreateId, room: &Room<'_>) -> Result<(), Errno> {
    room.check(size_of::<CreateIdResp>())?;
    let space = match create.ps {
        space::TCP => Some(PortSpace::Tcp),
        space::UDP => Some(PortSpace::Udp),
        space::IB => None,
        _ => return Err(Errno::EINVAL),
    };
    let made = state.software.create(file, space.unwrap_or(PortSpace::Tcp));
    let id = u32::try_from(made).map_err(|_| Errno::ENOMEM)?;
    let entry = Entry { uid: create.uid, file, space, options: IdOptions::default(), reported: 0 };
    state.ids.insert(id, entry);
    let told = room.put(create.response, CreateIdResp { id }.as_bytes(), size_of::<CreateIdResp>());
    told.inspect_err(|_| {
        state.forget(id);
    })
}

/// Reads the next event, which stays where it was if there is no memory for it.
fn event(state: &mut State, file: u64, get: &GetEvent, room: &Room<'_>) -> Result<(), Errno> {
    // Without the options of the connection, which are younger.
    const LEAST: usize = 324;
    room.check(LEAST)?;
    state.software.work();
    answer::skip_untold(state, file);
    let occurrence = state.software.peek(file).ok_or(Errno::EAGAIN)?;
    let told = answer::told_event(state, occurrence).ok_or(Errno::EAGAIN)?;
    room.put(get.response, told.answer.as_bytes(), LEAST)?;
    state.software.take(file);
    told.count(state, file);
    Ok(())
}

/// What a queue pair has seen. Source: Linux `drivers/infiniband/core/cma.c`, `rdma_notify`; `drivers/infiniband/core/cm.c`,
/// `ib_cm_notify`; of the number, `include/rdma/ib_verbs.h`, `enum ib_event_type`.
fn notify(state: &mut State, file: u64, notify: &Notify) -> Result<(), Errno> {
    known(state, file, notify.id)?;
    let id = notify.id.into();
    if notify.event != AsyncKind::COMM_EST.0 {
        // Of alternate paths, which are not known here, or none of the manager's.
        return Err(Errno::EINVAL);
    }
    if state.software.established_by_data(id).map_err(errno)? { Ok(()) } else { Err(Errno::EISCONN) }
}

fn query(state: &mut State, file: u64, query: &Query, room: &Room<'_>) -> Result<(), Errno> {
    own(state, file, query.id)?;
    // The device's number, which is younger, is not told: it is found by the GUID of its node.
    const LEAST: usize = std::mem::offset_of!(QueryAddrResp, ibdev_index);
    match query.option {
        QUERY_ADDR | QUERY_GID => {
            let answer = answer::addresses(state, query.id, query.option == QUERY_GID);
            room.put(query.response, &answer.as_bytes()[..LEAST], LEAST)
        }
        QUERY_PATH => {
            let found = state.software.path(query.id.into()).map_err(errno)?;
            let (local, _) = state.software.addresses(query.id.into());
            let from = local.map_or([0; 16], |local| gid_of(local.ip()));
            let paths: Vec<u8> = found
                .iter()
                .flat_map(|(path, mtu)| answer::path(from, path, *mtu).as_bytes().to_vec())
                .collect();
            let head = QueryPathResp { num_paths: u32::from(found.is_some()), ..QueryPathResp::default() };
            let answer = [head.as_bytes(), &paths].concat();
            room.put(query.response, &answer, answer.len())
        }
        _ => Err(Errno::ENOSYS),
    }
}

fn connect(state: &mut State, file: u64, connect: &Connect) -> Result<(), Errno> {
    if connect.conn_param.valid == 0 {
        return Err(Errno::EINVAL);
    }
    let (_, space) = known(state, file, connect.id)?;
    let (qpn, parameters) = heard(connect.conn_param.as_bytes());
    let most = if space == PortSpace::Udp { private_data::DATAGRAM_CONNECT } else { private_data::CONNECT };
    private_data::check(&parameters.private_data, most).map_err(errno)?;
    let id = connect.id.into();
    let asked = match space {
        PortSpace::Tcp => state.software.connect(id, qpn, &parameters),
        PortSpace::Udp => state.software.connect_datagrams(id, &parameters.private_data),
    };
    asked.map_err(errno)
}

fn accept(state: &mut State, file: u64, accept: &Accept) -> Result<(), Errno> {
    let (_, space) = known(state, file, accept.id)?;
    let id = accept.id.into();
    if accept.conn_param.valid == 0 {
        return state.software.establish(id).map_err(errno);
    }
    let (qpn, parameters) = heard(accept.conn_param.as_bytes());
    let most = if space == PortSpace::Udp { private_data::DATAGRAM_ACCEPT } else { private_data::ACCEPT };
    let accepted = private_data::check(&parameters.private_data, most).and_then(|()| match space {
        PortSpace::Tcp => state.software.accept(id, qpn, &parameters),
        PortSpace::Udp => state.software.accept_datagrams(id, qpn, &parameters.private_data),
    });
    if let Err(error) = accepted {
        // Who cannot accept has refused. Source: Linux `drivers/infiniband/core/cma.c`, `rdma_accept`.
        state.software.reject(id, &[]).unwrap_or_default();
        return Err(errno(error));
    }
    // What comes of it is told with the number; of an ID whose request is gone nothing is told.
    known(state, file, accept.id)?.0.uid = accept.uid;
    Ok(())
}

fn set_option(state: &mut State, file: u64, set: &SetOption, room: &Room<'_>) -> Result<(), Errno> {
    // The longest of them.
    const MOST: u32 = 4;
    let (entry, space) = known(state, file, set.id)?;
    let length = match (set.level, set.optname) {
        (option::LEVEL_ID, option::TOS | option::ACK_TIMEOUT) => 1,
        (option::LEVEL_ID, option::REUSEADDR | option::AFONLY) => MOST,
        // Of what is not known, the value is looked at first.
        _ => set.optlen.clamp(1, MOST),
    };
    if set.optlen == 0 {
        return Err(Errno::EINVAL);
    }
    let mut value = [0; MOST as usize];
    let value = &mut value[..length as usize];
    room.memory.read(set.optval, value)?;
    // Queue pairs of datagrams wait for no ACK.
    let has_it = set.optname != option::ACK_TIMEOUT || space == PortSpace::Tcp;
    if set.level == option::LEVEL_ID && (set.optlen != length || !has_it) {
        return Err(Errno::EINVAL);
    }
    let first = value[0];
    match (set.level, set.optname) {
        (option::LEVEL_ID, option::TOS) => entry.options.type_of_service = first,
        (option::LEVEL_ID, option::REUSEADDR) => {
            entry.options.reuse_address = value.iter().any(|byte| *byte != 0);
        }
        (option::LEVEL_ID, option::AFONLY) => {
            entry.options.own_family_only = value.iter().any(|byte| *byte != 0);
        }
        (option::LEVEL_ID, option::ACK_TIMEOUT) => entry.options.ack_timeout = Some(first),
        _ => return Err(Errno::ENOSYS),
    }
    let options = entry.options;
    state.software.set_options(set.id.into(), options).map_err(errno)
}

fn join_group(state: &mut State, file: u64, asked: &JoinMcast, room: &Room<'_>) -> Result<(), Errno> {
    if !matches!(asked.join_flags, join::FULLMEMBER | join::SENDONLY_FULLMEMBER) {
        return Err(Errno::EINVAL);
    }
    known(state, file, asked.id)?;
    let group = decoded(&asked.addr)?.ip();
    if !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    state.software.join(asked.id.into(), group).map_err(errno)?;
    state.last_membership += 1;
    let number = state.last_membership;
    state.memberships.insert(number, Membership { id: asked.id, group, uid: asked.uid, reported: 0 });
    let told = room.put(asked.response, CreateIdResp { id: number }.as_bytes(), size_of::<CreateIdResp>());
    told.inspect_err(|_| {
        state.memberships.remove(&number);
        state.software.leave(asked.id.into(), group).unwrap_or_default();
    })
}
