//! Receivers of XRC that somebody else made.

use pollux_uverbs::abi::flags::{QpMask, QpState, QpType};
use pollux_uverbs::abi::queue_pair::QueryQpResp;
use pollux_uverbs::{Driver, QpHandle};

use crate::xrcd::Xrcd;
use crate::{Qp, QpAttributes, QpKind, VerbsError, state};

/// A receiver of XRC that is known by its number: made here or by another process that shares the domain by its
/// [file](Xrcd::of_file). The device's queue pair goes with the last who has it, made or opened.
///
/// It has no queues, so there is nothing to post to:
///
/// ```compile_fail,E0599
/// # use pollux_verbs::OpenedQp;
/// fn posted_to(opened: &mut OpenedQp) {
///     opened.receives();
/// }
/// ```
#[derive(Debug)]
pub struct OpenedQp {
    xrcd: Xrcd,
    handle: QpHandle,
    qpn: u32,
    id: u64,
}

impl Qp {
    /// Opens a receiver of XRC by its number.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` where the domain has none of that number.
    #[doc(alias = "ibv_open_qp")]
    pub fn open(xrcd: &Xrcd, qpn: u32) -> Result<OpenedQp, VerbsError> {
        let id = xrcd.context().object_number();
        let opened = xrcd
            .context()
            .uverbs()
            .open_qp(xrcd.handle(), qpn, QpType::XRC_TGT, id, Driver::none())
            .map_err(VerbsError::kernel("open a queue pair of an XRC domain"))?;
        Ok(OpenedQp { xrcd: xrcd.clone(), handle: opened.handle, qpn: opened.qpn, id })
    }
}

impl OpenedQp {
    /// Its number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// What events call it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Asks the device for its values, the state among them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn query(&self) -> Result<QueryQpResp, VerbsError> {
        let context = self.xrcd.context().uverbs();
        context.query_qp(self.handle, QpMask::all()).map_err(VerbsError::kernel("query a queue pair"))
    }

    /// Changes attributes, for all who have it.
    ///
    /// # Errors
    /// A change that the state does not allow, an attribute that is missing or too much, or what the kernel says.
    pub fn modify(&self, attributes: &QpAttributes) -> Result<(), VerbsError> {
        let from = match attributes.current {
            Some(current) => current,
            None => QpState(self.query()?.qp_state),
        };
        let mask = attributes.mask();
        state::check(QpKind::XrcReceive, from, attributes.state.unwrap_or(from), mask)?;
        let context = self.xrcd.context().uverbs();
        context
            .modify_qp(self.handle, mask, &attributes.values(), Driver::none())
            .map_err(VerbsError::kernel("modify a queue pair"))
    }
}

impl Drop for OpenedQp {
    fn drop(&mut self) {
        let context = self.xrcd.context();
        if let Err(error) = context.uverbs().destroy_qp(self.handle) {
            tracing::warn!(target: "lib.verbs", "{}: {error}", context.name());
        }
    }
}
