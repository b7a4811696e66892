//! What makes the objects of an Ethernet port: the two back ends behind one face.
//!
//! ```text
//!   CqSpec RqSpec SqSpec        what to make, in the device's terms
//!        │
//!   Backend ── eth::verbs   the kernel's objects: CQ, WQ, indirection table, hash QP, flow
//!           └─ eth::devx    the firmware's: CQ, RQ, SQ, TIS, RQT, TIR, flow matcher and flow
//!        │
//!   Object                      a handle that destroys what it names, then lets go what that stood on
//! ```

use std::fmt;

use pollux_eal::region::Zone;
use pollux_mlx5_abi::cqe::MiniFormat;
use pollux_mlx5_abi::kernel::queue_pair::HASH_KEY_BYTES;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::dbrec::DoorbellRecord;
use pollux_mlx5_common::object::{NumberedObject, Object};
use pollux_mlx5_common::uar::Uar;
use pollux_uverbs::flow::FlowSpec;

/// What completion queue to make.
#[derive(Debug)]
pub struct CqSpec<'a> {
    /// Its ring, [fresh](pollux_mlx5_common::cq::CqParts::freshen).
    pub ring: &'a Zone,
    /// Entries, as a power of two.
    pub entries_log2: u8,
    /// 64 or 128.
    pub cqe_bytes: usize,
    /// Its record.
    pub record: &'a DoorbellRecord,
    /// The page at which it is armed; `None` where the kernel has one for all.
    pub uar: Option<&'a Uar>,
    /// Whether, and how, the device may compress completions.
    pub compressed: Option<MiniFormat>,
    /// In the enhanced layout.
    pub enhanced: bool,
    /// Which completion vector (interrupt) it uses, and where it tells.
    pub channel: Option<&'a pollux_uverbs::event::CompChannel>,
    /// What its events carry.
    pub user_handle: u64,
}

/// What receive queue to make.
#[derive(Debug)]
pub struct RqSpec<'a> {
    /// Its ring.
    pub ring: &'a Zone,
    /// Entries, as a power of two.
    pub wqes_log2: u8,
    /// Bytes of an entry, as a power of two.
    pub wqe_bytes_log2: u8,
    /// Its record.
    pub record: &'a DoorbellRecord,
    /// Where it completes.
    pub cq: &'a NumberedObject,
    /// Strides of an entry and bytes of a stride, as powers of two, and whether two bytes stay free before each packet.
    pub striding: Option<(u8, u8, bool)>,
    /// Takes VLAN tags out.
    pub vlan_strip: bool,
    /// Leaves the frame check sequence in.
    pub keep_crc: bool,
    /// Waits with dropping when there is no buffer.
    pub delay_drop: bool,
    /// Fills cache lines when it writes.
    pub padding: bool,
    /// What its completions and events call it.
    pub user_index: u32,
}

/// What send queue to make.
#[derive(Debug)]
pub struct SqSpec<'a> {
    /// Its ring.
    pub ring: &'a Zone,
    /// Blocks of 64 bytes, as a power of two.
    pub wqebbs_log2: u8,
    /// Its record.
    pub record: &'a DoorbellRecord,
    /// Where it completes.
    pub cq: &'a NumberedObject,
    /// Its doorbell page; `None` where the kernel chooses.
    pub uar: Option<&'a Uar>,
    /// Packets an entry: enhanced multi-packet write.
    pub multi_packet: bool,
    /// Longest packet to be cut into segments.
    pub tso_bytes_max: u32,
    /// Its entries may say where headers are. Those of the kernel's queues always may, where the device can.
    pub software_parsing: bool,
    /// What its completions and events call it.
    pub user_index: u32,
}

/// A send queue that was made.
#[derive(Clone, Debug)]
pub struct SendQueue {
    /// The object.
    pub object: Object,
    /// The number that its entries carry.
    pub number: u32,
    /// What the last dword of its entries' control segments carries.
    pub control_imm: u32,
    /// The BlueFlame register that the kernel chose, of the static kind.
    pub register: u32,
}

/// The states of a queue, as far as this driver goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Nothing runs, and the ring begins anew.
    Reset,
    /// Work is done.
    Ready,
    /// What is posted is flushed with an error.
    Error,
}

/// Which packets a hash queue hashes, and by what. Packets of another kind go to the table's first queue. Only one of IPv4 and IPv6 and one of TCP and
/// UDP may be there. A mask of [`hash_field`](pollux_mlx5_abi::kernel::queue_pair::hash_field); 0: no hash, and the table
/// has one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSpec {
    /// The fields.
    pub fields: u64,
    /// The key of Toeplitz.
    pub key: [u8; HASH_KEY_BYTES],
    /// How TCP segments are joined, if they are: only where [`Backend::lro`] says that they can be.
    pub merge: Option<MergeSpec>,
}

/// How TCP segments are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeSpec {
    /// How long the device waits for more, in microseconds.
    pub timeout_us: u32,
    /// The longest packet that it makes, in bytes.
    pub bytes_max: usize,
}

