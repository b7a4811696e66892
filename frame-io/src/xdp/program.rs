//! The XDP program that hands frames to sockets: six instructions of our own, loaded by bpf(2). It is attached by a link, so that the
//! kernel detaches it when the process ends, however that ends.
#![expect(unsafe_code, reason = "bpf(2) takes untyped pointers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::interface::Interface;
use crate::{FrameError, sys};

use super::{CAPABILITIES, XdpSocket};

/// Commands, types and flags: include/uapi/linux/bpf.h and if_link.h.
const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const MAP_DELETE: i64 = 3;
const PROGRAM_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const PROGRAM_HAS_FRAGMENTS: u32 = 1 << 5;
const FLAG_GENERIC: u32 = 1 << 1;
const XDP_PASS: i32 = 2;
const CALL_REDIRECT_MAP: i32 = 51;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`: to the queue's socket, and where there is none to the kernel.
fn instructions(map: BorrowedFd<'_>) -> [Instruction; 6] {
    let one = |code, registers, offset, immediate| Instruction { code, registers, offset, immediate };
    [
        // r2 = *(u32 *)(r1 + 16): `rx_queue_index` of `struct xdp_md`. BPF_LDX | BPF_MEM | BPF_W.
        one(0x61, 0x12, 16, 0),
        // r1 = the map (BPF_PSEUDO_MAP_FD). BPF_LD | BPF_IMM | BPF_DW, two instructions long.
        one(0x18, 0x11, 0, map.as_raw_fd()),
        one(0, 0, 0, 0),
        // r3 = XDP_PASS. BPF_ALU64 | BPF_MOV | BPF_K.
        one(0xb7, 0x03, 0, XDP_PASS),
        one(0x85, 0, 0, CALL_REDIRECT_MAP),
        // BPF_JMP | BPF_EXIT.
        one(0x95, 0, 0, 0),
    ]
}

/// The members of `union bpf_attr` that are used, from its beginning: the rest is zero to the kernel.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<MapCreate>() == 20 && size_of::<LinkCreate>() == 16);
    assert!(size_of::<MapElement>() == 32 && offset_of!(MapElement, key) == 8);
    assert!(offset_of!(ProgramLoad, first) == 8 && offset_of!(ProgramLoad, log) == 32);
    assert!(offset_of!(ProgramLoad, name) == 48 && offset_of!(ProgramLoad, attach_type) == 68);
    assert!(size_of::<ProgramLoad>() == 72);
};

/// # Safety
/// `attributes` is what the command takes, and what it points to lives for the call and is as long as it says.
unsafe fn bpf<T>(command: i64, attributes: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes at `attributes`, and what these point to by the caller's promise. No command used
    // here writes: there is no log.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>() as libc::c_ulong)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn create_map(entries: u32) -> io::Result<OwnedFd> {
    let attributes = MapCreate { map_type: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries, flags: 0 };
    // SAFETY: no pointers.
    unsafe { bpf(MAP_CREATE, &attributes) }.map(sys::own)
}

fn load(map: BorrowedFd<'_>, flags: u32) -> io::Result<OwnedFd> {
    let code = instructions(map);
    // It calls no function that is for GPL programs only.
    let license = c"Dual MIT/GPL";
    let mut name = [0; 16];
    name[..10].copy_from_slice(b"pollux_xsk");
    let attributes = ProgramLoad {
        program_type: PROGRAM_TYPE_XDP,
        instructions: code.len() as u32,
        first: code.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel: 0,
        flags,
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: `code` has as many instructions as are said, `license` ends in zero, both live until the call returns.
    unsafe { bpf(PROGRAM_LOAD, &attributes) }.map(sys::own)
}

fn link(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let attributes = LinkCreate { program, interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: no pointers.
    unsafe { bpf(LINK_CREATE, &attributes) }.map(sys::own)
}

/// The program and its map, loaded for an interface.
#[derive(Debug)]
pub struct XdpProgram {
    map: OwnedFd,
    program: OwnedFd,
    // The kernel detaches the program when the last descriptor of the link is closed.
    link: Option<OwnedFd>,
    generic: Option<io::Error>,
}

impl XdpProgram {
    /// Loads it, for queues below `queues`; nothing is attached yet.
    ///
    /// # Errors
    /// [`FrameError::Permission`]; [`FrameError::Interface`] when the kernel has no bpf(2); [`FrameError::System`] for what else it says.
    pub fn load(interface: &Interface, queues: u32) -> Result<Self, FrameError> {
        let name = interface.found_as();
        let map = create_map(queues).map_err(|source| refused("making a socket map", name, source))?;
        // Programs that do not say that they know of frames in pieces are not attached where the MTU makes some (Linux 5.18).
        let program = load(map.as_fd(), PROGRAM_HAS_FRAGMENTS).or_else(|_| load(map.as_fd(), 0));
        let program = program.map_err(|source| refused("loading an XDP program", name, source))?;
        Ok(Self { map, program, link: None, generic: None })
    }

    /// Attaches it until the value is dropped, unless it is attached. No frame goes to a socket before [`admit`](Self::admit).
    ///
    /// # Errors
    /// [`FrameError::Permission`]; [`FrameError::Interface`] when another program is attached, or the kernel has no XDP links
    /// (before Linux 5.9); [`FrameError::System`] for what else the kernel says.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), FrameError> {
        if self.link.is_some() {
            return Ok(());
        }
        let attach = |flags| link(self.program.as_fd(), interface.index(), flags);
        let refusal = |source| refused("attaching an XDP program", interface.found_as(), source);
        let link = match attach(0) {
            // The interface's driver may refuse the program for its own reasons: then the kernel runs it behind the driver.
            Err(native) if generic_may_help(&native) => {
                let Ok(link) = attach(FLAG_GENERIC) else { return Err(refusal(native)) };
                self.generic = Some(native);
                link
            }
            attached => attached.map_err(refusal)?,
        };
        self.link = Some(link);
        Ok(())
    }

    /// Why the interface's driver did not take the program, which then runs behind it (generic mode), slower.
    #[must_use]
    pub fn generic(&self) -> Option<&io::Error> {
        self.generic.as_ref()
    }

    /// Hands the frames of a socket's queue to it from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn admit(&self, socket: &XdpSocket) -> io::Result<()> {
        let value = socket.as_fd().as_raw_fd() as u32;
        self.element(MAP_UPDATE, socket.queue(), Some(&value))
    }

    /// Leaves the frames of a queue to the kernel from now on.
    ///
    /// # Errors
    /// The kernel's; none where they are left to it already.
    pub fn refuse(&self, queue: u32) -> io::Result<()> {
        match self.element(MAP_DELETE, queue, None) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Err(error),
            _ => Ok(()),
        }
    }

    fn element(&self, command: i64, key: u32, value: Option<&u32>) -> io::Result<()> {
        let attributes = MapElement {
            map: self.map.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key).expose_provenance() as u64,
            value: value.map_or(0, |value| std::ptr::from_ref(value).expose_provenance() as u64),
            flags: 0,
        };
        // SAFETY: keys and values of the map have four bytes, as `key` and `value`, which live for the call and are only read.
        unsafe { bpf(command, &attributes) }.map(drop)
    }
}

/// Whether the program may be attached behind the driver, which has refused it: not where the process or the interface is what is wrong.
fn generic_may_help(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::EBUSY | libc::EEXIST | libc::ENODEV)
    )
}

fn refused(operation: &'static str, name: &str, source: io::Error) -> FrameError {
    let problem = match source.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => format!(
            "another XDP program is attached: end the program that did so, or `ip link set {name} xdp off` detaches it"
        ),
        Some(libc::ENOSYS) => "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)".into(),
        Some(libc::EINVAL) if operation.starts_with("attaching") => {
            "the kernel refused the XDP program: links of XDP programs need Linux 5.9".into()
        }
        _ => return FrameError::refused(operation, name, CAPABILITIES, source),
    };
    FrameError::Interface { name: name.into(), problem }
}
