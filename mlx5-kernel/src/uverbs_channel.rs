//! A uverbs channel to the device: how its calls reach what carries them out.
#![expect(unsafe_code, reason = "the calls of a channel are raw, whoever answers them")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Channel, Errno, Page, Protection, Route, WriteCall};

use crate::core::Life;
use crate::session::Session;
use crate::{firmware, method, write};

/// What opening the device's file gives, with its session behind a lock.
pub(crate) struct UverbsChannel {
    session: Mutex<Session>,
    life: Arc<Life>,
}

impl UverbsChannel {
    pub(crate) fn new(life: Arc<Life>, has_management: bool) -> Self {
        Self { session: Mutex::new(Session::new(Arc::clone(&life.core), has_management)), life }
    }

    /// The domain of queue pair 1, if this channel has it.
    fn management_domain(&self) -> Option<u32> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).management_domain
    }

    /// The session, when the device is there.
    fn enter(&self) -> Result<MutexGuard<'_, Session>, Errno> {
        firmware::begin_call();
        let core = &self.life.core;
        if core.firmware.is_gone() {
            return Err(Errno::EIO);
        }
        core.lend_requested();
        if let Some(clock) = &core.clock {
            clock.refresh();
        }
        // Calls end before the lock does, with whatever they could not undo given up.
        Ok(self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Channel for UverbsChannel {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::invoke_write as a;
        if (call.object, call.method) == (id::device::OBJECT, a::METHOD)
            && let (Ok(command), Some(request)) = (call.number(a::WRITE_CMD), call.input(a::CORE_IN))
            && let Ok(command) = u32::try_from(command)
        {
            self.life.core.find_destinations(command, request, || self.management_domain());
        }
        method::call(&mut *self.enter()?, call)
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        let core = &self.life.core;
        core.find_destinations(command.command, command.core_in, || self.management_domain());
        let mut session = self.enter()?;
        if route == Route::Tunnelled && session.core.profile.no_invoke_write {
            return Err(Errno::EPROTONOSUPPORT);
        }
        write::write(&mut session, command)
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.enter()?.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        let [a, b, c, d, e, f] = self.life.core.port.mac;
        format!("mlx5 function {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, in process")
    }

    fn words(&self) -> Option<String> {
        Some(self.life.core.firmware.words())
    }
}

impl fmt::Debug for UverbsChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UverbsChannel").field("mac", &self.life.core.port.mac).finish_non_exhaustive()
    }
}

impl Drop for UverbsChannel {
    fn drop(&mut self) {
        self.session.get_mut().unwrap_or_else(PoisonError::into_inner).close();
    }
}
