//! Entries of rings in words: send entries segment by segment, completions.

use pollux_mlx5_abi::cqe::{Cqe64, CqeError};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{
    AddressVector, Atomic, Completion, Control, Data, EXTENDED_UD_AV, Ethernet, Fence, INLINE, InlineHeader,
    RemoteAddress, SEGMENT_BYTES, Xrc, inline_segments,
};
use pollux_uverbs::abi::flags::QpType;
use zerocopy::FromBytes;

use crate::names::Names;

/// A send entry of a queue of that kind, a line for each segment; what is cut off or unknown is said to be so. Which segments stand
/// behind the first one depends on the kind: of a queue that nobody saw being made they are not told.
pub(crate) fn sent(bytes: &[u8], kind: Option<QpType>, names: &mut Names) -> Vec<String> {
    let Ok((control, _)) = Control::read_from_prefix(bytes) else {
        return vec![format!("an entry of {} bytes, which is no control segment", bytes.len())];
    };
    let opcode = control.opcode();
    let name = send::name(opcode).map_or_else(|| format!("opcode {opcode:#x}"), str::to_owned);
    let told = match control.completion() {
        Completion::OnError => "no completion unless it fails",
        Completion::OnFirstError => "no completion unless it fails first",
        Completion::Always => "signalled",
        Completion::AlwaysAndEvent => "signalled, with an event",
    };
    let mut head = format!("control: {name}, {} segments, {told}", control.segments());
    if !matches!(control.fence(), Some(Fence::None)) {
        head.push_str(", fenced");
    }
    if control.solicited() {
        head.push_str(", solicited");
    }
    if matches!(opcode, send::SEND_IMM | send::RDMA_WRITE_IMM | send::SEND_INVAL) {
        head.push_str(&format!(", imm={:#x}", control.imm.get()));
    }
    let mut lines = vec![head];
    let whole = usize::from(control.segments()) * SEGMENT_BYTES;
    let Some(mut rest) = bytes.get(SEGMENT_BYTES..whole.max(SEGMENT_BYTES)) else {
        lines.push(format!("cut off: {} of {whole} bytes", bytes.len()));
        return lines;
    };
    let frames = kind == Some(QpType::RAW_PACKET);
    let remote = matches!(
        opcode,
        send::RDMA_WRITE | send::RDMA_WRITE_IMM | send::RDMA_READ | send::ATOMIC_CS | send::ATOMIC_FA
    );
    let sends = match opcode {
        send::SEND | send::SEND_IMM | send::SEND_INVAL => true,
        send::TSO | send::ENHANCED_MPSW => frames,
        _ => false,
    };
    let Some(kind) = kind.filter(|_| remote || sends) else {
        further(rest, &mut lines);
        return lines;
    };
    let Some(behind) = front(kind, rest, &mut lines) else {
        further(rest, &mut lines);
        return lines;
    };
    rest = behind;
    if remote && let Ok((segment, behind)) = RemoteAddress::read_from_prefix(rest) {
        let (address, key) = (names.address(segment.raddr.get()), names.key(segment.rkey.get()));
        lines.push(format!("remote: {address} key {key}"));
        rest = behind;
    }
    if matches!(opcode, send::ATOMIC_CS | send::ATOMIC_FA)
        && let Ok((segment, behind)) = Atomic::read_from_prefix(rest)
    {
        lines.push(format!(
            "atomic: swap_add={:#x} compare={:#x}",
            segment.swap_add.get(),
            segment.compare.get()
        ));
        rest = behind;
    }
    data(rest, names, &mut lines);
    lines
}

fn further(rest: &[u8], lines: &mut Vec<String>) {
    if !rest.is_empty() {
        lines.push(format!("{} bytes of further segments", rest.len()));
    }
}

