//! Tap interfaces: frames that the kernel sends come to us, frames of ours reach its stack.
//!
//! An interface lives as long as a descriptor of it is open, so it ends with the process however that ends. It may be
//! moved to another network namespace meanwhile: descriptors go on working, and control goes through them too.
//!
//! Rights: making an interface takes `CAP_NET_ADMIN`. One that was made persistent for a user (`ip tuntap add dev tap0 mode tap
//! user NAME`) takes none, if it is up and `/dev/net/tun` may be opened. One that was moved away takes `CAP_SYS_ADMIN` to be
//! controlled, since its namespace has to be entered.
#![expect(unsafe_code, reason = "readv and writev on the tap's descriptor")]

mod place;

use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use crate::interface::{Interface, InterfaceState};
use crate::sys::{self, Carried, InterfaceRequest};
use crate::vnet::{VNET_BYTES, VnetHeader};
use crate::{FrameError, Trouble};
use place::Place;

/// Queues that the kernel gives one tap at most (`MAX_TAP_QUEUES`, drivers/net/tun.c).
pub const QUEUES_MAX: u16 = 256;

/// Longest frame that a tap hands out: a large IP packet, Ethernet header and two VLAN tags.
pub const FRAME_BYTES_MAX: usize = 65_535 + 14 + 8;

/// Pieces of a frame that are written without being gathered first.
const PIECES: usize = 40;

/// A tap with its queues.
#[derive(Debug)]
pub struct Tap {
    /// The control side.
    pub control: TapControl,
    /// One receiving and one sending end a queue.
    pub queues: Vec<(TapRx, TapTx)>,
}

impl Tap {
    /// Creates a tap, or takes over a persistent one that nobody uses. `name` may hold `%d`, which the kernel replaces. A new
    /// interface is down; each is without carrier at first.
    ///
    /// # Errors
    /// [`FrameError::Permission`] without `CAP_NET_ADMIN`, unless the interface is there and the user's;
    /// [`FrameError::Interface`] when the name is taken, or the interface has one queue and more are wanted;
    /// [`FrameError::Setting`] for a bad name or number of queues.
    pub fn open(name: &str, queues: u16, mac: Option<[u8; 6]>) -> Result<Self, FrameError> {
        if queues == 0 || queues > QUEUES_MAX {
            return Err(FrameError::Setting {
                setting: "number of tap queues",
                value: queues.to_string(),
                allowed: format!("1 to {QUEUES_MAX}"),
            });
        }
        let fresh = libc::IFF_MULTI_QUEUE | libc::IFF_TUN_EXCL;
        let (file, name) = match attach(open_clone_device(name)?, name, fresh) {
            Err(FrameError::Interface { .. }) => take_over(name)?,
            other => other?,
        };
        let control = TapControl { file: Arc::new(file), place: Arc::default() };
        let failed = |operation| {
            let name = name.clone();
            move |source| FrameError::refused(operation, &name, "CAP_NET_ADMIN", source)
        };
        if let Some(mac) = mac {
            control.set_mac(mac).map_err(failed("setting the Ethernet address"))?;
        }
        control.set_carrier(false).map_err(failed("TUNSETCARRIER"))?;
        let mut tap = Self { queues: vec![ends(control.file.clone())], control };
        for _ in 1..queues {
            tap.queues.push(tap.control.add_queue()?);
        }
        Ok(tap)
    }
}

fn ends(file: Arc<OwnedFd>) -> (TapRx, TapTx) {
    (TapRx { file: file.clone() }, TapTx { file, gathered: Vec::new() })
}

/// Attaches to an interface that exists: one that was made persistent and is not in use.
fn take_over(name: &str) -> Result<(OwnedFd, String), FrameError> {
    let in_use = || refused(name, io::Error::from_raw_os_error(libc::EBUSY));
    // One of several queues takes any number of programs, which would share its frames. It has a carrier while it is in use.
    if Interface::find(name).is_ok_and(|there| there.state().is_ok_and(|state| state.running)) {
        return Err(in_use());
    }
    match attach(open_clone_device(name)?, name, libc::IFF_MULTI_QUEUE) {
        Ok((file, name)) => match flags(&file) {
            Ok(flags) if flags & libc::IFF_PERSIST == 0 => Err(in_use()),
            _ => Ok((file, name)),
        },
        Err(FrameError::Interface { .. }) => attach(open_clone_device(name)?, name, 0),
        other => other,
    }
}

