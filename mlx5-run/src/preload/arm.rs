//! Completion queues that were never armed.
//!
//! The arm register is one for all queues of a page, and looked at from time to time: of two stores in a row the first is lost, and
//! the device learns of it from the queue's record. The first arm of a queue is the number 0, which is also what an untouched record
//! says. So the records of new queues are marked before the device reads them. Source: rdma-core `providers/mlx5/cq.c`, `mlx5_arm_cq`;
//! `providers/mlx5/verbs.c`, `create_cq`, which clears the record and never reads that half of it.

use pollux_mlx5_abi::kernel::completion_queue::CreateCq;
use pollux_uverbs::Call;
use pollux_uverbs::abi::object::UHW_IN;
use pollux_uverbs::abi::{id, write};
use zerocopy::FromBytes;

use super::client::Client;

/// An arm word that no software writes: its sequence number has 2 bits, of 4.
const NEVER_ARMED: u32 = u32::MAX;

/// Marks the record of the queue that a process's call makes, if it makes one.
pub(super) fn mark(client: Client, call: &Call<'_>) {
    use id::device::invoke_write as tunnelled;
    let makes = match (call.object, call.method) {
        (id::cq::OBJECT, id::cq::create::METHOD) => true,
        (id::device::OBJECT, tunnelled::METHOD) => {
            let commands = [write::CREATE_CQ, write::EX_CREATE_CQ].map(u64::from);
            call.number(tunnelled::WRITE_CMD).is_ok_and(|command| commands.contains(&command))
        }
        _ => false,
    };
    if !makes {
        return;
    }
    let Some(Ok((asked, _))) = call.input(UHW_IN).map(CreateCq::read_from_prefix) else { return };
    let arm = asked.db_addr.wrapping_add(4);
    let mut now = [0; 4];
    // Of a record that is not there the call itself tells.
    if client.read(arm, &mut now).is_ok() && now == [0; 4] {
        let _unwritable = client.write(arm, &NEVER_ARMED.to_be_bytes());
    }
}
