//! Completion queues and completions.

use std::sync::Arc;

use crate::provider::mlx5::poll as mlx5_poll;
use crate::provider::{Side, each, each_its_own, rxe};
use pollux_uverbs::CqHandle;
use pollux_uverbs::abi::flags::CqFlags;
use pollux_uverbs::cq::CqRequest;

use crate::comp_channel::CompletionChannel;
use crate::mr::Piece;
use crate::view::{Armed, CqRecord, Listed};
use crate::{Context, VerbsError, WcOpcode, WcStatus};

/// Creation parameters of a completion queue.
#[derive(Clone, Debug)]
pub struct CqOptions {
    /// Number of CQEs.
    pub entries: u32,
    /// Completion channel for its events.
    pub channel: Option<CompletionChannel>,
    /// Completion vector, below [`Context::comp_vectors`].
    pub vector: u32,
    /// Uses CQEs of 128 bytes.
    pub wide: bool,
    /// Ignores CQ overrun (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub ignore_overrun: bool,
}

impl CqOptions {
    /// Creates parameters with this number of CQEs.
    #[must_use]
    pub fn new(entries: u32) -> Self {
        Self { entries, channel: None, vector: 0, wide: false, ignore_overrun: false }
    }

    /// Sets the completion channel.
    #[must_use]
    pub fn channel(self, channel: &CompletionChannel) -> Self {
        Self { channel: Some(channel.clone()), ..self }
    }
}

/// What errors call it.
pub(crate) const COMPLETION_QUEUE: &str = "a completion queue";

/// A completion queue, for any number of queue pairs and both directions. It belongs to whoever polls it; queue pairs that
/// complete here keep the device's part.
#[derive(Debug)]
pub struct Cq {
    record: Listed<CqRecord>,
    side: Side<mlx5_poll::Poller, rxe::cq::Poller>,
    id: u64,
    channel: Option<CompletionChannel>,
    context: Context,
}

impl Cq {
    /// Creates a completion queue.
    ///
    /// # Errors
    /// More entries than the device has, no memory, a channel of another context ([`VerbsError::Foreign`]), or what the kernel says.
    #[doc(alias = "ibv_create_cq")]
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn new(context: &Context, options: CqOptions) -> Result<Self, VerbsError> {
        let id = context.object_number();
        if let Some(channel) = &options.channel {
            context.admit("a completion channel", channel.context())?;
        }
        let mut flags = CqFlags::empty();
        flags.set(CqFlags::IGNORE_OVERRUN, options.ignore_overrun);
        let request = CqRequest {
            entries: options.entries,
            user_handle: id,
            channel: options.channel.as_ref().map(|channel| &*channel.channel),
            vector: options.vector,
            flags,
        };
        let side = each_its_own!(context.driver(), device => device.create_cq(&request, options.wide)?);
        let (number, gauge) = each!(&side, poller => (poller.number(), poller.gauge()));
        let record = CqRecord::new(number, options.vector, options.channel.is_some(), gauge);
        let record = context.registry().cqs.add(record);
        Ok(Self { record, side, id, channel: options.channel, context: context.clone() })
    }

    /// Returns the ID by which events refer to it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns its completion channel, if any.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.channel.as_ref()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn mlx5(&self) -> &mlx5_poll::Poller {
        self.side.mlx5()
    }

    pub(crate) fn rxe(&self) -> &Arc<rxe::cq::CqCore> {
        self.side.rxe().core()
    }

    pub(crate) fn handle(&self) -> CqHandle {
        each!(&self.side, poller => poller.handle())
    }

    /// Returns its size in CQEs.
    #[must_use]
    pub fn entries(&self) -> u32 {
        each!(&self.side, poller => poller.capacity())
    }

    /// Polls up to `max` completions, calls `each` for every one and returns their number. No system call, allocation or lock.
    #[inline]
    #[doc(alias = "ibv_poll_cq")]
    #[doc(alias = "ibv_start_poll")]
    pub fn poll(&mut self, max: usize, mut each: impl FnMut(&mut Wc<'_, '_>)) -> usize {
        match &mut self.side {
            Side::Mlx5(poller) => poller.poll(max, |wc| each(&mut Wc(Side::Mlx5(wc)))),
            Side::Rxe(poller) => poller.poll(max, |wc| each(&mut Wc(Side::Rxe(wc)))),
        }
    }

    /// Asks for an event on its channel at the next completion, or the next solicited one or error. What is there already makes
    /// none: poll once more before waiting.
    ///
    /// # Errors
    /// It has no channel.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn notify(&mut self, solicited_only: bool) -> Result<(), VerbsError> {
        let armed = self.channel.is_some()
            && match &mut self.side {
                Side::Mlx5(poller) => poller.arm(solicited_only),
                Side::Rxe(poller) => {
                    poller.arm(solicited_only)?;
                    true
                }
            };
        if armed {
            self.record.set_armed(if solicited_only { Armed::Solicited } else { Armed::Next });
            return Ok(());
        }
        Err(VerbsError::Unsupported {
            what: "completion events",
            why: "the queue was made without a channel".into(),
        })
    }

    /// Acknowledges an event of this queue that was read from the channel.
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn event_taken(&mut self) {
        self.record.set_armed(Armed::No);
        // Of rxe's the kernel counts by itself what was read.
        if let Side::Mlx5(poller) = &mut self.side {
            poller.event_taken();
        }
    }

    /// Resizes the queue. No completion is lost.
    ///
    /// # Errors
    /// Too few for those that are there, too many for the device, or what the kernel says.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, entries: u32) -> Result<(), VerbsError> {
        match &mut self.side {
            Side::Mlx5(poller) => Ok(poller.resize(self.context.driver().mlx5(), entries)?),
            Side::Rxe(poller) => {
                poller.resize(entries)?;
                self.record.ring.replace(poller.gauge());
                Ok(())
            }
        }
    }

    /// Sets CQ moderation: an event after `count` completions or `period_us` microseconds.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&self, count: u16, period_us: u16) -> Result<(), VerbsError> {
        self.context
            .uverbs()
            .moderate_cq(self.handle(), count, period_us)
            .map_err(VerbsError::kernel("set CQ moderation"))
    }

    /// Returns the number of skipped completions: malformed ones and those of unknown queues.
    #[must_use]
    pub fn strange(&self) -> u64 {
        each!(&self.side, poller => poller.strange())
    }
}

