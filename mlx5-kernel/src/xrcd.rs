//! XRC domains: shared by everybody who opens the same file. Source: Linux `drivers/infiniband/core/uverbs_cmd.c`,
//! `ib_uverbs_open_xrcd`, `ib_uverbs_dealloc_xrcd`.

pub(crate) mod domain;

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_uverbs::abi::memory::{CloseXrcd, OpenXrcd, OpenXrcdResp};
use pollux_uverbs::{Errno, WriteCall};
use rustix::fs::OFlags;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use domain::XrcDomain;

/// A handle of a domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    pub(crate) domain: Arc<XrcDomain>,
    open: bool,
}

impl Object for Xrcd {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Xrcd
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        if self.open {
            core.xrc.close(core, &self.domain)?;
            self.open = false;
        }
        Ok(())
    }
}

impl Session {
    /// `OPEN_XRCD`.
    pub(crate) fn open_xrcd(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: OpenXrcd = command.request()?;
        let core = Arc::clone(&self.core);
        if !core.caps.has(GeneralCaps::XRC) {
            return Err(Errno::EOPNOTSUPP);
        }
        let fd = request.fd.cast_signed();
        let inode = if fd == -1 {
            None
        } else {
            let file =
                fs::metadata(format!("{}/fd/{fd}", core.memory.caller_folder())).map_err(|_| Errno::EBADF)?;
            Some((file.st_dev(), file.st_ino()))
        };
        let domain = core.xrc.open(&core, inode, OFlags::from_bits_retain(request.oflags))?;
        let xrcd_handle = self.handles.add(Xrcd { domain, open: true }, &[]);
        command.core_out.write(OpenXrcdResp { xrcd_handle }.as_bytes());
        Ok(())
    }

    /// `CLOSE_XRCD`.
    pub(crate) fn close_xrcd(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CloseXrcd = command.request()?;
        self.destroy::<Xrcd>(request.xrcd_handle).map(drop)
    }
}
