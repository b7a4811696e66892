//! Addresses as devices see them.
//!
//! A device behind a user-space queue is given virtual addresses: the mlx5 device translates them by the memory regions
//! that are registered with it (and so needs neither root nor `/proc/self/pagemap`), and software ports read them as they
//! are. Physical addresses are deliberately absent.

use std::ptr::NonNull;

use pollux_config::IovaMode;

use crate::region::MemoryError;

/// An address as a device sees it. It is not a pointer: what it means depends on what was registered with the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Iova(pub u64);

impl Iova {
    /// The address under which a device knows memory that is registered at its own virtual address.
    #[must_use]
    pub fn of(address: NonNull<u8>) -> Self {
        Self(address.as_ptr() as u64)
    }

    /// The address `bytes` further; `None` past the end of the address space.
    #[must_use]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

impl std::fmt::Display for Iova {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Accepts the modes that lead to virtual addresses.
///
/// # Errors
/// [`MemoryError::PhysicalIova`] for `--iova-mode pa`.
pub fn require_virtual(mode: IovaMode) -> Result<(), MemoryError> {
    match mode {
        IovaMode::Auto | IovaMode::Virtual => Ok(()),
        IovaMode::Physical => Err(MemoryError::PhysicalIova),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_addresses_are_refused_with_the_way_out() {
        assert!(require_virtual(IovaMode::Auto).is_ok());
        assert!(require_virtual(IovaMode::Virtual).is_ok());
        let error = require_virtual(IovaMode::Physical).expect_err("refused").to_string();
        assert!(error.contains("--iova-mode va"), "{error}");
    }

    #[test]
    fn addresses_do_not_wrap() {
        assert_eq!(Iova(8).checked_add(8), Some(Iova(16)));
        assert_eq!(Iova(u64::MAX).checked_add(1), None);
        assert_eq!(Iova(0x1000).to_string(), "0x1000");
    }
}