/// What stands in front of the data for the kind of queue; what is behind it, or `None` if it is cut off. Source: rdma-core
/// `providers/mlx5/qp.c`, `_mlx5_post_send`.
fn front<'a>(kind: QpType, rest: &'a [u8], lines: &mut Vec<String>) -> Option<&'a [u8]> {
    match kind {
        QpType::RAW_PACKET => {
            let (segment, behind) = Ethernet::read_from_prefix(rest).ok()?;
            let mut said = Vec::new();
            if segment.cs_flags != 0 {
                said.push(format!("checksums {:#x}", segment.cs_flags));
            }
            if segment.mss.get() != 0 {
                said.push(format!("packets of {} bytes", segment.mss.get()));
            }
            if let Some(tag) = segment.vlan() {
                said.push(format!("VLAN tag {tag:#x}"));
            }
            let inline = segment.inline_bytes();
            if inline > 0 {
                said.push(format!("{inline} bytes of header inline"));
            }
            let said = if said.is_empty() { "as it stands".into() } else { said.join(", ") };
            // The first bytes of the header are in the segment itself.
            let more = inline.saturating_sub(segment.inline_hdr_start.len());
            let behind = behind.get(more.next_multiple_of(SEGMENT_BYTES)..)?;
            lines.push(format!("ethernet: {said}"));
            Some(behind)
        }
        // Of dynamic connections too.
        QpType::UD | QpType::DRIVER => {
            let mut vector = [0; size_of::<AddressVector>()];
            let short = rest.first_chunk::<SEGMENT_BYTES>()?;
            vector[..SEGMENT_BYTES].copy_from_slice(short);
            let vector = AddressVector::read_from_bytes(&vector).ok()?;
            let is_whole = vector.dqp_dct.get() & EXTENDED_UD_AV != 0;
            let behind = rest.get(if is_whole { size_of::<AddressVector>() } else { SEGMENT_BYTES }..)?;
            lines.push(format!("datagram: to queue {:#x}, Q_Key {:#x}", vector.qpn(), vector.qkey()));
            Some(behind)
        }
        QpType::XRC_INI => {
            let (segment, behind) = Xrc::read_from_prefix(rest).ok()?;
            lines.push(format!("peer's shared receive queue {:#x}", segment.xrc_srqn.get()));
            Some(behind)
        }
        _ => Some(rest),
    }
}

/// The pieces of data.
fn data(mut rest: &[u8], names: &mut Names, lines: &mut Vec<String>) {
    while let Ok((segment, behind)) = Data::read_from_prefix(rest) {
        if segment.byte_count.get() & INLINE != 0 {
            let bytes = InlineHeader { byte_count: segment.byte_count }.bytes();
            lines.push(format!("inline: {bytes} bytes in the entry itself"));
            let whole = inline_segments(bytes as usize) * SEGMENT_BYTES;
            rest = rest.get(whole..).unwrap_or_default();
            continue;
        }
        let (address, key) = (names.address(segment.addr.get()), names.key(segment.lkey.get()));
        lines.push(format!("data: {} bytes at {address} key {key}", segment.bytes()));
        rest = behind;
    }
}

/// A completion in one line.
pub(crate) fn completed(bytes: &[u8]) -> String {
    let Ok((entry, _)) = Cqe64::read_from_prefix(bytes) else {
        return format!("a completion of {} bytes, 64 expected", bytes.len());
    };
    let opcode = entry.opcode();
    let name = completion::name(opcode).map_or_else(|| format!("opcode {opcode:#x}"), str::to_owned);
    if let Some(error) = CqeError::of(&entry) {
        return format!("{name} of queue {:#x}: {}", error.qpn(), error.syndrome());
    }
    let counter = entry.wqe_counter.get();
    match opcode {
        completion::REQUESTER => {
            let sent = send::name(entry.send_opcode()).unwrap_or("unknown opcode");
            format!("{name} of queue {:#x}: entry {counter} ({sent}) is done", entry.qpn())
        }
        _ => format!("{name} of queue {:#x}: entry {counter}, {} bytes", entry.qpn(), entry.byte_cnt.get()),
    }
}
