//! What can go wrong with a port.

use crate::flow::FlowPart;
use crate::{PortState, QueueId};

/// Direction: rx or tx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        })
    }
}

/// `port NAME: `, or nothing where a driver's error has no name yet.
struct Of<'a>(&'a str);

impl std::fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "port {}: ", self.0) }
    }
}

/// Errors of port operations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The port is not in a state that allows it.
    #[error("{of}cannot {operation} while {state}; it must be {allowed}", of = Of(port))]
    State {
        /// The port's name.
        port: String,
        /// Requested operation.
        operation: &'static str,
        /// Current state.
        state: PortState,
        /// Required state.
        allowed: &'static str,
    },
    /// The operation is not supported by this port.
    #[error("{of}{operation} is not supported: {reason}", of = Of(port))]
    Unsupported {
        /// The port's name.
        port: String,
        /// Requested operation.
        operation: &'static str,
        /// Why this port lacks it.
        reason: String,
    },
    /// A value is outside the limits of the port.
    #[error("{of}{what} {value} is outside {min} to {max}", of = Of(port))]
    Limit {
        /// The port's name.
        port: String,
        /// What the number counts.
        what: &'static str,
        /// The number.
        value: u64,
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// Offloads that the port does not offer, or not queue by queue.
    #[error(
        "{of}{direction} offload {refused} is not offered{per_queue}; offered{per_queue}: {offered}",
        per_queue = if queue.is_some() { " per queue" } else { "" }, of = Of(port))]
    Offload {
        /// The port's name.
        port: String,
        /// Its half.
        direction: Direction,
        /// The queue for which they were asked for, where not for all.
        queue: Option<QueueId>,
        /// Those asked for that are not offered.
        refused: String,
        /// Those offered.
        offered: String,
    },
    /// The port does not support the flow rule.
    #[error("{of}flow rule, {part}: {reason}", of = Of(port))]
    Flow {
        /// The port's name.
        port: String,
        /// What of it.
        part: FlowPart,
        /// Why.
        reason: String,
    },
    /// A queue number past those configured.
    #[error("{of}no {direction} queue {queue}; {configured} are configured", of = Of(port))]
    NoQueue {
        /// The port's name.
        port: String,
        /// Its half.
        direction: Direction,
        /// The number asked for.
        queue: QueueId,
        /// How many there are.
        configured: usize,
    },
    /// A queue cannot be set up again while its value is alive.
    #[error("{of}{direction} queue {queue} is still in use; drop its value first", of = Of(port))]
    QueueHeld {
        /// The port's name.
        port: String,
        /// Its half.
        direction: Direction,
        /// The queue.
        queue: QueueId,
    },
    /// A port starts only when all its queues are set up.
    #[error("{of}{direction} queue {queue} is not set up; set it up before start", of = Of(port))]
    QueueNotSetUp {
        /// The port's name.
        port: String,
        /// Its half.
        direction: Direction,
        /// The queue.
        queue: QueueId,
    },
    /// A burst that began before the port was stopped has not ended.
    #[error(
        "{of}a burst on {direction} queue {queue} is still running {} ms after the stop; let its lcore continue, and \
         do not stop a port from its own queue's callback", .waited.as_millis(), of = Of(port))]
    BurstUnderWay {
        /// The port's name.
        port: String,
        /// Its half.
        direction: Direction,
        /// The queue.
        queue: QueueId,
        /// How long the stop waited.
        waited: std::time::Duration,
    },
    /// The pool cannot fill the queue.
    #[error(
        "{of}pool {pool} holds {has} mbufs, rx queue {queue} needs {needs}; make the pool larger", of = Of(port))]
    PoolTooSmall {
        /// The port's name.
        port: String,
        /// The queue.
        queue: QueueId,
        /// The pool's name.
        pool: String,
        /// What the pool holds in all.
        has: usize,
        /// What the queue takes at most.
        needs: usize,
    },
    /// The pool's buffers are too short.
    #[error(
        "{of}an mbuf of pool {pool} has room for {has} bytes, rx queue {queue} needs {needs}; make the data room larger", of = Of(port))]
    RoomTooSmall {
        /// The port's name.
        port: String,
        /// The queue.
        queue: QueueId,
        /// The pool's name.
        pool: String,
        /// Bytes after the headroom.
        has: usize,
        /// Bytes needed.
        needs: usize,
    },
    /// An address that cannot be used so.
    #[error("{of}{mac} is not {expected}", of = Of(port))]
    Address {
        /// The port's name.
        port: String,
        /// The address.
        mac: crate::MacAddress,
        /// What is asked for.
        expected: &'static str,
    },
    /// Two ports of one name.
    #[error("there is already a port named {name}; give each port its own name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Two ports of one number.
    #[error("number {number} is that of port {name}; remove that port first")]
    NumberTaken {
        /// The number.
        number: u16,
        /// The port that has it.
        name: String,
    },
    /// The port belongs to somebody else.
    #[error("port {port} is owned by {owner}; its owner must release it first")]
    Owned {
        /// The port's name.
        port: String,
        /// Its owner.
        owner: String,
    },
    /// No port of that number or name.
    #[error("no port {wanted}; ports: {present}")]
    NoPort {
        /// What was looked for.
        wanted: String,
        /// The names there are.
        present: String,
    },
    /// An argument to the driver or a layer cannot be used.
    #[error("{of}{key}={value}: {expected}", of = Of(port))]
    Argument {
        /// The port's name.
        port: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed.
        expected: String,
    },
    /// The device or the kernel returned an error.
    #[error("{of}cannot {operation}", of = Of(port))]
    Device {
        /// The port's name.
        port: String,
        /// What was tried.
        operation: String,
        /// The answer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl PortError {
    /// For drivers: this port does not do `operation`, because of `reason`. The control handle adds the port's name.
    #[must_use]
    pub fn unsupported(operation: &'static str, reason: impl Into<String>) -> Self {
        Self::Unsupported { port: String::new(), operation, reason: reason.into() }
    }

    /// For drivers: `operation` failed with `source`. The control handle adds the port's name.
    #[must_use]
    pub fn device(
        operation: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Device { port: String::new(), operation: operation.into(), source: source.into() }
    }

    /// For drivers: a flow rule cannot be made because of `part` of it. The control handle adds the port's name.
    #[must_use]
    pub fn flow(part: FlowPart, reason: impl Into<String>) -> Self {
        Self::Flow { port: String::new(), part, reason: reason.into() }
    }

    /// Returns whether this is [`PortError::Unsupported`].
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }

    /// Puts the port's name in where a driver left it out.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        match &mut self {
            Self::State { port, .. }
            | Self::Unsupported { port, .. }
            | Self::Limit { port, .. }
            | Self::Offload { port, .. }
            | Self::Flow { port, .. }
            | Self::NoQueue { port, .. }
            | Self::QueueHeld { port, .. }
            | Self::QueueNotSetUp { port, .. }
            | Self::BurstUnderWay { port, .. }
            | Self::PoolTooSmall { port, .. }
            | Self::RoomTooSmall { port, .. }
            | Self::Address { port, .. }
            | Self::Argument { port, .. }
            | Self::Device { port, .. } => {
                if port.is_empty() {
                    name.clone_into(port);
                }
            }
            Self::NameTaken { .. } | Self::NumberTaken { .. } | Self::NoPort { .. } | Self::Owned { .. } => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_name_is_not_spoken_of() {
        let none = String::new;
        let (direction, queue) = (Direction::Rx, QueueId(0));
        let waited = std::time::Duration::from_secs(1);
        for error in [
            PortError::unsupported("RSS", "it has one queue"),
            PortError::device("open the device", std::io::Error::from_raw_os_error(2)),
            PortError::flow(FlowPart::Rule, "no"),
            PortError::Limit { port: none(), what: "MTU", value: 1, min: 2, max: 3 },
            PortError::Offload {
                port: none(),
                direction,
                queue: None,
                refused: "LRO".into(),
                offered: "none".into(),
            },
            PortError::NoQueue { port: none(), direction, queue, configured: 0 },
            PortError::QueueHeld { port: none(), direction, queue },
            PortError::QueueNotSetUp { port: none(), direction, queue },
            PortError::BurstUnderWay { port: none(), direction, queue, waited },
            PortError::PoolTooSmall { port: none(), queue, pool: "a".into(), has: 1, needs: 2 },
            PortError::RoomTooSmall { port: none(), queue, pool: "a".into(), has: 1, needs: 2 },
            PortError::Argument {
                port: none(),
                key: "a".into(),
                value: "b".into(),
                expected: "is not c".into(),
            },
        ] {
            let bare = error.to_string();
            assert!(!bare.starts_with("port") && !bare.contains("  "), "{bare}");
            assert_eq!(error.named("net_own0").to_string(), format!("port net_own0: {bare}"));
        }
    }
}
