//! The address of a pool's object.
#![expect(unsafe_code, reason = "says that an address may cross threads")]

use std::ptr::NonNull;

/// One object of a pool that was taken out, as its address. A plain number: it does not come home by itself, and what
/// may be done with the memory is up to whoever took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Object(pub(crate) NonNull<u8>);

impl Object {
    /// Address of its first byte.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> NonNull<u8> {
        self.0
    }

    /// The object at an address that [`address`](Self::address) gave.
    #[inline(always)]
    #[must_use]
    pub fn at(address: NonNull<u8>) -> Self {
        Self(address)
    }
}

// SAFETY: an address; using what it names is unsafe in itself.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}
