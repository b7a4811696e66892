//! An open device: its context, what it can do, its protection domain, and all that is pinned for it.
#![expect(unsafe_code, reason = "whoever opens a device answers for what is made of it")]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::memory::Memory;
use pollux_eal::region::{MemoryError, Zone};
use pollux_eal::topology::SocketId;
use pollux_mlx5_abi::kernel::attribute;
use pollux_mlx5_abi::kernel::context::{self, ContextAnswer, ContextRequest, PdAnswer};
use pollux_mlx5_abi::kernel::device::DeviceAnswer;
use pollux_uverbs::abi::device::ExQueryDeviceResp;
use pollux_uverbs::abi::flags::{DeviceCaps, LinkLayer, RawPacketCaps};
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::abi::{id, write};
use pollux_uverbs::event::AsyncKind;
use pollux_uverbs::{Channel, Context, Driver, Errno, Operation, PdHandle, UverbsError};
use zerocopy::{FromZeros, IntoBytes};

use crate::MlxError;
use crate::dbrec::{DoorbellRecord, DoorbellRecords};
use crate::memlock;
pub use crate::memlock::Pinning;

/// The one port of an Ethernet function.
pub const PORT: u8 = 1;

/// The newest layout of completions that this driver knows, and asks for. Source: rdma-core `providers/mlx5/mlx5.c`,
/// `mlx5_set_context`.
const CQE_VERSION_MAX: u8 = 1;

/// Sizes of a BlueFlame register that two registers of a page have room for, with an entry's block in each half.
const REGISTER_BYTES: [usize; 4] = [128, 256, 512, 1024];

/// BlueFlame registers asked for of the static kind: a queue each, the first of them serves nobody alone.
const STATIC_REGISTERS: u32 = 128;

/// Bytes and alignment of a page of doorbell records.
pub const RECORD_PAGE_BYTES: usize = 4096;

/// How a device is to be opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Ask for the right to send firmware commands.
    pub devx: bool,
    /// Register memory for relaxed ordering of the device's writes.
    pub relaxed_ordering: bool,
    /// The limit on locked memory, in bytes, where another than the process's holds.
    pub memlock: Option<u64>,
    /// Pages between the process's addresses and those that the device is told. 0 but in tests.
    pub address_shift_pages: u64,
    /// Of memory of the EAL that no pool told of, register the whole region when a packet brings it, else its pages.
    pub register_regions: bool,
    /// Where rings come from.
    pub memory: Memory,
    /// NUMA node of the device.
    pub socket: Option<SocketId>,
}

/// Who is to hear that a device is gone.
type Told = Box<dyn Fn() + Send>;

/// An open device.
///
/// Its file closes when the last handle goes; only then, after it, goes the memory of queues that the
/// device could not be made to let go.
///
/// ```compile_fail,E0133
/// # use std::sync::Arc;
/// # use pollux_mlx5_common::context::{Device, Opening};
/// fn opened(channel: Arc<dyn pollux_uverbs::Channel>, opening: Opening) -> Arc<Device> {
///     Device::open(channel, opening).unwrap()
/// }
/// ```
pub struct Device {
    context: Context,
    name: String,
    /// What the kernel told when the context was opened.
    pub answer: ContextAnswer,
    /// What the device can do, as verbs have it.
    pub attributes: ExQueryDeviceResp,
    /// What it can do besides.
    pub mlx5: DeviceAnswer,
    /// The protection domain of what is made here.
    pub pd: PdHandle,
    /// The device's number for it.
    pub pdn: u32,
    /// Firmware commands may be sent.
    pub devx: bool,
    opening: Opening,
    records: Mutex<Vec<DoorbellRecords>>,
    zones: AtomicU64,
    locked: memlock::Share,
    gone: AtomicBool,
    when_gone: Mutex<Option<Told>>,
    remains: Mutex<Vec<Box<dyn Send>>>,
    /// Of one BlueFlame register; 0: there are none, and a queue rings at one place.
    pub register_bytes: usize,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// What the kernel says; a device that is not Ethernet; a context that this driver cannot work with.
    ///
    /// # Safety
    /// A device is raw, and so is what is made of it by its parts ([`Object`](crate::object::Object),
    /// [`Registry`](crate::mr::Registry), its [context](Self::context)): keys, handles and other devices' queues are taken as they
    /// are given. Who opens one sees to it that each is of this device, that what a key names is memory of whoever posts it, and that
    /// nothing is destroyed on which others rely.
    pub unsafe fn open(channel: Arc<dyn Channel>, opening: Opening) -> Result<Arc<Self>, MlxError> {
        let opened = open_context(&channel, opening.devx)?;
        Self::over(channel.describe(), opened, opening)
    }

