//! Commands on what steering does to packets: lists of changes, headers to put on or take off.

use std::sync::Arc;

use pollux_mlx5_abi::command::rewrite::{
    AllocModifyHeaderIn, DeallocModifyHeaderIn, DeallocPacketReformatIn, PacketReformatContext, place,
    reformat,
};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::flow::way;
use super::{Call, No, need, no};
use crate::device::core::Core;
use crate::device::table::Table;
use crate::steering::rewrite::{CHANGES_MAX, HEADER_MAX, Reformat, Rewrite};

impl Core {
    pub(super) fn rewrite_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        need!(self.traits.change_packets, BAD_OP_ERR, 16);
        match opcode {
            op::ALLOC_MODIFY_HEADER_CONTEXT => {
                let input: &[u8; AllocModifyHeaderIn::BYTES] = call.input()?;
                let count = AllocModifyHeaderIn::NUM_OF_ACTIONS.get(input) as usize;
                let way = way(AllocModifyHeaderIn::TABLE_TYPE.get(input), &self.traits);
                need!(way.is_some_and(|way| !way.is_copy()), BAD_PARAM_ERR, 17);
                need!((1..=CHANGES_MAX).contains(&count), BAD_PARAM_ERR, 18);
                let list = call.behind::<{ AllocModifyHeaderIn::BYTES }>().as_chunks::<8>().0;
                need!(list.len() >= count, BAD_INP_LEN_ERR, 19);
                let rewrite = Rewrite::new(&list[..count]).ok_or(no(status::BAD_PARAM_ERR, 20))?;
                call.output::<16>()?;
                let number = self.steering.rewrites.insert(call.uid, Arc::new(rewrite));
                call.answer_number(number.ok_or(no(status::NO_RES_ERR, 21))?)
            }
            op::DEALLOC_MODIFY_HEADER_CONTEXT => {
                let number = DeallocModifyHeaderIn::MODIFY_HEADER_ID.get(call.input()?);
                end(&mut self.steering.rewrites, call, number)
            }
            op::ALLOC_PACKET_REFORMAT_CONTEXT => {
                call.input::<{ place::CONTEXT + place::DATA }>()?;
                let context = call.input.get(place::CONTEXT..).unwrap_or_default();
                let head = context.first_chunk().ok_or(no(status::BAD_INP_LEN_ERR, 17))?;
                let bytes = PacketReformatContext::REFORMAT_DATA_SIZE.get(head) as usize;
                // An Ethernet header at least.
                need!((14..=HEADER_MAX).contains(&bytes), BAD_PARAM_ERR, 18);
                let header = context.get(place::DATA..place::DATA + bytes);
                let header = header.ok_or(no(status::BAD_INP_LEN_ERR, 19))?.to_vec();
                let made = match PacketReformatContext::REFORMAT_TYPE.get(head) {
                    reformat::L2_TO_L2_TUNNEL => Reformat::Around(header),
                    reformat::L2_TO_L3_TUNNEL => Reformat::Instead(header),
                    reformat::L3_TUNNEL_TO_L2 => Reformat::Bare(header),
                    _ => return Err(no(status::BAD_PARAM_ERR, 20)),
                };
                call.output::<16>()?;
                let number = self.steering.reformats.insert(call.uid, Arc::new(made));
                call.answer_number(number.ok_or(no(status::NO_RES_ERR, 21))?)
            }
            _ => {
                let number = DeallocPacketReformatIn::PACKET_REFORMAT_ID.get(call.input()?);
                end(&mut self.steering.reformats, call, number)
            }
        }
    }
}

/// Ends what no entry names: entries hold what they name.
fn end<T>(held: &mut Table<Arc<T>>, call: &Call<'_>, number: u32) -> Result<(), No> {
    need!(call.may_change(held.owner(number)), BAD_RES_ERR, 17);
    let used = held.get(number).is_some_and(|one| Arc::strong_count(one) > 1);
    need!(!used, RES_BUSY, 18);
    held.remove(number);
    Ok(())
}
