//! Why work failed: the syndrome of an error completion.

use std::fmt;

/// The syndrome byte of an error completion, with the vendor's byte beside it.
///
/// Prints as `REMOTE_ACCESS_ERR (0x13), vendor 0x88: the peer's key does not cover or allow it`.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_CQE_SYNDROME_*`; what each means from the InfiniBand
/// Architecture Specification, volume 1, section 10.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Syndrome {
    /// The syndrome: one of the constants here, or another that the device knows.
    pub code: u8,
    /// The vendor's own code, which only the vendor can read.
    pub vendor: u8,
}

impl Syndrome {
    /// A message longer than the buffers, or shorter or longer than allowed.
    pub const LOCAL_LENGTH_ERR: u8 = 0x01;
    /// An entry that the queue cannot work on.
    pub const LOCAL_QP_OP_ERR: u8 = 0x02;
    /// A local key, address, length or right that does not fit.
    pub const LOCAL_PROT_ERR: u8 = 0x04;
    /// Flushed: the queue was in error before this entry's turn.
    pub const WR_FLUSH_ERR: u8 = 0x05;
    /// A memory window that could not be bound.
    pub const MW_BIND_ERR: u8 = 0x06;
    /// An answer that makes no sense.
    pub const BAD_RESP_ERR: u8 = 0x10;
    /// Local memory refused while an RDMA write with immediate data was received.
    pub const LOCAL_ACCESS_ERR: u8 = 0x11;
    /// A request that the peer could not make sense of.
    pub const REMOTE_INVAL_REQ_ERR: u8 = 0x12;
    /// A remote key, address, length or right that does not fit.
    pub const REMOTE_ACCESS_ERR: u8 = 0x13;
    /// The peer could not finish.
    pub const REMOTE_OP_ERR: u8 = 0x14;
    /// The peer did not answer.
    pub const TRANSPORT_RETRY_EXC_ERR: u8 = 0x15;
    /// The peer had no receive posted.
    pub const RNR_RETRY_EXC_ERR: u8 = 0x16;
    /// The peer gave up.
    pub const REMOTE_ABORTED_ERR: u8 = 0x22;

    /// Every code that has a name.
    pub const KNOWN: &[u8] = &[
        Self::LOCAL_LENGTH_ERR,
        Self::LOCAL_QP_OP_ERR,
        Self::LOCAL_PROT_ERR,
        Self::WR_FLUSH_ERR,
        Self::MW_BIND_ERR,
        Self::BAD_RESP_ERR,
        Self::LOCAL_ACCESS_ERR,
        Self::REMOTE_INVAL_REQ_ERR,
        Self::REMOTE_ACCESS_ERR,
        Self::REMOTE_OP_ERR,
        Self::TRANSPORT_RETRY_EXC_ERR,
        Self::RNR_RETRY_EXC_ERR,
        Self::REMOTE_ABORTED_ERR,
    ];

    /// The name in the C headers, without prefix.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self.text() {
            Some((name, _)) => Some(name),
            None => None,
        }
    }

    /// Whether the entry was only flushed, after another one had failed.
    #[must_use]
    pub const fn is_flush(self) -> bool {
        self.code == Self::WR_FLUSH_ERR
    }

    const fn text(self) -> Option<(&'static str, &'static str)> {
        Some(match self.code {
            Self::LOCAL_LENGTH_ERR => ("LOCAL_LENGTH_ERR", "message and buffers differ in length"),
            Self::LOCAL_QP_OP_ERR => ("LOCAL_QP_OP_ERR", "the queue cannot work on this entry"),
            Self::LOCAL_PROT_ERR => ("LOCAL_PROT_ERR", "the local key does not cover or allow it"),
            Self::WR_FLUSH_ERR => ("WR_FLUSH_ERR", "flushed, the queue was in error already"),
            Self::MW_BIND_ERR => ("MW_BIND_ERR", "the memory window could not be bound"),
            Self::BAD_RESP_ERR => ("BAD_RESP_ERR", "the peer's answer makes no sense"),
            Self::LOCAL_ACCESS_ERR => ("LOCAL_ACCESS_ERR", "local memory refused a received write"),
            Self::REMOTE_INVAL_REQ_ERR => ("REMOTE_INVAL_REQ_ERR", "the peer calls the request invalid"),
            Self::REMOTE_ACCESS_ERR => ("REMOTE_ACCESS_ERR", "the peer's key does not cover or allow it"),
            Self::REMOTE_OP_ERR => ("REMOTE_OP_ERR", "the peer could not finish"),
            Self::TRANSPORT_RETRY_EXC_ERR => ("TRANSPORT_RETRY_EXC_ERR", "the peer does not answer"),
            Self::RNR_RETRY_EXC_ERR => ("RNR_RETRY_EXC_ERR", "the peer has no receive posted"),
            Self::REMOTE_ABORTED_ERR => ("REMOTE_ABORTED_ERR", "the peer gave up"),
            _ => return None,
        })
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, vendor } = *self;
        match self.text() {
            Some((name, meaning)) => write!(out, "{name} ({code:#04x}), vendor {vendor:#04x}: {meaning}"),
            None => write!(out, "unknown syndrome {code:#04x}, vendor {vendor:#04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Syndrome;

    #[test]
    fn every_byte_prints_and_the_known_ones_by_name() {
        for code in 0..=u8::MAX {
            let syndrome = Syndrome { code, vendor: 0x88 };
            assert_eq!(syndrome.name().is_some(), Syndrome::KNOWN.contains(&code), "{code:#x}");
            let text = syndrome.to_string();
            assert!(text.contains(&format!("{code:#04x}")) && text.contains("vendor 0x88"), "{text}");
        }
        let refused = Syndrome { code: Syndrome::REMOTE_ACCESS_ERR, vendor: 0x88 };
        assert_eq!(
            refused.to_string(),
            "REMOTE_ACCESS_ERR (0x13), vendor 0x88: the peer's key does not cover or allow it"
        );
    }
}
