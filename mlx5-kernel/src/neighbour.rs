//! Who has which address on the wire: what the kernel's own network does for RoCE.
//!
//! ```text
//!   MODIFY_QP, CREATE_AH ── lookup ──► table ◄── learn ── ARP, neighbour discovery ◄── Frames ◄── wire
//!         │ before                       │                        │
//!         └─────────────── resolve ──────┴── ask, a few times ────┴── answer for our own addresses ──► wire
//! ```
//!
//! Queue pair 1 serves many peers, of whom none may hold up the others: its address handles are asked for and not waited for. Whoever makes
//! them tries again.
//!
//! Multicast groups, and link-local addresses that are made of a MAC, are turned into a MAC without asking. Who asks holds no
//! lock of its context: it asks before it makes the call, and the call then looks up what was found. An address that was heard of
//! long ago is asked for again, and forgotten when nobody answers.

mod packet;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pollux_uverbs::Errno;

use packet::Heard;

/// How long an answer is waited for before the question is asked again.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often is asked: three seconds, as Linux asks (`mcast_solicit` times `retrans_time_ms` of
/// `Documentation/networking/ip-sysctl.rst`), in shorter pieces.
const QUESTIONS: usize = 15;

/// The same where the caller makes the device's steps: after so many without an answer none will come.
const TURNS: usize = 500;
/// See [`TURNS`].
const QUESTIONS_IN_TURNS: usize = 3;

/// How long an address is known without a word from its owner: what Linux takes where nobody changed it (`base_reachable_time`,
/// `Documentation/networking/ip-sysctl.rst`).
const REACHABLE: Duration = Duration::from_secs(30);

/// How long is asked: see [`QUESTIONS`].
const ASKED: Duration = PATIENCE.saturating_mul(QUESTIONS as u32);

/// Most addresses that are remembered.
const KNOWN_MAX: usize = 1 << 12;

/// Called for a frame of ARP or ICMPv6 that came in, on the device's thread: it must not block.
pub type FrameListener = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// The port's wire, as far as the kernel's own network needs it.
pub trait Frames: Send + Sync + fmt::Debug {
    /// Puts a frame on the wire. It may be lost.
    fn send(&self, frame: &[u8]);

    /// Sets who hears of ARP and ICMPv6: of those that no rule of a program takes, as an interface on a card does.
    fn on_frame(&self, listener: FrameListener);

    /// Makes a step of a device that its caller steps; `false` where the device steps itself.
    fn turn(&self) -> bool;
}

/// What the kernel's own network has at the port.
#[derive(Clone, Debug)]
pub struct Network {
    /// The wire.
    pub frames: Arc<dyn Frames>,
    /// Addresses of the interface, beside the link-local one that follows from the MAC.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface, and how long the part is that its subnet shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the subnet.
    pub prefix: u8,
}

impl InterfaceAddress {
    /// Whether another address is in the same subnet.
    #[must_use]
    pub fn reaches(&self, other: IpAddr) -> bool {
        let (bits, ours, theirs) = match (self.address, other) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => (32, ours.to_bits().into(), theirs.to_bits().into()),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (128, ours.to_bits(), theirs.to_bits()),
            _ => return false,
        };
        let differ: u128 = ours ^ theirs;
        differ.checked_shr(bits - u32::from(self.prefix).min(bits)).unwrap_or(0) == 0
    }

    /// As a GID: an IPv4 address in its place in IPv6.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Text that is not an address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no station's address with the length of its subnet, such as 192.0.2.1/24 or 2001:db8::1/64"
)]
pub struct InterfaceAddressError {
    /// The text.
    pub text: String,
}

impl FromStr for InterfaceAddress {
    type Err = InterfaceAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let prefix: u8 = prefix.parse().ok()?;
            let (most, is_station) = match address {
                IpAddr::V4(address) => (32, !address.is_multicast() && !address.is_broadcast()),
                IpAddr::V6(address) => (128, !address.is_multicast() && address.to_ipv4_mapped().is_none()),
            };
            let fits = (1..=most).contains(&prefix) && is_station && !address.is_unspecified();
            fits.then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| InterfaceAddressError { text: text.into() })
    }
}

/// Who has an address, and when it was heard of last.
#[derive(Clone, Copy, Debug)]
struct Known {
    mac: [u8; 6],
    heard: Instant,
}

/// A question that nobody waits for: when it was asked first, and last.
#[derive(Clone, Copy, Debug)]
struct Asked {
    first: Instant,
    last: Instant,
}

