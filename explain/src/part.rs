//! Parts of calls in words: structures by their fields, firmware commands, numbers.

use pollux_mlx5_abi::command::{describe_input, describe_output, header};
use pollux_mlx5_abi::kernel::{self, object as driver_object};
use pollux_uverbs::abi::object::{DRIVER_NAMESPACE, UHW_IN, UHW_OUT};
use pollux_uverbs::abi::{form, id};

use crate::names::Names;

/// A structure's name and its fields: name, offset, size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [(&'static str, usize, usize)],
}

impl From<form::Form> for Shape {
    fn from(form: form::Form) -> Self {
        Self { name: form.name, fields: form.fields }
    }
}

impl From<kernel::part::Part> for Shape {
    fn from(part: kernel::part::Part) -> Self {
        Self { name: part.name, fields: part.fields }
    }
}

/// Name of a method: the kernel's own, or the driver's.
pub(crate) fn method(object: u16, method: u16) -> String {
    let own = id::method_name(object, method).or_else(|| kernel::method::name(object, method));
    own.map_or_else(
        || {
            let object = id::object_name(object)
                .or_else(|| driver_object::name(object))
                .map_or_else(|| format!("{object:#06x}"), str::to_owned);
            format!("{object}/{method:#06x}")
        },
        str::to_owned,
    )
}

/// Name of an attribute.
pub(crate) fn attribute(object: u16, method: u16, attribute: u16) -> String {
    let own = kernel::attribute::name(object, method, attribute)
        .or_else(|| id::attribute_name(object, method, attribute));
    own.map_or_else(|| format!("{attribute:#06x}"), str::to_owned)
}

/// The structure that an attribute carries.
pub(crate) fn shape(object: u16, method: u16, attribute: u16, bytes: usize) -> Option<Shape> {
    if object < DRIVER_NAMESPACE && (attribute == UHW_IN || attribute == UHW_OUT) {
        return kernel::part::of_method(object, method, attribute == UHW_OUT, bytes).map(Shape::from);
    }
    form::of_attribute(object, method, attribute).map(Shape::from)
}

/// What an attribute says, in words. A structure says nothing of fields that are 0; a firmware command is told by its own fields.
pub(crate) fn said(
    (object, method, attribute): (u16, u16, u16),
    bytes: &[u8],
    opcode: Option<u16>,
    names: &mut Names,
) -> String {
    if object >= DRIVER_NAMESPACE || attribute >= DRIVER_NAMESPACE {
        let title = self::attribute(object, method, attribute);
        if title == "CMD_IN" {
            return describe_input(bytes).to_string();
        }
        if let ("CMD_OUT", Some(opcode)) = (title.as_str(), opcode) {
            return describe_output(opcode, bytes).to_string();
        }
    }
    match shape(object, method, attribute, bytes.len()) {
        Some(shape) => structure(shape, bytes, names),
        None => number(&self::attribute(object, method, attribute), bytes, names),
    }
}

/// Number of the firmware command in an attribute, if it has one.
pub(crate) fn opcode_of((object, method, attribute): (u16, u16, u16), bytes: &[u8]) -> Option<u16> {
    let is_command = kernel::attribute::name(object, method, attribute) == Some("CMD_IN");
    is_command.then(|| header(bytes)).flatten().map(|head| head.opcode)
}

/// The fields of a structure that are not 0. A shorter one is that of an older kernel; of a longer one the rest is counted.
pub(crate) fn structure(shape: Shape, bytes: &[u8], names: &mut Names) -> String {
    let mut out = format!("{}:", shape.name);
    let mut known = 0;
    for (name, offset, size) in shape.fields {
        known = known.max(offset + size);
        let Some(field) = bytes.get(*offset..offset + size) else { continue };
        if field.iter().any(|byte| *byte != 0) {
            out.push_str(&format!(" {name}={}", number(name, field, names)));
        }
    }
    if out.ends_with(':') {
        out.push_str(" all 0");
    }
    if bytes.len() > known {
        out.push_str(&format!(" and {} bytes more", bytes.len() - known));
    }
    out
}

/// Up to 8 bytes as a number of the host, more as they stand.
pub(crate) fn number(name: &str, bytes: &[u8], names: &mut Names) -> String {
    // Linux runs little-endian wherever there is a ConnectX driver of ours.
    let value = bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let lower = name.to_ascii_lowercase();
    match bytes.len() {
        0 => "nothing".into(),
        8 if is_address(&lower) => names.address(value),
        4 if lower.ends_with("key") => names.key(value as u32),
        1..=8 if value < 10 => value.to_string(),
        1..=8 => format!("{value:#x}"),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Whether a field of that name holds an address: of memory, or what a program calls an object by.
fn is_address(name: &str) -> bool {
    name.contains("addr")
        || matches!(name, "start" | "hca_va" | "iova" | "user_handle" | "buffer_va" | "mmap_offset")
}
