//! A socket: its set-up, its rings' ends, its end.
#![expect(unsafe_code, reason = "bind, sendto and recvfrom take untyped pointers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use super::end::{XdpRx, XdpTx};
use super::ring::Ring;
use super::{CAPABILITIES, CHUNK_MAX, CHUNK_MIN};
use crate::interface::Interface;
use crate::sys::{self, check};
use crate::{FrameError, Trouble};

/// How long a queue may be taken by a socket whose program has ended already: the kernel lets go of it in its own time.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
/// How long the kernel may take to let go of a closed socket's memory.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// Options of sockets (include/uapi/asm-generic/socket.h).
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Microseconds of SO_BUSY_POLL: any number turns it on for calls that do not wait.
const BUSY_POLL_US: i32 = 20;

/// What a socket is opened with.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Queue of the interface.
    pub queue: u32,
    /// Bytes of a chunk: [`CHUNK_MIN`] to [`CHUNK_MAX`].
    pub chunk_bytes: u32,
    /// Entries of the receive ring and of the fill ring, a power of two; none for a socket that only sends.
    pub rx_slots: Option<u32>,
    /// Entries of the transmit ring and of the completion ring, a power of two.
    pub tx_slots: u32,
    /// Copies even where the interface's driver could reach the memory itself.
    pub copy: bool,
    /// Packets that one call may make the interface's driver work on, in place of its interrupts.
    pub busy_budget: Option<u16>,
}

/// The memory of chunks, in whole pages.
#[derive(Clone, Copy, Debug)]
pub struct Umem {
    /// Its first byte, the first of a page.
    pub base: NonNull<u8>,
    /// Its length.
    pub bytes: usize,
}

// SAFETY: names memory, and gives no right to touch it.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

/// What the kernel has counted for a socket since it was opened (`struct xdp_statistics`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct XdpStatistics {
    /// Received frames dropped: no chunk in the fill ring, or longer than a chunk.
    pub rx_dropped: u64,
    /// Fill entries that the kernel refused.
    pub rx_invalid: u64,
    /// Transmit entries that the kernel refused.
    pub tx_invalid: u64,
    /// Received frames dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that the kernel found the fill ring empty.
    pub fill_empty: u64,
    /// Times that the kernel found the transmit ring empty.
    pub tx_empty: u64,
}

/// A socket and its ends.
#[derive(Debug)]
pub struct XdpOpen {
    /// The socket.
    pub socket: XdpSocket,
    /// The receiving end, if it was asked for.
    pub rx: Option<XdpRx>,
    /// The sending end.
    pub tx: XdpTx,
}

/// An open socket, bound to a queue.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    probe: Probe,
    interface: u32,
    queue: u32,
    zero_copy: bool,
    pieces: bool,
    busy: Result<bool, i32>,
}

/// A second socket, ready to be bound: whether the queue is free shows when it can be.
#[derive(Debug)]
struct Probe {
    fd: OwnedFd,
    _memory: MmapMut,
}

fn register(fd: BorrowedFd<'_>, base: *const u8, bytes: usize, chunk_bytes: u32) -> io::Result<()> {
    let umem = libc::xdp_umem_reg {
        addr: base.expose_provenance() as u64,
        len: bytes as u64,
        chunk_size: chunk_bytes,
        headroom: 0,
        flags: libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        tx_metadata_len: 0,
    };
    sys::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)
}

fn new_socket() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
}

fn bind(fd: BorrowedFd<'_>, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes at `address`, which is that long.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) })?;
    Ok(())
}

