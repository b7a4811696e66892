//! Receive work queues, the tables that packets are spread over, and the queue pairs that spread them: raw frames for several
//! queues, each polled by another lcore.
//!
//! ```text
//!   flow rule ─► HashQp: Toeplitz over the chosen fields ─► WqTable: 1 << n places ─► Wq, a ring of receives each
//! ```
//!
//! A queue pair keeps its table, a table its queues: whatever is dropped first, the device's objects go children first, and the
//! memory of a queue goes after it.
//!
//! Source: rdma-core `providers/mlx5/verbs.c`, `mlx5_create_wq`, `create_rss_qp`; Linux `drivers/infiniband/hw/mlx5/qp.c`,
//! `mlx5_ib_create_wq`, `create_rss_raw_qp_tir`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_eal::region::PAGE_BYTES;
use pollux_mlx5_abi::kernel::queue_pair::{CreateQpAnswer, CreateRssQp, hash_field, hash_function};
use pollux_mlx5_abi::kernel::work_queue::{CreateRwqTableAnswer, CreateWq, CreateWqAnswer, ModifyWq};
use pollux_mlx5_abi::wqe::SEGMENT_BYTES;
use pollux_uverbs::abi::flags::{QpType, WqFlags, WqState};
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::wq::{LOG_IND_TABLE_MAX, WqChange, WqRequest};
use pollux_uverbs::{Driver, PdHandle, QpHandle, WqHandle};
use zerocopy::{FromZeros, IntoBytes};

use super::hca::{Hca, Index};
use super::left::{Left, Parts};
use super::poll::Poller;
use super::poll::home::{Home, Message};
use super::poll::target::{Receiver, Target, serial};
use super::post::track::{Consumer, Producer, track};
use super::post::{ReceiveRing, Receives};
use super::qp::{log2, receive_ring};
use crate::mr::Piece;
use crate::provider::QueueBase;
use crate::view::{Errors, Gauge};
use pollux_mlx5_abi::kernel::queue_pair::HASH_KEY_BYTES;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Pinning;
use pollux_mlx5_common::dbrec::FIRST;
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::object::{Id, Object};

bitflags::bitflags! {
    /// What is hashed to spread packets. The kernel takes no IPv4 with IPv6, and no TCP with UDP, in one queue pair. Source:
    /// rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_rx_hash_fields`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HashFields: u64 {
        /// Source address of IPv4.
        const SRC_IPV4 = hash_field::SRC_IPV4;
        /// Destination address of IPv4.
        const DST_IPV4 = hash_field::DST_IPV4;
        /// Source address of IPv6.
        const SRC_IPV6 = hash_field::SRC_IPV6;
        /// Destination address of IPv6.
        const DST_IPV6 = hash_field::DST_IPV6;
        /// Source port of TCP.
        const SRC_PORT_TCP = hash_field::SRC_PORT_TCP;
        /// Destination port of TCP.
        const DST_PORT_TCP = hash_field::DST_PORT_TCP;
        /// Source port of UDP.
        const SRC_PORT_UDP = hash_field::SRC_PORT_UDP;
        /// Destination port of UDP.
        const DST_PORT_UDP = hash_field::DST_PORT_UDP;
        /// Index of an IPsec association.
        const IPSEC_SPI = hash_field::IPSEC_SPI;
        /// The headers inside a tunnel.
        const INNER = hash_field::INNER;
    }
}

/// What receive work queue to make.
pub(crate) struct WqSpec<'a> {
    /// Protection domain.
    pub pd: PdHandle,
    /// Where it completes.
    pub cq: &'a Poller,
    /// Receives that it has room for.
    pub receives: u32,
    /// Pieces of a receive.
    pub pieces: u32,
    /// What the device does with each frame.
    pub flags: WqFlags,
    /// What every queue is made with.
    pub base: QueueBase,
}

/// What of a queue stays until the last table is gone.
#[derive(Debug)]
struct Core {
    object: Object,
    number: u32,
    index: Arc<Index>,
    home: Arc<Home>,
    /// As whom the completion queue knows it.
    serial: AtomicU64,
    errors: Arc<Errors>,
    /// What the half that posts left behind.
    left: Left<Producer<Piece>, ReceiveRing>,
}

impl Core {
    fn handle(&self) -> WqHandle {
        match self.object.id() {
            Id::Wq(handle) => handle,
            other => unreachable!("{other:?} is no work queue"),
        }
    }