    /// Takes part in a context that somebody else opened, over a duplicate of its file's descriptor.
    ///
    /// # Errors
    /// As [`open`](Self::open); kernels before 5.7 cannot do it.
    ///
    /// # Safety
    /// As for [`open`](Self::open); what the others made is theirs.
    pub unsafe fn import(channel: Arc<dyn Channel>, opening: Opening) -> Result<Arc<Self>, MlxError> {
        let name = channel.describe();
        let mut answer = ContextAnswer::new_zeroed();
        let room = answer.as_mut_bytes();
        // SAFETY: as in `open_context`.
        let imported = unsafe {
            Context::import(channel, driver::MLX5, move |call| {
                call.out(attribute::query_context::RESP_UCTX, room);
            })
        };
        let (context, call) = imported.map_err(MlxError::verbs("import a context"))?;
        drop(call);
        Self::over(name, (context, answer, opening.devx), opening)
    }

    fn over(
        name: String,
        (context, answer, devx): (Context, ContextAnswer, bool),
        opening: Opening,
    ) -> Result<Arc<Self>, MlxError> {
        let refuse = |problem: String| MlxError::Device { device: name.clone(), problem };
        let unfit = |problem: String, mend: &'static str| MlxError::Answer {
            device: name.clone(),
            call: "DEVICE/GET_CONTEXT",
            problem,
            mend,
        };
        let mut mlx5 = DeviceAnswer::new_zeroed();
        let attributes = context
            .query_device(Driver::new(&[], mlx5.as_mut_bytes()))
            .map_err(MlxError::verbs("query the device"))?;
        let port = context.query_port(PORT).map_err(MlxError::verbs("query the port"))?;
        let layer = LinkLayer(port.legacy_resp.link_layer);
        if layer != LinkLayer::ETHERNET {
            return Err(refuse(format!(
                "its port is {layer}, not Ethernet; set the link type with mlxconfig"
            )));
        }
        if answer.max_send_wqebb == 0 || answer.max_recv_wr == 0 {
            return Err(unfit("its rings have no entries".into(), "the kernel or the firmware"));
        }
        let register_bytes = answer.bf_reg_size as usize;
        if register_bytes != 0 && !REGISTER_BYTES.contains(&register_bytes) {
            let problem = format!(
                "BlueFlame registers of {register_bytes} bytes, 0 or one of {REGISTER_BYTES:?} expected"
            );
            return Err(unfit(problem, "this driver, which knows no other"));
        }
        if answer.cqe_version > CQE_VERSION_MAX {
            let problem =
                format!("completions of version {}, 0 to {CQE_VERSION_MAX} expected", answer.cqe_version);
            return Err(unfit(problem, "this driver, which knows no other"));
        }
        if answer.eth_min_inline > context::inline_mode::TCP_UDP {
            let problem = format!(
                "inline mode {}, 0 to {} expected",
                answer.eth_min_inline,
                context::inline_mode::TCP_UDP
            );
            return Err(unfit(problem, "this driver, which knows no other"));
        }
        let mut pd_answer = PdAnswer::new_zeroed();
        let pd = context
            .alloc_pd(Driver::new(&[], pd_answer.as_mut_bytes()))
            .map_err(MlxError::verbs("allocate a protection domain"))?;
        let pdn = match number(&name, "a protection domain", pd_answer.pdn) {
            Ok(pdn) => pdn,
            Err(error) => {
                // Its file is about to be closed, which ends it if this does not.
                let _closed = context.dealloc_pd(pd);
                return Err(error);
            }
        };
        Ok(Arc::new(Self {
            context,
            name,
            answer,
            attributes,
            mlx5,
            pd,
            pdn,
            devx,
            opening,
            records: Mutex::default(),
            zones: AtomicU64::new(0),
            locked: memlock::Share::default(),
            gone: AtomicBool::new(false),
            when_gone: Mutex::default(),
            remains: Mutex::default(),
            register_bytes,
        }))
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// What it is, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was opened.
    #[must_use]
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// What completions shall call a queue: nothing where the device writes completions of version 0. Source: Linux
    /// `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `verify_assign_uidx`.
    #[must_use]
    pub fn user_index(&self, wanted: u32) -> u32 {
        if self.answer.cqe_version == 0 { 0xff_ffff } else { wanted % 0xff_ffff }
    }

