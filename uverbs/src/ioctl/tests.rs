use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::abi::write::{ALLOC_PD, CREATE_COMP_CHANNEL, EX_CREATE_FLOW};

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Header and attributes by hand.
#[test]
fn a_call_becomes_the_kernels_bytes() {
    let file = File::open("/dev/null").expect("a descriptor");
    let long = [7u8; 9];
    let mut out = [1u8; 3];
    let mut call = Call::new(3, 1);
    call.driver = 1;
    call.object(0, 0x11)
        .u32(1, 0x2222_2222)
        .bytes(2, b"eight888")
        .bytes(3, &long)
        .out(4, &mut out)
        .optional()
        .fd(5, file.as_fd())
        .new_object(6)
        .attribute(7, Value::Element(2, b"ab"));
    let frame = Frame::lower(&mut call).expect("lowered");
    let bytes = frame.bytes();
    assert_eq!(bytes.len(), 24 + 8 * 16);
    let mut expected = vec![152, 0, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([0, 0, 0, 0, 1, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([1, 0, 4, 0, 1, 0, 0, 0, 0x22, 0x22, 0x22, 0x22, 0, 0, 0, 0]);
    expected.extend([2, 0, 8, 0, 1, 0, 0, 0]);
    expected.extend(b"eight888");
    assert_eq!(bytes[..expected.len()], expected);
    let at = |index: usize| 24 + index * 16;
    // Nine bytes go by address, and so does every output.
    assert_eq!(bytes[at(3)..at(3) + 8], [3, 0, 9, 0, 1, 0, 0, 0]);
    assert_eq!(word(bytes, at(3) + 8), long.as_ptr().addr() as u64);
    assert_eq!(bytes[at(4)..at(4) + 8], [4, 0, 3, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[at(5)..at(5) + 8], [5, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(word(bytes, at(5) + 8), file.as_raw_fd() as u64);
    assert_eq!(bytes[at(6)..at(6) + 16], [6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[at(7)..at(7) + 16], [7, 0, 2, 0, 1, 0, 2, 0, b'a', b'b', 0, 0, 0, 0, 0, 0]);
    let address = word(bytes, at(4) + 8);
    drop(call);
    assert_eq!(address, out.as_ptr().addr() as u64);
    assert_eq!(out, [0; 3], "room for an output is zero before the kernel writes");
}

#[test]
fn what_the_frame_cannot_say_is_refused() {
    let long = vec![0; 65536];
    let mut call = Call::new(0, 0);
    call.bytes(0, &long);
    assert_eq!(Frame::lower(&mut call).map(|_| ()), Err(Errno::E2BIG));
    let mut call = Call::new(0, 0);
    for id in 0..5000 {
        call.u32(id, 0);
    }
    assert_eq!(Frame::lower(&mut call).map(|_| ()), Err(Errno::E2BIG));
}

fn command<'a>(
    number: u32,
    core_in: &'a [u8],
    out: usize,
    driver_in: &'a [u8],
    driver_out: usize,
) -> WriteCall<'a> {
    WriteCall {
        command: number,
        driver: 1,
        core_in,
        core_out: Output::owned(out),
        driver_in,
        driver_out: Output::owned(driver_out),
        fd: None,
    }
}

/// A plain command: words of 4 bytes with the head, the address in front, the driver's part padded.
#[test]
fn a_command_becomes_the_bytes_of_write() {
    let lowered = Lowered::new(&command(ALLOC_PD, &[0; 8], 4, b"drive", 6)).expect("lowered");
    assert_eq!(lowered.request.len(), 8 + 8 + 8);
    // 24 bytes in, 4 + 8 bytes out.
    assert_eq!(lowered.request[..8], [3, 0, 0, 0, 6, 0, 3, 0]);
    assert_eq!(word(&lowered.request, 8), lowered.answer.as_ptr().addr() as u64);
    assert_eq!(lowered.request[16..], *b"drive\0\0\0");
    assert!(lowered.answer.len() * 8 >= 12);
}

/// An extended one: words of 8 bytes, the head not counted, the address in the second head.
#[test]
fn an_extended_command_becomes_the_bytes_of_write() {
    let lowered = Lowered::new(&command(EX_CREATE_FLOW, &[5; 24], 8, b"drive", 9)).expect("lowered");
    assert_eq!(lowered.request.len(), 8 + 16 + 24 + 8);
    assert_eq!(lowered.request[..8], [50, 0, 0, 0x80, 3, 0, 1, 0]);
    assert_eq!(word(&lowered.request, 8), lowered.answer.as_ptr().addr() as u64);
    assert_eq!(lowered.request[16..24], [1, 0, 2, 0, 0, 0, 0, 0]);
    assert_eq!(lowered.request[24..48], [5; 24]);
    assert_eq!(lowered.request[48..], *b"drive\0\0\0");
    assert!(lowered.answer.len() * 8 >= 8 + 16);
}

/// No answer, no address: the kernel refuses an address without a length.
#[test]
fn a_command_without_answer_has_no_address() {
    let lowered = Lowered::new(&command(EX_CREATE_FLOW, &[5; 24], 0, &[], 0)).expect("lowered");
    assert_eq!(word(&lowered.request, 8), 0);
    let lowered = Lowered::new(&command(4, &[9, 0, 0, 0], 0, &[], 0)).expect("lowered");
    assert_eq!(lowered.request, [4, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0]);
}

#[test]
fn commands_that_cannot_be_said_are_refused() {
    // The answer of an extended command in words of 8 bytes.
    assert_eq!(Lowered::new(&command(EX_CREATE_FLOW, &[0; 8], 4, &[], 8)).map(|_| ()), Err(Errno::EINVAL));
    // No room for the address.
    assert_eq!(
        Lowered::new(&command(CREATE_COMP_CHANNEL, &[0; 4], 4, &[], 0)).map(|_| ()),
        Err(Errno::EINVAL)
    );
    let long = vec![0; 4 * 65536];
    assert_eq!(Lowered::new(&command(ALLOC_PD, &long, 4, &[], 0)).map(|_| ()), Err(Errno::E2BIG));
}

/// Files that are no uverbs answer as kernels do that know nothing of it.
#[test]
fn a_file_that_is_no_device_refuses() {
    let null = KernelFile::open(Path::new("/dev/null"), Some((1, 3))).expect("open");
    let mut call = Call::new(0, 3);
    call.answer(0, 4);
    // SAFETY: it is no device.
    assert_eq!(unsafe { null.call(&mut call) }, Err(Errno::ENOTTY));
    assert!(call.answered(0).is_err());
    assert_eq!(
        // SAFETY: it is no device.
        unsafe { null.write(&mut command(ALLOC_PD, &[0; 8], 4, &[], 0), Route::Tunnelled) },
        Err(Errno::ENOTTY)
    );
    assert_eq!(null.map(0, 4096, Protection::Read).map(|_| ()), Err(Errno::ENODEV));
    // What swallows everything answers nothing: the command is written whole, its answer stays zero.
    let mut taken = command(ALLOC_PD, &[0; 8], 4, b"driver", 8);
    // SAFETY: it is no device.
    assert_eq!(unsafe { null.write(&mut taken, Route::Plain) }, Ok(()));
    assert_eq!(taken.core_out.written(), Some(&[0; 4][..]));
}

/// The bell's bytes, which the kernel is given at once: header, where the answer goes, the queue pair, and a size that it wants to hear.
#[test]
fn a_bell_is_one_command_without_requests() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let kernel = KernelFile::open(file.path(), None).expect("open");
    assert_eq!(kernel.ring(0x123), Some(Ok(())));
    let bytes = fs::read(file.path()).expect("written");
    // `POST_SEND`, 8 words in, 1 out. Source: Linux `include/uapi/rdma/ib_user_verbs.h`.
    assert_eq!(bytes[..8], [28, 0, 0, 0, 8, 0, 1, 0]);
    assert_ne!(word(&bytes, 8), 0);
    assert_eq!(bytes[16..], [0x23, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 56, 0, 0, 0]);
}

#[test]
fn another_device_than_sysfs_says_is_refused() {
    let error = KernelFile::open(Path::new("/dev/null"), Some((231, 192))).map(|_| ()).expect_err("another");
    assert_eq!(
        error.to_string(),
        "/dev/null is device 1:3, not 231:192 as sysfs says; udev has made another node there"
    );
    let file = tempfile::NamedTempFile::new().expect("file");
    let error = KernelFile::open(file.path(), Some((1, 3))).map(|_| ()).expect_err("no device");
    assert!(error.to_string().contains("is device 0:0, not 1:3"), "{error}");
}

#[test]
fn a_file_that_cannot_be_opened_says_what_mends_it() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("uverbs0");
    let error = KernelFile::open(&path, None).map(|_| ()).expect_err("missing");
    let text = error.to_string();
    assert!(text.contains("ENOENT") && text.contains("udev"), "{text}");
    fs::write(&path, "").expect("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("mode");
    // Root passes every mode.
    match KernelFile::open(&path, None) {
        Ok(_) => {
            let text = mend(&path, Errno::EACCES);
            assert!(text.contains("setfacl -m u:$USER:rw"), "{text}");
        }
        Err(error) => assert!(error.to_string().contains("setfacl"), "{error}"),
    }
}