    /// Tells the completion queue of it.
    fn enrol(&self, consumer: Consumer<Piece>) {
        let serial = serial();
        self.serial.store(serial, Ordering::Relaxed);
        self.home.tell(Message::Came(Target {
            key: self.index.value,
            serial,
            number: self.number,
            send: None,
            recv: Receiver::Own(consumer),
            errors: Arc::clone(&self.errors),
            until: None,
            _index: Some(Arc::clone(&self.index)),
        }));
    }

    fn leave_home(&self) {
        self.home.tell_gone(self.serial.load(Ordering::Relaxed));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let destroyed = self.object.destroy_now();
        self.leave_home();
        self.left.release(destroyed, Producer::let_go);
        if !destroyed {
            // The device may still use the queue that it completes on.
            std::mem::forget(Arc::clone(&self.home));
        }
    }
}

/// A receive work queue: the half that posts. The device's is destroyed after the last table that it is in.
#[derive(Debug)]
pub(crate) struct Wq {
    core: Arc<Core>,
    /// Until it is left behind.
    parts: Option<Parts<Producer<Piece>, ReceiveRing>>,
    keys: Keys,
    receives: u32,
    pieces: u32,
}

/// A ring's track: an entry never has more tokens than pieces.
fn ring(receives: u32, pieces: u32) -> (Producer<Piece>, Consumer<Piece>) {
    track(log2(receives), log2(receives) + log2(pieces))
}

impl Wq {
    /// Makes a receive work queue, in state RESET.
    ///
    /// # Errors
    /// Sizes that the device does not have, no memory, or what the kernel says.
    pub(crate) fn create(hca: &Hca, spec: WqSpec<'_>) -> Result<Self, MlxError> {
        let device = &hca.device;
        let refuse = |problem| MlxError::Queue { queue: "receive work queue".into(), problem };
        if !hca.indexed() {
            return Err(refuse(
                "this device's completions (cqe_version 0) do not say of which queue they are; take raw queue pairs".into(),
            ));
        }
        let (receives, pieces) =
            receive_ring(&device.answer, spec.receives.max(1), spec.pieces).map_err(refuse)?;
        let bytes = (receives * pieces) as usize * SEGMENT_BYTES;
        let mut zone = device.zone("receive work queue", bytes.max(PAGE_BYTES))?;
        zone.clear();
        let record = device.record()?;
        let index = Arc::new(hca.index());
        let driver = CreateWq {
            buf_addr: zone.base().as_ptr().addr() as u64,
            db_addr: record.address(),
            rq_wqe_count: receives,
            rq_wqe_shift: u32::from(log2(pieces)) + 4,
            user_index: index.value,
            ..CreateWq::default()
        };
        let request = WqRequest {
            pd: spec.pd,
            cq: spec.cq.handle(),
            max_wr: receives,
            max_sge: pieces,
            flags: spec.flags,
            user_handle: spec.base.user_handle,
        };
        let bytes = zone.bytes() as u64;
        let mut answer = CreateWqAnswer::new_zeroed();
        let made = device.pinning("create a receive work queue", Pinning::Queue, bytes, |context| {
            context.create_wq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        })?;
        let object = Object::pinning(device, Id::Wq(made.handle), Vec::new(), bytes);
        let (producer, consumer) = ring(receives, pieces);
        let core = Core {
            object,
            number: made.wqn,
            index,
            home: Arc::clone(spec.cq.home()),
            serial: AtomicU64::new(0),
            errors: spec.base.errors,
            left: Left::default(),
        };
        core.enrol(consumer);
        let memory = ReceiveRing::new(zone, log2(receives), pieces);
        let parts = Some(Parts { producer, memory, record, _kept: spec.base.kept });
        Ok(Self { core: Arc::new(core), parts, keys: spec.base.keys, receives, pieces })
    }

    /// Its number, which its completions carry.
    #[must_use]
    pub(crate) fn number(&self) -> u32 {
        self.core.number
    }

    /// Receives that it has room for, and pieces of one.
    #[must_use]
    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.receives, self.pieces)
    }

    /// What is posted, for other threads; of another ring after a reset.
    pub(crate) fn gauge(&self) -> Option<Arc<dyn Gauge>> {
        self.parts.as_ref().map(|parts| parts.producer.gauge())
    }

    fn parts(&mut self) -> &mut Parts<Producer<Piece>, ReceiveRing> {
        match &mut self.parts {
            Some(parts) => parts,
            None => unreachable!("they are there until the queue is dropped"),
        }
    }

    /// Takes it to another state: RESET to RDY, from there to ERR, and back to RESET, where nothing is posted any more. What was
    /// goes home once the completion queue has been polled.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a state that does not follow.
    pub(crate) fn go(&mut self, to: WqState) -> Result<(), MlxError> {
        let change = WqChange { state: Some(to), ..WqChange::default() };
        let device = self.core.object.device();
        device
            .context()
            .modify_wq(self.core.handle(), &change, Driver::new(ModifyWq::default().as_bytes(), &mut []))
            .map_err(|error| device.failed("modify a receive work queue", error))?;
        if to == WqState::RESET {
            self.core.leave_home();
            let (producer, consumer) = ring(self.receives, self.pieces);
            let parts = self.parts();
            parts.producer.let_go();
            parts.producer = producer;
            parts.record.store(FIRST, 0);
            self.core.enrol(consumer);
        }
        Ok(())
    }
}

