//! A context: what an open device is to its user, and the way that each command takes.
#![expect(unsafe_code, reason = "whoever opens a context answers for what goes through it")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::device::{GetContext, GetContextResp};
use crate::abi::flags::CoreSupport;
use crate::abi::{id, write};
use crate::call::Call;
use crate::channel::{Channel, Route};
use crate::event::AsyncEvents;
use crate::page::{Page, Protection};
use crate::routes::CommandRoutes;
use crate::{Driver, Operation, UverbsError};

/// A device that was opened: every object is made through it and dies with it.
///
/// Each command first goes the way of the newest kernels, a method of its object; where the kernel lacks that, it goes as a
/// write command, inside the ioctl or by write(2). What was lacking is remembered for the life of the context.
///
/// ```compile_fail,E0133
/// # use std::sync::Arc;
/// # use pollux_uverbs::{Channel, Context, Driver};
/// fn opened(channel: Arc<dyn Channel>) -> Context {
///     Context::open(channel, 1, Driver::none()).unwrap()
/// }
/// ```
#[derive(Debug)]
pub struct Context {
    routes: CommandRoutes,
    comp_vectors: u32,
    core_support: CoreSupport,
    events: AsyncEvents,
    sysfs: Option<PathBuf>,
}

impl Context {
    /// Opens a context: `GET_CONTEXT`, and the descriptor of its events. `driver` is the kernel driver's number, which the
    /// kernel checks; `data` are the driver's bytes.
    ///
    /// # Errors
    /// What the kernel says, or an answer without a descriptor. A driver may try again with other bytes.
    ///
    /// # Safety
    /// A context is raw: a driver's bytes and methods name memory by address, which the device then reads and writes; objects are
    /// destroyed by number, whoever made them. Who opens one sees to it that all that is done through it, by whomever it is handed
    /// to, keeps what [`Channel::call`] asks for.
    pub unsafe fn open(
        channel: Arc<dyn Channel>,
        driver: u32,
        mut data: Driver<'_>,
    ) -> Result<Self, UverbsError> {
        let routes = CommandRoutes::new(channel, driver);
        let mut call = Call::new(id::device::OBJECT, id::device::get_context::METHOD);
        call.answer(id::device::get_context::NUM_COMP_VECTORS, 4);
        call.answer(id::device::get_context::CORE_SUPPORT, 8);
        CommandRoutes::attach(&mut call, data.reborrow());
        let (comp_vectors, core_support, events) = if routes.native(&mut call)? {
            let comp_vectors = call.get(id::device::get_context::NUM_COMP_VECTORS)?;
            let core_support = call.get(id::device::get_context::CORE_SUPPORT)?;
            (comp_vectors, core_support, alloc_events(&routes)?)
        } else {
            drop(call);
            let (answer, fd): (GetContextResp, _) =
                routes.write(write::GET_CONTEXT, &GetContext::default(), data)?;
            let fd = fd.ok_or(UverbsError::Unexpected {
                operation: Operation::Write { command: write::GET_CONTEXT },
                attribute: "async_fd".into(),
                value: u64::from(answer.async_fd),
                allowed: "a descriptor",
            })?;
            (answer.num_comp_vectors, 0, AsyncEvents::new(fd)?)
        };
        Ok(Self::new(routes, comp_vectors, core_support, events))
    }

    /// Takes part in a context that somebody else opened, over a duplicate of its file's descriptor. `extend` adds the
    /// driver's attributes to `QUERY_CONTEXT`; their answers are read from the call that comes back.
    ///
    /// # Errors
    /// What the kernel says: kernels before 5.7 cannot do it.
    ///
    /// # Safety
    /// As for [`open`](Self::open); what the others made is theirs.
    pub unsafe fn import<'a>(
        channel: Arc<dyn Channel>,
        driver: u32,
        extend: impl FnOnce(&mut Call<'a>),
    ) -> Result<(Self, Call<'a>), UverbsError> {
        use id::device::query_context as a;
        let routes = CommandRoutes::new(channel, driver);
        let events = alloc_events(&routes)?;
        let mut call = Call::new(id::device::OBJECT, a::METHOD);
        call.answer(a::NUM_COMP_VECTORS, 4).answer(a::CORE_SUPPORT, 8);
        extend(&mut call);
        routes.must(&mut call)?;
        let context = Self::new(routes, call.get(a::NUM_COMP_VECTORS)?, call.get(a::CORE_SUPPORT)?, events);
        Ok((context, call))
    }

    fn new(routes: CommandRoutes, comp_vectors: u32, core_support: u64, events: AsyncEvents) -> Self {
        let core_support = CoreSupport::from_bits_retain(core_support);
        Self { routes, comp_vectors, core_support, events, sysfs: None }
    }

    /// Tells where sysfs describes the device (`/sys/class/infiniband/mlx5_0`), for what old kernels tell nowhere else.
    #[must_use]
    pub fn with_sysfs(self, folder: PathBuf) -> Self {
        Self { sysfs: Some(folder), ..self }
    }

