//! Which layouts the parts of a call have: of write commands the core's request and answer, of methods the attributes that are
//! structures.

use super::object::DRIVER_NAMESPACE;
use super::{Described, device, flow, id, ioctl_verbs, memory, queue, queue_pair, write};

/// A layout as it can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Name of the C struct.
    pub name: &'static str,
    /// Name, offset and size of each field, in order.
    pub fields: &'static [(&'static str, usize, usize)],
}

const fn form<T: Described>() -> Form {
    Form { name: T::NAME, fields: T::FIELDS }
}

macro_rules! commands {
    ($($command:ident: $request:ty $(=> $answer:ty)?;)*) => {
        /// The core's request of a write command, and its answer where it has one.
        #[must_use]
        pub fn of_command(command: u32) -> Option<(Form, Option<Form>)> {
            Some(match command {
                $(write::$command => (form::<$request>(), commands!(@answer $($answer)?)),)*
                _ => return None,
            })
        }
    };
    (@answer $answer:ty) => { Some(form::<$answer>()) };
    (@answer) => { None };
}

commands! {
    GET_CONTEXT: device::GetContext => device::GetContextResp;
    QUERY_DEVICE: device::QueryDevice => device::QueryDeviceResp;
    QUERY_PORT: device::QueryPort => device::QueryPortResp;
    ALLOC_PD: memory::AllocPd => memory::AllocPdResp;
    DEALLOC_PD: memory::DeallocPd;
    CREATE_AH: memory::CreateAh => memory::CreateAhResp;
    DESTROY_AH: memory::DestroyAh;
    REG_MR: memory::RegMr => memory::RegMrResp;
    REREG_MR: memory::ReregMr => memory::ReregMrResp;
    DEREG_MR: memory::DeregMr;
    ALLOC_MW: memory::AllocMw => memory::AllocMwResp;
    DEALLOC_MW: memory::DeallocMw;
    CREATE_COMP_CHANNEL: queue::CreateCompChannel => queue::CreateCompChannelResp;
    CREATE_CQ: queue::CreateCq => queue::CreateCqResp;
    RESIZE_CQ: queue::ResizeCq => queue::ResizeCqResp;
    DESTROY_CQ: queue::DestroyCq => queue::DestroyCqResp;
    REQ_NOTIFY_CQ: queue::ReqNotifyCq;
    CREATE_QP: queue_pair::CreateQp => queue_pair::CreateQpResp;
    QUERY_QP: queue_pair::QueryQp => queue_pair::QueryQpResp;
    MODIFY_QP: queue_pair::ModifyQp;
    DESTROY_QP: queue_pair::DestroyQp => queue_pair::DestroyQpResp;
    POST_SEND: queue_pair::PostSend => queue_pair::PostSendResp;
    ATTACH_MCAST: memory::AttachMcast;
    DETACH_MCAST: memory::AttachMcast;
    CREATE_SRQ: queue::CreateSrq => queue::CreateSrqResp;
    MODIFY_SRQ: queue::ModifySrq;
    QUERY_SRQ: queue::QuerySrq => queue::QuerySrqResp;
    DESTROY_SRQ: queue::DestroySrq => queue::DestroySrqResp;
    OPEN_XRCD: memory::OpenXrcd => memory::OpenXrcdResp;
    CLOSE_XRCD: memory::CloseXrcd;
    CREATE_XSRQ: queue::CreateXsrq => queue::CreateSrqResp;
    OPEN_QP: queue_pair::OpenQp => queue_pair::CreateQpResp;
    EX_QUERY_DEVICE: device::ExQueryDevice => device::ExQueryDeviceResp;
    EX_CREATE_CQ: queue::ExCreateCq => queue::ExCreateCqResp;
    EX_CREATE_QP: queue_pair::ExCreateQp => queue_pair::ExCreateQpResp;
    EX_MODIFY_QP: queue_pair::ExModifyQp => queue_pair::ExModifyQpResp;
    EX_CREATE_FLOW: flow::CreateFlow => flow::CreateFlowResp;
    EX_DESTROY_FLOW: flow::DestroyFlow;
    EX_CREATE_WQ: queue::ExCreateWq => queue::ExCreateWqResp;
    EX_MODIFY_WQ: queue::ExModifyWq;
    EX_DESTROY_WQ: queue::ExDestroyWq => queue::ExDestroyWqResp;
    EX_CREATE_RWQ_IND_TBL: queue::ExCreateRwqIndTable => queue::ExCreateRwqIndTableResp;
    EX_DESTROY_RWQ_IND_TBL: queue::ExDestroyRwqIndTable;
    EX_MODIFY_CQ: queue::ExModifyCq;
}

/// The structure that an attribute of a method of the kernel's own carries; none of a number, or of the driver's attributes.
#[must_use]
pub fn of_attribute(object: u16, method: u16, attribute: u16) -> Option<Form> {
    if object >= DRIVER_NAMESPACE || attribute >= DRIVER_NAMESPACE {
        return None;
    }
    Some(match (object, method, attribute) {
        (id::device::OBJECT, id::device::query_port::METHOD, id::device::query_port::RESP) => {
            form::<ioctl_verbs::QueryPortRespEx>()
        }
        (
            id::device::OBJECT,
            id::device::query_gid_entry::METHOD,
            id::device::query_gid_entry::RESP_ENTRY,
        ) => form::<ioctl_verbs::GidEntry>(),
        (id::qp::OBJECT, id::qp::create::METHOD, id::qp::create::CAP | id::qp::create::RESP_CAP) => {
            form::<queue_pair::QpCap>()
        }
        (id::qp::OBJECT, id::qp::destroy::METHOD, id::qp::destroy::RESP) => {
            form::<queue_pair::DestroyQpResp>()
        }
        (id::cq::OBJECT, id::cq::destroy::METHOD, id::cq::destroy::RESP) => form::<queue::DestroyCqResp>(),
        (id::srq::OBJECT, id::srq::destroy::METHOD, id::srq::destroy::RESP) => {
            form::<queue::DestroySrqResp>()
        }
        (id::wq::OBJECT, id::wq::destroy::METHOD, id::wq::destroy::RESP) => form::<queue::ExDestroyWqResp>(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_layouts_that_are_written() {
        let (request, answer) = of_command(write::MODIFY_QP).expect("known");
        assert_eq!((request.name, answer), ("ib_uverbs_modify_qp", None));
        assert_eq!(request.fields[0], ("dest", 0, 32));
        assert_eq!(of_command(0x7fff), None);
        let cap = of_attribute(id::qp::OBJECT, id::qp::create::METHOD, id::qp::create::CAP).expect("known");
        assert_eq!(cap.name, "ib_uverbs_qp_cap");
        assert_eq!(of_attribute(id::qp::OBJECT, id::qp::create::METHOD, super::super::object::UHW_IN), None);
    }
}
