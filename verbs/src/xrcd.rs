//! XRC domains: what receivers and shared receive queues of XRC belong to, by several processes if they share a file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use pollux_uverbs::xrcd::XrcdRequest;
use pollux_uverbs::{Driver, XrcdHandle};

use crate::{Context, VerbsError};

/// An XRC domain. Clones are handles.
#[derive(Clone, Debug)]
pub struct Xrcd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: XrcdHandle,
}

impl Xrcd {
    /// A domain of this process's own.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn new(context: &Context) -> Result<Self, VerbsError> {
        Self::open(context, &XrcdRequest::default())
    }

    /// The domain of a file, made if it has none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_file(context: &Context, file: BorrowedFd<'_>) -> Result<Self, VerbsError> {
        Self::open(context, &XrcdRequest { file: Some(file), create: true, exclusive: false })
    }

    fn open(context: &Context, request: &XrcdRequest<'_>) -> Result<Self, VerbsError> {
        let handle = context
            .uverbs()
            .open_xrcd(request, Driver::none())
            .map_err(VerbsError::kernel("open an XRC domain"))?;
        Ok(Self(Arc::new(Inner { context: context.clone(), handle })))
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn handle(&self) -> XrcdHandle {
        self.0.handle
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.context.uverbs().close_xrcd(self.handle) {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.context.name());
        }
    }
}