/// What the device can do of joining TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LroCaps {
    /// How long it can wait for more, in microseconds.
    pub periods_us: [u32; 4],
    /// The longest packet is counted from the TCP header on, and not from the Ethernet header.
    pub from_l4: bool,
}

/// What happens to packets that a rule matches.
#[derive(Clone, Debug)]
pub enum FlowAction {
    /// They go to a hash queue.
    Queue(Object),
    /// They are dropped.
    Drop,
    /// They go to the kernel, as if the program had no rule. Source: rdma-core `providers/mlx5/man/mlx5dv_create_flow.3.md`,
    /// `MLX5DV_FLOW_ACTION_DEFAULT_MISS`; Linux `drivers/infiniband/hw/mlx5/fs.c` leads them past all rules of programs.
    Kernel,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct FlowRule<'a> {
    /// What it matches: the header kinds of [`FlowSpec`], outermost first; none match everything.
    pub items: &'a [FlowSpec],
    /// 0 is looked at first.
    pub priority: u16,
    /// What happens.
    pub action: FlowAction,
    /// What completions carry, already a tag (see [`flow_tag`](crate::eth::parts::flow_tag)).
    pub tag: Option<u32>,
    /// What counts them.
    pub counter: Option<&'a FlowCounter>,
}

/// A counter of flow rules.
#[derive(Clone, Debug)]
pub struct FlowCounter {
    /// The object.
    pub object: Object,
    /// Its number, where the firmware made it.
    pub number: u32,
}

/// Makes objects.
#[expect(
    clippy::missing_errors_doc,
    reason = "every method fails alike: what the kernel or the firmware says"
)]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Which it is: `verbs`, `devx`.
    fn name(&self) -> &'static str;

    /// Whether completion queues without a channel can have this form of short completions: one that the kernel does not
    /// tell of.
    fn has_mini_format(&self, format: MiniFormat) -> bool {
        let _ = format;
        false
    }

    /// Whether completion queues without a channel can have the enhanced layout of compressed completions.
    fn has_enhanced_layout(&self) -> bool {
        false
    }

    /// Whether send entries can have the device insert VLAN tags; where nobody tells, they cannot.
    fn inserts_tags(&self) -> bool {
        false
    }

    /// Whether completions of receive queues are stamped with ticks of the device's clock, and not with the time of day.
    fn stamps_ticks(&self) -> bool {
        true
    }

    /// What the device can do of joining TCP segments; `None`: nothing, or not with these objects.
    fn lro(&self) -> Option<LroCaps> {
        None
    }

    /// Makes a completion queue.
    fn create_cq(&self, spec: &CqSpec<'_>) -> Result<NumberedObject, MlxError>;

    /// Makes a receive queue, in state [`QueueState::Reset`].
    fn create_rq(&self, spec: &RqSpec<'_>) -> Result<NumberedObject, MlxError>;

    /// Takes a receive queue from a state to another.
    fn modify_rq(&self, rq: &NumberedObject, from: QueueState, to: QueueState) -> Result<(), MlxError>;

    /// Asks in which state a receive queue is: one may have failed by itself. `None`: nobody tells, and nothing changes.
    fn rq_state(&self, rq: &NumberedObject) -> Result<Option<QueueState>, MlxError> {
        let _ = rq;
        Ok(None)
    }

    /// Turns taking VLAN tags out on or off, in a state that the queue keeps.
    fn set_vlan_strip(&self, rq: &NumberedObject, state: QueueState, on: bool) -> Result<(), MlxError>;

    /// Makes a send queue, in state [`QueueState::Reset`].
    fn create_sq(&self, spec: &SqSpec<'_>) -> Result<SendQueue, MlxError>;

    /// Takes a send queue from a state to another.
    fn modify_sq(&self, sq: &SendQueue, from: QueueState, to: QueueState) -> Result<(), MlxError>;

    /// Asks in which state a send queue is: one may have failed by itself. `None`: the kernel knows from now on, and does not
    /// tell.
    fn sq_state(&self, sq: &SendQueue) -> Result<Option<QueueState>, MlxError>;

    /// Makes a table of receive queues, a power of two of them.
    fn create_table(&self, queues: &[&NumberedObject]) -> Result<NumberedObject, MlxError>;

    /// Makes a hash queue over a table of `1 << table_log2` queues.
    fn create_hash(
        &self,
        spec: &HashSpec,
        table: &NumberedObject,
        table_log2: u8,
    ) -> Result<NumberedObject, MlxError>;

    /// Makes a counter of flow rules.
    fn create_counter(&self) -> Result<FlowCounter, MlxError>;

    /// Reads a counter: packets and bytes.
    fn read_counter(&self, counter: &FlowCounter) -> Result<(u64, u64), MlxError>;

    /// Packets for which its receive queues had no buffer, in 32 bits that wrap; `None` where the kernel counts them.
    fn out_of_buffer(&self) -> Result<Option<u64>, MlxError> {
        Ok(None)
    }

    /// Makes a flow rule.
    fn create_flow(&self, rule: &FlowRule<'_>) -> Result<Object, MlxError>;
}
