//! One send entry: what it asks for, and the frames that it makes.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Control, Data, Ethernet, INLINE, SEGMENT_BYTES};
use zerocopy::FromBytes;

use super::cut::Cut;
use super::offload;
use super::parse::Parser;
use super::queue::Queue;
use super::{Around, Scratch};
use crate::failure::Failure;
use crate::frame::TAG_BYTES;
use crate::ledger::Crossing;
use crate::memory_keys::{Access, KeyError, change};
use crate::port::Origin;

/// What became of an entry.
pub(super) enum Outcome {
    /// So many frames went out.
    Done(usize),
    /// So many of its frames are out; the wire takes no more now.
    Busy(usize),
    Failed(Failure),
}

/// Carries out one entry, `bytes` long, of whose frames `sent` are out already.
pub(super) fn carry_out(
    queue: &Queue,
    around: &mut Around<'_, '_>,
    scratch: &mut Scratch,
    control: &Control,
    bytes: &[u8],
    sent: usize,
) -> Outcome {
    let is_local = matches!(control.opcode(), send::NOP | send::UMR);
    if !is_local && !around.port.is_ready() {
        return Outcome::Busy(sent);
    }
    let outcome = match control.opcode() {
        send::NOP => return Outcome::Done(0),
        send::UMR if queue.changes_keys && control.modifier() == 0 => {
            let segments = bytes.get(SEGMENT_BYTES..).unwrap_or_default();
            change(around.keys, around.bus, queue.who(), false, send::UMR, control.imm.get(), segments)
                .map(|()| Outcome::Done(0))
                .map_err(Failure::from)
        }
        send::SEND | send::TSO | send::ENHANCED_MPSW if queue.tis.is_none() => Err(Failure::NO_TIS),
        send::SEND | send::TSO if control.modifier() == 0 => {
            one_frame(queue, around, scratch, control, bytes, sent)
        }
        send::ENHANCED_MPSW if control.modifier() == 0 && queue.multi => {
            many_frames(queue, around, scratch, bytes, sent)
        }
        _ => Err(Failure::OPCODE),
    };
    outcome.unwrap_or_else(Outcome::Failed)
}

fn ethernet(bytes: &[u8]) -> Result<(&Ethernet, &[u8]), Failure> {
    let rest = bytes.get(SEGMENT_BYTES..).ok_or(Failure::SEGMENTS)?;
    Ethernet::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)
}

/// A frame that is being put together.
struct Gather<'a> {
    frame: &'a mut [u8],
    bytes: usize,
    most: usize,
}

impl Gather<'_> {
    fn room(&mut self, bytes: usize) -> Result<&mut [u8], Failure> {
        let end = self.bytes + bytes;
        if end > self.most {
            return Err(Failure::LENGTH);
        }
        let room = &mut self.frame[self.bytes..end];
        self.bytes = end;
        Ok(room)
    }

    fn inline(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// A piece of memory.
    #[inline]
    fn memory(&mut self, queue: &Queue, around: &Around<'_, '_>, data: &Data) -> Result<(), Failure> {
        let bus = &*around.bus;
        let room = self.room(data.bytes() as usize)?;
        let mut done = 0;
        around.keys.walk(
            data.lkey.get(),
            queue.domain,
            data.addr.get(),
            room.len() as u32,
            Access::Read,
            |at, run| {
                let piece = &mut room[done..done + run];
                match at {
                    Some(at) => bus.read(Crossing::SendPayload, at, piece).map_err(|_| KeyError::Unpinned)?,
                    None => piece.fill(0),
                }
                done += run;
                Ok(())
            },
        )?;
        Ok(())
    }
}

/// Takes the next data segment, in memory or inline; returns what is behind it.
#[inline]
fn take_data<'e>(
    gather: &mut Gather<'_>,
    queue: &Queue,
    around: &Around<'_, '_>,
    rest: &'e [u8],
) -> Result<&'e [u8], Failure> {
    let (data, behind) = Data::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)?;
    let count = data.byte_count.get();
    if count & INLINE == 0 {
        gather.memory(queue, around, data)?;
        return Ok(behind);
    }
    let bytes = (count & !INLINE) as usize;
    let inline = rest.get(4..4 + bytes).ok_or(Failure::SEGMENTS)?;
    gather.inline(inline)?;
    rest.get((4 + bytes).next_multiple_of(SEGMENT_BYTES)..).ok_or(Failure::SEGMENTS)
}