impl Wq {
    /// Begins a list of receives.
    #[inline(always)]
    pub(crate) fn receives(&mut self) -> Receives<'_> {
        self.keys.follow();
        let Self { parts, keys, .. } = self;
        let Some(Parts { producer, memory, record, .. }) = parts else {
            unreachable!("they are there until the queue is dropped")
        };
        Receives::begin(producer, keys, record, memory)
    }
}

impl Drop for Wq {
    fn drop(&mut self) {
        self.core.left.leave(self.parts.take());
    }
}

/// A table of receive work queues, over which packets are spread. Clones are handles.
#[derive(Debug)]
pub(crate) struct WqTable(Arc<Table>);

impl Clone for WqTable {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Table {
    /// Destroyed before the queues are.
    object: Object,
    _queues: Vec<Arc<Core>>,
}

impl WqTable {
    /// Makes a table with a place for each of these; one queue may have several places.
    ///
    /// # Errors
    /// No power of two of them, or more than the kernel takes; or what the kernel says.
    pub(crate) fn create(hca: &Hca, queues: &[&Wq]) -> Result<Self, MlxError> {
        let most = 1_usize << LOG_IND_TABLE_MAX;
        if !queues.len().is_power_of_two() || queues.len() > most {
            return Err(MlxError::Queue {
                queue: "receive work queue indirection table".into(),
                problem: format!("{} places; a power of two up to {most} is allowed", queues.len()),
            });
        }
        let device = &hca.device;
        let handles: Vec<WqHandle> = queues.iter().map(|queue| queue.core.handle()).collect();
        let mut answer = CreateRwqTableAnswer::new_zeroed();
        let made = device
            .context()
            .create_rwq_ind_table(&handles, Driver::new(&[], answer.as_mut_bytes()))
            .map_err(|error| device.failed("create a receive work queue indirection table", error))?;
        let object = Object::new(device, Id::Table(made.handle));
        let queues = queues.iter().map(|queue| Arc::clone(&queue.core)).collect();
        Ok(Self(Arc::new(Table { object, _queues: queues })))
    }
}

/// A queue pair that neither sends nor has a ring: rules give it frames, and it spreads them over a table.
#[derive(Debug)]
pub(crate) struct HashQp {
    /// Destroyed before the table is.
    object: Object,
    _table: WqTable,
}

impl HashQp {
    /// Makes one that hashes these fields by Toeplitz with this key. With no fields every packet goes to the first place.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for fields of two kinds (IPv4 with IPv6, TCP with UDP), `EOPNOTSUPP` for fields that the
    /// device does not hash, `EPERM` without CAP_NET_RAW.
    pub(crate) fn create(
        hca: &Hca,
        pd: PdHandle,
        table: &WqTable,
        fields: HashFields,
        key: &[u8; HASH_KEY_BYTES],
        user_handle: u64,
    ) -> Result<Self, MlxError> {
        let device = &hca.device;
        let Id::Table(handle) = table.0.object.id() else {
            unreachable!("{:?} is no table of the kernel", table.0.object.id())
        };
        let mut driver = CreateRssQp::new_zeroed();
        driver.rx_hash_fields_mask = fields.bits();
        driver.rx_hash_function = hash_function::TOEPLITZ;
        driver.rx_key_len = HASH_KEY_BYTES as u8;
        driver.rx_hash_key[..HASH_KEY_BYTES].copy_from_slice(key);
        let request = QpRequest {
            ind_table: Some(handle),
            user_handle,
            ..QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(pd))
        };
        let mut answer = CreateQpAnswer::new_zeroed();
        let made = device
            .context()
            .create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
            .map_err(|error| device.failed("create an RSS queue pair", error))?;
        Ok(Self { object: Object::new(device, Id::Qp(made.handle)), _table: table.clone() })
    }

    /// The kernel's handle, which rules name.
    #[must_use]
    pub(crate) fn handle(&self) -> QpHandle {
        match self.object.id() {
            Id::Qp(handle) => handle,
            other => unreachable!("{other:?} is no queue pair"),
        }
    }
}