    /// Header bytes that every packet sent must carry in its entry. Source: DPDK `drivers/net/mlx5/mlx5_defs.h`,
    /// `MLX5_INLINE_HSIZE_*`.
    #[must_use]
    pub fn inline_min(&self) -> usize {
        match self.answer.eth_min_inline {
            context::inline_mode::NONE => 0,
            context::inline_mode::IP => 18 + 40,
            context::inline_mode::TCP_UDP => 18 + 40 + 20,
            // Not told means layer 2.
            _ => 18,
        }
    }

    /// Whether it verifies the checksums of frames that it receives, and fills in those that it sends. Source: rdma-core
    /// `libibverbs/verbs.h`, `IBV_RAW_PACKET_CAP_IP_CSUM`, and `IBV_DEVICE_RAW_IP_CSUM`, which is older.
    #[must_use]
    pub fn does_checksums(&self) -> bool {
        let caps = RawPacketCaps::from_bits_retain(self.attributes.raw_packet_caps);
        let older = DeviceCaps::from_bits_retain(self.attributes.device_cap_flags_ex);
        caps.contains(RawPacketCaps::IP_CSUM) || older.contains(DeviceCaps::RAW_IP_CSUM)
    }

    /// An answer that this driver cannot work with, and what is to be updated.
    pub fn answered(&self, call: &'static str, problem: String, mend: &'static str) -> MlxError {
        MlxError::Answer { device: self.name.clone(), call, problem, mend }
    }

    /// The number that the kernel gave an object, if it is one: entries and commands have 24 bits for it.
    ///
    /// # Errors
    /// [`MlxError::Device`]: it is not.
    pub fn number(&self, what: &str, number: u32) -> Result<u32, MlxError> {
        self::number(&self.name, what, number)
    }

    /// A zone for a ring.
    ///
    /// # Errors
    /// No memory.
    pub fn zone(&self, what: &'static str, bytes: usize) -> Result<Zone, MlxError> {
        self.zone_as(what, bytes).map_err(|source| MlxError::Memory { what, source })
    }

    fn zone_as(&self, what: &'static str, bytes: usize) -> Result<Zone, MemoryError> {
        let number = self.zones.fetch_add(1, Ordering::Relaxed);
        // One name a zone and process: another port may use the same memory.
        let name = format!("mlx5 {:p} {what} {number}", self);
        let socket = self.opening.socket;
        let sized = |socket| self.opening.memory.reserve(&name, bytes, RECORD_PAGE_BYTES, socket);
        // Memory of the device's node is better, any other will do.
        sized(socket).or_else(|error| if socket.is_some() { sized(None) } else { Err(error) })
    }

