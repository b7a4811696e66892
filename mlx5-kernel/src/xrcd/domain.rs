//! XRC domains on the device, and who receives in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::Errno;
use rustix::fs::OFlags;

use crate::adapter::Adapter;
use crate::firmware::{SHORT, begin, naming, number};
use crate::qp::shared::{TransportQp, locked};

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
        self.receivers().iter().find(|qp| locked(qp).qpn == qpn).cloned()
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

    pub(super) fn open(
        &self,
        adapter: &Adapter,
        inode: Option<(u64, u64)>,
        flags: OFlags,
    ) -> Result<Arc<XrcDomain>, Errno> {
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
        adapter.execute(&begin::<SHORT>(opcode::ALLOC_XRCD, 0, 0), &mut output)?;
        let number = number(&output);
        let domain = Arc::new(XrcDomain { number, inode, receivers: Mutex::default() });
        list.push((Arc::clone(&domain), 1));
        Ok(domain)
    }

    /// A handle less; with the last one the domain ends.
    pub(super) fn close(&self, adapter: &Adapter, domain: &Arc<XrcDomain>) -> Result<(), Errno> {
        let mut list = self.list();
        let Some(place) = list.iter().position(|(other, _)| Arc::ptr_eq(other, domain)) else {
            return Ok(());
        };
        if list[place].1 > 1 {
            list[place].1 -= 1;
            return Ok(());
        }
        adapter.execute(&naming(opcode::DEALLOC_XRCD, 0, domain.number), &mut [0; SHORT])?;
        list.swap_remove(place);
        Ok(())
    }

    /// Ends what is left of domains when the device stops.
    pub(crate) fn end(&self, adapter: &Adapter) {
        for (domain, _) in self.list().drain(..) {
            let _ = adapter.execute(&naming(opcode::DEALLOC_XRCD, 0, domain.number), &mut [0; SHORT]);
        }
    }
}
