//! A device file that refuses what it is told to, and hides what it is told to.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_uverbs::abi::device::ExQueryDeviceResp;
use pollux_uverbs::abi::flags::{DeviceCaps, RawPacketCaps};
use pollux_uverbs::abi::{id, write};
use pollux_uverbs::{Call, Channel, Errno, Page, Protection, Route, WriteCall};
use zerocopy::FromBytes;

/// Which destructions fail, and what the device says it cannot do.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) queue_pairs: AtomicBool,
    pub(crate) regions: AtomicBool,
    pub(crate) checksums: AtomicBool,
}

/// A channel in front of another.
#[derive(Debug)]
pub(crate) struct Refusing {
    pub(crate) inner: Arc<dyn Channel>,
    pub(crate) refusals: Arc<Refusals>,
}

impl Refusing {
    fn refuses(&self, queue_pair: bool, region: bool) -> bool {
        queue_pair && self.refusals.queue_pairs.load(Ordering::Relaxed)
            || region && self.refusals.regions.load(Ordering::Relaxed)
    }
}

/// Of a device that neither verifies nor fills in the checksums of frames.
fn hide_checksums(answer: &mut [u8]) {
    let Ok((answer, _)) = ExQueryDeviceResp::mut_from_prefix(answer) else { return };
    answer.device_cap_flags_ex &= !DeviceCaps::RAW_IP_CSUM.bits();
    answer.raw_packet_caps &= !RawPacketCaps::IP_CSUM.bits();
}

impl Channel for Refusing {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        let is = |object, method| (call.object, call.method) == (object, method);
        let queue_pair = is(id::qp::OBJECT, id::qp::destroy::METHOD);
        let region = is(id::mr::OBJECT, id::mr::destroy::METHOD);
        if self.refuses(queue_pair, region) {
            return Err(Errno::EBUSY);
        }
        // SAFETY: the same, by the caller.
        unsafe { self.inner.call(call) }
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        let number = command.command;
        if self.refuses(number == write::DESTROY_QP, number == write::DEREG_MR) {
            return Err(Errno::EBUSY);
        }
        // SAFETY: the same, by the caller.
        unsafe { self.inner.write(command, route) }?;
        if number == write::EX_QUERY_DEVICE && self.refusals.checksums.load(Ordering::Relaxed) {
            hide_checksums(command.core_out.room_mut());
        }
        Ok(())
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.inner.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
