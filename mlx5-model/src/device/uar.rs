//! The pages of registers (UARs), by number.

/// Number of the first UAR: the page's index in BAR 0, behind the initialization segment and what else stands there.
pub(crate) const FIRST_UAR: u32 = 0x100;
/// UARs of a device.
pub(crate) const UARS: usize = 256;
