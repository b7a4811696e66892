//! Shared receive queues: one store of receives for many queue pairs.

use std::sync::Arc;

use crate::provider::mlx5::srq as mlx5_srq;
use crate::provider::{QueueBase, Side, each, rxe};
use pollux_uverbs::abi::queue::QuerySrqResp;
use pollux_uverbs::{Driver, SrqHandle};

use crate::batch::{List, Receives};
use crate::cq::{COMPLETION_QUEUE, Cq};
use crate::mr::Attached;
use crate::options::SrqOptions;
use crate::pd::Pd;
use crate::view::{Errors, Listed, Meter, RqRecord};
use crate::xrcd::Xrcd;
use crate::{Context, VerbsError};

/// A shared receive queue. It belongs to whoever posts; the device's is destroyed after the last queue pair that receives
/// through it, and what is still posted goes home then.
#[derive(Debug)]
pub struct Srq {
    _record: Listed<RqRecord>,
    side: Side<mlx5_srq::SrqPoster, rxe::srq::Poster>,
    attached: Attached,
    id: u64,
    pd: Pd,
    _xrcd: Option<Xrcd>,
}

impl Srq {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// Sizes that the device does not have, or what the kernel says.
    #[doc(alias = "ibv_create_srq")]
    pub fn new(pd: &Pd, options: &SrqOptions) -> Result<Self, VerbsError> {
        Self::make(pd, None, options)
    }

    /// Creates an XRC shared receive queue with its own CQ.
    ///
    /// # Errors
    /// As [`new`](Self::new); and a domain or completion queue of another context ([`VerbsError::Foreign`]).
    pub fn xrc(pd: &Pd, xrcd: &Xrcd, cq: &Cq, options: &SrqOptions) -> Result<Self, VerbsError> {
        Self::make(pd, Some((xrcd, cq)), options)
    }

    fn make(pd: &Pd, xrc: Option<(&Xrcd, &Cq)>, options: &SrqOptions) -> Result<Self, VerbsError> {
        if let Some((xrcd, cq)) = xrc {
            pd.context().admit("an XRC domain", xrcd.context())?;
            pd.context().admit(COMPLETION_QUEUE, cq.context())?;
        }
        let id = pd.context().object_number();
        let attached = Attached::new(pd.context());
        let errors = Arc::<Errors>::default();
        let kept = attached.keeper(Some(pd));
        let base = QueueBase { keys: pd.keys(), user_handle: id, kept, errors: Arc::clone(&errors) };
        let side = match pd.context().driver() {
            Side::Mlx5(hca) => {
                let xrc = xrc.map(|(xrcd, cq)| (xrcd.handle(), cq.mlx5()));
                Side::Mlx5(hca.create_srq(pd.handle(), xrc, options, base)?)
            }
            Side::Rxe(_) if xrc.is_some() => {
                let why = "rxe has no XRC".into();
                return Err(VerbsError::Unsupported { what: "shared receive queue", why });
            }
            Side::Rxe(rxe) => Side::Rxe(rxe.create_srq(pd.handle(), options, base)?),
        };
        let record = each!(&side, poster => {
            let (depth, pieces) = poster.sizes();
            RqRecord { number: poster.srq().number(), depth, pieces, ring: Meter::new(poster.gauge()), errors }
        });
        let _record = pd.context().registry().srqs.add(record);
        Ok(Self { _record, side, attached, id, pd: pd.clone(), _xrcd: xrc.map(|(xrcd, _)| xrcd.clone()) })
    }

    /// Returns the ID by which events refer to it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the SRQ number used in XRC requests.
    #[must_use]
    pub fn number(&self) -> u32 {
        each!(&self.side, poster => poster.srq().number())
    }

    /// Returns its depth and the SGEs per receive.
    #[must_use]
    pub fn sizes(&self) -> (u32, u32) {
        each!(&self.side, poster => poster.sizes())
    }

    pub(crate) fn context(&self) -> &Context {
        self.pd.context()
    }

    fn handle(&self) -> SrqHandle {
        each!(&self.side, poster => poster.srq().handle())
    }

    pub(crate) fn mlx5(&self) -> &mlx5_srq::Srq {
        self.side.mlx5().srq()
    }

    pub(crate) fn rxe(&self) -> &Arc<rxe::srq::SrqCore> {
        self.side.rxe().srq()
    }

    /// Arms the SRQ limit: one event when fewer than `limit` receives are left.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&self, limit: u32) -> Result<(), VerbsError> {
        self.pd
            .context()
            .uverbs()
            .modify_srq(self.handle(), None, Some(limit), Driver::none())
            .map_err(VerbsError::kernel("set the limit of a shared receive queue"))
    }

    /// Queries the attributes from the device.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn query(&self) -> Result<QuerySrqResp, VerbsError> {
        self.pd
            .context()
            .uverbs()
            .query_srq(self.handle())
            .map_err(VerbsError::kernel("query a shared receive queue"))
    }

    /// Starts a batch of receives.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn receives(&mut self) -> Receives<'_> {
        match &mut self.side {
            Side::Mlx5(poster) => Receives::new(List::Mlx5Shared(poster.receives()), &mut self.attached),
            Side::Rxe(poster) => Receives::new(List::Rxe(poster.receives()), &mut self.attached),
        }
    }
}