    /// The channel.
    #[must_use]
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.routes.channel
    }

    /// The kernel driver's number.
    #[must_use]
    pub fn driver(&self) -> u32 {
        self.routes.driver
    }

    /// Completion vectors (interrupts) to choose from.
    #[must_use]
    pub fn comp_vectors(&self) -> u32 {
        self.comp_vectors
    }

    /// What the kernel's core adds; nothing where it is too old to tell.
    #[must_use]
    pub fn core_support(&self) -> CoreSupport {
        self.core_support
    }

    /// What happens to the objects, the ports and the device.
    #[must_use]
    pub fn events(&self) -> &AsyncEvents {
        &self.events
    }

    /// How write commands travel here.
    #[must_use]
    pub fn route(&self) -> Route {
        self.routes.route
    }

    /// Whether a method was found to be absent.
    #[must_use]
    pub fn lacks(&self, object: u16, method: u16) -> bool {
        self.routes.lacks(object, method)
    }

    /// Calls a method that has no older form, such as a driver's own ([`Call::named`]).
    ///
    /// # Errors
    /// [`UverbsError::TooLarge`] when the ABI cannot carry it, [`UverbsError::Refused`] with what the kernel says;
    /// [`UverbsError::says_unsupported`] tells whether the method is not there. Outputs that were written before are there.
    pub fn call(&self, call: &mut Call<'_>) -> Result<(), UverbsError> {
        self.routes.must(call)
    }

    /// Maps pages of the device.
    ///
    /// # Errors
    /// [`UverbsError::Refused`] with what mmap(2) says.
    pub fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, UverbsError> {
        self.routes.channel.map(offset, bytes, protection).map_err(|errno| UverbsError::Refused {
            operation: Operation::Map { offset },
            errno,
            words: None,
        })
    }

    pub(crate) fn sysfs(&self) -> Option<&Path> {
        self.sysfs.as_deref()
    }

    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Calls a method with the driver's part; `false` when the kernel lacks it, and the older form is to be used.
    pub(crate) fn native<'a>(&self, call: &mut Call<'a>, driver: Driver<'a>) -> Result<bool, UverbsError> {
        CommandRoutes::attach(call, driver);
        self.routes.native(call)
    }

    /// Tells the device of requests in a queue pair's rings, if there is a shorter way than the command.
    pub(crate) fn ring(&self, qp: u32) -> Option<Result<(), UverbsError>> {
        self.routes.ring(qp)
    }

    /// Makes a write command whose answer is an `A`.
    pub(crate) fn write<R, A>(&self, command: u32, request: &R, driver: Driver<'_>) -> Result<A, UverbsError>
    where
        R: IntoBytes + Immutable + ?Sized,
        A: FromBytes + IntoBytes,
    {
        self.routes.write(command, request, driver).map(|(answer, _)| answer)
    }

    /// Makes a write command that has no answer of its own.
    pub(crate) fn write_only<R>(
        &self,
        command: u32,
        request: &R,
        driver: Driver<'_>,
    ) -> Result<(), UverbsError>
    where
        R: IntoBytes + Immutable + ?Sized,
    {
        self.write::<_, [u8; 0]>(command, request, driver).map(|_| ())
    }

    /// Makes a write command whose answer begins with a descriptor.
    pub(crate) fn write_for_fd<R, A>(
        &self,
        command: u32,
        request: &R,
    ) -> Result<(A, Option<OwnedFd>), UverbsError>
    where
        R: IntoBytes + Immutable,
        A: FromBytes + IntoBytes,
    {
        self.routes.write(command, request, Driver::none())
    }

    /// Destroys an object by the method for it, or by its older command.
    pub(crate) fn destroy<R>(
        &self,
        method: (u16, u16),
        handle: u32,
        command: (u32, R),
    ) -> Result<(), UverbsError>
    where
        R: IntoBytes + Immutable,
    {
        let mut call = Call::new(method.0, method.1);
        // In all these methods the handle is the first attribute.
        call.object(0, handle);
        if self.native(&mut call, Driver::none())? {
            return Ok(());
        }
        self.write_only(command.0, &command.1, Driver::none())
    }

    /// Destroys an object whose destruction tells how many of its events were read.
    pub(crate) fn destroy_counted<R, A>(
        &self,
        method: (u16, u16),
        handle: u32,
        command: (u32, R),
    ) -> Result<A, UverbsError>
    where
        R: IntoBytes + Immutable,
        A: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let mut call = Call::new(method.0, method.1);
        // In all these methods the handle is the first attribute and the answer the second.
        call.object(0, handle).answer(1, size_of::<A>());
        if self.native(&mut call, Driver::none())? {
            return call.get(1);
        }
        self.write(command.0, &command.1, Driver::none())
    }
}

/// Asks for the descriptor of a context's events.
fn alloc_events(routes: &CommandRoutes) -> Result<AsyncEvents, UverbsError> {
    let mut call = Call::new(id::async_event::OBJECT, id::async_event::alloc::METHOD);
    call.new_fd(id::async_event::alloc::FD_HANDLE);
    routes.must(&mut call)?;
    AsyncEvents::new(call.created_fd(id::async_event::alloc::FD_HANDLE)?)
}

/// Checks that an answer of an extended command was filled as far as it is read.
pub(crate) fn filled(command: u32, response_length: u32, wanted: usize) -> Result<(), UverbsError> {
    let bytes = response_length as usize;
    if bytes >= wanted {
        return Ok(());
    }
    let operation = Operation::Write { command };
    Err(UverbsError::Short { operation, attribute: "answer (response_length)".into(), bytes, wanted })
}
