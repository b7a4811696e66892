//! What a program may do wrong, by a client of this test's own: the test program itself, run by `mlx5-run`, which opens the device as
//! one of the kernel's and finds it answered in its own process.
#![expect(unsafe_code, reason = "system calls with arguments that are wrong")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pollux_uverbs::abi::frame::{IoctlAttribute, IoctlHeader, MANDATORY, RDMA_VERBS_IOCTL};
use pollux_uverbs::abi::id::device;
use pollux_uverbs::abi::object::{UHW_IN, driver};
use pollux_uverbs::{Context, Driver, KernelFile, Page, Protection};
use zerocopy::{FromZeros, IntoBytes};

use super::bed::{Bed, start, wait};

/// Set in the client.
const CLIENT: &str = "POLLUX_CLIENT";
pub(crate) const FILE: &str = "/dev/infiniband/uverbs0";

fn is_client(test: &str) -> bool {
    is_client_with(&[], &format!("client::{test}"))
}

/// Whether this is the client, started by a test.
pub(crate) fn is_started() -> bool {
    std::env::var_os(CLIENT).is_some()
}

/// The test of that name as a client, under `mlx5-run` with these options.
pub(crate) fn client(bed: &Bed, options: &[&str], test: &str) -> Command {
    let own = std::env::current_exe().expect("a path");
    let mut command = bed.command(options, &[&own.to_string_lossy(), "--exact", test, "--nocapture"]);
    command.env(CLIENT, "1");
    command
}

/// Whether this is the client; else the test of that name is run as one, under `mlx5-run` with these options.
pub(crate) fn is_client_with(options: &[&str], test: &str) -> bool {
    if is_started() {
        return true;
    }
    let ended = wait(start(&mut client(&Bed::new(), options, test)));
    assert_eq!(ended.status, Some(0), "{}", ended.said);
    assert!(ended.said.contains("1 passed"), "{}", ended.said);
    false
}

fn opened() -> File {
    File::options().read(true).write(true).open(FILE).expect("a device")
}

/// The error number of an ioctl on the device's file; 0 for none.
fn ioctl(fd: RawFd, request: u32, argument: usize) -> i32 {
    let argument = std::ptr::with_exposed_provenance_mut::<libc::c_void>(argument);
    // SAFETY: nothing that is named there is anybody's memory, or it is a frame of this test's.
    let status = unsafe { libc::ioctl(fd, libc::Ioctl::from(request), argument) };
    if status < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// A frame of one attribute.
fn frame(object: u16, method: u16, attribute: IoctlAttribute) -> Vec<u8> {
    let header = IoctlHeader {
        length: 40,
        object_id: object,
        method_id: method,
        num_attrs: 1,
        driver_id: driver::MLX5,
        ..IoctlHeader::default()
    };
    [header.as_bytes(), attribute.as_bytes()].concat()
}

fn call(fd: RawFd, frame: &[u8]) -> i32 {
    ioctl(fd, RDMA_VERBS_IOCTL, frame.as_ptr().expose_provenance())
}

/// What rdma-core asks first: whether write commands can be tunnelled. Source: rdma-core `libibverbs/cmd_fallback.c`, `has_ioctl_write`.
fn probe() -> Vec<u8> {
    let attribute = IoctlAttribute {
        attr_id: device::invoke_write::WRITE_CMD,
        len: 8,
        flags: MANDATORY,
        data: 0,
        ..IoctlAttribute::default()
    };
    frame(device::OBJECT, device::invoke_write::METHOD, attribute)
}

#[test]
fn what_is_wrong_is_the_kernels_errno() {
    if !is_client("what_is_wrong_is_the_kernels_errno") {
        return;
    }
    let file = opened();
    let fd = file.as_raw_fd();
    assert_eq!(ioctl(fd, RDMA_VERBS_IOCTL, 8), libc::EFAULT, "a frame that is not there");
    assert_eq!(ioctl(fd, RDMA_VERBS_IOCTL, usize::MAX - 100), libc::EFAULT);
    assert_eq!(ioctl(fd, 0x5401, 8), libc::ENOTTY, "another ioctl");
    let mut short = probe();
    short[0] = 39;
    assert_eq!(call(fd, &short), libc::EINVAL, "a length that is not its attributes'");
    let mut reserved = probe();
    reserved[8] = 1;
    assert_eq!(call(fd, &reserved), libc::EPROTONOSUPPORT);
    let unknown =
        frame(0x7777, 0, IoctlAttribute { attr_id: 1, flags: MANDATORY, ..IoctlAttribute::default() });
    assert_eq!(call(fd, &unknown), libc::EPROTONOSUPPORT);
    let far =
        IoctlAttribute { attr_id: UHW_IN, len: 32, flags: MANDATORY, data: 8, ..IoctlAttribute::default() };
    assert_eq!(call(fd, &frame(device::OBJECT, device::get_context::METHOD, far)), libc::EFAULT);
    // What it is asked first still gets its answer.
    assert!(!matches!(call(fd, &probe()), 0 | libc::EPROTONOSUPPORT | libc::ENOTTY | libc::EIO));
    for (offset, flags) in [(0x7000_0000, libc::MAP_SHARED), (0, libc::MAP_PRIVATE)] {
        // SAFETY: a mapping that is refused.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_WRITE, flags, fd, offset) };
        assert_eq!(mapped, libc::MAP_FAILED);
    }
}

#[test]
fn the_file_is_a_device_for_our_own_driver() {
    if !is_client("the_file_is_a_device_for_our_own_driver") {
        return;
    }
    let file = KernelFile::open(Path::new(FILE), Some((231, 192))).expect("that device");
    assert_eq!(pollux_uverbs::Channel::describe(&file), FILE);
    assert!(KernelFile::open(Path::new(FILE), Some((231, 193))).is_err(), "another number");
    assert!(KernelFile::open(Path::new("/dev/infiniband/uverbs1"), None).is_err(), "there is one");
    let said = std::fs::read_to_string("/sys/class/infiniband_verbs/uverbs0/ibdev").expect("sysfs");
    assert_eq!(said, "mlx5_0\n");
    assert!(Path::new("/sys/class/infiniband/mlx5_0").exists());
    assert!(Path::new("/sys/devices/system/cpu").exists(), "the rest of sysfs");
}

#[test]
fn a_program_that_closes_everything_closes_nothing_of_the_door() {
    if !is_client("a_program_that_closes_everything_closes_nothing_of_the_door") {
        return;
    }
    // The wire is a link's: a socket that has a path.
    let wires = || {
        let bound = std::fs::read_to_string("/proc/net/unix").expect("sockets");
        let inodes: Vec<_> = bound
            .lines()
            .filter(|line| line.contains("/mlx5-run/"))
            .filter_map(|line| line.split_whitespace().nth(6).map(|inode| format!("socket:[{inode}]")))
            .collect();
        let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors");
        let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str())).count()
    };
    let open = || {
        // SAFETY: a path that ends with a zero.
        let fd = unsafe { libc::open(c"/dev/infiniband/uverbs0".as_ptr(), libc::O_RDWR) };
        assert!(fd >= 0, "a device");
        fd
    };
    let first = open();
    assert_eq!(wires(), 1, "the wire's socket");
    for fd in 500..4096 {
        // SAFETY: none of these is this test's.
        unsafe { libc::close(fd) };
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close_range(500, u32::MAX, 0) }, 0);
    assert_eq!(wires(), 1, "it is there still");
    assert!(
        !matches!(call(first, &probe()), 0 | libc::EIO | libc::ENOTTY | libc::EBADF),
        "the file is as it was"
    );
    // SAFETY: the test's own.
    assert_eq!(unsafe { libc::close_range(first.cast_unsigned(), first.cast_unsigned(), 0) }, 0);
    assert_eq!(call(first, &probe()), libc::EBADF);
    assert!(!matches!(call(open(), &probe()), 0 | libc::EIO | libc::ENOTTY | libc::EBADF), "another one");
}