/// The `IFF_` flags of the interface behind a descriptor.
fn flags(file: &OwnedFd) -> io::Result<i32> {
    let mut request = InterfaceRequest::unnamed(Carried::Nothing);
    request.call(file.as_fd(), libc::TUNGETIFF)?;
    Ok(i32::from(request.flags()))
}

/// Makes a descriptor a queue of the interface, which is created if there is none of that name.
fn attach(file: OwnedFd, name: &str, kind: i32) -> Result<(OwnedFd, String), FrameError> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | kind;
    let request = InterfaceRequest::new(name, Carried::Flags(flags as i16));
    let mut request = request.ok_or_else(|| FrameError::Setting {
        setting: "interface name",
        value: format!("{name:?}"),
        allowed: format!("1 to {} bytes", libc::IFNAMSIZ - 1),
    })?;
    request.call(file.as_fd(), libc::TUNSETIFF).map_err(|source| refused(name, source))?;
    let name = request.name();
    let failed = |operation| {
        let name = name.clone();
        move |source| FrameError::refused(operation, &name, "CAP_NET_ADMIN", source)
    };
    let mut bytes = VNET_BYTES as i32;
    sys::ioctl_int(file.as_fd(), libc::TUNSETVNETHDRSZ, &mut bytes).map_err(failed("TUNSETVNETHDRSZ"))?;
    // The kernel may hand over large segments and open checksums: we can pass them on. Kernels before 6.2 do not know the
    // UDP ones.
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let offer = |flags| sys::ioctl_value(file.as_fd(), libc::TUNSETOFFLOAD, u64::from(flags));
    offer(tcp | udp).or_else(|_| offer(tcp)).map_err(failed("TUNSETOFFLOAD"))?;
    Ok((file, name))
}

/// A name for messages before there is one: the kernel puts a number in the place of `%d`.
fn shown(name: &str) -> String {
    name.replace("%d", "N")
}

fn open_clone_device(name: &str) -> Result<OwnedFd, FrameError> {
    let name = &shown(name);
    let path = "/dev/net/tun";
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    file.map(OwnedFd::from).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => FrameError::Interface {
            name: name.into(),
            problem: format!("{path} does not exist: load the module (`modprobe tun`)"),
        },
        // The file's mode, whatever rights of networking the process has.
        io::ErrorKind::PermissionDenied => FrameError::Interface {
            name: name.into(),
            problem: format!(
                "{path} may not be opened by this user: `chmod 666 {path}` as root, or run as root"
            ),
        },
        _ => FrameError::refused("opening /dev/net/tun", name, "CAP_NET_ADMIN", source),
    })
}

fn refused(name: &str, source: io::Error) -> FrameError {
    let name = &shown(name);
    let problem = match source.raw_os_error() {
        Some(libc::EBUSY) => "is in use already",
        Some(libc::EINVAL) => "exists and is not a tap, or the name cannot be used",
        _ => {
            let operation = "creating a tap interface, or taking one that is not the user's,";
            return FrameError::refused(operation, name, "CAP_NET_ADMIN", source);
        }
    };
    FrameError::Interface { name: name.into(), problem: format!("{problem} ({source})") }
}

/// The control side of a tap. Works wherever the interface has been moved to.
#[derive(Clone, Debug)]
pub struct TapControl {
    file: Arc<OwnedFd>,
    place: Arc<Place>,
}

impl TapControl {
    /// The interface's name now.
    ///
    /// # Errors
    /// The kernel's; `EBADFD` when the interface is gone.
    pub fn name(&self) -> io::Result<String> {
        let mut request = InterfaceRequest::unnamed(Carried::Nothing);
        request.call(self.file.as_fd(), libc::TUNGETIFF)?;
        Ok(request.name())
    }

    /// Runs `work` on the interface, in the namespace where it is now.
    fn on_interface<T>(&self, work: impl FnOnce(&Interface) -> io::Result<T>) -> io::Result<T> {
        self.place.with(self, |found| work(&found.interface))
    }

