//! Packet sockets (AF_PACKET) with mapped rings in both directions.
//!
//! ```text
//!   kernel --status word--> rx slot --RxFrame--> caller      a frame too long for a slot waits on the socket itself,
//!                                                            in order: RxFrame::receive fetches it straight to its place
//!   caller --push--> tx slot --kick--> kernel                one system call a burst
//!   caller --send------------------------------> kernel      a frame too long for a slot, by a second socket: on one with
//!                                                            a transmit ring the kernel looks nowhere else
//! ```
//!
//! TPACKET_V2: a slot is handed over the moment its frame is in. V3 gathers frames in blocks and closes a block that is not
//! full by a timer of milliseconds, which no ping survives unharmed.
//!
//! Each frame carries a `virtio_net_hdr` both ways, so interfaces keep their default offloads: frames of up to 64 KiB that
//! stand for many segments and open checksums come in as they are and can go out as they are.
//!
//! A frame sent through the ring is copied by the kernel in full (the header's `hdr_len` covers all of it). Without that
//! the kernel would send pages of the ring itself and call the slot free as soon as the *receiver's* IP layer has seen the
//! frame, while its bytes wait, in the ring, for the receiving program. Copying small frames is faster, too.
//!
//! Sources: `linux/if_packet.h`; `Documentation/networking/packet_mmap.rst`; `net/packet/af_packet.c`
//! (`tpacket_rcv`, `tpacket_snd`, `tpacket_fill_skb`) for what the text leaves out.

mod ring;
mod rx;
mod tx;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::interface::{Interface, InterfaceState};
use crate::mode::Modes;
use crate::{FrameError, sys};
use ring::{Mapping, SlotCursor};

pub use rx::{PacketRx, RxFrame};
pub use tx::PacketTx;

/// How the kernel spreads frames over the queues (`PACKET_FANOUT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fanout {
    /// By a hash of addresses and ports: a flow stays in its queue.
    #[default]
    Hash,
    /// In turn.
    LoadBalance,
    /// By the CPU on which the frame arrived.
    Cpu,
    /// The first queue until it is full, then the next.
    Rollover,
    /// By lot.
    Random,
    /// By the queue of the interface on which the frame arrived.
    QueueMapping,
}

impl Fanout {
    fn number(self) -> u32 {
        match self {
            Self::Hash => libc::PACKET_FANOUT_HASH,
            Self::LoadBalance => libc::PACKET_FANOUT_LB,
            Self::Cpu => libc::PACKET_FANOUT_CPU,
            Self::Rollover => libc::PACKET_FANOUT_ROLLOVER,
            Self::Random => libc::PACKET_FANOUT_RND,
            Self::QueueMapping => libc::PACKET_FANOUT_QM,
        }
    }
}

/// What a packet socket is opened with.
#[derive(Clone, Debug)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// Receive and transmit queue pairs, each a socket of its own.
    pub queues: u16,
    /// How many of them receive; the others only send.
    pub receiving: u16,
    /// What the host sends through the interface is received as well.
    pub outgoing: bool,
    /// Slots in each ring.
    pub frames: u32,
    /// Bytes of a slot, a multiple of 16, header included.
    pub frame_bytes: u32,
    /// Bytes the kernel allocates in one piece: a multiple of the page size, at least a slot; 0 takes what fits a slot.
    pub block_bytes: u32,
    /// Frames go to the driver directly, past queueing disciplines.
    pub qdisc_bypass: bool,
    /// How frames are spread over several queues.
    pub fanout: Fanout,
}

impl PacketOptions {
    /// One queue, DPDK's ring sizes.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.into(),
            queues: 1,
            receiving: 1,
            outgoing: false,
            frames: 512,
            frame_bytes: 2048,
            block_bytes: 0,
            qdisc_bypass: true,
            fanout: Fanout::Hash,
        }
    }

    /// With the block size filled in.
    fn filled_in(&self) -> Self {
        let fitting = self.frame_bytes.clamp(4096, 1 << 22).next_power_of_two();
        Self { block_bytes: if self.block_bytes == 0 { fitting } else { self.block_bytes }, ..self.clone() }
    }

    fn check(&self) -> Result<(), FrameError> {
        let bad = |setting, value: u32, allowed: String| {
            Err(FrameError::Setting { setting, value: value.to_string(), allowed })
        };
        let page = 4096;
        if self.queues == 0 || self.queues > 256 {
            return bad("number of queue pairs", self.queues.into(), "1 to 256".into());
        }
        if !(256..=1 << 20).contains(&self.frame_bytes) || !self.frame_bytes.is_multiple_of(16) {
            return bad("frame size", self.frame_bytes, "a multiple of 16 from 256 to 1048576".into());
        }
        if !self.block_bytes.is_multiple_of(page) || !(self.frame_bytes..=1 << 22).contains(&self.block_bytes)
        {
            return bad(
                "block size",
                self.block_bytes,
                format!("a multiple of {page} from the frame size ({}) to 4194304", self.frame_bytes),
            );
        }
        let per_block = self.block_bytes / self.frame_bytes;
        let bytes = u64::from(self.frames).div_ceil(u64::from(per_block)) * u64::from(self.block_bytes);
        if self.frames < 2 || bytes > 1 << 30 {
            return bad("number of frames", self.frames, "at least 2, and a ring of at most 1 GiB".into());
        }
        Ok(())
    }
}

