//! Posting: sends in a batch that ends in one doorbell, receives in lists.

use std::ops::Range;

use crate::provider::mlx5::post as mlx5;
use crate::provider::mlx5::srq as mlx5_srq;

use crate::ah::Ah;
use crate::mr::{Attached, Mr, Piece};
use crate::mw::{Mw, next_rkey};
use crate::provider::request::{FlushRange, Placement, PostError, Selectivity, Window};
use crate::provider::{Side, each, rxe};
use crate::{Access, MwType};

/// Sends that go to the device together, with one doorbell: [`ring`](Self::ring). Dropped without, none of them is posted, and
/// what they were given goes home.
///
/// An operation opens a request; what follows it until the next one describes it. What is wrong is told by [`ring`](Self::ring),
/// of the first that is.
#[derive(Debug)]
#[must_use = "nothing is posted without `ring`"]
pub struct Batch<'q> {
    side: Side<mlx5::Batch<'q>, rxe::post::Batch<'q>>,
    attached: &'q mut Attached,
    /// What is wrong with the first piece or address that is of no use here.
    wrong: Option<PostError>,
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        impl Batch<'_> {
            $($(#[$doc])*
            #[inline(always)]
            pub fn $name(&mut self, $($argument: $type),*) -> &mut Self {
                each!(&mut self.side, batch => { batch.$name($($argument),*); });
                self
            })*
        }
    };
}

requests! {
    /// Send.
    send(id: u64);
    /// Send with invalidate of a key of the peer.
    send_invalidate(id: u64, rkey: u32);
    /// RDMA write.
    write(id: u64, address: u64, rkey: u32);
    /// RDMA read into the pieces, replacing their data.
    read(id: u64, address: u64, rkey: u32);
    /// Puts `swap` in the place of 8 bytes of the peer's memory if they are `compare`; what they were goes to the one piece
    /// of 8 bytes, in the processor's order.
    compare_swap(id: u64, address: u64, rkey: u32, compare: u64, swap: u64);
    /// Atomic fetch and add on 8 bytes; the previous value goes to the one piece of 8 bytes, in host byte order.
    fetch_add(id: u64, address: u64, rkey: u32, add: u64);
    /// Local invalidate of a key.
    invalidate(id: u64, key: u32);
    /// Sets the peer's shared receive queue (SRQN) of an XRC request.
    to_srq(number: u32);
    /// Sets immediate data of a send or write.
    imm(value: u32);
    /// Requests a CQE (`IBV_SEND_SIGNALED`). It also completes the unsignaled requests before it.
    signalled();
    /// Requests a solicited event at the peer (`IBV_SEND_SOLICITED`).
    solicited();
    /// Waits for earlier reads and atomics (`IBV_SEND_FENCE`).
    fenced();
    /// Enables IPv4, TCP and UDP checksum offload for a raw frame (`IBV_SEND_IP_CSUM`).
    checksums();
    /// Sends the bytes as inline data (`IBV_SEND_INLINE`); they are copied immediately.
    inline(bytes: &[u8]);
}

impl<'q> Batch<'q> {
    #[inline(always)]
    pub(crate) fn new(side: Side<mlx5::Batch<'q>, rxe::post::Batch<'q>>, attached: &'q mut Attached) -> Self {
        Self { side, attached, wrong: None }
    }

    /// Sets the destination of a datagram.
    #[inline(always)]
    pub fn to(&mut self, ah: &Ah, qpn: u32, qkey: u32) -> &mut Self {
        let ours = self.attached.is_of(ah.context);
        match (&mut self.side, &ah.address) {
            (Side::Mlx5(batch), Side::Mlx5(address)) if ours => {
                batch.to(address, qpn, qkey);
            }
            (Side::Rxe(batch), Side::Rxe(number)) if ours => batch.to(*number, qpn, qkey),
            _ => self.refuse(FOREIGN),
        }
        self
    }

    /// Adds a buffer or mbuf as an SGE; it is returned with the completion.
    #[inline(always)]
    pub fn piece(&mut self, piece: impl Into<Piece>) -> &mut Self {
        let piece = piece.into();
        if !self.attached.takes(&piece) {
            self.refuse(FOREIGN);
            return self;
        }
        each!(&mut self.side, batch => { batch.piece(piece); });
        self
    }

    /// Notes what is wrong with a request, for [`ring`](Self::ring) to tell.
    #[cold]
    fn refuse(&mut self, wrong: PostError) {
        self.wrong.get_or_insert(wrong);
    }

    /// A piece of a region, of 2 GiB at most, which the queue keeps from now on.
    #[inline(always)]
    pub fn mr(&mut self, mr: &Mr, range: Range<usize>) -> &mut Self {
        let Some(held) = mr.span(range) else {
            self.refuse(OUTSIDE);
            return self;
        };
        if !self.attached.keep(mr) {
            self.refuse(FOREIGN);
            return self;
        }
        each!(&mut self.side, batch => { batch.lasting(&held); });
        self
    }

