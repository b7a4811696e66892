//! Enhanced connection establishment (ECE): options of a connection that both ends' devices agree on, carried between them by
//! whoever connects them.
//!
//! Source: rdma-core `libibverbs/man/ibv_set_ece.3.md` and `ibv_query_ece.3.md`; `providers/mlx5/verbs.c`, `mlx5_set_ece` and
//! `mlx5_query_ece`; who tells whom and when: `librdmacm/cma.c`, `init_ece`, `set_local_ece` and `ucma_process_conn_resp_ece`.

use crate::provider::mlx5::ece;

use super::Qp;
use crate::VerbsError;
use crate::provider::Side;
use crate::provider::mlx5::hca::Hca;

/// Options of a connection, and whose they are.
///
/// Whoever connects two queue pairs tells each what the other has; what both have is in force once they are connected. Here
/// both ends are in one process, on two models of a card that repeats selectively:
///
/// ```
/// use pollux_mlx5_model::Model;
/// use pollux_mlx5_model::wire::Cable;
/// use pollux_verbs::{Access, Connection, Context, Cq, CqOptions, Options, Path, Pd, Provider, Qp, QpKind, QpOptions};
///
/// let (near, far) = Cable::pair();
/// let model = |name, end| Model::builder(name).plugged(end).traits(|card| card.selective_repeat = true).build();
/// let models = [model("near", near)?, model("far", far)?];
/// let ends = models.each_ref().map(|model| {
///     let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;
///     let pd = Pd::new(&context)?;
///     let cq = Cq::new(&context, CqOptions::new(16))?;
///     let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc))?;
///     qp.init(1, Access::empty())?;
///     Ok::<_, pollux_verbs::VerbsError>((qp, context.gid(1, 0)?.expect("a GID").gid))
/// });
/// let [near, far] = ends;
/// let ((mut near, near_gid), (mut far, far_gid)) = (near?, far?);
///
/// let (ours, theirs) = (near.query_ece()?, far.query_ece()?);
/// near.set_ece(theirs)?;
/// far.set_ece(ours)?;
/// let (near_qpn, far_qpn) = (near.qpn(), far.qpn());
/// near.connect(&Connection::new(Path::new(far_gid, 0), far_qpn))?;
/// far.connect(&Connection::new(Path::new(near_gid, 0), near_qpn))?;
///
/// assert_eq!(near.query_ece()?, far.query_ece()?);
/// assert!(near.query_ece()?.repeats_selectively());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ece {
    /// The vendor, by its PCI number.
    pub vendor: u32,
    /// The options, as the vendor means them.
    pub options: u32,
}

impl Ece {
    /// Options of mlx5 devices.
    #[must_use]
    pub const fn mlx5(options: u32) -> Self {
        Self { vendor: ece::VENDOR, options }
    }

    /// Of mlx5 devices: whether of lost packets those alone are sent again.
    #[must_use]
    pub const fn repeats_selectively(&self) -> bool {
        self.vendor == ece::VENDOR
            && ece::version(self.options) >= 2
            && self.options & ece::SELECTIVE_REPEAT != 0
    }
}

impl Qp {
    /// The options of its connection: at first what its device has, which is for the peer to know; behind a change of state
    /// that [`set_ece`](Self::set_ece) went before, what is in force. None (0) where the device or the kernel has nothing of
    /// this.
    ///
    /// # Errors
    /// A device of a kind that has nothing of this.
    pub fn query_ece(&self) -> Result<Ece, VerbsError> {
        self.side.if_mlx5().map(|qp| Ece::mlx5(qp.options())).ok_or_else(no_options)
    }

    /// Has the next change of state ask for what the peer has. What the device makes of it [is told](Self::query_ece) behind
    /// that change; until then nothing (0).
    ///
    /// # Errors
    /// Options of another vendor, or a device or a kernel that has nothing of this.
    #[doc(alias = "ibv_set_ece")]
    pub fn set_ece(&mut self, ece: Ece) -> Result<(), VerbsError> {
        let here = self.context().driver().if_mlx5().is_some_and(Hca::has_ece);
        let Side::Mlx5(qp) = &mut self.side else { return Err(no_options()) };
        if !here {
            return Err(no_options());
        }
        if ece.vendor != ece::VENDOR {
            return Err(VerbsError::Range {
                what: "connection options of vendor",
                value: ece.vendor.into(),
                allowed: format!("this device's vendor is {}; of another's, connect without", ece::VENDOR),
            });
        }
        qp.set_options(ece.options);
        Ok(())
    }
}

fn no_options() -> VerbsError {
    let why =
        "of the drivers mlx5 has them, for cards from ConnectX-6 Dx and Linux from 5.8 on; connect without";
    VerbsError::Unsupported { what: "connection options (ECE)", why: why.into() }
}
