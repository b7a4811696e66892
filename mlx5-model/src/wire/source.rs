//! Wires that lead nowhere.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pollux_wire::{EtherRepr, EtherType, IpProtocol, Ipv4Header, Ipv4Repr, UdpHeader, UdpRepr, checksum};

use super::{Sent, Wire, deliver};
use crate::ModelError;
use crate::time::Clock;

/// Shortest frame of Ethernet, without FCS.
pub const SIZE_MIN: usize = 60;
/// Longest that a source makes.
pub const SIZE_MAX: usize = 16_384;
/// Flows that the frames belong to, in turn, so that RSS has something to spread.
pub const FLOWS: usize = 64;

const HEADERS: usize = 14 + Ipv4Header::BYTES + UdpHeader::BYTES;

/// What a wire has swallowed, for whoever wants to know; clones show the same counts.
#[derive(Clone, Debug, Default)]
pub struct Swallowed(Arc<[AtomicU64; 2]>);

impl Swallowed {
    fn add(&self, frame: &[u8]) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        self.0[1].fetch_add(frame.len() as u64, Ordering::Relaxed);
    }

    /// Frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Their bytes, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }
}

/// What a source with a rate is late with at most: frames that wait longer, as when its thread has no core, it never offers.
const LATE_MAX: Duration = Duration::from_millis(50);

/// So many frames a second.
#[derive(Debug)]
struct Pace {
    rate: u64,
    clock: Clock,
    begun: Duration,
    given: u64,
    due: u64,
}

impl Pace {
    /// Whether another frame is due. Looks at the clock only when all are given that were due at the last look.
    #[inline]
    fn is_due(&mut self) -> bool {
        if self.given == self.due {
            let since = self.clock.now().saturating_sub(self.begun);
            let due = since.as_nanos() * u128::from(self.rate) / 1_000_000_000;
            self.due = u64::try_from(due).unwrap_or(u64::MAX).max(self.given);
            let late_max = u128::from(self.rate) * LATE_MAX.as_nanos() / 1_000_000_000;
            self.given =
                self.given.max(self.due.saturating_sub(u64::try_from(late_max).unwrap_or(u64::MAX).max(1)));
        }
        let is_due = self.given < self.due;
        self.given += u64::from(is_due);
        is_due
    }
}

/// `source:SIZE`: a frame whenever one is asked for. `source:SIZE:RATE`: so many a second at most. UDP over IPv4 with right
/// checksums, to the port's own address, from [`FLOWS`] senders in turn (198.18.0.1 and up, the addresses that RFC 2544 keeps for
/// measurements).
#[derive(Debug)]
pub struct Source {
    frames: Vec<Box<[u8]>>,
    next: usize,
    bytes: usize,
    swallowed: Swallowed,
    pace: Option<Pace>,
}

impl Source {
    /// Frames of `bytes` bytes, without FCS, to `mac`.
    ///
    /// # Errors
    /// A size outside [`SIZE_MIN`] to [`SIZE_MAX`].
    pub fn new(bytes: usize, mac: [u8; 6]) -> Result<Self, ModelError> {
        if !(SIZE_MIN..=SIZE_MAX).contains(&bytes) {
            return Err(ModelError::Wire {
                text: format!("source:{bytes}"),
                problem: format!("frames have {SIZE_MIN} to {SIZE_MAX} bytes, FCS not counted"),
            });
        }
        let frames = (0..FLOWS).map(|flow| frame(bytes, mac, flow as u16)).collect();
        Ok(Self { frames, next: 0, bytes, swallowed: Swallowed::default(), pace: None })
    }

    /// At most `rate` of them a second.
    #[must_use]
    pub fn paced(self, rate: u64, clock: &Clock) -> Self {
        let (clock, begun) = (clock.clone(), clock.now());
        Self { pace: Some(Pace { rate, clock, begun, given: 0, due: 0 }), ..self }
    }

    /// What was sent into it.
    #[must_use]
    pub fn swallowed(&self) -> Swallowed {
        self.swallowed.clone()
    }
}

fn frame(bytes: usize, mac: [u8; 6], flow: u16) -> Box<[u8]> {
    let mut frame = vec![0; bytes].into_boxed_slice();
    let payload = (bytes - HEADERS) as u16;
    for (at, byte) in frame[HEADERS..].iter_mut().enumerate() {
        *byte = at as u8;
    }
    let [high, low] = (flow + 1).to_be_bytes();
    // Locally administered, as the address of no card.
    let ether =
        EtherRepr { dst: mac.into(), src: [2, 0, 0, 0, high, low].into(), ether_type: EtherType::IPV4 };
    let ip = Ipv4Repr::new(
        Ipv4Addr::new(198, 18, high, low),
        Ipv4Addr::new(198, 19, 0, 1),
        IpProtocol::UDP,
        payload + UdpHeader::BYTES as u16,
    );
    let udp = UdpRepr { src_port: 1024 + flow, dst_port: 9 };
    let pseudo = checksum::pseudo_v4(ip.src, ip.dst, ip.protocol, payload + UdpHeader::BYTES as u16);
    ether
        .emit(&mut frame)
        .and_then(|rest| ip.emit(rest))
        .and_then(|rest| udp.emit(rest, pseudo))
        .expect("a frame of the smallest size has room for the headers");
    frame
}

