//! What the C library has under a name that a library takes.
#![expect(unsafe_code, reason = "calls functions by their addresses")]

use std::ffi::CStr;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is first called.
#[derive(Debug)]
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<libc::c_void>,
}

impl Real {
    /// That of a name.
    #[must_use]
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function, as an `F`. Ends the process if the C library has none: the program called it by that name.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub unsafe fn get<F: Copy>(&self) -> F {
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

/// Calls what the C library has under a name: `real!(c"close": fn(c_int) -> c_int, fd)`, in an unsafe block. A thread may be cancelled
/// in it.
#[macro_export]
macro_rules! real {
    ($name:literal: fn($($type:ty),*) -> $answer:ty, $($argument:expr),*) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new($name);
        let real: unsafe extern "C-unwind" fn($($type),*) -> $answer = REAL.get();
        real($($argument),*)
    }};
}