fn one_frame(
    queue: &Queue,
    around: &mut Around<'_, '_>,
    scratch: &mut Scratch,
    control: &Control,
    bytes: &[u8],
    sent: usize,
) -> Result<Outcome, Failure> {
    let (ethernet, mut rest) = ethernet(bytes)?;
    if ethernet.vlan().is_some() && !queue.inserts_tags {
        return Err(Failure::ENTRY);
    }
    let cut = control.opcode() == send::TSO;
    let most = if cut { scratch.frame.len() } else { around.port.frame_bytes_max() };
    let inline = ethernet.inline_bytes();
    let mut gather = Gather {
        frame: &mut scratch.frame[TAG_BYTES..],
        bytes: 0,
        most: most.min(super::GATHER_BYTES - TAG_BYTES),
    };
    if inline > 0 {
        let first = inline.min(2);
        gather.inline(&ethernet.inline_hdr_start[..first])?;
        gather.inline(rest.get(..inline - first).ok_or(Failure::SEGMENTS)?)?;
        rest = rest.get((inline - first).next_multiple_of(SEGMENT_BYTES)..).ok_or(Failure::SEGMENTS)?;
    }
    while !rest.is_empty() {
        rest = take_data(&mut gather, queue, around, rest)?;
    }
    let length = gather.bytes;
    if length < 14 {
        return Err(Failure::LENGTH);
    }
    offload::check_inline(&scratch.frame[TAG_BYTES..][..length], inline, queue.min_inline)?;
    let start = TAG_BYTES;
    let parser = Parser { tunnels: around.tunnels, parsing: queue.parsing };
    if !cut {
        let frame = offload::finish(&parser, &mut scratch.frame[..start + length], ethernet)?;
        if !around.transmit(queue, frame, Origin::Packet(length)) {
            return Ok(Outcome::Busy(0));
        }
        around.bus.ledger.add_sent(1);
        return Ok(Outcome::Done(1));
    }
    if ethernet.vlan().is_some() {
        return Err(Failure::CUT);
    }
    let Scratch { frame, segment, tunnel, .. } = scratch;
    let segments = Cut::new(&parser, &mut frame[start..start + length], ethernet, tunnel)?;
    // The headers must be inline, whole; the device cuts behind them.
    if inline < segments.header_bytes() || segments.bytes_max() > around.port.frame_bytes_max() {
        return Err(Failure::CUT);
    }
    for index in sent..segments.count() {
        let bytes = segments.write(index, segment)?;
        let last = index + 1 == segments.count();
        let origin = if last { Origin::Packet(length) } else { Origin::Segment };
        if !around.transmit(queue, &segment[..bytes], origin) {
            return Ok(Outcome::Busy(index));
        }
        around.bus.ledger.add_sent(1);
    }
    Ok(Outcome::Done(segments.count() - sent))
}

/// Most segments of an entry with many frames: 15 whole blocks, the most that any driver uses; with the two at its head it
/// has room for 58 frames. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en.h`, `mlx5e_get_sw_max_sq_mpw_wqebbs`;
/// DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_WQE_SIZE_MAX`.
const MANY_SEGMENTS_MAX: usize = 60;

fn many_frames(
    queue: &Queue,
    around: &mut Around<'_, '_>,
    scratch: &mut Scratch,
    bytes: &[u8],
    sent: usize,
) -> Result<Outcome, Failure> {
    if bytes.len() > MANY_SEGMENTS_MAX * SEGMENT_BYTES {
        return Err(Failure::SEGMENTS);
    }
    let (ethernet, mut rest) = ethernet(bytes)?;
    if ethernet.inline_bytes() > 0 || ethernet.mss.get() != 0 || rest.is_empty() || queue.min_inline != 0 {
        return Err(Failure::SEGMENTS);
    }
    let most = around.port.frame_bytes_max();
    let parser = Parser { tunnels: around.tunnels, parsing: queue.parsing };
    let start = TAG_BYTES;
    let mut index = 0;
    while !rest.is_empty() {
        if index < sent {
            // Out already: only its place in the entry counts.
            rest = skip_data(rest)?;
            index += 1;
            continue;
        }
        if !around.port.is_ready() {
            return Ok(Outcome::Busy(index));
        }
        let mut gather = Gather { frame: &mut scratch.frame[start..], bytes: 0, most };
        rest = take_data(&mut gather, queue, around, rest)?;
        let length = gather.bytes;
        if length < 14 {
            return Err(Failure::LENGTH);
        }
        let frame = offload::finish(&parser, &mut scratch.frame[..start + length], ethernet)?;
        if !around.transmit(queue, frame, Origin::Packet(length)) {
            return Ok(Outcome::Busy(index));
        }
        around.bus.ledger.add_sent(1);
        index += 1;
    }
    Ok(Outcome::Done(index - sent))
}

fn skip_data(rest: &[u8]) -> Result<&[u8], Failure> {
    let (data, behind) = Data::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)?;
    let count = data.byte_count.get();
    if count & INLINE == 0 {
        return Ok(behind);
    }
    let bytes = (count & !INLINE) as usize;
    rest.get((4 + bytes).next_multiple_of(SEGMENT_BYTES)..).ok_or(Failure::SEGMENTS)
}
