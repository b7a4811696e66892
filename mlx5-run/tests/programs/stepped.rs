//! What a program asks of its devices by the functions of `mlx5_run.h`. That a driver's packets go through is seen where it is
//! measured: `cargo xtask bench witness`.
#![expect(unsafe_code, reason = "functions that are looked up by name")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::mem::transmute;

use super::client::is_client_with;

/// The functions, as the header declares them.
struct Asked {
    step: extern "C" fn() -> c_int,
    plug: unsafe extern "C" fn(*const c_char) -> c_int,
    send: extern "C" fn(c_int, *const c_void, usize) -> c_int,
    receive: extern "C" fn(c_int, *mut c_void, usize) -> isize,
    bus_bytes: extern "C" fn(c_uint, *mut u64) -> c_int,
}

fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

impl Asked {
    fn found() -> Self {
        // SAFETY: each has the type that the header gives it.
        unsafe {
            Self {
                step: transmute::<*mut c_void, extern "C" fn() -> c_int>(look_up(c"mlx5_run_step")),
                plug: transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(look_up(
                    c"mlx5_run_plug",
                )),
                send: transmute::<*mut c_void, extern "C" fn(c_int, *const c_void, usize) -> c_int>(look_up(
                    c"mlx5_run_send",
                )),
                receive: transmute::<*mut c_void, extern "C" fn(c_int, *mut c_void, usize) -> isize>(
                    look_up(c"mlx5_run_receive"),
                ),
                bus_bytes: transmute::<*mut c_void, extern "C" fn(c_uint, *mut u64) -> c_int>(look_up(
                    c"mlx5_run_bus_bytes",
                )),
            }
        }
    }

    fn plug(&self, name: &CStr) -> c_int {
        // SAFETY: the name ends with a zero byte.
        unsafe { (self.plug)(name.as_ptr()) }
    }
}

/// What went wrong, of an answer; 0 for nothing.
fn errno(answer: impl Into<i64>) -> i32 {
    if answer.into() < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

#[test]
fn a_program_holds_the_other_end_and_lets_its_devices_work() {
    const TEST: &str = "stepped::a_program_holds_the_other_end_and_lets_its_devices_work";
    if is_client_with(&["--stepped", "--wire", "cable:far"], TEST) {
        let mut bytes = [0_u64; 2];
        let told = (Asked::found().bus_bytes)(0, bytes.as_mut_ptr());
        assert_eq!(errno(told), libc::ENODEV, "not opened yet");
        hold_the_other_end();
    }
}

/// What a program does with the other end of the wire `cable:far`, and the time of its devices.
pub(crate) fn hold_the_other_end() {
    let asked = Asked::found();
    let mut bytes = [0_u64; 2];
    let _device = File::options().read(true).write(true).open("/dev/infiniband/uverbs0").expect("a device");
    assert_eq!(errno((asked.bus_bytes)(0, bytes.as_mut_ptr())), 0);
    assert_eq!(errno((asked.bus_bytes)(0, std::ptr::without_provenance_mut(8))), libc::EFAULT);
    let end = asked.plug(c"far");
    assert_eq!(end, 0);
    assert_eq!(errno(asked.plug(c"far")), libc::EBUSY, "both ends are taken");
    let frame = [0x33_u8; 60];
    let send = |end, frame: &[u8]| errno((asked.send)(end, frame.as_ptr().cast(), frame.len()));
    assert_eq!(send(7, &frame), libc::EBADF);
    assert_eq!(send(end, &[]), libc::EINVAL);
    assert_eq!(send(end, &[0; 20_000]), libc::EINVAL);
    assert_eq!(errno((asked.send)(end, std::ptr::without_provenance(8), 60)), libc::EFAULT);
    // Nobody takes it until the device works.
    let mut sent = 0;
    while send(end, &frame) == 0 {
        sent += 1;
        assert!(sent < 100_000, "a wire has an end");
    }
    assert_eq!(errno((asked.send)(end, frame.as_ptr().cast(), frame.len())), libc::EAGAIN);
    assert!((asked.step)() > 0);
    assert_eq!((send(end, &frame), errno((asked.step)())), (0, 0));
    let mut room = [0_u8; 64];
    assert_eq!(errno((asked.receive)(end, room.as_mut_ptr().cast(), room.len()) as i64), libc::EAGAIN);
}

#[test]
fn devices_with_a_thread_are_not_stepped() {
    if is_client_with(&[], "stepped::devices_with_a_thread_are_not_stepped") {
        assert_eq!(errno((Asked::found().step)()), libc::EPERM);
    }
}
