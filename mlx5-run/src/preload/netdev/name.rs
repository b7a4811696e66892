//! Names and numbers of interfaces, as the C library tells them.

use std::ffi::CStr;

use libc::{c_char, c_uint};

use super::super::planned;
use crate::interface;
use pollux_preload::real;

/// As if_nametoindex(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    if let Some(plan) = planned::plan()
        && !name.is_null()
    {
        // SAFETY: a name of the program's, which the C library would read as far as its zero too.
        let text = unsafe { CStr::from_ptr(name) };
        if let Some(number) = text.to_str().ok().and_then(|name| interface::by_name(plan, name)) {
            return interface::index(number);
        }
    }
    // SAFETY: the program's argument.
    unsafe { real!(c"if_nametoindex": fn(*const c_char) -> c_uint, name) }
}

/// As if_indextoname(3).
///
/// # Safety
/// As the C library's: there is room for `IF_NAMESIZE` characters.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn if_indextoname(index: c_uint, into: *mut c_char) -> *mut c_char {
    let number = planned::plan().and_then(|plan| interface::by_index(plan, index));
    if let Some(number) = number.filter(|_| !into.is_null()) {
        let name = interface::name(number);
        // SAFETY: the program's room, which the name fits into with its zero.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr(), into.cast(), name.len());
            into.add(name.len()).write(0);
        }
        return into;
    }
    // SAFETY: the program's arguments.
    unsafe { real!(c"if_indextoname": fn(c_uint, *mut c_char) -> *mut c_char, index, into) }
}
