//! Why a run ended early.

use pollux_bringup::BringupError;
use pollux_eal::EalError;
use pollux_verbs::{PostError, VerbsError, WcStatus};

use crate::exchange::ExchangeError;

/// Why a run ended early.
#[derive(Debug)]
pub enum Failure {
    /// Ctrl-C or the like; no error.
    Stopped,
    /// One line.
    Error(String),
    /// One line about an other end that does not keep to the exchange, or is none. A server that still listens goes on.
    Peer(String),
    /// One line about what was typed.
    Usage(String),
}

impl Failure {
    /// What the program ends with.
    ///
    /// # Errors
    /// The line.
    pub fn end(self) -> Result<(), BringupError> {
        match self {
            Self::Stopped => Ok(()),
            Self::Error(line) | Self::Peer(line) => Err(BringupError::Runtime(line)),
            Self::Usage(line) => Err(BringupError::Usage(line)),
        }
    }

    /// The same, where the other end is to blame: what it said of itself is of no use.
    #[must_use]
    pub fn of_peer(self, peer: &str) -> Self {
        match self {
            Self::Error(line) => Self::Peer(format!("{peer}: {line}")),
            other => other,
        }
    }

    /// A completion that is an error, in the originals' words and what it means here.
    #[must_use]
    pub fn completion(status: WcStatus, id: u64) -> Self {
        let meaning = match status {
            WcStatus::LOC_LEN_ERR => {
                ": a message was longer than the posted receive; give both ends the same -s"
            }
            WcStatus::REM_INV_REQ_ERR => {
                ": the message was longer than the peer's posted receive; give both ends the same -s"
            }
            WcStatus::RETRY_EXC_ERR => ": no ACK from the peer; it has exited or is unreachable",
            WcStatus::RNR_RETRY_EXC_ERR => ": the peer posted no receive in time",
            WcStatus::REM_ACCESS_ERR => {
                ": the peer denied the access; run the same test with the same -s at both ends"
            }
            WcStatus::LOC_PROT_ERR => ": the buffer is not registered for this access",
            _ => "",
        };
        Self::Error(format!("Failed status {status} ({}) for wr_id {id}{meaning}", status.0))
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Stopped { .. } => Self::Stopped,
            error @ (ExchangeError::Listen { .. } | ExchangeError::Connect { .. }) => {
                Self::Error(error.to_string())
            }
            error @ ExchangeError::Resolve { .. } => Self::Usage(error.to_string()),
            error => Self::Peer(error.to_string()),
        }
    }
}

impl From<BringupError> for Failure {
    fn from(error: BringupError) -> Self {
        Self::Error(error.line())
    }
}

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Self {
        BringupError::from(error).into()
    }
}

impl From<EalError> for Failure {
    fn from(error: EalError) -> Self {
        BringupError::from(error).into()
    }
}

impl From<PostError> for Failure {
    fn from(error: PostError) -> Self {
        Self::Error(format!("cannot post: {error}"))
    }
}
