//! The routes that a command can take, and which of them are closed.
#![expect(unsafe_code, reason = "calls of a channel are raw")]

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::object::{UHW_IN, UHW_OUT};
use crate::abi::{id, write};
use crate::call::{ATTRIBUTE_BYTES_MAX, Call, Output, WriteCall};
use crate::channel::{Channel, Route};
use crate::driver::Driver;
use crate::error::Operation;
use crate::{Errno, UverbsError};

/// A channel, and what was found out about the kernel behind it.
#[derive(Debug)]
pub(crate) struct CommandRoutes {
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) driver: u32,
    pub(crate) route: Route,
    absent: Mutex<HashSet<(u16, u16)>>,
    no_methods: AtomicBool,
}

impl CommandRoutes {
    /// Finds out how write commands travel: the method for them, called with a command that is too short, must complain of
    /// that and not of itself. Source: rdma-core `libibverbs/device.c`, `has_ioctl_write`.
    pub(crate) fn new(channel: Arc<dyn Channel>, driver: u32) -> Self {
        let mut probe = Call::new(id::device::OBJECT, id::device::invoke_write::METHOD);
        probe.driver = driver;
        probe.u64(id::device::invoke_write::WRITE_CMD, u64::from(write::QUERY_DEVICE));
        // SAFETY: it names no memory, and asks; it is refused for being too short.
        let answer = unsafe { channel.call(&mut probe) };
        let route = match answer {
            Err(errno) if errno.says_absent() => Route::Plain,
            _ => Route::Tunnelled,
        };
        let no_methods = AtomicBool::new(answer == Err(Errno::ENOTTY));
        Self { channel, driver, route, absent: Mutex::default(), no_methods }
    }

    pub(crate) fn lacks(&self, object: u16, method: u16) -> bool {
        self.no_methods.load(Ordering::Relaxed) || self.absent().contains(&(object, method))
    }

    /// Adds the driver's part to a call.
    pub(crate) fn attach<'a>(call: &mut Call<'a>, driver: Driver<'a>) {
        if !driver.input.is_empty() {
            call.bytes(UHW_IN, driver.input);
        }
        if !driver.output.is_empty() {
            call.out(UHW_OUT, driver.output);
        }
    }

    /// Calls a method that has no other form.
    pub(crate) fn must(&self, call: &mut Call<'_>) -> Result<(), UverbsError> {
        call.driver = self.driver;
        call.check()?;
        // SAFETY: whoever opened the context answers for what goes through it (`Context::open`).
        unsafe { self.channel.call(call) }.map_err(|errno| UverbsError::Refused {
            operation: call.operation(),
            errno,
            words: self.channel.words(),
        })
    }

    /// Calls a method; `false` when the kernel lacks it, now or before.
    ///
    /// `EPROTONOSUPPORT` is also the answer to a mandatory attribute that is not known; then, too, the older form is the
    /// only one that can work.
    pub(crate) fn native(&self, call: &mut Call<'_>) -> Result<bool, UverbsError> {
        if self.lacks(call.object, call.method) {
            return Ok(false);
        }
        match self.must(call) {
            Ok(()) => {
                if call.find(UHW_OUT).is_some() {
                    call.answered(UHW_OUT)?;
                }
                Ok(true)
            }
            Err(UverbsError::Refused { errno, .. }) if errno.says_absent() => {
                if errno == Errno::ENOTTY {
                    self.no_methods.store(true, Ordering::Relaxed);
                }
                self.absent().insert((call.object, call.method));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// See [`Channel::ring`].
    pub(crate) fn ring(&self, qp: u32) -> Option<Result<(), UverbsError>> {
        let refused = |errno| UverbsError::Refused {
            operation: Operation::Write { command: write::POST_SEND },
            errno,
            words: self.channel.words(),
        };
        self.channel.ring(qp).map(|answer| answer.map_err(refused))
    }

    /// Makes a write command whose answer is an `A`.
    pub(crate) fn write<R, A>(
        &self,
        command: u32,
        request: &R,
        driver: Driver<'_>,
    ) -> Result<(A, Option<OwnedFd>), UverbsError>
    where
        R: IntoBytes + Immutable + ?Sized,
        A: FromBytes + IntoBytes,
    {
        let mut answer = A::new_zeroed();
        let mut command = WriteCall {
            command,
            driver: self.driver,
            core_in: request.as_bytes(),
            core_out: Output::borrowed(answer.as_mut_bytes()),
            driver_in: driver.input,
            driver_out: Output::borrowed(driver.output),
            fd: None,
        };
        let operation = command.operation();
        let lengths = [
            ("command", command.core_in.len()),
            ("driver's part", command.driver_in.len()),
            ("driver's answer", command.driver_out.room()),
        ];
        for (what, bytes) in lengths {
            if bytes > ATTRIBUTE_BYTES_MAX {
                let (value, limit) = (bytes as u64, ATTRIBUTE_BYTES_MAX as u64);
                return Err(UverbsError::TooLarge { operation, attribute: what.into(), value, limit });
            }
        }
        // SAFETY: as in `must`.
        unsafe { self.channel.write(&mut command, self.route) }.map_err(|errno| UverbsError::Refused {
            operation,
            errno,
            words: self.channel.words(),
        })?;
        let wanted = command.core_out.room();
        if wanted > 0 {
            let unwritten = || UverbsError::Unwritten { operation, attribute: "answer".into() };
            let bytes = command.core_out.written().ok_or_else(unwritten)?.len();
            if bytes < wanted {
                return Err(UverbsError::Short { operation, attribute: "answer".into(), bytes, wanted });
            }
        }
        if command.driver_out.room() > 0 && command.driver_out.written().is_none() {
            return Err(UverbsError::Unwritten { operation, attribute: "driver's answer".into() });
        }
        let fd = command.fd.take();
        drop(command);
        Ok((answer, fd))
    }

    fn absent(&self) -> MutexGuard<'_, HashSet<(u16, u16)>> {
        // A set is never half changed.
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
