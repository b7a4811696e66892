//! The seam: whatever answers like the file of an RDMA device.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::fmt;

use crate::Errno;
use crate::call::{Call, WriteCall};
use crate::page::{Page, Protection};

/// Something that answers as `/dev/infiniband/uverbsN` does: the kernel's file, or a model of a device.
///
/// It is used by the control path alone. Rings, doorbell records and the pages that [`map`](Self::map) gives are memory in
/// both cases.
///
/// Its calls are raw. They name the caller's memory by address, which the device then reads and writes for as long as what was made
/// of it exists, and objects by number, whoever made them. So they are unsafe to make, and an answer is believed: an
/// implementation that says that memory is deregistered has seen to it.
///
/// ```compile_fail,E0133
/// # use pollux_uverbs::{Call, Channel};
/// fn registered(channel: &dyn Channel, anything: &mut Call<'_>) {
///     channel.call(anything).unwrap();
/// }
/// ```
pub trait Channel: Send + Sync + fmt::Debug {
    /// Calls a method. Inputs are in the call, outputs are put there.
    ///
    /// # Errors
    /// As the kernel: `EPROTONOSUPPORT` for an unknown object or method and for a mandatory attribute that is not known,
    /// `ENOTTY` when there are no methods at all, and what the method itself says. Outputs that were written before the
    /// failure count: a driver may put a status there.
    ///
    /// # Safety
    /// What the call names by address, in its attributes or in a driver's bytes, is memory that the device may read, and write
    /// where the call says so, for as long as the call lets it; nobody has references there meanwhile that this would break. What
    /// it destroys or changes by number is the caller's, and nobody relies on it any more.
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno>;

    /// Carries out a write command.
    ///
    /// # Errors
    /// As the kernel: `EPROTONOSUPPORT` or `ENOTTY` for a route that is not there, `EOPNOTSUPP` or `ENOSYS` for a command
    /// that the device lacks, and what the command itself says.
    ///
    /// # Safety
    /// As for [`call`](Self::call).
    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno>;

    /// A shorter way than [`write`](Self::write), where there is one, to tell the device of requests in the rings of a queue pair that its
    /// driver carries out in the kernel. `None`: take the command.
    ///
    /// # Errors
    /// As the command, `POST_SEND`.
    fn ring(&self, _qp: u32) -> Option<Result<(), Errno>> {
        None
    }

    /// Maps pages of the device.
    ///
    /// # Errors
    /// As mmap(2) on the file: `EINVAL` for an offset or a length that means nothing, `EPERM` for rights that the page does
    /// not give.
    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno>;

    /// What it is, for messages.
    fn describe(&self) -> String;

    /// What the other side knows of the refusal that this thread got last, to be asked right after it. A kernel tells its log
    /// alone, so its file answers nothing; a model in process has no log and answers here.
    fn words(&self) -> Option<String> {
        None
    }
}

/// How a write command travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Inside the ioctl, as `DEVICE/INVOKE_WRITE`.
    Tunnelled,
    /// By write(2), for kernels that lack that method.
    Plain,
}
