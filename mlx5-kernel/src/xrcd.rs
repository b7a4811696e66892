//! XRC domains: shared by everybody who opens the same file. Source: Linux `drivers/infiniband/core/uverbs_cmd.c`,
//! `ib_uverbs_open_xrcd`, `ib_uverbs_dealloc_xrcd`.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::abi::memory::{CloseXrcd, OpenXrcd, OpenXrcdResp};
use pollux_uverbs::{Errno, WriteCall};
use rustix::fs::OFlags;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::firmware::{SHORT, begin, naming, number};
use crate::handle::{Object, ObjectKind};
use crate::qp::transport::TransportQp;
use crate::session::Session;

/// A handle of a domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    pub(crate) domain: Arc<XrcDomain>,
    open: bool,
}

/// A domain on the device.
#[derive(Debug)]
pub(crate) struct XrcDomain {
    pub(crate) number: u32,
    /// The file that names it.
    inode: Option<(u64, u64)>,
    /// Receivers in it, which others may open.
    receivers: Mutex<Vec<Arc<Mutex<TransportQp>>>>,
}

impl XrcDomain {
    fn receivers(&self) -> MutexGuard<'_, Vec<Arc<Mutex<TransportQp>>>> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_receiver(&self, qp: &Arc<Mutex<TransportQp>>) {
        self.receivers().push(Arc::clone(qp));
    }

    /// A receiver by its number.
    pub(crate) fn receiver(&self, qpn: u32) -> Option<Arc<Mutex<TransportQp>>> {
        let is = |qp: &&Arc<Mutex<TransportQp>>| qp.lock().unwrap_or_else(PoisonError::into_inner).qpn == qpn;
        self.receivers().iter().find(is).cloned()
    }

    pub(crate) fn remove_receiver(&self, qp: &Arc<Mutex<TransportQp>>) {
        self.receivers().retain(|other| !Arc::ptr_eq(other, qp));
    }
}

/// All domains that are open, with the number of their handles.
#[derive(Debug, Default)]
pub(crate) struct XrcDomains(Mutex<Vec<(Arc<XrcDomain>, u32)>>);

impl XrcDomains {
    fn list(&self) -> MutexGuard<'_, Vec<(Arc<XrcDomain>, u32)>> {
        // The list is never half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, core: &Core, inode: Option<(u64, u64)>, flags: OFlags) -> Result<Arc<XrcDomain>, Errno> {
        let mut list = self.list();
        let known = list.iter_mut().find(|(domain, _)| inode.is_some() && domain.inode == inode);
        if let Some((domain, handles)) = known {
            if flags.contains(OFlags::EXCL) {
                return Err(Errno::EINVAL);
            }
            *handles += 1;
            return Ok(Arc::clone(domain));
        }
        if inode.is_some() && !flags.contains(OFlags::CREATE) {
            return Err(Errno::EAGAIN);
        }
        let mut output = [0; SHORT];
        core.execute(&begin::<SHORT>(opcode::ALLOC_XRCD, 0, 0), &mut output)?;
        let number = number(&output);
        let domain = Arc::new(XrcDomain { number, inode, receivers: Mutex::default() });
        list.push((Arc::clone(&domain), 1));
        Ok(domain)
    }

    /// A handle less; with the last one the domain ends.
    fn close(&self, core: &Core, domain: &Arc<XrcDomain>) -> Result<(), Errno> {
        let mut list = self.list();
        let Some(place) = list.iter().position(|(other, _)| Arc::ptr_eq(other, domain)) else {
            return Ok(());
        };
        if list[place].1 > 1 {
            list[place].1 -= 1;
            return Ok(());
        }
        core.execute(&naming(opcode::DEALLOC_XRCD, 0, domain.number), &mut [0; SHORT])?;
        list.swap_remove(place);
        Ok(())
    }

    /// Ends what is left of domains when the device stops.
    pub(crate) fn end(&self, core: &Core) {
        for (domain, _) in self.list().drain(..) {
            let _ = core.execute(&naming(opcode::DEALLOC_XRCD, 0, domain.number), &mut [0; SHORT]);
        }
    }
}

impl Xrcd {
    pub(crate) fn end(&mut self, core: &Core) -> Result<(), Errno> {
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
            let file = fs::metadata(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
            Some((file.st_dev(), file.st_ino()))
        };
        let domain = core.xrc.open(&core, inode, OFlags::from_bits_retain(request.oflags))?;
        let xrcd_handle = self.handles.add(Object::Xrcd(Xrcd { domain, open: true }), &[]);
        command.core_out.write(OpenXrcdResp { xrcd_handle }.as_bytes());
        Ok(())
    }

    /// `CLOSE_XRCD`.
    pub(crate) fn close_xrcd(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CloseXrcd = command.request()?;
        self.destroy(request.xrcd_handle, ObjectKind::Xrcd).map(|_| ())
    }
}
