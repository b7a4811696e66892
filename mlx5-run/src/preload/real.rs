//! What the C library has under a name that this library takes.

use std::ffi::CStr;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is first called.
pub(crate) struct Real {
    name: &'static CStr,
    at: AtomicPtr<libc::c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function, as an `F`.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub(crate) unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>(), "F is a function's pointer") };
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            // SAFETY: a name that ends with a zero, as CStr has it.
            at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            if at.is_null() {
                // The program called it by this name, so that the C library has it.
                std::process::abort();
            }
            self.at.store(at, Ordering::Relaxed);
        }
        // SAFETY: a pointer of the same size, to a function of that type, as the caller says.
        unsafe { transmute_copy(&at) }
    }
}

/// Calls what the C library has under the name of a function here.
macro_rules! real {
    ($name:literal: fn($($type:ty),*) -> $answer:ty, $($argument:expr),*) => {{
        static REAL: $crate::preload::real::Real = $crate::preload::real::Real::new($name);
        let real: unsafe extern "C" fn($($type),*) -> $answer = REAL.get();
        real($($argument),*)
    }};
}

pub(crate) use real;
