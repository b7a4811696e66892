//! A trace in words, line by line, with what each makes of the queues: their rings, doorbells and states.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::queue_pair::qp_flag;
use pollux_mlx5_abi::kernel::{self, mmap};
use pollux_mlx5_abi::wqe::BLOCK_BYTES;
use pollux_mlx5_abi::wqe::Control;
use pollux_uverbs::abi::flags::{QpState, QpType};
use pollux_uverbs::abi::object::{DRIVER_NAMESPACE, UHW_IN, UHW_OUT};
use pollux_uverbs::abi::{form, id, write};
use zerocopy::FromBytes;

use crate::entry;
use crate::event;
use crate::line::{self, Line, Value, parse};
use crate::names::Names;
use crate::part::{self, Shape};
use crate::queues::Queues;

/// Bytes of a page, as offsets count them. Source: x86-64, the processor that is claimed.
const PAGE: u64 = 4096;
/// Offsets of the registers in a UAR page. Source: `pollux_mlx5_abi::doorbell::uar`.
const CQ_ARM: u64 = pollux_mlx5_abi::doorbell::uar::CQ_ARM as u64;

/// The driver's part of what makes a queue pair is that of this command, whichever way it is made.
const CREATE_QP: u32 = write::CREATE_QP;

/// What a call that made a queue pair says.
struct Made<'a> {
    handle: u32,
    number: u32,
    kind: Option<u8>,
    /// The driver's part of what was asked and answered.
    request: &'a [u8],
    answer: &'a [u8],
}

/// Explains a trace.
#[derive(Debug, Default)]
pub struct Explainer {
    names: Names,
    lines: u64,
    counts: BTreeMap<&'static str, u64>,
    /// The channel of the last line that told one, and its number in the order in which they came up.
    channel: usize,
    channels: BTreeMap<String, usize>,
    queues: Queues,
    /// Channels to devices of other drivers than mlx5's, and whether the last line's is one.
    others: BTreeSet<String>,
    is_other: bool,
    /// Lines that were none.
    strange: u64,
}

impl Explainer {
    /// With names in the place of addresses and keys, or with these as they are.
    #[must_use]
    pub fn new(named: bool) -> Self {
        Self { names: Names::new(named), ..Self::default() }
    }

    /// From now on a channel is one to a device of another driver than mlx5's: what a driver adds to calls, and which page an offset maps,
    /// is not told by names.
    pub fn of_other_driver(&mut self, channel: &str) {
        let _ = self.others.insert(channel.to_owned());
    }

    /// A line of the trace in words: one or several lines. Lines that are none are counted, and said to be so.
    pub fn line(&mut self, line: &str) -> String {
        self.lines += 1;
        let mut out = String::new();
        self.goes_through(line::channel(line).1, &mut out);
        // What a terminal would obey is in no trace.
        match parse(line).filter(|_| !line.contains(char::is_control)) {
            Some(Line::Call { object, method, asked, outcome, answered }) => {
                self.call(object, method, &asked, outcome, &answered, &mut out);
            }
            Some(Line::Write { command, route, asked, outcome, answered }) => {
                self.write(command, route, &asked, outcome, &answered, &mut out);
            }
            Some(Line::Map { offset, bytes, rights, outcome }) => {
                self.count("maps");
                let what = self.mapped(offset);
                let _ = writeln!(out, "{:>4} mmap {what}: {bytes} bytes, {rights} -> {outcome}", self.lines);
            }
            Some(Line::Unmap { offset, bytes }) => {
                self.count("unmaps");
                let what = self.mapped(Some(offset));
                let _ = writeln!(out, "{:>4} munmap {what}: {bytes} bytes -> ok", self.lines);
            }
            Some(Line::Open { file, outcome }) => {
                self.count("opens");
                let _ = writeln!(out, "{:>4} open {file} -> {outcome}", self.lines);
            }
            Some(Line::Dup { from, to }) => {
                self.count("dups");
                let _ = writeln!(out, "{:>4} dup: descriptor {from} is {to}, too -> ok", self.lines);
            }
            Some(Line::Event { bytes }) => {
                self.count("events");
                let said = event::said(&bytes, &mut self.names);
                let _ = writeln!(out, "{:>4} read: {said}", self.lines);
            }
            Some(Line::Close) => {
                let left = self.queues.close(self.channel);
                let _ = writeln!(
                    out,
                    "{:>4} close: the channel is gone, and {left} queue pairs with it",
                    self.lines
                );
            }
            Some(Line::Full) => {
                let _ = writeln!(
                    out,
                    "{:>4} full: the trace is as long as it may be, and the program writes no more of it; end this and watch anew",
                    self.lines
                );
            }
            Some(Line::Ring { page, offset, bytes }) => self.ring(page, offset, &bytes, &mut out),
            Some(Line::Entry { queue, index, bytes }) => {
                self.count("send entries");
                let state = self.state_of(queue);
                let _ = writeln!(
                    out,
                    "{:>4} post_send, fast path: queue {queue:#x}{state}, entry {index}, {} bytes",
                    self.lines,
                    bytes.len()
                );
                for segment in entry::sent(&bytes, self.queues.kind_of(queue), &mut self.names) {
                    let _ = writeln!(out, "       {segment}");
                }
            }
            Some(Line::Completion { queue, bytes }) => {
                self.count("completions");
                let said = entry::completed(&bytes);
                let _ = writeln!(
                    out,
                    "{:>4} poll_cq, fast path: completion queue {queue:#x}: {said}",
                    self.lines
                );
            }
            None => {
                self.strange += 1;
                let shown: String = line.escape_default().take(60).collect();
                let _ = writeln!(out, "{:>4} is no line of a trace: {shown}", self.lines);
            }
        }
        out
    }