/// A completion. Its fields are read from the device's entry when they are asked for. What the request took along is there to
/// be [taken](Self::take); the rest goes home to its pools.
pub struct Wc<'w, 'c>(Side<&'w mut mlx5_poll::Wc<'c>, &'w mut rxe::cq::Wc<'c>>);

impl std::fmt::Debug for Wc<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wc")
            .field("id", &self.id())
            .field("status", &self.status())
            .field("opcode", &self.opcode())
            .field("qpn", &self.qpn())
            .finish_non_exhaustive()
    }
}

macro_rules! lazily {
    ($($(#[$doc:meta])* $name:ident = $from:ident: $type:ty;)*) => {
        impl Wc<'_, '_> {
            $($(#[$doc])*
            #[must_use]
            #[inline(always)]
            pub fn $name(&self) -> $type {
                each!(&self.0, wc => wc.$from())
            })*
        }
    };
}

lazily! {
    /// The ID of the work request (`wr_id`).
    id = id: u64;
    /// Status.
    status = status: WcStatus;
    /// Opcode. For a failed receive it only tells that it was a receive.
    opcode = operation: WcOpcode;
    /// QP number.
    qpn = number: u32;
    /// Bytes received (for UD including the 40-byte GRH), read or swapped.
    bytes = bytes: u32;
    /// Whether it is a receive.
    is_receive = is_receive: bool;
    /// Source QP number of a datagram.
    source_qpn = source: u32;
    /// Whether a 40-byte GRH precedes a datagram (`IBV_WC_GRH`).
    has_global_header = has_global_header: bool;
    /// Service level.
    service_level = service_level: u8;
    /// Source LID.
    source_lid = source_lid: u16;
    /// Completion timestamp, in ticks of the device clock.
    timestamp = timestamp: u64;
    /// Whether the sender requested a solicited event.
    is_solicited = is_solicited: bool;
    /// Returns the immediate data, if any.
    imm = imm: Option<u32>;
    /// Returns the local key invalidated by the message, if any.
    invalidated = invalidated: Option<u32>;
    /// Returns the RSS hash of a received frame; 0 without RSS.
    rss_hash = rss_hash: u32;
    /// Of a received frame: what the rule that took it [tagged](crate::FlowSpec::Tag) it with; 0 of others.
    flow_tag = flow_tag: u32;
    /// Returns the VLAN tag that the device stripped from a received frame.
    vlan = vlan: Option<u16>;
    /// Of a received frame: whether its checksums of IPv4 and of TCP or UDP are there and right. Of IPv6 that is not told.
    are_checksums_ok = are_checksums_ok: bool;
    /// Returns the vendor error code; 0 on success.
    vendor_error = vendor_error: u32;
}

impl Wc<'_, '_> {
    /// Returns whether the status is success.
    #[must_use]
    #[inline(always)]
    pub fn is_ok(&self) -> bool {
        self.status() == WcStatus::SUCCESS
    }

    /// The next piece of what the request took along; of sends those of the requests before it as well that made no
    /// completion, in order. A received one has its length.
    #[inline]
    pub fn take(&mut self) -> Option<Piece> {
        each!(&mut self.0, wc => wc.take())
    }

    /// How many pieces are left of the request that the [next](Self::take) one is of.
    pub(crate) fn left_of_request(&mut self) -> u32 {
        each!(&mut self.0, wc => wc.left_of_request())
    }

    /// As [`take`](Self::take), of buffers alone: other pieces go home.
    #[inline]
    pub fn take_buf(&mut self) -> Option<crate::Buf> {
        loop {
            if let Piece::Buf(buf) = self.take()? {
                return Some(buf);
            }
        }
    }
}
