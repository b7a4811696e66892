//! The frame of an ioctl: a header and its attributes. Source: `rdma/rdma_user_ioctl_cmds.h`; the frame of write(2):
//! `rdma/ib_user_verbs.h`.

use super::layout;

/// The one ioctl of the file: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub const RDMA_VERBS_IOCTL: u32 = 0xC018_1B01;

/// Attribute flag: a kernel that does not know the attribute must refuse the call.
pub const MANDATORY: u16 = 1;

/// Attribute flag, set by the kernel: it has written this output.
pub const VALID_OUTPUT: u16 = 2;

/// Inputs up to this length travel in the attribute itself.
pub const INLINE_BYTES: usize = 8;

layout! {
    /// Head of an ioctl; the attributes follow.
    IoctlHeader = "ib_uverbs_ioctl_hdr", 24 {
        /// Bytes of header and attributes.
        length: u16 = 0,
        /// Kind of object.
        object_id: u16 = 2,
        /// What to do with it.
        method_id: u16 = 4,
        /// How many attributes follow.
        num_attrs: u16 = 6,
        /// Zero.
        reserved1: u64 = 8,
        /// The driver whose attributes are meant; the kernel refuses another device's. See [`driver`](super::object::driver).
        driver_id: u32 = 16,
        /// Zero.
        reserved2: u32 = 20,
    }

    /// One attribute.
    IoctlAttribute = "ib_uverbs_attr", 16 {
        /// Which attribute of the method.
        attr_id: u16 = 0,
        /// Bytes of an input or output; 0 for handles and descriptors.
        len: u16 = 2,
        /// [`MANDATORY`], [`VALID_OUTPUT`].
        flags: u16 = 4,
        /// The element of an enumeration (first byte), else 0.
        attr_data: [u8; 2] = 6,
        /// A value, a handle, a descriptor, or the address of the bytes.
        data: u64 = 8,
    }

    /// Head of a command given to write(2).
    WriteHeader = "ib_uverbs_cmd_hdr", 8 {
        /// Command number, with [`EXTENDED`](super::write::EXTENDED) for that kind.
        command: u32 = 0,
        /// Length in, in words of 4 bytes and with this header; extended: of 8 bytes, the core part alone.
        in_words: u16 = 4,
        /// Length of the answer, in words of 4 bytes; extended: of 8 bytes, the core part alone.
        out_words: u16 = 6,
    }

    /// What follows the head of an extended command.
    ExtendedHeader = "ib_uverbs_ex_cmd_hdr", 16 {
        /// Address for the answer; 0 when there is none.
        response: u64 = 0,
        /// Length of the driver's part, in words of 8 bytes.
        provider_in_words: u16 = 8,
        /// Length of the driver's part of the answer, in words of 8 bytes.
        provider_out_words: u16 = 10,
        /// Zero.
        cmd_hdr_reserved: u32 = 12,
    }
}
