//! Fields and flags of mbufs that are registered by name at run time.
//!
//! What is registered stays for the life of the process, as mbufs carry it everywhere. Who registers the same name again
//! gets the same place. A field of a fresh mbuf holds what the last user left there, so a field goes with a flag that
//! says that it holds something; flags of a fresh mbuf are clear.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::PoolError;
use crate::mbuf::header::DYNAMIC_BYTES;

/// Bits for dynamic flags.
const FLAGS_MAX: usize = 32;

/// A number that a dynamic field can hold.
pub trait Plain: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}
        impl Plain for $number {}
    )*};
}
plain!(u8 u16 u32 u64 i8 i16 i32 i64);

/// A place in every mbuf that holds a `T`; see [`Field::register`].
#[derive(Debug)]
pub struct Field<T> {
    offset: u8,
    _holds: PhantomData<T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

/// A bit in every mbuf; see [`Flag::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    bit: u8,
}

struct Registered {
    fields: Vec<(String, usize, usize)>,
    flags: Vec<String>,
}

static REGISTERED: Mutex<Registered> = Mutex::new(Registered { fields: Vec::new(), flags: Vec::new() });

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Plain> Field<T> {
    /// The place called `name`, which is found room for if it is new.
    ///
    /// # Errors
    /// When no room is left, or the name stands for a field of another size.
    pub fn register(name: &str) -> Result<Self, PoolError> {
        let bytes = size_of::<T>();
        let fields = &mut registered().fields;
        let of = |offset: usize| Self { offset: offset as u8, _holds: PhantomData };
        if let Some((_, offset, registered)) = fields.iter().find(|(known, ..)| known == name) {
            if *registered != bytes {
                return Err(PoolError::FieldSize { name: name.into(), registered: *registered, bytes });
            }
            return Ok(of(*offset));
        }
        let is_free = |offset: &usize| {
            fields.iter().all(|(_, at, bytes_there)| offset + bytes <= *at || at + bytes_there <= *offset)
        };
        let offset = (0..DYNAMIC_BYTES).step_by(bytes).find(is_free);
        let offset = offset.ok_or_else(|| PoolError::NoDynamicRoom { name: name.into(), what: "field" })?;
        fields.push((name.into(), offset, bytes));
        Ok(of(offset))
    }

    /// Bytes from the start of the dynamic area; a multiple of the size, which is a power of two.
    pub(crate) fn offset(self) -> usize {
        self.offset.into()
    }
}

impl Flag {
    /// The bit called `name`, which is chosen if it is new.
    ///
    /// # Errors
    /// When no bit is left.
    pub fn register(name: &str) -> Result<Self, PoolError> {
        let flags = &mut registered().flags;
        if let Some(bit) = flags.iter().position(|known| known == name) {
            return Ok(Self { bit: bit as u8 });
        }
        if flags.len() == FLAGS_MAX {
            return Err(PoolError::NoDynamicRoom { name: name.into(), what: "flag" });
        }
        flags.push(name.into());
        Ok(Self { bit: (flags.len() - 1) as u8 })
    }

    #[inline(always)]
    pub(crate) fn mask(self) -> u32 {
        1 << self.bit
    }
}
