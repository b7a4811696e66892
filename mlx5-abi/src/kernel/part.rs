//! Driver data by the names of their fields: what is asked and answered in the attributes `UHW_IN` and `UHW_OUT` of a method, and
//! behind the core's part of a write command.

pub use super::described::Part;
use super::{completion_queue, context, device, flow, queue_pair, work_queue};

/// Driver data of a method of the kernel's own objects. A queue pair's request is [`CreateQp`](queue_pair::CreateQp) unless its length is
/// that of a [hash queue pair](queue_pair::CreateRssQp)'s. Numbers of objects and methods are the kernel's: rdma-core
/// `kernel-headers/rdma/ib_user_ioctl_cmds.h`.
#[must_use]
pub fn of_method(object: u16, method: u16, answer: bool, bytes: usize) -> Option<Part> {
    Some(match (object, method, answer) {
        (0, 3, false) => context::ContextRequest::PART,
        (0, 3, true) => context::ContextAnswer::PART,
        (3, 0, _) => of_command(18, answer, bytes)?,
        (4, 0, _) => of_command(24, answer, bytes)?,
        (5, 0, _) => of_command(32, answer, bytes)?,
        (12, 0, _) => of_command(52, answer, bytes)?,
        _ => return None,
    })
}

/// Driver data of a write command, by its number without the bit of extended ones. Numbers are the kernel's: rdma-core
/// `kernel-headers/rdma/ib_user_verbs.h`.
#[must_use]
pub fn of_command(command: u32, answer: bool, bytes: usize) -> Option<Part> {
    Some(match (command, answer) {
        (0, false) => context::ContextRequest::PART,
        (0, true) => context::ContextAnswer::PART,
        (1, true) => device::DeviceAnswer::PART,
        (3, true) => context::PdAnswer::PART,
        (5, true) => queue_pair::CreateAhAnswer::PART,
        (14, false) => queue_pair::AllocMw::PART,
        (18, false) => completion_queue::CreateCq::PART,
        (18, true) => completion_queue::CreateCqAnswer::PART,
        (19, false) => completion_queue::ResizeCq::PART,
        (24, false) if bytes == size_of::<queue_pair::CreateRssQp>() => queue_pair::CreateRssQp::PART,
        (24, false) => queue_pair::CreateQp::PART,
        (24, true) => queue_pair::CreateQpAnswer::PART,
        (26, false) => queue_pair::ModifyQp::PART,
        (26, true) => queue_pair::ModifyQpAnswer::PART,
        (32 | 39, false) => queue_pair::CreateSrq::PART,
        (32 | 39, true) => queue_pair::CreateSrqAnswer::PART,
        (50, false) => flow::CreateFlow::PART,
        (52, false) => work_queue::CreateWq::PART,
        (52, true) => work_queue::CreateWqAnswer::PART,
        (53, false) => work_queue::ModifyWq::PART,
        (55, true) => work_queue::CreateRwqTableAnswer::PART,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_they_are_written() {
        let part = of_method(4, 0, false, 56).expect("known");
        assert_eq!(part.name, "mlx5_ib_create_qp");
        assert_eq!(part.fields[0], ("buf_addr", 0, 8));
        assert_eq!(part.fields[7], ("bfreg_index", 36, 4));
        let hash = of_command(24, false, size_of::<queue_pair::CreateRssQp>()).expect("known");
        assert_eq!(hash.name, "mlx5_ib_create_qp_rss");
        assert_eq!(of_command(99, true, 0), None);
        assert_eq!(of_method(1, 0, true, 4), None);
    }
}
