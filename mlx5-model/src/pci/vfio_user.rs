//! The messages of vfio-user, by which a machine drives a device in another process.
//!
//! ```text
//!   bytes and descriptors of a socket ── connection ──► Request      whole, of bounded size
//!   Request ── session ──► what it asks of the function
//! ```
//!
//! Source of layouts and numbers: QEMU `docs/interop/vfio-user.rst`; structures that Linux's vfio shares, Linux
//! `include/uapi/linux/vfio.h`. Numbers are in the processor's byte order.
//!
//! A peer's bytes are believed nothing: what cannot be a message ends the connection, what asks for something that is not
//! there is answered with an error.

mod connection;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) use connection::{Broken, Connection, Request};

/// Most bytes that a region's read or write moves, the protocol's default for `max_data_xfer_size`.
pub(super) const DATA_MAX: usize = 1 << 20;
/// Longest message: a region's write.
pub(super) const MESSAGE_MAX: usize = size_of::<Header>() + size_of::<RegionAccess>() + DATA_MAX;
/// Most descriptors with a message: what QEMU asks for.
pub(super) const DESCRIPTORS_MAX: usize = 8;

/// What a message asks for.
pub(super) mod command {
    pub(in super::super) const VERSION: u16 = 1;
    pub(in super::super) const DMA_MAP: u16 = 2;
    pub(in super::super) const DMA_UNMAP: u16 = 3;
    pub(in super::super) const DEVICE_GET_INFO: u16 = 4;
    pub(in super::super) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(in super::super) const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub(in super::super) const DEVICE_SET_IRQS: u16 = 8;
    pub(in super::super) const REGION_READ: u16 = 9;
    pub(in super::super) const REGION_WRITE: u16 = 10;
    pub(in super::super) const DEVICE_RESET: u16 = 13;
}

/// Bits of a header's flags: kind of the message, whether no reply is wanted, whether a reply is an error.
pub(super) mod flag {
    pub(in super::super) const KIND: u32 = 0xf;
    pub(in super::super) const COMMAND: u32 = 0;
    pub(in super::super) const REPLY: u32 = 1;
    pub(in super::super) const NO_REPLY: u32 = 1 << 4;
    pub(in super::super) const ERROR: u32 = 1 << 5;
}

/// In front of every message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) command: u16,
    /// Of the whole message.
    pub(super) bytes: u32,
    pub(super) flags: u32,
    /// In replies.
    pub(super) errno: u32,
}
const _: () = assert!(size_of::<Header>() == 16);

/// `VERSION`, before its JSON.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

/// `DMA_MAP`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) size: u64,
}
const _: () = assert!(size_of::<DmaMap>() == 32);

/// `DMA_UNMAP`, and the head of its reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) size: u64,
}
const _: () = assert!(size_of::<DmaUnmap>() == 24);

/// `DEVICE_GET_INFO`: `struct vfio_device_info` without capabilities.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) regions: u32,
    pub(super) interrupts: u32,
}

/// `DEVICE_GET_REGION_INFO`: `struct vfio_region_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) capabilities: u32,
    pub(super) size: u64,
    pub(super) offset: u64,
}
const _: () =
    assert!(size_of::<RegionInfo>() == size_of::<vfio_bindings::bindings::vfio::vfio_region_info>());

/// `DEVICE_GET_IRQ_INFO`: `struct vfio_irq_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct IrqInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}
const _: () = assert!(size_of::<IrqInfo>() == size_of::<vfio_bindings::bindings::vfio::vfio_irq_info>());

/// `DEVICE_SET_IRQS`: the head of `struct vfio_irq_set`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct IrqSet {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) start: u32,
    pub(super) count: u32,
}
const _: () = assert!(size_of::<IrqSet>() == 20);

/// `REGION_READ` and `REGION_WRITE`, before the data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(super) struct RegionAccess {
    pub(super) offset: u64,
    pub(super) region: u32,
    pub(super) count: u32,
}
const _: () = assert!(size_of::<RegionAccess>() == 16);
