//! Entries of rings in words: send entries segment by segment, completions.

use pollux_mlx5_abi::cqe::{Cqe64, CqeError};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{
    Atomic, Completion, Control, Data, Fence, INLINE, InlineHeader, RemoteAddress, SEGMENT_BYTES,
};
use zerocopy::FromBytes;

use crate::names::Names;

/// A send entry, a line for each segment; what is cut off or unknown is said to be so.
pub(crate) fn sent(bytes: &[u8], names: &mut Names) -> Vec<String> {
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
    let remote = matches!(
        opcode,
        send::RDMA_WRITE | send::RDMA_WRITE_IMM | send::RDMA_READ | send::ATOMIC_CS | send::ATOMIC_FA
    );
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
    if !remote && !matches!(opcode, send::SEND | send::SEND_IMM | send::SEND_INVAL) {
        if !rest.is_empty() {
            lines.push(format!("{} bytes of further segments", rest.len()));
        }
        return lines;
    }
    data(rest, names, &mut lines);
    lines
}

/// The pieces of data; of datagrams an address vector stands in front, which is not told from them here.
fn data(mut rest: &[u8], names: &mut Names, lines: &mut Vec<String>) {
    while let Ok((segment, behind)) = Data::read_from_prefix(rest) {
        if segment.byte_count.get() & INLINE != 0 {
            let bytes = InlineHeader { byte_count: segment.byte_count }.bytes();
            lines.push(format!("inline: {bytes} bytes in the entry itself"));
            return;
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