/// What can be said of an address before anybody is asked.
enum Way {
    /// The MAC is our own.
    Own,
    /// It is a neighbour's, who can be asked from our address.
    Neighbour { source: IpAddr, target: IpAddr },
}

/// The table, and what keeps it.
pub(crate) struct Neighbours {
    frames: Arc<dyn Frames>,
    mac: [u8; 6],
    addresses: Vec<InterfaceAddress>,
    known: Mutex<HashMap<IpAddr, Known>>,
    changed: Condvar,
    asked: Mutex<HashMap<IpAddr, Asked>>,
    announced: AtomicBool,
}

impl fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbours").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Neighbours {
    /// Begins to answer for the addresses of `network` and the link-local one of `mac`.
    pub(crate) fn start(network: Network, mac: [u8; 6]) -> Arc<Self> {
        let Network { frames, mut addresses } = network;
        addresses.insert(0, InterfaceAddress { address: link_local(mac).into(), prefix: 64 });
        let neighbours = Arc::new(Self {
            frames,
            mac,
            addresses,
            known: Mutex::default(),
            changed: Condvar::new(),
            asked: Mutex::default(),
            announced: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&neighbours);
        neighbours.frames.on_frame(Arc::new(move |frame| {
            if let Some(neighbours) = weak.upgrade() {
                neighbours.hear(frame);
            }
        }));
        neighbours
    }

    fn known(&self) -> MutexGuard<'_, HashMap<IpAddr, Known>> {
        // An entry is there or not.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<IpAddr, Asked>> {
        // As above.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the wire our addresses, once: with the first queue that may send RoCE.
    pub(crate) fn announce(&self) {
        if self.announced.swap(true, Ordering::Relaxed) {
            return;
        }
        for own in &self.addresses {
            self.frames.send(&packet::announcement(self.mac, own.address));
        }
    }

    /// A frame came in.
    fn hear(&self, frame: &[u8]) {
        let Some(heard) = packet::parse(frame) else { return };
        if let Some((address, mac)) = heard.tells() {
            self.learn(address, mac);
        }
        if let Heard::Question { target, .. } = &heard
            && self.addresses.iter().any(|own| own.address == *target)
            && let Some(answer) = packet::answer(&heard, self.mac)
        {
            self.frames.send(&answer);
        }
    }

    fn learn(&self, address: IpAddr, mac: [u8; 6]) {
        let is_ours = self.addresses.iter().any(|own| own.address == address);
        let on_link = self.addresses.iter().any(|own| own.reaches(address));
        if is_ours || !on_link || mac[0] & 1 == 1 || mac == [0; 6] {
            return;
        }
        self.asked().remove(&address);
        let mut known = self.known();
        if known.len() < KNOWN_MAX || known.contains_key(&address) {
            known.insert(address, Known { mac, heard: Instant::now() });
            self.changed.notify_all();
        }
    }

    /// Source of the rules: Linux `drivers/infiniband/core/verbs.c`, `ib_resolve_eth_dmac`; `drivers/infiniband/core/addr.c`.
    fn way(&self, source: &[u8; 16], destination: &[u8; 16]) -> Result<Way, Errno> {
        let (source, target) = (ip(source), ip(destination));
        if self.addresses.iter().any(|own| own.address == target) {
            return Ok(Way::Own);
        }
        let reaches = self.addresses.iter().any(|own| own.address == source && own.reaches(target));
        if reaches { Ok(Way::Neighbour { source, target }) } else { Err(Errno::ENETUNREACH) }
    }

    /// The MAC behind a GID, as far as it is known: [`resolve`](Self::resolve) goes before.
    pub(crate) fn lookup(&self, source: &[u8; 16], destination: &[u8; 16]) -> Result<[u8; 6], Errno> {
        match self.way(source, destination)? {
            Way::Own => Ok(self.mac),
            Way::Neighbour { target, .. } => {
                self.known().get(&target).map(|known| known.mac).ok_or(Errno::ETIMEDOUT)
            }
        }
    }

    /// The MAC behind a GID, asked for on the wire from our own address `source` where nobody has told it yet, or lately. May wait
    /// for seconds.
    pub(crate) fn resolve(&self, source: &[u8; 16], destination: &[u8; 16]) -> Result<[u8; 6], Errno> {
        let Way::Neighbour { source, target } = self.way(source, destination)? else { return Ok(self.mac) };
        let begin = Instant::now();
        if let Some(mac) = heard(&self.known(), target, begin) {
            return Ok(mac);
        }
        let question = packet::question(self.mac, source, target).ok_or(Errno::EINVAL)?;
        let answer = if self.frames.turn() {
            self.ask_in_turns(target, &question, begin)
        } else {
            self.ask(target, &question, begin)
        };
        answer.or_else(|| self.give_up(target, begin)).ok_or(Errno::ETIMEDOUT)
    }

    /// Asks the wire as [`resolve`](Self::resolve) does, and does not wait: [`lookup`](Self::lookup) finds the answer. Called
    /// again, it asks again after [`PATIENCE`], and forgets an address for which nobody answered all the while.
    pub(crate) fn ask_once(&self, source: &[u8; 16], destination: &[u8; 16]) {
        let Ok(Way::Neighbour { source, target }) = self.way(source, destination) else { return };
        let now = Instant::now();
        if heard(&self.known(), target, now).is_none()
            && self.is_due(target, now)
            && let Some(question) = packet::question(self.mac, source, target)
        {
            self.frames.send(&question);
        }
        self.frames.turn();
    }

    /// Whether an address that nobody waits for is to be asked for now.
    fn is_due(&self, target: IpAddr, now: Instant) -> bool {
        let mut asked = self.asked();
        if asked.len() >= KNOWN_MAX {
            asked.retain(|_, question| now < question.first + ASKED);
        }
        let (full, mut is_over) = (asked.len() >= KNOWN_MAX, false);
        let is_due = match asked.get_mut(&target) {
            Some(question) if now < question.last + PATIENCE => false,
            Some(question) => {
                is_over = now >= question.first + ASKED;
                let first = if is_over { now } else { question.first };
                *question = Asked { first, last: now };
                true
            }
            None if full => false,
            None => asked.insert(target, Asked { first: now, last: now }).is_none(),
        };
        drop(asked);
        if is_over {
            self.give_up(target, now);
        }
        is_due
    }

    fn ask(&self, target: IpAddr, question: &[u8], begin: Instant) -> Option<[u8; 6]> {
        for _ in 0..QUESTIONS {
            self.frames.send(question);
            let end = Instant::now() + PATIENCE;
            let mut known = self.known();
            while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                if let Some(mac) = heard(&known, target, begin) {
                    return Some(mac);
                }
                known = self.changed.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        None
    }

    fn ask_in_turns(&self, target: IpAddr, question: &[u8], begin: Instant) -> Option<[u8; 6]> {
        for _ in 0..QUESTIONS_IN_TURNS {
            self.frames.send(question);
            for _ in 0..TURNS {
                self.frames.turn();
                if let Some(mac) = heard(&self.known(), target, begin) {
                    return Some(mac);
                }
            }
        }
        None
    }

    /// Forgets an address for which nobody answers; or tells the answer that came after the last look, to this asker or another.
    fn give_up(&self, target: IpAddr, begin: Instant) -> Option<[u8; 6]> {
        let mut known = self.known();
        let answer = heard(&known, target, begin);
        if answer.is_none() {
            known.remove(&target);
        }
        answer
    }
}

/// The MAC of an address that was heard of lately, as of `begin`, or since.
fn heard(known: &HashMap<IpAddr, Known>, target: IpAddr, begin: Instant) -> Option<[u8; 6]> {
    known.get(&target).filter(|known| known.heard + REACHABLE > begin).map(|known| known.mac)
}

/// The address that a GID stands for.
pub(crate) fn ip(gid: &[u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(*gid);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

/// The link-local address that is made of a MAC. Source: RFC 4291, appendix A.
pub(crate) fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The MAC that a GID names by itself: of a group, or of a link-local address that is made of one. Source: Linux
/// `include/rdma/ib_addr.h`, `rdma_get_ll_mac`, `rdma_is_multicast_addr`; RFC 1112, section 6.4; RFC 2464, section 7.
pub(crate) fn named_mac(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let [.., i, j, k, l, m, n, o, p] = *gid;
    match ip(gid) {
        IpAddr::V4(address) if address.is_multicast() => Some(group_v4(address)),
        IpAddr::V6(address) if address.is_multicast() => {
            // A group of IPv4 in its place in IPv6 has the MAC of that group.
            if gid[10..12] == [0xff, 0xff] && gid[2..10] == [0; 8] {
                return Some(group_v4(Ipv4Addr::new(m, n, o, p)));
            }
            Some([0x33, 0x33, m, n, o, p])
        }
        _ if gid[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && l == 0xff && m == 0xfe => {
            Some([i ^ 2, j, k, n, o, p])
        }
        _ => None,
    }
}

fn group_v4(address: Ipv4Addr) -> [u8; 6] {
    let [_, a, b, c] = address.octets();
    [0x01, 0x00, 0x5e, a & 0x7f, b, c]
}

#[cfg(test)]
mod tests;