    /// Opens a window on a part of a region to peers, under the window's next key, or closes it where the part is empty. A
    /// window of type 2 serves the peer of this queue pair alone, and must be closed before it is opened again.
    pub fn bind(
        &mut self,
        id: u64,
        window: &mut Mw,
        mr: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> &mut Self {
        let Some(held) = mr.span(range) else {
            self.refuse(OUTSIDE);
            return self;
        };
        if !self.attached.keep(mr) || !self.attached.is_of(window.context().serial()) {
            self.refuse(FOREIGN);
            return self;
        }
        let next = next_rkey(window.rkey());
        let bound_to_queue = window.kind() == MwType::Type2;
        let how = Window { key: window.rkey(), next_key: next, bound_to_queue, access };
        each!(&mut self.side, batch => { batch.bind(id, &how, &held); });
        window.bind(mr, next);
        self
    }

    /// Writes 8 bytes of the peer's memory at once: whoever reads them there sees all of `value` or none. They are laid out in this
    /// processor's order; the address must be a multiple of 8. The peer's queue pair and region need
    /// [`REMOTE_WRITE`](Access::REMOTE_WRITE), and the request counts among the outstanding reads and atomics. RC on devices with
    /// [`DeviceCaps::ATOMIC_WRITE`](crate::DeviceCaps::ATOMIC_WRITE): rxe since Linux 6.2, no ConnectX; elsewhere [`ring`](Self::ring)
    /// answers [`PostError::Device`]. Sources: rdma-core `providers/rxe/rxe.c`, `wr_atomic_write`; Linux
    /// `drivers/infiniband/sw/rxe/rxe_resp.c`, `atomic_write_reply`.
    #[inline(always)]
    #[doc(alias = "ibv_wr_atomic_write")]
    pub fn atomic_write(&mut self, id: u64, address: u64, rkey: u32, value: u64) -> &mut Self {
        each!(&mut self.side, batch => { batch.atomic_write(id, address, rkey, value); });
        self
    }

    /// Sends a frame that the device cuts into packets (TSO). `header` is its headers up to the end of TCP's, copied now; the pieces that
    /// follow are the payload, of which each packet gets `mss` bytes and the last one what is left. Each packet has the headers with its
    /// own lengths, IPv4 identification, sequence number, flags and checksums, whatever stood there. RAW_PACKET queue pairs alone,
    /// made with [`QpOptions::tso_header`](crate::QpOptions::tso_header).
    ///
    /// [`ring`](Self::ring) answers [`PostError::Header`] for a header of fewer than 14 bytes (18 on cards that want as much of each
    /// frame) or more than the queue pair was made for, [`PostError::Payload`] beyond
    /// [`FrameLimits::max_tso`](crate::FrameLimits::max_tso) bytes, and refuses an `mss` of 0, no payload, and inline data. Source: rdma-core
    /// `providers/mlx5/qp.c`, `mlx5_send_wr_send_tso`, `set_tso_eth_seg`.
    #[inline(always)]
    #[doc(alias = "ibv_wr_send_tso")]
    pub fn send_tso(&mut self, id: u64, header: &[u8], mss: u16) -> &mut Self {
        each!(&mut self.side, batch => { batch.send_tso(id, header, mss); });
        self
    }

    /// Waits until what was written to the peer's memory before, by this queue pair, is where `placement` says: seen by all of its host, or
    /// safe from a loss of power. `level` says whether that is so of `bytes` bytes from `address` on, 2 GiB at most, or of the whole
    /// region of the key. The peer's queue pair and region need [`FLUSH_GLOBAL`](Access::FLUSH_GLOBAL) or
    /// [`FLUSH_PERSISTENT`](Access::FLUSH_PERSISTENT) accordingly; its completion says that it is done. RC on devices with
    /// [`DeviceCaps::FLUSH_GLOBAL`](crate::DeviceCaps::FLUSH_GLOBAL) or `FLUSH_PERSISTENT`: rxe since Linux 6.2, no ConnectX; elsewhere
    /// [`ring`](Self::ring) answers [`PostError::Device`]. Sources: rdma-core `providers/rxe/rxe.c`, `wr_flush`; Linux
    /// `drivers/infiniband/sw/rxe/rxe_resp.c`, `check_rkey`, `process_flush`.
    #[doc(alias = "ibv_wr_flush")]
    pub fn flush(
        &mut self,
        id: u64,
        address: u64,
        rkey: u32,
        bytes: u32,
        placement: Placement,
        level: Selectivity,
    ) -> &mut Self {
        if placement.is_empty() || bytes > FLUSH_BYTES_MAX {
            self.refuse(FLUSH);
            return self;
        }
        let range = FlushRange { address, rkey, bytes, placement, level };
        each!(&mut self.side, batch => { batch.flush(id, &range); });
        self
    }

    /// Returns the number of requests in the batch.
    #[must_use]
    pub fn count(&self) -> u32 {
        each!(&self.side, batch => batch.count())
    }

    /// Posts all requests with one doorbell and returns their number.
    ///
    /// # Errors
    /// What was wrong with the first that could not be posted; then none is, and what they were given goes home.
    #[inline(always)]
    #[doc(alias = "ibv_wr_complete")]
    pub fn ring(self) -> Result<u32, PostError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        each!(self.side, batch => batch.ring())
    }