#[test]
fn no_room_for_descriptors_is_an_error() {
    if !is_client("no_room_for_descriptors_is_an_error") {
        return;
    }
    let limit = |most| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: 1024 };
        // SAFETY: a limit of this process's.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    };
    for most in 3..16 {
        limit(most);
        let _refused = File::options().read(true).write(true).open(FILE);
    }
    limit(1024);
    drop(opened());
}

#[test]
fn copies_of_a_descriptor_are_the_same_file() {
    if !is_client("copies_of_a_descriptor_are_the_same_file") {
        return;
    }
    let file = opened();
    let copy = file.try_clone().expect("a copy");
    drop(file);
    let answer = call(copy.as_raw_fd(), &probe());
    assert!(!matches!(answer, libc::EIO | libc::ENOTTY | libc::EBADF), "{answer}");
    // SAFETY: the test's own number, which it closes.
    drop(unsafe { File::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(copy)) });
    drop(opened());
}

/// A context of our own, and the clock's page mapped for it.
fn context_with_clock() -> (Context, Page) {
    use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, library};
    use pollux_mlx5_abi::kernel::mmap;
    let file = KernelFile::open(Path::new(FILE), None).expect("a device");
    let request = ContextRequest {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        lib_caps: library::UAR_4K,
        ..ContextRequest::default()
    };
    let mut answer = ContextAnswer::new_zeroed();
    let data = Driver::new(request.as_bytes(), answer.as_mut_bytes());
    // SAFETY: nothing is made in it.
    let context = unsafe { Context::open(Arc::new(file), driver::MLX5, data).expect("a context") };
    let place = mmap::offset(mmap::CORE_CLOCK, 0, 4096);
    let page = context.map(place, 4096, Protection::Read).expect("the clock");
    (context, page)
}

#[test]
fn a_page_is_there_until_the_last_who_mapped_it_lets_go() {
    if !is_client("a_page_is_there_until_the_last_who_mapped_it_lets_go") {
        return;
    }
    let (one, two) = (context_with_clock(), context_with_clock());
    assert_eq!(one.1.base(), two.1.base(), "it stands where the device has it");
    drop(one);
    two.1.read64(0).expect("in the page");
    drop(two);
    // The device goes on to write it.
    context_with_clock().1.read64(0).expect("in the page");
}
