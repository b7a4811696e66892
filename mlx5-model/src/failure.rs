//! Why work failed: what its completion says.

use pollux_mlx5_abi::syndrome::Syndrome;

use crate::memory_keys::{KeyError, Refusal};

/// The syndrome of an entry that failed. Its code is the device's; its vendor's byte is the model's own number, one for each
/// reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Syndrome);

impl Failure {
    pub(crate) const fn new(code: u8, vendor: u8) -> Self {
        Self(Syndrome { code, vendor })
    }
    /// The entry's head is wrong: index, queue or length.
    pub(crate) const ENTRY: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x61);
    /// An opcode that the queue cannot work on.
    pub(crate) const OPCODE: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x62);
    /// Segments that make no sense.
    pub(crate) const SEGMENTS: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x63);
    /// Less header inline than the device needs.
    pub(crate) const TOO_LITTLE_INLINE: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x64);
    /// A frame that cannot be cut up.
    pub(crate) const CUT: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x65);
    /// A doorbell that names another entry.
    pub(crate) const DOORBELL: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x66);
    /// The device has no address at that index, or none of the peer's kind.
    pub(crate) const ADDRESS: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x67);
    /// Something is asked for inside a tunnel, and nobody knows where that is.
    pub(crate) const NOT_FOUND: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x68);
    /// Headers are not where the entry says that they are, or it may not say so.
    pub(crate) const TOLD: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x69);
    /// A frame of a queue that has no TIS.
    pub(crate) const NO_TIS: Self = Self::new(Syndrome::LOCAL_QP_OP_ERR, 0x6a);
    /// Too long or too short.
    pub(crate) const LENGTH: Self = Self::new(Syndrome::LOCAL_LENGTH_ERR, 0x71);
    /// The ring's own memory is not there.
    pub(crate) const ACCESS: Self = Self::new(Syndrome::LOCAL_PROT_ERR, 0x50);
    /// A page is not there.
    pub(crate) const ABSENT: Self = Self::new(Syndrome::LOCAL_PROT_ERR, 0x56);
    /// A key that cannot be bound or changed as asked.
    pub(crate) const BIND: Self = Self::new(Syndrome::MW_BIND_ERR, 0x81);
    /// An answer that does not fit the request.
    pub(crate) const ANSWER: Self = Self::new(Syndrome::BAD_RESP_ERR, 0x82);
    pub(crate) const RETRIES: Self = Self::new(Syndrome::TRANSPORT_RETRY_EXC_ERR, 0x81);
    pub(crate) const NOT_READY: Self = Self::new(Syndrome::RNR_RETRY_EXC_ERR, 0x87);
    pub(crate) const REMOTE_INVALID: Self = Self::new(Syndrome::REMOTE_INVAL_REQ_ERR, 0x8a);
    pub(crate) const REMOTE_ACCESS: Self = Self::new(Syndrome::REMOTE_ACCESS_ERR, 0x88);
    pub(crate) const REMOTE_OPERATION: Self = Self::new(Syndrome::REMOTE_OP_ERR, 0x89);
    pub(crate) const FLUSHED: Self = Self::new(Syndrome::WR_FLUSH_ERR, 0xf9);
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::new(Syndrome::LOCAL_PROT_ERR, error.vendor())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Segments => Self::SEGMENTS,
            Refusal::Bind => Self::BIND,
            Refusal::Key(error) => error.into(),
        }
    }
}