    /// Aborts without posting and returns the pieces of the requests.
    pub fn abort(self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        each!(self.side, batch => batch.abort(|piece| pieces.push(piece)));
        pieces.reverse();
        pieces
    }
}

/// Longest message. Source: Linux `drivers/infiniband/sw/rxe/rxe_resp.c`, `rxe_resp_check_length`, by InfiniBand's C9-94.
const FLUSH_BYTES_MAX: u32 = 1 << 31;

const FLUSH: PostError = PostError::Incomplete(
    "a flush that says no placement, or is of more than 2 GiB; Selectivity::Region flushes a whole region",
);

const OUTSIDE: PostError =
    PostError::Incomplete("a piece that is not inside its memory region, or is longer than 2 GiB");

pub(crate) const FOREIGN: PostError = PostError::Incomplete(
    "a memory region, window, buffer or address of another device, or of another context of the same one; make it of the queue's",
);

/// A list of receives, of a provider's own rings or of those that are shared.
#[derive(Debug)]
pub(crate) enum List<'q> {
    Mlx5(mlx5::Receives<'q>),
    Mlx5Shared(mlx5_srq::SrqReceives<'q>),
    Rxe(rxe::receive::Receives<'q>),
}

/// Does the same with whichever it is.
macro_rules! each_list {
    ($list:expr, $it:ident => $does:expr) => {
        match $list {
            List::Mlx5($it) => $does,
            List::Mlx5Shared($it) => $does,
            List::Rxe($it) => $does,
        }
    };
}

/// Receives that go to the device together: [`ring`](Self::ring). Dropped without, none of them is posted, and what they were
/// given goes home.
#[derive(Debug)]
#[must_use = "nothing is posted without `ring`"]
pub struct Receives<'q> {
    list: List<'q>,
    attached: &'q mut Attached,
    wrong: Option<PostError>,
}

impl<'q> Receives<'q> {
    #[inline(always)]
    pub(crate) fn new(list: List<'q>, attached: &'q mut Attached) -> Self {
        Self { list, attached, wrong: None }
    }

    /// Adds a receive into a buffer or mbuf. It is returned with the completion, with the received length.
    #[inline(always)]
    pub fn piece(&mut self, id: u64, piece: impl Into<Piece>) -> &mut Self {
        let piece = piece.into();
        if !self.attached.takes(&piece) {
            self.refuse(FOREIGN);
            return self;
        }
        each_list!(&mut self.list, receives => { receives.piece(id, piece); });
        self
    }

    /// Notes what is wrong with a request, for [`ring`](Self::ring) to tell.
    #[cold]
    fn refuse(&mut self, wrong: PostError) {
        self.wrong.get_or_insert(wrong);
    }

    /// Adds a receive with a list of SGEs.
    #[inline(always)]
    pub fn pieces<P: Into<Piece>>(&mut self, id: u64, pieces: impl IntoIterator<Item = P>) -> &mut Self {
        let (attached, wrong) = (&*self.attached, &mut self.wrong);
        let pieces = pieces.into_iter().map(Into::into).filter(|piece| {
            let takes = attached.takes(piece);
            if !takes {
                wrong.get_or_insert(FOREIGN);
            }
            takes
        });
        each_list!(&mut self.list, receives => { receives.pieces(id, pieces); });
        self
    }

    /// A receive into a piece of a region, of 2 GiB at most, which the queue keeps from now on.
    #[inline(always)]
    pub fn mr(&mut self, id: u64, mr: &Mr, range: Range<usize>) -> &mut Self {
        let Some(held) = mr.span(range) else {
            self.refuse(OUTSIDE);
            return self;
        };
        if !self.attached.keep(mr) {
            self.refuse(FOREIGN);
            return self;
        }
        each_list!(&mut self.list, receives => { receives.lasting(id, &held); });
        self
    }

    /// Posts all receives and returns their number.
    ///
    /// # Errors
    /// What was wrong with the first that could not be posted; then none is, and what they were given goes home.
    #[inline(always)]
    pub fn ring(self) -> Result<u32, PostError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        each_list!(self.list, receives => receives.ring())
    }

    /// Aborts without posting and returns the pieces of the requests.
    pub fn abort(self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        each_list!(self.list, receives => receives.abort(|piece| pieces.push(piece)));
        pieces
    }
}