impl Wire for Source {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.swallowed.add(frame);
        Sent::Yes
    }

    #[inline]
    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        if self.pace.as_mut().is_some_and(|pace| !pace.is_due()) {
            return None;
        }
        let frame = &self.frames[self.next];
        self.next = (self.next + 1) % FLOWS;
        Some(deliver(frame, room))
    }

    fn is_up(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        match &self.pace {
            None => format!("source:{}", self.bytes),
            Some(pace) => format!("source:{}:{}", self.bytes, pace.rate),
        }
    }
}

/// `null`: nothing comes, everything goes.
#[derive(Debug, Default)]
pub struct Null {
    swallowed: Swallowed,
}

impl Null {
    /// What was sent into it.
    #[must_use]
    pub fn swallowed(&self) -> Swallowed {
        self.swallowed.clone()
    }
}

impl Wire for Null {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.swallowed.add(frame);
        Sent::Yes
    }

    fn receive(&mut self, _room: &mut [u8]) -> Option<usize> {
        None
    }

    fn is_up(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "null".into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use pollux_wire::{Ether, Ipv4, Udp, toeplitz};

    use super::*;

    #[test]
    fn frames_are_whole_and_of_many_flows() {
        for bytes in [SIZE_MIN, 64, 1514, SIZE_MAX] {
            let mut source = Source::new(bytes, [2, 0, 0, 0, 0, 9]).expect("a source");
            let mut room = vec![0; SIZE_MAX];
            let mut queues = HashSet::new();
            for _ in 0..2 * FLOWS {
                assert_eq!(source.receive(&mut room), Some(bytes));
                let ether = Ether::new(&room[..bytes]).expect("Ethernet");
                assert_eq!(ether.dst.0, [2, 0, 0, 0, 0, 9]);
                let ip = Ipv4::new(ether.payload()).expect("IPv4");
                assert!(ip.checksum_ok());
                let udp = Udp::new(ip.payload()).expect("UDP");
                assert!(udp.checksum_ok(ip.pseudo_sum()));
                assert_eq!(14 + 20 + usize::from(udp.bytes.get()), bytes);
                let input = [&room[26..34], &room[34..38]].concat();
                queues.insert(toeplitz::hash(&toeplitz::DEFAULT_KEY, &input) % 8);
            }
            assert_eq!(queues.len(), 8, "the flows reach all of 8 queues");
        }
    }

    #[test]
    fn a_rate_is_kept_and_what_is_very_late_never_comes() {
        let clock = Clock::stepped();
        clock.advance(Duration::from_secs(5));
        let mut source = Source::new(64, [2; 6]).expect("a source").paced(1_000_000, &clock);
        assert_eq!(source.describe(), "source:64:1000000");
        let mut room = [0; 64];
        let mut count = || std::iter::from_fn(|| source.receive(&mut room)).count();
        assert_eq!(count(), 0);
        clock.advance(Duration::from_nanos(999));
        assert_eq!(count(), 0);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(count(), 1);
        clock.advance(Duration::from_micros(200));
        assert_eq!(count(), 200);
        clock.advance(Duration::from_secs(1));
        assert_eq!(count(), 50_000, "what waited longer is lost to time");
        clock.advance(Duration::from_micros(3));
        assert_eq!(count(), 3);
    }

    #[test]
    fn what_is_sent_is_counted() {
        let mut source = Source::new(64, [2; 6]).expect("a source");
        let swallowed = source.swallowed();
        assert_eq!(source.send(&[0; 100]), Sent::Yes);
        assert_eq!(source.send(&[0; 60]), Sent::Yes);
        assert_eq!((swallowed.frames(), swallowed.bytes()), (2, 160));
        assert!(source.is_endless() && source.waits());
    }

    #[test]
    fn sizes_that_no_frame_has_are_refused() {
        for bytes in [0, SIZE_MIN - 1, SIZE_MAX + 1] {
            let error = Source::new(bytes, [2; 6]).expect_err("refused").to_string();
            assert!(
                error.starts_with(&format!("wire 'source:{bytes}': frames have 60 to 16384 bytes")),
                "{error}"
            );
        }
    }
}