    /// A free doorbell record.
    ///
    /// # Errors
    /// No memory for another page of them.
    pub fn record(&self) -> Result<DoorbellRecord, MlxError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.iter().find_map(DoorbellRecords::take) {
            return Ok(record);
        }
        let page = DoorbellRecords::new(self.zone("doorbell records", RECORD_PAGE_BYTES)?);
        // The kernel pins it with the first queue that has a record there, once for all of them.
        self.locked.add(Pinning::Queue, RECORD_PAGE_BYTES as u64);
        let record = page.take();
        records.push(page);
        record.ok_or_else(|| MlxError::Device {
            device: self.name.clone(),
            problem: "a new page of doorbell records has none".into(),
        })
    }

    /// Runs a call that pins `bytes` for a pool or a queue, and says what is wrong when that is the limit on locked
    /// memory.
    ///
    /// # Errors
    /// What the kernel says, or [`MlxError::Memlock`].
    pub fn pinning<T>(
        &self,
        what: &'static str,
        kind: Pinning,
        bytes: u64,
        call: impl FnOnce(&Context) -> Result<T, UverbsError>,
    ) -> Result<T, MlxError> {
        match call(&self.context) {
            Ok(made) => {
                self.locked.add(kind, bytes);
                Ok(made)
            }
            Err(source) => Err(self.pinning_failed(what, kind, bytes, source)),
        }
    }

    /// What a refusal means of a call that pins nothing.
    pub fn failed(&self, what: &'static str, source: UverbsError) -> MlxError {
        self.noticed(&source);
        MlxError::verbs(what)(source)
    }

    /// What a refusal means of a call that was to pin `wanted` bytes.
    pub fn pinning_failed(
        &self,
        what: &'static str,
        kind: Pinning,
        wanted: u64,
        source: UverbsError,
    ) -> MlxError {
        // EPERM is said of a limit of 0.
        let short = |limit: u64| match source.errno() {
            // Of a limit of the device's it is said as well; where the other side tells, it was that.
            Some(Errno::ENOMEM) => wanted > 0 && !source.says_firmware(),
            Some(Errno::EPERM) => wanted > 0 && limit == 0,
            _ => false,
        };
        let own = self.opening.memlock;
        if let Some(limit) = own.or_else(memlock::limit).filter(|limit| short(*limit)) {
            return MlxError::Memlock {
                what,
                shortage: self.locked.shortage(kind, wanted, limit, own.is_some()),
            };
        }
        self.failed(what, source)
    }

    /// Says that `bytes` are pinned no more.
    pub fn unpinned(&self, kind: Pinning, bytes: u64) {
        self.locked.sub(kind, bytes);
    }

    /// What is pinned, refused and planned.
    pub fn locked(&self) -> &memlock::Share {
        &self.locked
    }

    /// Has `tell` called when the device is gone, at once if it is: whoever polls its queues is to stop. One listens at a time.
    pub fn when_gone(&self, tell: impl Fn() + Send + 'static) {
        *self.when_gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
        if self.is_gone() {
            self.tell_gone();
        }
    }

    /// Whether the device was removed, or has given up.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Declares it gone: queues stop, and what it may still reach stays until its file is closed.
    pub fn set_gone(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            tracing::error!(target: "pmd.common.mlx5", "{}: the device is gone; its queues stop", self.name);
        }
        self.tell_gone();
    }

    fn tell_gone(&self) {
        if let Some(tell) = &*self.when_gone.lock().unwrap_or_else(PoisonError::into_inner) {
            tell();
        }
    }

    /// Looks whether an answer says that the device is gone. Some kernels say the same of a command that the firmware
    /// refused, so a question that a device cannot refuse is asked as well.
    pub fn noticed(&self, error: &UverbsError) -> bool {
        let says_gone = |error: &UverbsError| matches!(error.errno(), Some(Errno::EIO | Errno::ENODEV));
        if self.is_gone() {
            return says_gone(error);
        }
        let gone = says_gone(error) && self.context.query_port(PORT).as_ref().err().is_some_and(says_gone);
        if gone {
            self.set_gone();
        }
        gone
    }

    /// Reads what happened to the device and its objects since the last call; never waits.
    pub fn take_events(&self) -> Vec<pollux_uverbs::event::AsyncEvent> {
        let mut events = Vec::new();
        loop {
            match self.context.events().next() {
                Ok(Some(event)) => {
                    if event.kind == AsyncKind::DEVICE_FATAL {
                        self.set_gone();
                    }
                    events.push(event);
                }
                Ok(None) => return events,
                Err(error) => {
                    if !self.noticed(&error) {
                        tracing::warn!(target: "pmd.common.mlx5", "{}: {error}", self.name);
                    }
                    return events;
                }
            }
        }
    }

    /// Keeps memory that the device may reach until its file is closed.
    pub fn keep(&self, remains: Box<dyn Send>) {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner).push(remains);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.is_gone()
            && let Err(error) = self.context.dealloc_pd(self.pd)
            && !self.noticed(&error)
        {
            tracing::warn!(target: "pmd.common.mlx5", "{}: {error}", self.name);
        }
        // The fields go in order: the file first, the remains of queues last.
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