/// What the sockets of an interface have counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PacketStatistics {
    /// Frames that the kernel offered, the dropped ones included.
    pub offered: u64,
    /// Frames that found no free slot.
    pub dropped: u64,
}

/// What one socket's two ends and the control side share.
#[derive(Debug)]
struct Socket {
    // Field order is drop order: the mapping goes before the descriptor.
    mapping: Mapping,
    fd: OwnedFd,
    /// Sends what does not fit a slot; receives nothing.
    long: OwnedFd,
    /// The transmit end left frames that the kernel had no room for; whoever passes next kicks again.
    waiting: AtomicBool,
    offered: AtomicU64,
    dropped: AtomicU64,
}

impl Socket {
    /// Asks the kernel to send what stands in the transmit ring. Safe from any thread: the kernel takes a lock.
    fn kick(&self) -> Result<(), crate::Trouble> {
        tx::kick(self.fd.as_fd())
    }

    /// Whether the interface is down or gone. One system call.
    fn health(&self) -> Result<(), crate::Trouble> {
        rx::health(self.fd.as_fd())
    }
}

/// The control side: the interface, the gate, the statistics.
#[derive(Debug)]
pub struct PacketControl {
    interface: Interface,
    sockets: Vec<Arc<Socket>>,
    receiving: usize,
    modes: Modes,
}

/// A packet socket for each queue pair of an interface, ready but closed: [`PacketControl::admit`] opens the gate.
#[derive(Debug)]
pub struct PacketPort {
    /// The control side.
    pub control: PacketControl,
    /// The receiving and the sending end of each queue pair.
    pub queues: Vec<(PacketRx, PacketTx)>,
}

impl PacketPort {
    /// Opens an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`FrameError::NoInterface`]; [`FrameError::Permission`] without `CAP_NET_RAW`; [`FrameError::Setting`] for sizes that
    /// do not fit; [`FrameError::System`] when the kernel has no memory for the rings.
    pub fn open(options: &PacketOptions) -> Result<Self, FrameError> {
        let options = &options.filled_in();
        options.check()?;
        let interface = Interface::find(&options.interface)?;
        let (mut sockets, mut queues) = (Vec::<Arc<Socket>>::new(), Vec::new());
        let mut group = None;
        for queue in 0..options.queues {
            let socket = Arc::new(open_socket(options, &interface)?);
            if queue < options.receiving && options.receiving > 1 {
                group = Some(join_fanout(&socket, options, group)?);
            }
            let cursor = |part| SlotCursor::new(&socket.mapping, options, part);
            queues.push((PacketRx::new(socket.clone(), cursor(0)), PacketTx::new(socket.clone(), cursor(1))));
            sockets.push(socket);
        }
        let first = sockets[0].fd.try_clone();
        let first = first.map_err(|source| FrameError::system("dup", &options.interface, source))?;
        let modes = Modes::over(first, &interface);
        let control = PacketControl { interface, sockets, receiving: options.receiving.into(), modes };
        Ok(Self { control, queues })
    }
}

