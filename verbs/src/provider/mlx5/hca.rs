//! An open device and the names that its queues have in completions.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_abi::kernel::context::{self, PdAnswer};
use pollux_mlx5_abi::kernel::device::DeviceAnswer;
use pollux_uverbs::abi::flags::QpType;
use pollux_uverbs::{Context, Driver, PdHandle};
use zerocopy::{FromZeros, IntoBytes};

use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Device;
use pollux_mlx5_common::uar::Uars;

/// An open device, for RDMA.
#[derive(Clone, Debug)]
pub(crate) struct Hca {
    pub(crate) device: Arc<Device>,
    pub(crate) uars: Arc<Uars>,
    indices: Arc<Mutex<Indices>>,
}

/// What queues of Ethernet can do: segmentation, hashing, pacing. Kinds of queue pairs are bits by their number in verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameLimits {
    /// Longest packet that is cut into segments, in bytes.
    pub max_tso: u32,
    /// For which kinds of queue pairs.
    pub tso_kinds: u32,
    /// Hash functions, by bit.
    pub hash_functions: u8,
    /// Fields that can be hashed, by bit.
    pub hash_fields: u64,
    /// Slowest rate that a queue can be held to, in kbit/s.
    pub rate_min: u32,
    /// Fastest, in kbit/s; 0: none.
    pub rate_max: u32,
    /// For which kinds of queue pairs.
    pub rate_kinds: u32,
}

#[derive(Debug, Default)]
struct Indices {
    /// Given back.
    free: Vec<u32>,
    /// Never given out.
    next: u32,
}

/// What completions call a queue. It can be given out again when the last completion queue that may still hold one of its
/// completions has gone past them.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) value: u32,
    indices: Arc<Mutex<Indices>>,
}

impl Drop for Index {
    fn drop(&mut self) {
        self.indices.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.value);
    }
}

impl FrameLimits {
    /// Whether the device holds RAW_PACKET queue pairs to rates, from [`rate_min`](Self::rate_min) to [`rate_max`](Self::rate_max).
    #[must_use]
    pub fn limits_rates(&self) -> bool {
        self.rate_max > 0 && self.rate_kinds >> QpType::RAW_PACKET.0 & 1 == 1
    }
}

impl Hca {
    /// Over an open device, with at most so many doorbell pages.
    #[must_use]
    pub(crate) fn new(device: Arc<Device>, pages: Option<NonZeroUsize>) -> Self {
        let uars = Arc::new(Uars::new(&device).limited(pages));
        Self { device, uars, indices: Arc::default() }
    }

    /// The device.
    #[must_use]
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The kernel's side of it.
    pub(crate) fn context(&self) -> &Context {
        self.device.context()
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn alloc_pd(&self) -> Result<PdHandle, MlxError> {
        let mut answer = PdAnswer::new_zeroed();
        self.device
            .context()
            .alloc_pd(Driver::new(&[], answer.as_mut_bytes()))
            .map_err(|error| self.device.failed("allocate a protection domain", error))
    }

    /// The key of reads and writes that lead nowhere, where the device has one. Source: rdma-core
    /// `providers/mlx5/verbs.c`, `mlx5_alloc_null_mr`.
    #[must_use]
    pub(crate) fn null_key(&self) -> Option<u32> {
        let answer = &self.device.answer;
        (answer.comp_mask & context::answer::DUMP_FILL_MKEY != 0).then_some(answer.dump_fill_mkey)
    }

    /// Whether two devices agree on options of a connection. Source: rdma-core `providers/mlx5/mlx5.c`,
    /// `MLX5_CTX_FLAGS_ECE_SUPPORTED`.
    #[must_use]
    pub(crate) fn has_ece(&self) -> bool {
        self.device.answer.comp_mask & context::answer::ECE != 0
    }

    /// What the vendor's part of the kernel's answer says of Ethernet queues.
    #[must_use]
    pub(crate) fn frame_limits(&self) -> FrameLimits {
        let DeviceAnswer { tso_caps, rss_caps, packet_pacing_caps, .. } = self.device.mlx5;
        FrameLimits {
            max_tso: tso_caps.max_tso,
            tso_kinds: tso_caps.supported_qpts,
            hash_functions: rss_caps.rx_hash_function,
            hash_fields: rss_caps.rx_hash_fields_mask,
            rate_min: packet_pacing_caps.qp_rate_limit_min,
            rate_max: packet_pacing_caps.qp_rate_limit_max,
            rate_kinds: packet_pacing_caps.supported_qpts,
        }
    }

    /// Whether completions call queues by index, and not by number.
    pub(crate) fn indexed(&self) -> bool {
        self.device.answer.cqe_version != 0
    }

    pub(crate) fn index(&self) -> Index {
        let mut indices = self.indices.lock().unwrap_or_else(PoisonError::into_inner);
        let value = indices.free.pop().unwrap_or_else(|| {
            indices.next += 1;
            indices.next - 1
        });
        Index { value, indices: Arc::clone(&self.indices) }
    }
}