    /// What the trace was in all: how often each way was taken, and the states in which queue pairs were left.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut out = String::new();
        let ways: Vec<String> = self.counts.iter().map(|(way, count)| format!("{count} {way}")).collect();
        let _ = writeln!(out, "in all: {}", if ways.is_empty() { "nothing".into() } else { ways.join(", ") });
        for (number, state) in self.queues.states() {
            let _ = writeln!(out, "queue pair {number:#x} is in {state}");
        }
        if self.strange > 0 {
            let _ = writeln!(out, "{} lines were none of a trace", self.strange);
        }
        out
    }

    /// Whether every line so far was one of a trace.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.strange == 0
    }

    /// Turns to the channel of a line, and says so where it is another one than the last line's. Lines of the fast path are the device's,
    /// and those of an older trace all one channel's.
    fn goes_through(&mut self, channel: Option<&str>, out: &mut String) {
        let Some(channel) = channel else { return };
        let next = self.channels.len();
        let number = match self.channels.get(channel) {
            Some(number) => *number,
            None => *self.channels.entry(channel.to_owned()).or_insert(next),
        };
        if number != self.channel {
            let named = if self.names.are_given() { number.to_string() } else { channel.to_owned() };
            let _ = writeln!(out, "channel {named}:");
        }
        self.channel = number;
        self.is_other = self.others.contains(channel);
    }

    fn mapped(&self, offset: Option<u64>) -> String {
        match offset {
            Some(offset) if self.is_other => format!("pages of the device (offset {offset:#x})"),
            Some(offset) => mapped(offset),
            None => "pages of the device".into(),
        }
    }

    fn count(&mut self, way: &'static str) {
        *self.counts.entry(way).or_default() += 1;
    }

    fn state_of(&self, queue: u32) -> String {
        self.queues.state_of(queue).map_or_else(String::new, |state| format!(" ({state})"))
    }

    fn call(
        &mut self,
        object: u16,
        method: u16,
        asked: &[(u16, Value<'_>)],
        outcome: &str,
        answered: &[(u16, Value<'_>)],
        out: &mut String,
    ) {
        self.count("methods");
        let name = part::method(object, method);
        let _ = writeln!(out, "{:>4} {name}, ioctl method -> {outcome}", self.lines);
        let mut opcode = None;
        for (attribute, value) in asked {
            if let Value::Bytes(bytes) = value {
                opcode = opcode.or_else(|| part::opcode_of((object, method, *attribute), bytes));
            }
            // What there is room for, its answer tells.
            if !matches!(value, Value::Room(_) | Value::New) {
                self.attribute((object, method, *attribute), value, opcode, "  ", out);
            }
        }
        for (attribute, value) in answered {
            self.attribute((object, method, *attribute), value, opcode, "=>", out);
        }
        if outcome == "ok" {
            self.followed((object, method), asked, answered, opcode, out);
        }
    }

    /// What a method that was not refused makes of the queues.
    fn followed(
        &mut self,
        call: (u16, u16),
        asked: &[(u16, Value<'_>)],
        answered: &[(u16, Value<'_>)],
        opcode: Option<u16>,
        out: &mut String,
    ) {
        let create = id::qp::create::METHOD;
        if call == (id::qp::OBJECT, create)
            && let (Some(handle), Some(number)) =
                (handle_in(answered, id::qp::create::HANDLE), word_in(answered, id::qp::create::RESP_QP_NUM))
        {
            let kind = bytes_in(asked, id::qp::create::TYPE).and_then(|bytes| bytes.first().copied());
            let request = bytes_in(asked, UHW_IN).unwrap_or_default();
            let answer = bytes_in(answered, UHW_OUT).unwrap_or_default();
            self.made(&Made { handle, number, kind, request, answer }, out);
        }
        if call == (id::qp::OBJECT, id::qp::destroy::METHOD)
            && let Some(handle) = handle_in(asked, id::qp::destroy::HANDLE)
        {
            self.queues.destroyed((self.channel, handle));
        }
        // A send queue of the firmware's takes frames alone.
        if opcode == Some(opcode::CREATE_SQ)
            && let Some(bytes) = answered.iter().find_map(|(attribute, value)| match value {
                Value::Bytes(bytes) if part::attribute(call.0, call.1, *attribute) == "CMD_OUT" => {
                    Some(bytes)
                }
                _ => None,
            })
            && let Some(number) = bytes.get(8..).and_then(|bytes| bytes.first_chunk())
        {
            self.queues.sends_frames(u32::from_be_bytes(*number) & 0xff_ffff);
        }
    }

    fn attribute(
        &mut self,
        place: (u16, u16, u16),
        value: &Value<'_>,
        opcode: Option<u16>,
        mark: &str,
        out: &mut String,
    ) {
        // Numbers of other drivers mean other things.
        let is_theirs = self.is_other && place.2 >= DRIVER_NAMESPACE;
        let name = if is_theirs {
            let own = id::attribute_name(place.0, place.1, place.2);
            own.map_or_else(|| format!("{:#06x}", place.2), str::to_owned)
        } else {
            part::attribute(place.0, place.1, place.2)
        };
        let said = match value {
            Value::Bytes(bytes) if is_theirs => part::number(&name, bytes, &mut self.names),
            Value::Bytes(bytes) => part::said(place, bytes, opcode, &mut self.names),
            Value::Element(element, bytes) => {
                format!("element {element}: {}", part::number(&name, bytes, &mut self.names))
            }
            Value::Handle(handle) => format!("handle {handle}"),
            Value::Room(room) => format!("room for {room} bytes"),
            Value::New => "made".into(),
            Value::Descriptor => "a descriptor".into(),
            Value::Other(text) => (*text).to_owned(),
        };
        let _ = writeln!(out, "     {mark} {name} {said}");
    }

    /// What a queue pair's rings and doorbell are, once it is made.
    fn made(&mut self, made: &Made<'_>, out: &mut String) {
        let &Made { handle, number, kind, request, answer } = made;
        let of_driver = |is_answer, bytes: &[u8], wanted| {
            let part = kernel::part::of_command(CREATE_QP, is_answer, bytes.len())?;
            field(Shape::from(part), bytes, wanted)
        };
        let asked = |wanted| of_driver(false, request, wanted).unwrap_or(0);
        let own = of_driver(true, answer, "sqn").filter(|_| !self.is_other);
        let own = own.and_then(|number| u32::try_from(number).ok());
        let sends = own.filter(|number| *number != 0).unwrap_or(number);
        self.queues.made((self.channel, handle), number, sends, kind.map(QpType));
        // A hash queue pair has neither a number nor rings.
        if number == 0 {
            return;
        }
        if self.is_other {
            let _ = writeln!(out, "     queue pair {number:#x} is made, in RESET");
            return;
        }
        let (blocks, record) = (asked("sq_wqe_count"), asked("db_addr"));
        // The page is the program's choice, or a register of the context's pages the kernel's.
        let register = if asked("flags") & u64::from(qp_flag::UAR_PAGE_INDEX) != 0 {
            format!("UAR page {:#x}", asked("bfreg_index"))
        } else {
            let register = of_driver(true, answer, "bfreg_index");
            format!("register {:#x}", register.unwrap_or_else(|| asked("bfreg_index")))
        };
        let record = self.names.address(record);
        let _ = writeln!(
            out,
            "     queue pair {number:#x} is made, in RESET; it posts and is polled without calls:"
        );
        let _ = writeln!(
            out,
            "     {blocks} blocks of {BLOCK_BYTES} bytes to send from, doorbell record at {record}, {register}"
        );
    }

    fn write(
        &mut self,
        command: u32,
        route: &str,
        asked: &[Value<'_>; 2],
        outcome: &str,
        answered: &[Option<Value<'_>>; 2],
        out: &mut String,
    ) {
        let way = if route == "Tunnelled" { "tunnelled writes" } else { "plain writes" };
        self.count(way);
        let name = named(command);
        let how = if route == "Tunnelled" { "write command in DEVICE/INVOKE_WRITE" } else { "write(2)" };
        let _ = writeln!(out, "{:>4} {name}, {how} -> {outcome}", self.lines);
        let forms = form::of_command(command);
        let number = command & !write::EXTENDED;
        for (answer, mark, parts) in [(false, "  ", asked.clone().map(Some)), (true, "=>", answered.clone())]
        {
            let core = match forms {
                Some((request, _)) if !answer => Some(Shape::from(request)),
                Some((_, Some(reply))) if answer => Some(Shape::from(reply)),
                _ => None,
            };
            for (index, value) in parts.into_iter().enumerate() {
                let said = match value {
                    Some(Value::Bytes(bytes)) if !bytes.is_empty() => {
                        let driver = || {
                            let part = kernel::part::of_command(number, answer, bytes.len());
                            part.filter(|_| !self.is_other).map(Shape::from)
                        };
                        let shape = if index == 0 { core } else { driver() };
                        match shape {
                            Some(shape) => part::structure(shape, &bytes, &mut self.names),
                            None => part::number("", &bytes, &mut self.names),
                        }
                    }
                    Some(Value::Other(text)) => text.to_owned(),
                    _ => continue,
                };
                let _ = writeln!(out, "     {mark} {} {said}", ["core", "driver"][index]);
            }
        }
        if outcome == "ok"
            && let (Some((request, _)), Value::Bytes(bytes)) = (forms, &asked[0])
        {
            let driver = [Some(&asked[1]), answered[1].as_ref()].map(|part| match part {
                Some(Value::Bytes(bytes)) => &bytes[..],
                _ => &[],
            });
            match (command, &answered[0]) {
                (write::CREATE_QP | write::EX_CREATE_QP, Some(Value::Bytes(answer))) => {
                    self.made_by_write(Shape::from(request), bytes, answer, driver, out);
                }
                (write::DESTROY_QP, _) => {
                    let handle = field(Shape::from(request), bytes, "qp_handle");
                    if let Some(handle) = handle.and_then(|handle| u32::try_from(handle).ok()) {
                        self.queues.destroyed((self.channel, handle));
                    }
                }
                (write::MODIFY_QP | write::EX_MODIFY_QP, _) => {
                    self.modified(Shape::from(request), bytes, out)
                }
                _ => {}
            }
        }
    }

    /// A queue pair that a write command made. The answer to the extended command begins with the older one.
    fn made_by_write(
        &mut self,
        request: Shape,
        asked: &[u8],
        answered: &[u8],
        [driver_request, driver_answer]: [&[u8]; 2],
        out: &mut String,
    ) {
        let Some((_, Some(older))) = form::of_command(CREATE_QP) else { return };
        let told =
            |name| field(Shape::from(older), answered, name).and_then(|value| u32::try_from(value).ok());
        let (Some(handle), Some(number)) = (told("qp_handle"), told("qpn")) else { return };
        let kind = field(request, asked, "qp_type").map(|kind| kind as u8);
        self.made(&Made { handle, number, kind, request: driver_request, answer: driver_answer }, out);
    }

    /// The state that a MODIFY_QP leads to. The extended command begins with the older one.
    fn modified(&mut self, shape: Shape, bytes: &[u8], out: &mut String) {
        let older = form::of_command(write::MODIFY_QP).map_or(shape, |(request, _)| Shape::from(request));
        let value = |name: &str| field(older, bytes, name);
        let (Some(handle), Some(mask), Some(state)) =
            (value("qp_handle"), value("attr_mask"), value("qp_state"))
        else {
            return;
        };
        if mask & 1 == 0 {
            return;
        }
        let Ok(handle) = u32::try_from(handle) else { return };
        if let Some((number, before)) = self.queues.modified((self.channel, handle), QpState(state as u8)) {
            let _ = writeln!(out, "     queue pair {number:#x}: {before} -> {}", QpState(state as u8));
        }
    }

    fn ring(&mut self, page: u32, offset: u64, bytes: &[u8], out: &mut String) {
        self.count("doorbells");
        let _ = write!(out, "{:>4} doorbell, fast path: UAR page {page:#x} at {offset:#x}: ", self.lines);
        if offset == CQ_ARM
            && let Some(word) = bytes.first_chunk::<8>()
        {
            let number = u32::from_be_bytes([0, word[5], word[6], word[7]]);
            let _ = writeln!(out, "arms completion queue {number:#x} (req_notify_cq)");
            return;
        }
        let mut padded = [0; 16];
        let head = bytes.len().min(16);
        padded[..head].copy_from_slice(&bytes[..head]);
        let Ok(control) = Control::read_from_bytes(&padded) else { return };
        let how = if bytes.len() >= BLOCK_BYTES { "and the entry itself (BlueFlame)" } else { "the head of" };
        let state = self.state_of(control.qpn());
        let _ = if bytes.len() >= 8 {
            writeln!(
                out,
                "{} bytes, {how} entry {} of queue {:#x}{state}",
                bytes.len(),
                control.index(),
                control.qpn()
            )
        } else {
            writeln!(out, "{} bytes", bytes.len())
        };
    }
}

/// What a line is about, in a word or two: `QP/CREATE`, `ALLOC_PD`, `mmap`; `None` for what is no line of a trace.
#[must_use]
pub fn title(line: &str) -> Option<String> {
    Some(match parse(line)? {
        Line::Call { object, method, .. } => part::method(object, method),
        Line::Write { command, .. } => named(command),
        Line::Map { .. } => "mmap".into(),
        Line::Unmap { .. } => "munmap".into(),
        Line::Open { .. } => "open".into(),
        Line::Dup { .. } => "dup".into(),
        Line::Event { .. } => "read".into(),
        Line::Close => "close".into(),
        Line::Full => "full".into(),
        Line::Ring { .. } => "doorbell".into(),
        Line::Entry { .. } => "post_send".into(),
        Line::Completion { .. } => "poll_cq".into(),
    })
}

/// Name of a write command.
fn named(command: u32) -> String {
    write::name(command).map_or_else(|| format!("{command:#010x}"), str::to_owned)
}

/// The bytes of an attribute.
fn bytes_in<'a>(list: &'a [(u16, Value<'_>)], wanted: u16) -> Option<&'a [u8]> {
    list.iter().find(|(attribute, _)| *attribute == wanted).and_then(|(_, value)| match value {
        Value::Bytes(bytes) => Some(&bytes[..]),
        _ => None,
    })
}

/// The number that an attribute is.
fn word_in(list: &[(u16, Value<'_>)], wanted: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes_in(list, wanted)?.first_chunk()?))
}

/// The object that an attribute names.
fn handle_in(list: &[(u16, Value<'_>)], wanted: u16) -> Option<u32> {
    list.iter().find_map(|(attribute, value)| match value {
        Value::Handle(handle) if *attribute == wanted => Some(*handle),
        _ => None,
    })
}

/// A field of a structure of the host, up to 8 bytes.
fn field(shape: Shape, bytes: &[u8], wanted: &str) -> Option<u64> {
    let (_, offset, size) = shape.fields.iter().find(|(name, ..)| *name == wanted)?;
    let field = bytes.get(*offset..offset + size).filter(|field| field.len() <= 8)?;
    Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// What an offset maps.
pub(crate) fn mapped(offset: u64) -> String {
    let Some((command, index)) = mmap::of(offset, PAGE) else { return format!("offset {offset:#x}") };
    let what = match command {
        mmap::REGULAR_PAGE => "UAR page of the context",
        mmap::WC_PAGE => "UAR page, write combining",
        mmap::NC_PAGE => "UAR page, not cached",
        mmap::CORE_CLOCK => "page of the adapter's clock",
        mmap::ALLOC_WC => "further UAR page, write combining",
        mmap::CLOCK_INFO => "page of the kernel's clock",
        mmap::DEVICE_MEM => "memory on the device",
        _ => "page that a call gave",
    };
    format!("{what} {index} (offset {offset:#x})")
}

#[cfg(test)]
mod tests;