/// Tries until the queue is nobody's any more, or patience ends.
fn patiently(patience: Duration, mut bind: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let end = Instant::now() + patience;
    loop {
        match bind() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

impl Probe {
    fn new() -> io::Result<Self> {
        let fd = new_socket()?;
        let memory = MmapMut::map_anon(CHUNK_MAX)?;
        register(fd.as_fd(), memory.as_ptr(), memory.len(), CHUNK_MIN as u32)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING] {
            sys::set_option(fd.as_fd(), libc::SOL_XDP, ring, &1i32)?;
        }
        Ok(Self { fd, _memory: memory })
    }
}

impl XdpSocket {
    /// Opens a socket on a queue of an interface, in the calling thread's network namespace.
    ///
    /// # Safety
    /// `memory` stays mapped, readable and writable until [`close`](Self::close) has said that the kernel is done with it, or for ever. The
    /// bytes of a chunk, from where [`XdpRx::fill`] names it on, are not touched by anybody between that call and the frame in
    /// which [`XdpRx::next`] gives the chunk back, or `close` as above. Those that [`XdpTx::push`] names are not written between that
    /// call and their completion, or `close`.
    ///
    /// # Errors
    /// [`FrameError::Permission`]; [`FrameError::Setting`]; [`FrameError::Interface`] when the queue is not there or taken, or the kernel has no
    /// AF_XDP; [`FrameError::System`] for what else the kernel says, the limit on locked memory among it.
    pub unsafe fn open(
        interface: &Interface,
        memory: Umem,
        options: &XdpOptions,
    ) -> Result<XdpOpen, FrameError> {
        let name = interface.found_as();
        let failed = |operation| move |source| FrameError::system(operation, name, source);
        if !(CHUNK_MIN..=CHUNK_MAX).contains(&(options.chunk_bytes as usize)) {
            let allowed = format!("{CHUNK_MIN} to {CHUNK_MAX}");
            let value = options.chunk_bytes.to_string();
            return Err(FrameError::Setting { setting: "chunk size", value, allowed });
        }
        let fd = new_socket().map_err(|source| no_socket(name, source))?;
        let probe = Probe::new().map_err(|source| no_memory(name, CHUNK_MAX, source))?;
        register(fd.as_fd(), memory.base.as_ptr(), memory.bytes, options.chunk_bytes)
            .map_err(|source| no_memory(name, memory.bytes, source))?;
        let fill_slots = options.rx_slots.unwrap_or(1);
        let rings = [
            (libc::XDP_UMEM_FILL_RING, Some(fill_slots)),
            (libc::XDP_UMEM_COMPLETION_RING, Some(options.tx_slots)),
            (libc::XDP_RX_RING, options.rx_slots),
            (libc::XDP_TX_RING, Some(options.tx_slots)),
        ];
        for (ring, slots) in rings {
            let Some(slots) = slots else { continue };
            sys::set_option(fd.as_fd(), libc::SOL_XDP, ring, &slots)
                .map_err(failed("making AF_XDP rings"))?;
        }
        let zero = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let none = libc::xdp_mmap_offsets { rx: zero, tx: zero, fr: zero, cr: zero };
        let offsets = sys::get_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)
            .map_err(failed("XDP_MMAP_OFFSETS"))?;
        let (fd_of, mapped) = (fd.as_fd(), failed("mapping AF_XDP rings"));
        let (fill, completed) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let (rx, tx) = (libc::XDP_PGOFF_RX_RING as u64, libc::XDP_PGOFF_TX_RING as u64);
        let tx = XdpTx {
            frames: Ring::map(fd_of, tx, &offsets.tx, options.tx_slots).map_err(mapped)?.into(),
            completed: Ring::map(fd_of, completed, &offsets.cr, options.tx_slots).map_err(mapped)?.into(),
        };
        let map_rx = |slots| {
            Ok::<_, FrameError>(XdpRx {
                frames: Ring::map(fd_of, rx, &offsets.rx, slots).map_err(mapped)?.into(),
                fill: Ring::map(fd_of, fill, &offsets.fr, slots).map_err(mapped)?.into(),
            })
        };
        let rx = options.rx_slots.map(map_rx).transpose()?;
        let copy = if options.copy { libc::XDP_COPY } else { 0 };
        let usual = libc::XDP_USE_NEED_WAKEUP | copy;
        let (index, queue) = (interface.index(), options.queue);
        let bound = |flags| patiently(BUSY_PATIENCE, || bind(fd.as_fd(), index, queue, flags));
        // Frames in several pieces are known from Linux 6.6 on; a kernel that does not know them refuses the flag.
        let pieces = match bound(usual | libc::XDP_USE_SG) {
            Ok(()) => true,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                bound(usual).map_err(|source| not_bound(name, queue, source))?;
                false
            }
            Err(source) => return Err(not_bound(name, queue, source)),
        };
        let none = libc::xdp_options { flags: 0 };
        let bound = sys::get_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, none);
        let zero_copy = bound.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0);
        let busy = options.busy_budget.map_or(Ok(false), |budget| prefer_busy_poll(fd.as_fd(), budget));
        let socket = Self { fd, probe, interface: index, queue, zero_copy, pieces, busy };
        Ok(XdpOpen { socket, rx, tx })
    }

    /// The queue of the interface.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The interface's driver reaches the memory itself.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Frames of several pieces come and go (Linux 6.6).
    #[must_use]
    pub fn takes_pieces(&self) -> bool {
        self.pieces
    }

    /// Whether calls make the interface's driver work in place of its interrupts.
    ///
    /// # Errors
    /// That was asked for, and the kernel said no.
    pub fn busy_polls(&self) -> io::Result<bool> {
        self.busy.map_err(io::Error::from_raw_os_error)
    }

    /// Makes the kernel go on with the transmit ring: up to 32 frames a call where it copies. One system call.
    ///
    /// # Errors
    /// [`Trouble::Busy`] when frames are left; [`Trouble::Dropped`] when the interface's driver dropped one, and those behind it are left;
    /// [`Trouble::Down`], [`Trouble::Gone`].
    #[inline]
    pub fn wake_tx(&self) -> Result<(), Trouble> {
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: no buffer and no address: the frames are in the ring.
        let sent =
            unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0) };
        if sent >= 0 { Ok(()) } else { Err(trouble()) }
    }

    /// Makes the kernel go on with the fill ring, and the interface's driver work where that was asked for. One system call.
    ///
    /// # Errors
    /// [`Trouble::Down`], [`Trouble::Gone`].
    #[inline]
    pub fn wake_rx(&self) -> Result<(), Trouble> {
        let (none, flags) = (std::ptr::null_mut(), libc::MSG_DONTWAIT);
        // SAFETY: no buffer and no address.
        let got = unsafe {
            libc::recvfrom(self.fd.as_raw_fd(), none, 0, flags, std::ptr::null_mut(), std::ptr::null_mut())
        };
        if got >= 0 { Ok(()) } else { Err(trouble()) }
    }

    /// What the kernel has counted.
    #[must_use]
    pub fn statistics(&self) -> XdpStatistics {
        let none: libc::xdp_statistics = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        let told = sys::get_option(self.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, none).unwrap_or(none);
        XdpStatistics {
            rx_dropped: told.rx_dropped,
            rx_invalid: told.rx_invalid_descs,
            tx_invalid: told.tx_invalid_descs,
            rx_ring_full: told.rx_ring_full,
            fill_empty: told.rx_fill_ring_empty_descs,
            tx_empty: told.tx_ring_empty_descs,
        }
    }

    /// Ends it, once both ends are dropped, and tells whether the kernel has let go of the memory: no chunk of it is read or
    /// written any more. Waits up to 5 s for that; false after that, or when the kernel does not say: the memory is then the kernel's
    /// for good. A child that was forked and lives on with the socket is one reason.
    #[must_use]
    pub fn close(self) -> bool {
        let Self { fd, probe, interface, queue, .. } = self;
        drop(fd);
        // One who could be bound has the queue for himself.
        match patiently(RELEASE_PATIENCE, || bind(probe.fd.as_fd(), interface, queue, libc::XDP_COPY)) {
            Ok(()) => true,
            // An interface that ends is closed before it is not found any more (`unregister_netdevice_many`, net/core/dev.c).
            Err(error) => error.raw_os_error() == Some(libc::ENODEV),
        }
    }
}