fn number(device: &str, what: &str, number: u32) -> Result<u32, MlxError> {
    if number < 1 << 24 {
        return Ok(number);
    }
    let problem = format!(
        "the kernel says that {what} has the number {number:#x}, of more than 24 bits; update the kernel or the firmware"
    );
    Err(MlxError::Device { device: device.to_owned(), problem })
}

/// Opens the context, with the right to send firmware commands if it may be had: a kernel or a device without it refuses
/// the whole request. Source: rdma-core `providers/mlx5/mlx5.c`, `mlx5_cmd_get_context`.
fn open_context(channel: &Arc<dyn Channel>, devx: bool) -> Result<(Context, ContextAnswer, bool), MlxError> {
    let open = |flags: u32| {
        let request = ContextRequest {
            total_num_bfregs: STATIC_REGISTERS,
            num_low_latency_bfregs: STATIC_REGISTERS - 1,
            flags,
            max_cqe_version: CQE_VERSION_MAX,
            lib_caps: context::library::UAR_4K | context::library::DYN_UAR,
            ..ContextRequest::default()
        };
        let mut answer = ContextAnswer::new_zeroed();
        let data = Driver::new(request.as_bytes(), answer.as_mut_bytes());
        // SAFETY: the device has it for itself, and whoever opens that answers for what goes through it.
        let context = unsafe { Context::open(Arc::clone(channel), driver::MLX5, data)? };
        Ok::<_, UverbsError>((context, answer))
    };
    if devx {
        match open(context::context_flag::DEVX) {
            Ok((context, answer)) => return Ok((context, answer, true)),
            // The context was granted and what came after failed: a file has one context, so asking again would hide why.
            Err(error) if !refuses_context(&error) => return Err(MlxError::verbs("open the device")(error)),
            // Every refusal that is not of this flag comes again below.
            Err(error) => {
                tracing::debug!(target: "pmd.common.mlx5", "{}: no DevX: {error}", channel.describe())
            }
        }
    }
    let (context, answer) = open(0).map_err(MlxError::verbs("open the device"))?;
    Ok((context, answer, false))
}

/// Whether it is the request for a context itself that was refused, by its method or by the older command.
fn refuses_context(error: &UverbsError) -> bool {
    let UverbsError::Refused { operation, .. } = error else { return false };
    match *operation {
        Operation::Method { object, method, .. } => {
            (object, method) == (id::device::OBJECT, id::device::get_context::METHOD)
        }
        Operation::Write { command } => command == write::GET_CONTEXT,
        _ => false,
    }
}
