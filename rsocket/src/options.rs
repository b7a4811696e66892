//! Options of sockets, to be set before they connect or listen.

use std::time::Duration;

use crate::message::maps_told;

/// The fewest requests, and receives. Source: rdma-core `librdmacm/rsocket.c`, `RS_QP_MIN_SIZE`.
const QUEUE_MIN: u16 = 16;
/// The most. Source: rdma-core `librdmacm/rsocket.c`, `RS_QP_MAX_SIZE`.
const QUEUE_MAX: u16 = 0xfffe;
/// The smallest buffers, and the largest: a message tells 29 bits of bytes.
const BUFFER: std::ops::RangeInclusive<u32> = 4096..=1 << 29;

/// Options of a socket. Those of a listener are its connections'. The defaults are librdmacm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "rsetsockopt")]
pub struct RsOptions {
    pub(crate) send_bytes: u32,
    pub(crate) receive_bytes: u32,
    pub(crate) sends: u16,
    pub(crate) receives: u16,
    pub(crate) inline: u32,
    pub(crate) maps: u16,
    pub(crate) nonblocking: bool,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) spin: Duration,
}

impl Default for RsOptions {
    fn default() -> Self {
        Self {
            send_bytes: 1 << 17,
            receive_bytes: 1 << 17,
            sends: 384,
            receives: 384,
            inline: Self::INLINE,
            maps: 0,
            nonblocking: false,
            keepalive: None,
            spin: Duration::from_micros(10),
        }
    }
}

fn buffer(bytes: usize) -> u32 {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(*BUFFER.start(), *BUFFER.end());
    bytes.next_multiple_of(16)
}

impl RsOptions {
    /// Inline data of the defaults.
    pub const INLINE: u32 = 64;

    /// Bytes of the send buffer, 4 KiB to 512 MiB. librdmacm's `SO_SNDBUF` is half of it.
    #[must_use]
    pub fn send_buffer(self, bytes: usize) -> Self {
        Self { send_bytes: buffer(bytes), ..self }
    }

    /// Bytes of the receive buffer, 4 KiB to 512 MiB, which the peer is offered in halves. librdmacm's `SO_RCVBUF` is half of it.
    #[must_use]
    pub fn receive_buffer(self, bytes: usize) -> Self {
        Self { receive_bytes: buffer(bytes), ..self }
    }

    /// Sends and receives of the queue pair, 16 to 65534 (`RDMA_SQSIZE`, `RDMA_RQSIZE`). The peer may send as many messages ahead as there are
    /// receives.
    #[must_use]
    pub fn depth(self, sends: u16, receives: u16) -> Self {
        let [sends, receives] = [sends, receives].map(|depth| depth.clamp(QUEUE_MIN, QUEUE_MAX));
        Self { sends, receives, ..self }
    }

    /// Up to how many bytes are sent without a copy in the send buffer (`RDMA_INLINE`); the device may do more.
    #[must_use]
    pub fn inline(self, bytes: u32) -> Self {
        Self { inline: bytes, ..self }
    }

    /// How many maps the peer can make for this side to write to (`RDMA_IOMAPSIZE`); above 128 in units of 256.
    #[must_use]
    pub fn maps(self, count: u16) -> Self {
        Self { maps: maps_told(count), ..self }
    }

    /// Calls that would wait fail with [`WouldBlock`](std::io::ErrorKind::WouldBlock).
    #[must_use]
    pub fn nonblocking(self, on: bool) -> Self {
        Self { nonblocking: on, ..self }
    }

    /// Probes the peer after so long without a request, so that a dead one is noticed (`SO_KEEPALIVE`, `TCP_KEEPIDLE`). There is no thread:
    /// it is done while a call waits or polls.
    #[must_use]
    pub fn keepalive(self, after: Option<Duration>) -> Self {
        Self { keepalive: after, ..self }
    }

    /// How long a call that waits polls before it sleeps. The default is librdmacm's 10 us.
    #[must_use]
    pub fn spin(self, time: Duration) -> Self {
        Self { spin: time, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_kept_in_their_bounds() {
        let options =
            RsOptions::default().send_buffer(1).receive_buffer(usize::MAX).depth(0, u16::MAX).maps(300);
        let found =
            (options.send_bytes, options.receive_bytes, options.sends, options.receives, options.maps);
        assert_eq!(found, (4096, 1 << 29, 16, 0xfffe, 256));
        assert_eq!(RsOptions::default().send_buffer(5001).send_bytes, 5008);
    }
}
