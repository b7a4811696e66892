//! Methods: their attributes, and who carries them out. Source: Linux `drivers/infiniband/core/uverbs_std_types_*.c`,
//! `drivers/infiniband/hw/mlx5/{main,devx,fs,std_types}.c`.
//!
//! The checks that Linux's `uverbs_ioctl.c` makes for all methods alike are made here, from the table: what a method itself
//! then reads has the kind and the length that the table says.

mod table;

use pollux_mlx5_abi::kernel::object as o;
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::{DRIVER_NAMESPACE, UHW_IN, UHW_OUT, driver};
use pollux_uverbs::{Attribute, Call, Errno, Value};

use crate::profile::DoorProfile;
use crate::session::Session;
use Carries::{AnyObject, Element, Fd, In, New, NewFd, NoObject, Number, Object as Obj, Out};
pub use table::{AttributeSpec, Carries};
use table::{METHODS, Method, may};

/// The attributes of a method, for doors that read the frames of foreign programs: what an attribute's data are depends on
/// what it carries. `None` when there is no such method here.
#[must_use]
pub fn attributes(object: u16, method: u16) -> Option<&'static [AttributeSpec]> {
    find(object, method).map(|method| method.attributes)
}

fn find(object: u16, method: u16) -> Option<&'static Method> {
    METHODS.iter().find(|entry| entry.object == object && entry.method == method)
}

/// Calls a method.
pub(crate) fn call(session: &mut Session, call: &mut Call<'_>) -> Result<(), Errno> {
    if call.driver != driver::MLX5 {
        return Err(Errno::EINVAL);
    }
    if is_absent(&session.core.profile, call.object, call.method) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let method = find(call.object, call.method).ok_or(Errno::EPROTONOSUPPORT)?;
    check(session, method, call)?;
    let global = call.object == id::device::OBJECT || call.object == id::async_event::OBJECT;
    if !global {
        session.granted()?;
    }
    (method.run)(session, call)
}

/// Whether the profile's kernel lacks a method.
fn is_absent(profile: &DoorProfile, object: u16, method: u16) -> bool {
    let is = |other: (u16, u16)| other == (object, method);
    let device = id::device::OBJECT;
    profile.no_invoke_write && is((device, id::device::invoke_write::METHOD))
        || profile.no_cq_create && is((id::cq::OBJECT, id::cq::create::METHOD))
        || profile.no_qp_create && object == id::qp::OBJECT
        || profile.no_wq_create && object == id::wq::OBJECT
        || profile.no_mr_reg && is((id::mr::OBJECT, id::mr::reg::METHOD))
        || profile.no_get_context
            && (is((device, id::device::get_context::METHOD))
                || is((device, id::device::query_context::METHOD))
                || object == id::async_event::OBJECT)
        || profile.no_uar_alloc && object == o::UAR
        || profile.no_query_gid
            && (is((device, id::device::query_gid_table::METHOD))
                || is((device, id::device::query_gid_entry::METHOD)))
        || profile.no_query_port_speed && is((device, id::device::query_port_speed::METHOD))
        || profile.no_dmabuf_alloc && object == id::dmabuf::OBJECT
        || profile.no_devx
            && matches!(
                object,
                o::DEVX | o::DEVX_OBJ | o::DEVX_UMEM | o::DEVX_ASYNC_CMD_FD | o::DEVX_ASYNC_EVENT_FD
            )
}

/// Checks the attributes that came against those that the method has. Source: Linux
/// `drivers/infiniband/core/uverbs_ioctl.c`, `uverbs_process_attr`.
fn check(session: &Session, method: &Method, call: &Call<'_>) -> Result<(), Errno> {
    let mut seen: Vec<u16> = Vec::with_capacity(call.attributes().len());
    // Methods that are lacking altogether look at nothing.
    if method.attributes.is_empty() {
        return Ok(());
    }
    for attribute in call.attributes() {
        if seen.contains(&attribute.id) {
            return Err(Errno::EINVAL);
        }
        seen.push(attribute.id);
        let by_driver = method.driver && method.object < DRIVER_NAMESPACE;
        let spec = method.attributes.iter().find(|spec| spec.id == attribute.id).copied();
        let spec = spec.or(match attribute.id {
            UHW_IN if by_driver => Some(may(UHW_IN, In(0))),
            UHW_OUT if by_driver => Some(may(UHW_OUT, Out(0))),
            _ => None,
        });
        match spec {
            Some(spec) => check_one(session, spec, attribute)?,
            // What a newer program adds and can do without.
            None if !attribute.mandatory => {}
            None => return Err(Errno::EPROTONOSUPPORT),
        }
    }
    let complete = method.attributes.iter().all(|spec| !spec.mandatory || seen.contains(&spec.id));
    if complete { Ok(()) } else { Err(Errno::EINVAL) }
}

fn check_one(session: &Session, spec: AttributeSpec, attribute: &Attribute<'_>) -> Result<(), Errno> {
    let long_enough = |bytes: usize, least: usize| if bytes >= least { Ok(()) } else { Err(Errno::EINVAL) };
    match (spec.carries, &attribute.value) {
        (In(least), Value::Small(small)) => long_enough(small.bytes().len(), least),
        (In(least), Value::In(bytes)) => long_enough(bytes.len(), least),
        (Number, Value::Small(_)) => Ok(()),
        (Number, Value::In(bytes)) if matches!(bytes.len(), 4 | 8) => Ok(()),
        (Element, Value::Element(..))
        | (New, Value::NewHandle(_))
        | (Fd, Value::Fd(_))
        | (NewFd, Value::NewFd(_)) => Ok(()),
        (Out(least), Value::Out(output)) => long_enough(output.room(), least),
        (Obj(kind), Value::Handle(handle)) => {
            let is = session.handles.any(*handle)?.kind() == kind;
            if is { Ok(()) } else { Err(Errno::EINVAL) }
        }
        (AnyObject, Value::Handle(handle)) => session.handles.any(*handle).map(|_| ()),
        (NoObject, Value::Handle(_)) => Err(Errno::ENOENT),
        _ => Err(Errno::EINVAL),
    }
}
