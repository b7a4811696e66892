//! Devices: found, opened, asked what they are.
#![expect(unsafe_code, reason = "devices are opened and memory is registered here, for all of the crate")]

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::provider::mlx5::hca::{FrameLimits, Hca};
use pollux_eal::memory::{Memory, ZoneRequest};
use pollux_eal::region::Zone;
use pollux_eal::topology::SocketId;
use pollux_mlx5_common::clock::AdapterClock;
use pollux_mlx5_common::context::{Device as Mlx5Device, Opening};
use pollux_mlx5_common::firmware::Firmware;
use pollux_uverbs::abi::flags::LinkLayer;
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::discovery::{self, Device};
use pollux_uverbs::mr::{Mr as Registered, MrRequest};
use pollux_uverbs::{Channel, Driver, PdHandle, UverbsError};

use crate::event::Event;
use crate::provider::rxe::Rxe;
use crate::provider::{Side, each};
use crate::view::{ContextView, Registry};
use crate::{DeviceAttributes, Gid, PortAttributes, VerbsError};

/// The provider of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// ConnectX adapters, and the model of one.
    Mlx5,
    /// RoCE in the kernel's software.
    Rxe,
}

impl Provider {
    /// Whether threads of the kernel carry out what is posted. They need a processor of this machine: whoever polls for the outcome and gives
    /// none away ([`std::thread::yield_now`]) may keep them from it.
    #[must_use]
    pub fn is_software(self) -> bool {
        self == Self::Rxe
    }

    /// The one of a device of the kernel's.
    ///
    /// # Errors
    /// [`VerbsError::Driver`]: a driver that is not known here.
    pub fn of(device: &Device) -> Result<Self, VerbsError> {
        match device.driver_id() {
            Some(driver::MLX5) => Ok(Self::Mlx5),
            Some(driver::RXE) => Ok(Self::Rxe),
            _ => {
                let driver = device.driver.clone().unwrap_or_else(|| "none".into());
                Err(VerbsError::Driver { device: device.ibdev.clone(), driver })
            }
        }
    }
}

/// Options for opening a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where rings and buffers come from.
    pub memory: Memory,
    /// NUMA node for them.
    pub socket: Option<SocketId>,
    /// Pages between the process's addresses and those that the device is told. 0 but in tests, where a confusion of the two
    /// shall lead nowhere.
    pub address_shift_pages: u64,
    /// The most doorbell pages (UARs) that its queues take; those that come after share registers, under a lock,
    /// and completion queues take none for themselves. Without a limit each
    /// queue has a page to itself as long as the device has one, so that threads that post to queue pairs of their own do not
    /// wait for each other. For programs of thousands of queue pairs, whose pages others would lack. Kernels before 5.7, and
    /// rxe, have no such pages.
    #[doc(alias = "MLX5_TOTAL_UUARS")]
    pub doorbell_pages: Option<NonZeroUsize>,
    /// Where sysfs describes the device, for what older kernels do not tell otherwise.
    pub sysfs: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: Memory::ordinary(),
            socket: None,
            address_shift_pages: 0,
            doorbell_pages: None,
            sysfs: None,
        }
    }
}

impl Options {
    fn opening(&self) -> Opening {
        Opening {
            // What the kernel has no call for, the firmware is asked.
            devx: true,
            relaxed_ordering: false,
            memlock: None,
            address_shift_pages: self.address_shift_pages,
            register_regions: false,
            memory: self.memory.clone(),
            socket: self.socket,
        }
    }
}

#[derive(Debug)]
struct Inner {
    driver: Side<Hca, Rxe>,
    options: Options,
    /// No other context of the process has it.
    serial: u64,
    objects: AtomicU64,
    registry: Arc<Registry>,
}

/// The serial of the context that is made next; 0 is nobody's.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// An open device. Clones are handles; everything made of it keeps it open.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

/// All RDMA devices that the kernel tells of, below a root: `/` but in tests.
///
/// # Errors
/// No RDMA in this kernel, or a sysfs that is not as expected.
#[doc(alias = "ibv_get_device_list")]
pub fn devices(root: &Path) -> Result<Vec<Device>, VerbsError> {
    discovery::devices(root).map_err(VerbsError::Discovery)
}

