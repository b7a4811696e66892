//! The seam: whatever answers like the file of an RDMA device.

use std::fmt;

use crate::Errno;
use crate::call::{Call, WriteCall};
use crate::page::{Page, Protection};

/// Something that answers as `/dev/infiniband/uverbsN` does: the kernel's file, or a model of a device.
///
/// It is used by the control path alone. Rings, doorbell records and the pages that [`map`](Self::map) gives are memory in
/// both cases.
pub trait Channel: Send + Sync + fmt::Debug {
    /// Calls a method. Inputs are in the call, outputs are put there.
    ///
    /// # Errors
    /// As the kernel: `EPROTONOSUPPORT` for an unknown object or method and for a mandatory attribute that is not known,
    /// `ENOTTY` when there are no methods at all, and what the method itself says. Outputs that were written before the
    /// failure count: a driver may put a status there.
    fn call(&self, call: &mut Call<'_>) -> Result<(), Errno>;

    /// Carries out a write command.
    ///
    /// # Errors
    /// As the kernel: `EPROTONOSUPPORT` or `ENOTTY` for a route that is not there, `EOPNOTSUPP` or `ENOSYS` for a command
    /// that the device lacks, and what the command itself says.
    fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno>;

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
