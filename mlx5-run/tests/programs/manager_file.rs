//! The connection manager's file as a file: who waits for it, who forks meanwhile, and what goes on when it is closed. The clients are this
//! test program itself.
#![expect(unsafe_code, reason = "fork(2), signals, and threads that are cancelled")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::c_int;
use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, CreateId, EventResp, GetEvent, Head, ResolveAddr, command, space,
};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::client::is_client_with;

const FILE: &str = "/dev/infiniband/rdma_cm";
const OPTIONS: &[&str] = &["--ip", "10.9.0.1/24"];

fn opened() -> File {
    File::options().read(true).write(true).open(FILE).expect("the manager")
}

fn ask(fd: RawFd, cmd: u32, body: &(impl IntoBytes + Immutable), out: usize) -> io::Result<()> {
    let head = Head { cmd, r#in: body.as_bytes().len() as u16, out: out as u16 };
    let bytes = [head.as_bytes(), body.as_bytes()].concat();
    // SAFETY: bytes of this test's.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits for an event: its number.
fn event(fd: RawFd) -> io::Result<u32> {
    let mut told = EventResp::new_zeroed();
    let response = (&raw mut told).expose_provenance() as u64;
    ask(fd, command::GET_EVENT, &GetEvent { response }, size_of::<EventResp>())?;
    Ok(told.event)
}

/// Makes an event: nobody leads to the address.
fn make_event(fd: RawFd) {
    let mut id = 0_u32;
    let response = (&raw mut id).expose_provenance() as u64;
    let create = CreateId { uid: 7, response, ps: space::TCP, ..CreateId::default() };
    ask(fd, command::CREATE_ID, &create, 4).expect("made");
    let mut dst_addr = [0; ADDRESS_BYTES];
    dst_addr[..2].copy_from_slice(&2_u16.to_ne_bytes());
    dst_addr[4..8].copy_from_slice(&[198, 51, 100, 1]);
    let resolve = ResolveAddr { id, timeout_ms: 1, dst_size: 16, dst_addr, ..ResolveAddr::default() };
    ask(fd, command::RESOLVE_ADDR, &resolve, 0).expect("asked");
}

extern "C" fn nothing(_signal: c_int) {}

/// SIGUSR1 does nothing from now on.
fn handle(flags: c_int) {
    // SAFETY: numbers, and a function that does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}

#[test]
fn a_signal_ends_a_wait_as_it_ends_a_kernels() {
    if !is_client_with(OPTIONS, "manager_file::a_signal_ends_a_wait_as_it_ends_a_kernels") {
        return;
    }
    let file = opened();
    let fd = file.as_raw_fd();
    // SAFETY: no arguments.
    let waiter = unsafe { libc::pthread_self() };
    for (flags, ends) in [(libc::SA_RESTART, false), (0, true)] {
        handle(flags);
        let told = std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..5 {
                    std::thread::sleep(Duration::from_millis(50));
                    // SAFETY: a thread that waits for this one.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                }
                make_event(fd);
            });
            event(fd)
        });
        match told {
            Ok(event) => assert!(!ends && event == 1, "event {event} with flags {flags}"),
            Err(error) => assert!(ends && error.kind() == io::ErrorKind::Interrupted, "{error}"),
        }
    }
    assert_eq!(event(fd).expect("it waits"), 1);
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// What a thread writes that waits for an event.
#[repr(C)]
struct Command {
    fd: RawFd,
    head: [u8; 8],
    body: [u8; 8],
}

/// Nothing in its frame is to be destroyed: the thread is cancelled in it.
extern "C" fn wait_for_ever(command: *mut c_void) -> *mut c_void {
    let command = command.cast::<Command>();
    // SAFETY: a command that outlives the thread.
    unsafe {
        libc::write((*command).fd, (&raw const (*command).head).cast(), 16);
    }
    std::ptr::null_mut()
}

#[test]
fn a_thread_that_waits_can_be_cancelled() {
    if !is_client_with(OPTIONS, "manager_file::a_thread_that_waits_can_be_cancelled") {
        return;
    }
    let file = opened();
    let mut room = EventResp::new_zeroed();
    let head = Head { cmd: command::GET_EVENT, r#in: 8, out: size_of::<EventResp>() as u16 };
    let mut command = Command {
        fd: file.as_raw_fd(),
        head: head.as_bytes().try_into().expect("8"),
        body: ((&raw mut room).expose_provenance() as u64).to_ne_bytes(),
    };
    let (mut thread, mut ended) = (0, std::ptr::null_mut());
    // SAFETY: the command and its room outlive the thread, which is joined.
    unsafe {
        let own = (&raw mut command).cast();
        assert_eq!(libc::pthread_create(&raw mut thread, std::ptr::null(), wait_for_ever, own), 0);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut ended), 0);
    }
    assert_eq!(ended.addr(), usize::MAX, "cancelled");
    make_event(file.as_raw_fd());
    assert_eq!(event(file.as_raw_fd()).expect("it works"), 1);
}

/// Threads of this process with that name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|it| it.trim() == name))
        .count()
}

#[test]
fn somebody_answers_peers_after_the_last_file() {
    if !is_client_with(OPTIONS, "manager_file::somebody_answers_peers_after_the_last_file") {
        return;
    }
    drop(opened());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(threads("rdma_cm"), 1, "somebody says that nobody listens");
    drop(opened());
    assert_eq!(threads("rdma_cm"), 1, "and nobody else");
}

#[test]
fn who_opens_and_who_forks_do_not_wait_for_each_other() {
    if !is_client_with(OPTIONS, "manager_file::who_opens_and_who_forks_do_not_wait_for_each_other") {
        return;
    }
    // SAFETY: a number. Threads that wait for each other are ended by it.
    unsafe { libc::alarm(60) };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(opened());
            }
        });
        for _ in 0..300 {
            // SAFETY: the child does nothing but end.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: room for a number.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