/// The device of that name, file, PCI address or interface.
///
/// # Errors
/// None or several answer to it; the error lists what is there.
pub fn find(root: &Path, wanted: &str) -> Result<Device, VerbsError> {
    discovery::find(root, wanted).map_err(VerbsError::Discovery)
}

impl Context {
    /// Opens a device of the kernel.
    ///
    /// # Errors
    /// A driver that is not known here, no right to open its file, or what the kernel says.
    #[doc(alias = "ibv_open_device")]
    pub fn open_device(device: &Device, options: Options) -> Result<Self, VerbsError> {
        let channel = device.open().map_err(VerbsError::Discovery)?;
        Self::open_device_over(device, channel, options)
    }

    /// The same over its file, opened by somebody else or with something put before it, as a
    /// [trace](pollux_uverbs::trace::Traced) is.
    ///
    /// # Errors
    /// A driver that is not known here, or what the kernel says.
    pub fn open_device_over(
        device: &Device,
        channel: Arc<dyn Channel>,
        options: Options,
    ) -> Result<Self, VerbsError> {
        let options = Options { sysfs: Some(device.sysfs.clone()), ..options };
        Self::open(channel, Provider::of(device)?, options)
    }

    /// Opens whatever answers like a device's file: the file itself or a model.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(channel: Arc<dyn Channel>, provider: Provider, options: Options) -> Result<Self, VerbsError> {
        let driver = match provider {
            Provider::Mlx5 => {
                // SAFETY: it stays in this crate, whose objects are of one context and give way to their own memory alone.
                let device = unsafe { Mlx5Device::open(channel, options.opening())? };
                Side::Mlx5(Hca::new(device, options.doorbell_pages))
            }
            Provider::Rxe => Side::Rxe(Rxe::open(channel)?),
        };
        Ok(Self::over(driver, options))
    }

    /// Takes part in what somebody else opened, over a duplicate of its file: another process that handed its descriptor over
    /// ([`KernelFile::adopt`](pollux_uverbs::KernelFile::adopt)). What is made here and there belongs to one context, and goes with
    /// the last who has the file. Domains and regions made there are known here by their handles: [`Pd::import`](crate::Pd::import),
    /// [`Mr::import`](crate::Mr::import).
    ///
    /// # Errors
    /// A device of rxe; or what the kernel says: those before 5.7 cannot do it.
    pub fn import(
        channel: Arc<dyn Channel>,
        provider: Provider,
        options: Options,
    ) -> Result<Self, VerbsError> {
        let driver = match provider {
            Provider::Mlx5 => {
                // SAFETY: as in `open`.
                let device = unsafe { Mlx5Device::import(channel, options.opening())? };
                Side::Mlx5(Hca::new(device, options.doorbell_pages))
            }
            // Linux `drivers/infiniband/core/uverbs_std_types_device.c`, `UVERBS_METHOD_QUERY_CONTEXT`: a driver must know how.
            Provider::Rxe => {
                return Err(VerbsError::Unsupported {
                    what: "importing a context",
                    why: "rxe does not support it; open the device again".into(),
                });
            }
        };
        Ok(Self::over(driver, options))
    }

    fn over(driver: Side<Hca, Rxe>, options: Options) -> Self {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let registry = Arc::default();
        Self(Arc::new(Inner { driver, options, serial, objects: AtomicU64::new(1), registry }))
    }

    pub(crate) fn driver(&self) -> &Side<Hca, Rxe> {
        &self.0.driver
    }

    /// Registers memory, by the way that the provider's part of the kernel bears.
    ///
    /// # Safety
    /// As for [`pollux_uverbs::Context::reg_mr`].
    pub(crate) unsafe fn register(&self, request: &MrRequest) -> Result<Registered, UverbsError> {
        // SAFETY: as the caller says.
        unsafe {
            match &self.0.driver {
                Side::Mlx5(hca) => hca.context().reg_mr(request, Driver::none()),
                Side::Rxe(rxe) => rxe.context().reg_mr_by_command(request, Driver::none()),
            }
        }
    }

    /// The kernel's side of it, which is raw: not for users.
    pub(crate) fn uverbs(&self) -> &pollux_uverbs::Context {
        each!(&self.0.driver, device => device.context())
    }

    /// Returns the provider.
    #[must_use]
    pub fn provider(&self) -> Provider {
        match self.0.driver {
            Side::Mlx5(_) => Provider::Mlx5,
            Side::Rxe(_) => Provider::Rxe,
        }
    }

    /// Returns a description for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.uverbs().channel().describe()
    }

    /// Returns the options it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// What tells its objects from those of other contexts, of this device or another.
    #[inline(always)]
    pub(crate) fn serial(&self) -> u64 {
        self.0.serial
    }

    /// Refuses an object of another context: the kernel would take its handle, and the device its key, for those of something else.
    pub(crate) fn admit(&self, what: &'static str, other: &Self) -> Result<(), VerbsError> {
        if self.serial() == other.serial() {
            return Ok(());
        }
        Err(VerbsError::Foreign { what, of: other.name(), here: self.name() })
    }

    /// Where its objects are listed for other threads.
    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Returns a view of its objects for other threads, as telemetry is one. Posting and polling cost the same with it.
    #[must_use]
    pub fn view(&self) -> ContextView {
        ContextView(Arc::downgrade(&self.0.registry))
    }

    /// A number that names an object in events.
    pub(crate) fn object_number(&self) -> u64 {
        self.0.objects.fetch_add(1, Ordering::Relaxed)
    }

    /// Memory of the context's own kind: where queues and buffers are reserved too. It is not registered.
    ///
    /// # Errors
    /// Memory could not be allocated.
    pub fn reserve(&self, bytes: usize) -> Result<Zone, VerbsError> {
        self.reserve_as(bytes, false)
    }

    /// The same, of huge pages and of nothing else.
    ///
    /// # Errors
    /// Too few huge pages are free ([`MemoryError::NoHugePages`](pollux_eal::region::MemoryError::NoHugePages)), or may not be used.
    pub fn reserve_huge(&self, bytes: usize) -> Result<Zone, VerbsError> {
        self.reserve_as(bytes, true)
    }

    fn reserve_as(&self, bytes: usize, huge: bool) -> Result<Zone, VerbsError> {
        let name = format!("verbs {:p} {}", Arc::as_ptr(&self.0), self.object_number());
        let memory = &self.0.options.memory;
        let (bytes, align) = (bytes.max(1), pollux_eal::region::PAGE_BYTES);
        let sized =
            |socket| memory.reserve_as(&name, &ZoneRequest { bytes, align, bound: None, socket, huge });
        let socket = self.0.options.socket;
        sized(socket)
            .or_else(|error| if socket.is_some() { sized(None) } else { Err(error) })
            .map_err(|source| VerbsError::Memory { what: "reserve memory", source })
    }

    pub(crate) fn alloc_pd(&self) -> Result<PdHandle, VerbsError> {
        each!(&self.0.driver, device => Ok(device.alloc_pd()?))
    }

    /// Queries the device attributes.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn device(&self) -> Result<DeviceAttributes, VerbsError> {
        self.uverbs().query_device(Driver::none()).map_err(VerbsError::kernel("query the device"))
    }

    /// What its Ethernet queues can do; nothing where only a vendor's answer would tell and there is none.
    #[must_use]
    pub fn frame_limits(&self) -> FrameLimits {
        self.0.driver.if_mlx5().map(Hca::frame_limits).unwrap_or_default()
    }

    /// Queries the attributes of a port; ports are numbered from 1.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port that is not there.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, port: u8) -> Result<PortAttributes, VerbsError> {
        self.uverbs().query_port(port).map_err(VerbsError::kernel("query a port"))
    }

    /// Mbit/s that a port carries now: 0 while it is down, less than its link where it is held back, more where links are joined.
    /// `None` where the kernel (before 7.0) or the device's driver does not tell: then width and speed of
    /// [`port`](Self::port) are what is known. Source: rdma-core `libibverbs/man/ibv_query_port_speed.3.md`, in units of 100
    /// Mbit/s there.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port that is not there.
    pub fn port_speed_mbps(&self, port: u8) -> Result<Option<u64>, VerbsError> {
        let told = self.uverbs().query_port_speed(port.into());
        let told = told.map_err(VerbsError::kernel("query the speed of a port"))?;
        Ok(told.map(|hundreds| hundreds.saturating_mul(100)))
    }

    /// Queries an entry of a port's GID table; `None` if it is empty.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for an index that is not there.
    #[doc(alias = "ibv_query_gid")]
    pub fn gid(&self, port: u8, index: u32) -> Result<Option<Gid>, VerbsError> {
        self.uverbs().query_gid(port.into(), index).map_err(VerbsError::kernel("query a GID"))
    }

    /// Queries all non-empty entries of the GID tables.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn gids(&self) -> Result<Vec<Gid>, VerbsError> {
        self.uverbs().query_gid_table().map_err(VerbsError::kernel("query the GID table"))
    }

    /// An entry of a port's table of partition keys. Ports of Ethernet have the default one alone; of others sysfs tells it.
    /// Source: rdma-core `libibverbs/verbs.c`, `ibv_query_pkey`; Linux `drivers/infiniband/hw/mlx5/main.c`,
    /// `mlx5_ib_query_pkey`.
    ///
    /// # Errors
    /// An index that is not there, or what the kernel says.
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16, VerbsError> {
        let attributes = self.port(port)?.legacy_resp;
        if index >= attributes.pkey_tbl_len.max(1) {
            return Err(VerbsError::Range {
                what: "partition key index",
                value: index.into(),
                allowed: format!("the port has {}", attributes.pkey_tbl_len.max(1)),
            });
        }
        if LinkLayer(attributes.link_layer) == LinkLayer::ETHERNET {
            return Ok(0xffff);
        }
        let unknown = |why: String| VerbsError::Unsupported { what: "partition key", why };
        let folder = self.0.options.sysfs.as_ref().ok_or_else(|| unknown("sysfs was not told".into()))?;
        let path = folder.join(format!("ports/{port}/pkeys/{index}"));
        let text = std::fs::read_to_string(&path)
            .map_err(|error| unknown(format!("{}: {error}", path.display())))?;
        let text = text.trim();
        u16::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16)
            .map_err(|_| unknown(format!("{}: {text:?} is no number", path.display())))
    }

    /// What the device can do, of one [kind](pollux_mlx5_abi::caps::kind): the firmware's own answer, 4096 bytes as
    /// [`pollux_mlx5_abi::caps`] lays them out.
    ///
    /// # Errors
    /// A device that is no ConnectX, a kernel that carries no firmware commands, a kind that the device does not have.
    #[doc(alias = "mlx5dv_devx_general_cmd")]
    pub fn firmware_capabilities(&self, kind: u16) -> Result<Box<[u8; 4096]>, VerbsError> {
        let none = |why: &str| VerbsError::Unsupported { what: "firmware capabilities", why: why.into() };
        let hca = self.0.driver.if_mlx5().ok_or_else(|| none("rxe has no firmware"))?;
        if !hca.device().devx {
            return Err(none("the kernel carries no firmware commands for this context (DevX)"));
        }
        Ok(Box::new(Firmware::new(hca.device()).capabilities(kind)?))
    }

    /// Maps the device's clock.
    ///
    /// # Errors
    /// Where the kernel or the device tells none.
    pub fn clock(&self) -> Result<AdapterClock, VerbsError> {
        let none = |why: &str| VerbsError::Unsupported { what: "device clock", why: why.into() };
        let hca = self.0.driver.if_mlx5().ok_or_else(|| none("rxe has none"))?;
        AdapterClock::open(hca.device())?.ok_or_else(|| none("the kernel does not tell where it is"))
    }

    /// Returns the number of completion vectors.
    #[must_use]
    pub fn comp_vectors(&self) -> u32 {
        self.uverbs().comp_vectors()
    }

    /// Returns the next asynchronous event, if any, without waiting.
    ///
    /// # Errors
    /// [`EIO`](pollux_uverbs::Errno::EIO) when the device was removed.
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_event(&self) -> Result<Option<Event>, VerbsError> {
        let event = self.uverbs().events().next().map_err(VerbsError::kernel("read events"))?;
        Ok(event.map(Event::from))
    }

    /// Returns the file descriptor that becomes readable when there is an event.
    #[must_use]
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.uverbs().events().as_fd()
    }
}