/// Readable while a frame waits in the receive ring. Polling it makes the kernel go on with the transmit ring as well.
impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asks for packets to be worked on by calls rather than by interrupts; Linux 5.11. Sources: `Documentation/networking/napi.rst`, and
/// net/core/sock.c for the right that it takes, CAP_NET_ADMIN.
fn prefer_busy_poll(fd: BorrowedFd<'_>, budget: u16) -> Result<bool, i32> {
    let set = |option, value: i32| sys::set_option(fd, libc::SOL_SOCKET, option, &value);
    set(SO_PREFER_BUSY_POLL, 1)
        .and_then(|()| set(SO_BUSY_POLL, BUSY_POLL_US))
        .and_then(|()| set(SO_BUSY_POLL_BUDGET, budget.into()))
        .map(|()| true)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

#[cold]
fn trouble() -> Trouble {
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EBUSY) => Trouble::Dropped,
        other => Trouble::from_errno(other.unwrap_or(0)),
    }
}

fn no_socket(name: &str, source: io::Error) -> FrameError {
    match source.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => FrameError::Interface {
            name: name.into(),
            problem: "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): net_af_packet works without".into(),
        },
        _ => FrameError::refused("opening an AF_XDP socket", name, CAPABILITIES, source),
    }
}

fn no_memory(name: &str, bytes: usize, source: io::Error) -> FrameError {
    match source.raw_os_error() {
        // `xdp_umem_account_pages`, net/xdp/xdp_umem.c.
        Some(libc::ENOBUFS) => FrameError::Interface {
            name: name.into(),
            problem: format!(
                "{bytes} bytes of packet memory are beyond the limit on locked memory (RLIMIT_MEMLOCK): raise it with `ulimit -l`, \
                 or grant CAP_IPC_LOCK"
            ),
        },
        _ => FrameError::refused("registering packet memory", name, CAPABILITIES, source),
    }
}

fn not_bound(name: &str, queue: u32, source: io::Error) -> FrameError {
    let problem = match source.raw_os_error() {
        Some(libc::EBUSY) => format!("queue {queue} is taken by another AF_XDP socket: end its program"),
        // `xsk_reg_pool_at_qid`, net/xdp/xsk.c.
        Some(libc::EINVAL) => format!(
            "there is no queue {queue}: `ethtool -l {name}` shows how many there are, start_queue and queue_count choose among them"
        ),
        Some(libc::ENODEV) => "has disappeared".into(),
        _ => return FrameError::refused("binding an AF_XDP socket", name, CAPABILITIES, source),
    };
    FrameError::Interface { name: name.into(), problem }
}
