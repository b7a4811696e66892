//! Receive work queues, and packets spread over several of them by hash.

use std::sync::Arc;

use crate::provider::mlx5::wq as mlx5_wq;
use pollux_uverbs::abi::flags::WqFlags;

use crate::batch::{List, Receives};
use crate::cq::{COMPLETION_QUEUE, Cq};
use crate::flow::{Rule, RuleId, Rules};
use crate::mr::Attached;
use crate::pd::Pd;
use crate::provider::QueueBase;
use crate::provider::Side;
use crate::view::{Errors, Listed, Meter, RqRecord};
use crate::{Context, HashFields, VerbsError, WqState};

/// What receive work queue to make.
#[derive(Clone, Copy, Debug)]
pub struct WqOptions {
    /// Receives that it shall have room for.
    pub receives: u32,
    /// Pieces of memory of one.
    pub pieces: u32,
    /// The device takes VLAN tags out; completions [have them](crate::Wc::vlan).
    pub vlan_strip: bool,
    /// The device leaves the frame check sequence in.
    pub scatter_fcs: bool,
}

impl WqOptions {
    /// With room for so many receives of one piece.
    #[must_use]
    pub fn new(receives: u32) -> Self {
        Self { receives, pieces: 1, vlan_strip: false, scatter_fcs: false }
    }
}

/// A receive work queue: a ring of receives without a queue pair of its own. It belongs to whoever posts; the device's is
/// destroyed after the last table that it is in, and what is still posted goes home then.
#[derive(Debug)]
pub struct Wq {
    record: Listed<RqRecord>,
    side: mlx5_wq::Wq,
    attached: Attached,
    id: u64,
    context: Context,
}

fn only_mlx5(what: &'static str) -> VerbsError {
    VerbsError::Unsupported { what, why: "rxe has none; mlx5 has".into() }
}

impl Wq {
    /// A receive work queue, in state RESET.
    ///
    /// # Errors
    /// Sizes that the device does not have, a provider without them, a completion queue of another context
    /// ([`VerbsError::Foreign`]), or what the kernel says: `EOPNOTSUPP` for an option that the device lacks.
    #[doc(alias = "ibv_create_wq")]
    pub fn new(pd: &Pd, cq: &Cq, options: &WqOptions) -> Result<Self, VerbsError> {
        let Side::Mlx5(hca) = pd.context().driver() else {
            return Err(only_mlx5("receive work queue"));
        };
        pd.context().admit(COMPLETION_QUEUE, cq.context())?;
        let id = pd.context().object_number();
        let attached = Attached::new(pd.context());
        let mut flags = WqFlags::empty();
        flags.set(WqFlags::CVLAN_STRIPPING, options.vlan_strip);
        flags.set(WqFlags::SCATTER_FCS, options.scatter_fcs);
        let errors = Arc::<Errors>::default();
        let kept = attached.keeper(Some(pd));
        let base = QueueBase { keys: pd.keys(), user_handle: id, kept, errors: Arc::clone(&errors) };
        let side = mlx5_wq::Wq::create(
            hca,
            mlx5_wq::WqSpec {
                pd: pd.handle(),
                cq: cq.mlx5(),
                receives: options.receives,
                pieces: options.pieces,
                flags,
                base,
            },
        )?;
        let (depth, pieces) = side.sizes();
        let ring = Meter::new(side.gauge());
        let record = RqRecord { number: side.number(), depth, pieces, ring, errors };
        let record = pd.context().registry().wqs.add(record);
        Ok(Self { record, side, attached, id, context: pd.context().clone() })
    }

    /// What events call it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its number: what its completions have for a queue pair's.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.side.number()
    }

    /// Receives that it has room for, and pieces of one.
    #[must_use]
    pub fn sizes(&self) -> (u32, u32) {
        self.side.sizes()
    }

    /// Takes it to another state: RESET to RDY, where it receives; ERR; and RESET again, where nothing is posted any more: what
    /// was goes home once the completion queue was polled.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a state that does not follow.
    pub fn modify(&mut self, state: WqState) -> Result<(), VerbsError> {
        self.side.go(state)?;
        if state == WqState::RESET {
            self.record.ring.was_reset(self.side.gauge(), None);
        }
        Ok(())
    }

    /// Begins a list of receives.
    #[inline(always)]
    pub fn receives(&mut self) -> Receives<'_> {
        Receives::new(List::Mlx5(self.side.receives()), &mut self.attached)
    }
}

/// A table of receive work queues, over which packets are spread. It keeps them; clones are handles.
#[derive(Clone, Debug)]
pub struct WqTable {
    side: mlx5_wq::WqTable,
    pd: Pd,
}

impl WqTable {
    /// A table with a place for each of these. The low bits of a packet's hash choose the place; one queue may have several.
    ///
    /// # Errors
    /// No power of two of them, one of another context ([`VerbsError::Foreign`]), a provider without them, or what the kernel says.
    pub fn new(pd: &Pd, queues: &[&Wq]) -> Result<Self, VerbsError> {
        let Side::Mlx5(hca) = pd.context().driver() else {
            return Err(only_mlx5("receive work queue indirection table"));
        };
        queues.iter().try_for_each(|queue| pd.context().admit("a receive work queue", &queue.context))?;
        let sides: Vec<_> = queues.iter().map(|queue| &queue.side).collect();
        Ok(Self { side: mlx5_wq::WqTable::create(hca, &sides)?, pd: pd.clone() })
    }
}

/// A queue pair that spreads the frames which rules give it over a table of receive work queues (receive-side scaling). It neither
/// sends nor has a state.
#[derive(Debug)]
pub struct HashQp {
    /// First, so that they are gone when the queue pair goes.
    rules: Rules,
    side: mlx5_wq::HashQp,
    /// The domain too.
    _table: WqTable,
}

impl HashQp {
    /// Spreads by the Toeplitz hash of these fields with this key. With no fields, all goes to the first place of the table.
    /// The two directions of a flow have one hash where the key makes it so; kernels before 5.3 ask for a symmetric hash
    /// whatever the key (Linux `drivers/infiniband/hw/mlx5/qp.c`, `create_rss_raw_qp_tir`).
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for IPv4 together with IPv6 or TCP with UDP (make a queue pair for each over one table),
    /// `EOPNOTSUPP` for fields that the device does not hash ([`FrameLimits::hash_fields`](crate::FrameLimits::hash_fields)),
    /// `EPERM` without CAP_NET_RAW.
    pub fn new(table: &WqTable, fields: HashFields, key: &[u8; 40]) -> Result<Self, VerbsError> {
        let context = table.pd.context();
        let Side::Mlx5(hca) = context.driver() else {
            return Err(only_mlx5("RSS queue pair"));
        };
        let id = context.object_number();
        let side = mlx5_wq::HashQp::create(hca, table.pd.handle(), &table.side, fields, key, id)?;
        Ok(Self { rules: Rules::new(context), side, _table: table.clone() })
    }

    /// Gives it the frames that match a rule. The rule goes with the queue pair, or before.
    ///
    /// # Errors
    /// As [`Qp::steer`](crate::Qp::steer).
    pub fn steer(&mut self, rule: &Rule<'_>) -> Result<RuleId, VerbsError> {
        self.rules.add(self.side.handle(), rule)
    }

    /// Takes a rule back: what matched goes where it went before.
    ///
    /// # Errors
    /// It is none of this queue pair's, or what the kernel says.
    pub fn unsteer(&mut self, rule: RuleId) -> Result<(), VerbsError> {
        self.rules.remove(rule)
    }
}
