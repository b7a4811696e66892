//! What an attribute of an ioctl carries: its bytes do not say whether they are a number, an object or an address, and of what is
//! there. The kernel's names do.

use pollux_mlx5_abi::kernel;
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};

/// What an attribute carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An input: in the attribute itself up to 8 bytes, else where it points to.
    In,
    /// An element of an enumeration, and its input.
    Element,
    /// Room for an output.
    Out,
    /// An object that exists.
    Object,
    /// An object that is made.
    New,
    /// A descriptor that exists.
    Descriptor,
    /// A descriptor that is made.
    NewDescriptor,
}

/// Outputs whose names do not say so.
const OUTPUTS: [&str; 15] = [
    "CORE_OUT",
    "CMD_OUT",
    "TOTAL_HANDLES",
    "HANDLES_LIST",
    "NUM_COMP_VECTORS",
    "CORE_SUPPORT",
    "BUFF",
    "DEV_IDX",
    "DEV_EQN",
    "OUT_ID",
    "MMAP_OFFSET",
    "MMAP_LENGTH",
    "PAGE_ID",
    "INDEX",
    "QUERY_PORT",
];

/// What an attribute carries; `None` of one that nobody here knows, of other drivers for example.
pub(super) fn role(object: u16, method: u16, attribute: u16) -> Option<Role> {
    match attribute {
        UHW_IN if object < UHW_IN && kernel::attribute::name(object, method, attribute).is_none() => {
            return Some(Role::In);
        }
        UHW_OUT if object < UHW_IN && kernel::attribute::name(object, method, attribute).is_none() => {
            return Some(Role::Out);
        }
        _ => {}
    }
    let name = kernel::attribute::name(object, method, attribute)
        .or_else(|| id::attribute_name(object, method, attribute))?;
    let title = id::method_name(object, method).or_else(|| kernel::method::name(object, method))?;
    let (kind, verb) = title.split_once('/').unwrap_or(("", title));
    let makes = ["CREATE", "ALLOC", "REG", "DM_MR_REG"].iter().any(|begin| verb.starts_with(begin));
    Some(match name {
        "HANDLE" | "CREATE_HANDLE" | "FD_HANDLE" if makes => {
            let is_descriptor = matches!(kind, "ASYNC_EVENT" | "DMABUF") || kind.ends_with("_FD");
            if is_descriptor { Role::NewDescriptor } else { Role::New }
        }
        "FD" | "EVENT_FD" | "BUFFER_FD" | "DMABUF_FD" | "FD_HANDLE" | "COMP_CHANNEL" => Role::Descriptor,
        "USER_HANDLE" => Role::In,
        "MATCHER" | "DEST_QP" | "DEST_DEVX" => Role::Object,
        "FLOW_TYPE" => Role::Element,
        _ if name.ends_with("HANDLE") || name.ends_with("UMEM") => Role::Object,
        _ if name.starts_with("RESP") || OUTPUTS.contains(&name) => Role::Out,
        _ => Role::In,
    })
}

#[cfg(test)]
mod tests {
    use pollux_mlx5_kernel::{Carries, attributes};

    use super::*;

    /// The device model reads the frames of programs by a table of its own.
    #[test]
    fn roles_are_those_that_the_device_model_knows() {
        let (mut seen, mut wrong) = (0, Vec::new());
        for object in (0..32).chain(0x1000..0x1020) {
            for method in (0..16).chain(0x1000..0x1010) {
                for spec in attributes(object, method).into_iter().flatten() {
                    seen += 1;
                    let wanted = match spec.carries {
                        Carries::In(_) | Carries::Number => Role::In,
                        Carries::Element => Role::Element,
                        Carries::Out(_) => Role::Out,
                        Carries::Object(_) | Carries::AnyObject | Carries::NoObject => Role::Object,
                        Carries::New => Role::New,
                        Carries::Fd => Role::Descriptor,
                        Carries::NewFd => Role::NewDescriptor,
                    };
                    let role = role(object, method, spec.id);
                    // It has the number of a descriptor, which the model takes for any number.
                    let is_number = role == Some(Role::Descriptor) && spec.carries == Carries::Number;
                    if role != Some(wanted) && !is_number {
                        wrong.push((object, method, spec.id, wanted, role));
                    }
                }
            }
        }
        assert!(seen > 150 && wrong.is_empty(), "{seen}: {wrong:x?}");
    }
}