fn open_socket(options: &PacketOptions, interface: &Interface) -> Result<Socket, FrameError> {
    let name = &options.interface;
    // Protocol 0: nothing is received before the rings stand and the socket is bound.
    let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
        .map_err(|source| FrameError::refused("opening a packet socket", name, "CAP_NET_RAW", source))?;
    let failed = |operation| move |source| FrameError::system(operation, name, source);
    let long = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(failed("socket"))?;
    let set = |level, option, value: i32| sys::set_option(fd.as_fd(), level, option, &value);
    let packet = |option, value, operation| set(libc::SOL_PACKET, option, value).map_err(failed(operation));
    for (option, value, operation) in [
        (libc::PACKET_VNET_HDR, 1, "PACKET_VNET_HDR"),
        (libc::PACKET_QDISC_BYPASS, i32::from(options.qdisc_bypass), "PACKET_QDISC_BYPASS"),
    ] {
        packet(option, value, operation)?;
        sys::set_option(long.as_fd(), libc::SOL_PACKET, option, &value).map_err(failed(operation))?;
    }
    sys::refuse_all(fd.as_fd(), true).map_err(failed("SO_ATTACH_FILTER"))?;
    packet(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32, "PACKET_VERSION")?;
    // Malformed frames are dropped by the kernel; else it would stop at the first one for good.
    packet(libc::PACKET_LOSS, 1, "PACKET_LOSS")?;
    // Any frame that does not fit its slot is kept whole on the socket's queue.
    packet(libc::PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH")?;
    // What the host itself sends through the interface does not arrive at it. Known from Linux 4.20 on.
    let _ = set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, i32::from(!options.outgoing));

    let per_block = options.block_bytes / options.frame_bytes;
    let blocks = options.frames.div_ceil(per_block);
    let ring = [options.block_bytes, blocks, options.frame_bytes, blocks * per_block];
    for (option, operation) in
        [(libc::PACKET_RX_RING, "PACKET_RX_RING"), (libc::PACKET_TX_RING, "PACKET_TX_RING")]
    {
        sys::set_option(fd.as_fd(), libc::SOL_PACKET, option, &ring).map_err(failed(operation))?;
    }
    // Room for long frames that wait on the socket, and for all slots of the transmit ring at once. Past the
    // system's limits where we may (CAP_NET_ADMIN), up to them else.
    let slots = (blocks * per_block) as i32;
    let wanted = [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, 32 << 20),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, (slots * (options.frame_bytes as i32 + 1024)).max(4 << 20)),
    ];
    for (force, ordinary, bytes) in wanted {
        for fd in [&fd, &long] {
            let set = |option| sys::set_option(fd.as_fd(), libc::SOL_SOCKET, option, &bytes);
            set(force).or_else(|_| set(ordinary)).map_err(failed("SO_SNDBUF"))?;
        }
    }
    let ring_bytes = blocks as usize * options.block_bytes as usize;
    let mapping = Mapping::new(fd.as_fd(), 2 * ring_bytes).map_err(failed("mmap"))?;
    rx::bind(long.as_fd(), interface.index(), 0).map_err(failed("bind"))?;
    rx::bind(fd.as_fd(), interface.index(), libc::ETH_P_ALL as u16).map_err(failed("bind"))?;
    Ok(Socket {
        mapping,
        fd,
        long,
        waiting: AtomicBool::new(false),
        offered: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
    })
}

/// Puts a socket into the group, whose number the kernel chooses for the first one.
fn join_fanout(socket: &Socket, options: &PacketOptions, group: Option<u32>) -> Result<u32, FrameError> {
    let failed = |source| FrameError::system("PACKET_FANOUT", &options.interface, source);
    let mode = options.fanout.number() << 16;
    let argument = match group {
        Some(number) => mode | number,
        None => mode | libc::PACKET_FANOUT_FLAG_UNIQUEID << 16,
    };
    sys::set_option(socket.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &argument).map_err(failed)?;
    let joined: u32 =
        sys::get_option(socket.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, 0).map_err(failed)?;
    Ok(joined & 0xffff)
}

impl PacketControl {
    /// Opens or closes the gate: while it is closed, arriving frames do not reach the rings.
    ///
    /// # Errors
    /// [`FrameError::System`], which only a lack of kernel memory causes.
    pub fn admit(&self, open: bool) -> Result<(), FrameError> {
        for socket in self.sockets.iter().take(self.receiving) {
            sys::refuse_all(socket.fd.as_fd(), !open).map_err(|source| {
                FrameError::system("SO_ATTACH_FILTER", self.interface.found_as(), source)
            })?;
        }
        Ok(())
    }

    /// The interface behind the sockets.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Reads the interface's state.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` or `ENXIO` when it is gone.
    pub fn state(&self) -> io::Result<InterfaceState> {
        self.interface.state()
    }

    /// What the interface is asked to receive for this port.
    pub fn modes(&mut self) -> &mut Modes {
        &mut self.modes
    }

    fn first(&self) -> BorrowedFd<'_> {
        self.sockets[0].fd.as_fd()
    }

    /// What one queue's socket has counted. The kernel's counters start over at each reading; these do not.
    pub fn statistics(&self, queue: usize) -> PacketStatistics {
        let Some(socket) = self.sockets.get(queue) else { return PacketStatistics::default() };
        // `struct tpacket_stats`: packets, drops.
        let fresh: io::Result<[u32; 2]> =
            sys::get_option(socket.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, [0; 2]);
        let [offered, dropped] = fresh.unwrap_or_default();
        // Two threads asking at once each get a part; the sum stands here.
        PacketStatistics {
            offered: socket.offered.fetch_add(offered.into(), Ordering::Relaxed) + u64::from(offered),
            dropped: socket.dropped.fetch_add(dropped.into(), Ordering::Relaxed) + u64::from(dropped),
        }
    }

    /// A descriptor to wait on: readable when a frame is there, in error when the interface goes down.
    #[must_use]
    pub fn descriptor(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.sockets.get(queue).map(|socket| socket.fd.as_fd())
    }
}

impl AsRawFd for PacketControl {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.first().as_raw_fd()
    }
}
