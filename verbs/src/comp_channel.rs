//! Completion channels: they tell which completion queue has something.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pollux_uverbs::event::CompChannel;

use crate::{Context, VerbsError};

/// Where completion queues tell that they have something. Clones are handles.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(crate) channel: Arc<CompChannel>,
    context: Context,
}

impl CompletionChannel {
    /// A channel of a device.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(context: &Context) -> Result<Self, VerbsError> {
        let channel = context
            .uverbs()
            .create_comp_channel()
            .map_err(VerbsError::kernel("create a completion channel"))?;
        Ok(Self { channel: Arc::new(channel), context: context.clone() })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The [`id`](crate::Cq::id) of the next completion queue that has something, if there is one; never waits. That queue is
    /// told by [`Cq::event_taken`](crate::Cq::event_taken).
    ///
    /// # Errors
    /// [`EIO`](pollux_uverbs::Errno::EIO) when the device was removed.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn next(&self) -> Result<Option<u64>, VerbsError> {
        self.channel.next().map_err(VerbsError::kernel("read completion events"))
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
