//! XRC domains.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::abi::memory::{CloseXrcd, OpenXrcd, OpenXrcdResp};
use crate::abi::{id, write};
use crate::handle::XrcdHandle;
use crate::{Context, Driver, UverbsError};

/// How an XRC domain is shared: `None` is this context's alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct XrcdRequest<'a> {
    /// A file whose inode names the domain among processes.
    pub file: Option<BorrowedFd<'a>>,
    /// Makes it where it does not exist.
    pub create: bool,
    /// Refuses when it exists.
    pub exclusive: bool,
}

impl Context {
    /// Opens or makes an XRC domain.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open_xrcd(
        &self,
        request: &XrcdRequest<'_>,
        driver: Driver<'_>,
    ) -> Result<XrcdHandle, UverbsError> {
        let mut oflags = 0;
        if request.create || request.file.is_none() {
            oflags |= libc::O_CREAT;
        }
        if request.exclusive {
            oflags |= libc::O_EXCL;
        }
        let fd = request.file.map_or(-1, |file| file.as_raw_fd());
        let request = OpenXrcd { response: 0, fd: fd.cast_unsigned(), oflags: oflags.cast_unsigned() };
        let answer: OpenXrcdResp = self.write(write::OPEN_XRCD, &request, driver)?;
        Ok(XrcdHandle(answer.xrcd_handle))
    }

    /// Closes an XRC domain; the last to do so destroys it.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while something of ours is in it.
    pub fn close_xrcd(&self, xrcd: XrcdHandle) -> Result<(), UverbsError> {
        let command = (write::CLOSE_XRCD, CloseXrcd { xrcd_handle: xrcd.0 });
        self.destroy((id::xrcd::OBJECT, id::xrcd::destroy::METHOD), xrcd.0, command)
    }
}