    /// Frames that the kernel had for us and dropped since the interface was made: the queues were full, for the most part.
    ///
    /// # Errors
    /// The kernel's; `EBADFD` when the interface is gone.
    pub fn dropped(&self) -> io::Result<u64> {
        let name = self.name()?;
        self.place.with(self, |found| found.tx_dropped(&name))
    }

    /// Reads everything about the interface.
    ///
    /// # Errors
    /// The kernel's; `EBADFD` when the interface is gone.
    pub fn state(&self) -> io::Result<InterfaceState> {
        self.on_interface(|interface| interface.state())
    }

    /// Reads the Ethernet address.
    ///
    /// # Errors
    /// The kernel's; `EBADFD` when the interface is gone.
    pub fn mac(&self) -> io::Result<[u8; 6]> {
        let mut request = InterfaceRequest::unnamed(Carried::Nothing);
        request.call(self.file.as_fd(), libc::SIOCGIFHWADDR as _)?;
        Ok(request.address().1)
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// The kernel's; `EADDRNOTAVAIL` for a multicast address.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        InterfaceRequest::unnamed(Carried::Address(mac)).call(self.file.as_fd(), libc::SIOCSIFHWADDR as _)
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` outside 68 to 65521.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.on_interface(move |interface| interface.set_mtu(mtu))
    }

    /// Brings the interface up or takes it down.
    ///
    /// # Errors
    /// The kernel's; without `CAP_NET_ADMIN`, unless it is so already, one that says what to do.
    pub fn set_up(&self, up: bool) -> io::Result<()> {
        let done = self.on_interface(|interface| interface.set_up(up));
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => {
                let (name, word) = (self.name().unwrap_or_default(), if up { "up" } else { "down" });
                let problem = format!("needs CAP_NET_ADMIN, or `ip link set {name} {word}` as root");
                io::Error::new(io::ErrorKind::PermissionDenied, problem)
            }
            _ => error,
        })
    }

    /// Plugs the cable in or out: without carrier the kernel sends nothing our way.
    ///
    /// # Errors
    /// The kernel's; `EBADFD` when the interface is gone.
    pub fn set_carrier(&self, carrier: bool) -> io::Result<()> {
        let mut value = i32::from(carrier);
        match sys::ioctl_int(self.file.as_fd(), libc::TUNSETCARRIER, &mut value) {
            Ok(_) => Ok(()),
            // Kernels before 4.20 cannot; the carrier is always there.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds a queue, wherever the interface is now. It ends when both its ends are dropped.
    ///
    /// # Errors
    /// [`FrameError::Interface`] for an interface that was made with one queue only, [`FrameError::System`] beyond
    /// [`QUEUES_MAX`] or when the interface is gone.
    pub fn add_queue(&self) -> Result<(TapRx, TapTx), FrameError> {
        let gone = |source| FrameError::system("TUNGETIFF", "the tap", source);
        let name = self.name().map_err(gone)?;
        if flags(&self.file).map_err(gone)? & libc::IFF_MULTI_QUEUE == 0 {
            let problem = format!(
                "has one queue: make it with several (`ip tuntap add dev {name} mode tap multi_queue`), or poll one"
            );
            return Err(FrameError::Interface { name, problem });
        }
        let added = place::there(self, || {
            Ok(open_clone_device(&name).and_then(|file| attach(file, &name, libc::IFF_MULTI_QUEUE)))
        });
        let (file, _) = added.map_err(gone)??;
        Ok(ends(Arc::new(file)))
    }
}

/// The receiving end of a queue: what the kernel sends through the interface.
#[derive(Debug)]
pub struct TapRx {
    file: Arc<OwnedFd>,
}

impl TapRx {
    /// Takes one frame: its first bytes go to `first`, what does not fit there to `rest`. Returns what travels beside it and
    /// its length; none when nothing waits. A frame longer than both is cut; [`FRAME_BYTES_MAX`] avoids that.
    ///
    /// Cost: one system call.
    ///
    /// # Errors
    /// [`Trouble::Gone`] when the interface has ceased to exist.
    #[inline]
    pub fn read(
        &mut self,
        first: &mut [u8],
        rest: &mut [u8],
    ) -> Result<Option<(VnetHeader, usize)>, Trouble> {
        let mut header = [0; VNET_BYTES];
        let mut pieces = [IoSliceMut::new(&mut header), IoSliceMut::new(first), IoSliceMut::new(rest)];
        // SAFETY: `IoSliceMut` has the layout of `iovec` (std's promise); each covers memory borrowed mutably for the call.
        let bytes = unsafe {
            libc::readv(self.file.as_raw_fd(), pieces.as_mut_ptr().cast(), pieces.len() as libc::c_int)
        };
        if bytes < 0 {
            return match Trouble::last() {
                Trouble::Busy => Ok(None),
                trouble => Err(trouble),
            };
        }
        match (bytes as usize).checked_sub(VNET_BYTES) {
            Some(bytes) => Ok(Some((VnetHeader::decode(header), bytes))),
            None => Err(Trouble::Refused),
        }
    }
}

/// Readable while a frame waits, and in error when the interface is gone.
///
/// Source: Linux `drivers/net/tun.c`, `tun_chr_poll`.
impl AsFd for TapRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The sending end of a queue: frames arrive in the kernel's stack as if from a wire. Clones send side by side.
#[derive(Clone, Debug)]
pub struct TapTx {
    file: Arc<OwnedFd>,
    /// For frames in very many pieces.
    gathered: Vec<u8>,
}

impl TapTx {
    /// Hands one frame over.
    ///
    /// Cost: one system call.
    ///
    /// # Errors
    /// [`Trouble::Down`] while the interface is down, [`Trouble::Gone`] when it has ceased to exist,
    /// [`Trouble::Refused`] for a frame or header that the kernel does not take.
    #[inline]
    pub fn write<'a>(
        &mut self,
        header: &VnetHeader,
        mut frame: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Trouble> {
        let header = header.encode();
        let first = frame.next().unwrap_or_default();
        let Some(second) = frame.next() else {
            return Self::hand_over(&self.file, &[IoSlice::new(&header), IoSlice::new(first)]);
        };
        let mut pieces = [IoSlice::new(&header); PIECES];
        pieces[1] = IoSlice::new(first);
        pieces[2] = IoSlice::new(second);
        let mut count = 3;
        for (slot, piece) in pieces[3..].iter_mut().zip(frame.by_ref()) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        let Some(next) = frame.next() else { return Self::hand_over(&self.file, &pieces[..count]) };
        let Self { file, gathered } = self;
        gathered.clear();
        for piece in &pieces[1..] {
            gathered.extend_from_slice(piece);
        }
        for piece in std::iter::once(next).chain(frame) {
            gathered.extend_from_slice(piece);
        }
        Self::hand_over(file, &[IoSlice::new(&header), IoSlice::new(gathered)])
    }

    /// Hands over one frame that stands behind its encoded header ([`VnetHeader::encode`]) in one piece: cheaper than
    /// [`write`](Self::write) by the time the kernel takes to gather pieces.
    ///
    /// Cost: one system call.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_joined(&mut self, header_and_frame: &[u8]) -> Result<(), Trouble> {
        // SAFETY: the memory is borrowed for the call and only read.
        let sent = unsafe {
            libc::write(self.file.as_raw_fd(), header_and_frame.as_ptr().cast(), header_and_frame.len())
        };
        if sent < 0 { Err(Trouble::last()) } else { Ok(()) }
    }

    fn hand_over(file: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<(), Trouble> {
        // SAFETY: `IoSlice` has the layout of `iovec` (std's promise); the memory is borrowed for the call and only read.
        let sent =
            unsafe { libc::writev(file.as_raw_fd(), pieces.as_ptr().cast(), pieces.len() as libc::c_int) };
        if sent < 0 { Err(Trouble::last()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_kernel_has_yet_to_number_reads_well() {
        for number in [libc::EPERM, libc::EBUSY, libc::EINVAL, libc::ENOMEM] {
            let error = refused("dtap%d", io::Error::from_raw_os_error(number)).to_string();
            assert!(error.contains("dtapN") && !error.contains('%'), "{error}");
        }
    }
}
