//! Queue pair 1 of a port: management datagrams, sent and received.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use pollux_verbs::{
    Ah, Buffers, Context, Cq, CqOptions, Errno, Mtu, Path, Pd, Qp, QpKind, QpOptions, VerbsError,
};

use crate::agent::Outgoing;
use crate::message::BYTES;

/// Its number.
const QPN: u32 = 1;
/// Its key. Source: InfiniBand Architecture Specification, volume 1, 3.5.3; Linux `include/rdma/ib_mad.h`, `IB_QP1_QKEY`.
const QKEY: u32 = 0x8001_0000;
/// Datagrams that may come in before they are looked at.
const RECEIVES: u32 = 512;
/// Datagrams under way.
const SENDS: u32 = 128;
/// Global header in front of a datagram.
const GLOBAL_BYTES: usize = 40;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1 << 10;
/// How long what was found out about an address counts: the host that has it may become another.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long it counts that nobody has answered yet: all who look for one address look once.
const UNANSWERED: Duration = Duration::from_millis(1);
/// Datagrams that wait until somebody answers for their address, and how long one does. Whoever sent one sends it again later, so that the
/// oldest may go: peers that are not there shall not keep answers to others from leaving.
const HELD_MAX: usize = 64;
const HELD: Duration = Duration::from_secs(1);

/// How long the last datagrams may take to leave.
const LINGER: Duration = Duration::from_millis(250);

/// How a peer is reached, `None` where nobody has answered yet, and since when that is known.
#[derive(Debug)]
struct Reach {
    address: Option<Ah>,
    since: Instant,
}

/// By GID and the index of ours.
type Reaches = HashMap<([u8; 16], u8), Reach>;

/// A datagram that waits for an address.
#[derive(Debug)]
struct Held {
    outgoing: Outgoing,
    since: Instant,
}

/// Queue pair 1 of a port. There is one of each port: whoever has it is the port's connection manager. Kernels keep it; models of a
/// device give it to who asks first.
#[derive(Debug)]
pub struct ManagementPort {
    qp: Qp,
    cq: Cq,
    receives: Buffers,
    sends: Buffers,
    pd: Pd,
    port: u8,
    guid: u64,
    reaches: Reaches,
    held: VecDeque<Held>,
    /// GIDs of the port, by index.
    gids: Vec<(u8, [u8; 16])>,
    /// Datagrams that could not be sent.
    unsent: u64,
}

impl Reach {
    fn counts(&self) -> bool {
        self.since.elapsed() < if self.address.is_some() { REMEMBERED } else { UNANSWERED }
    }
}

/// How a peer is reached, as far as that is known: who looks for it again looks no more often than is of use.
fn reach<'a>(reaches: &'a mut Reaches, pd: &Pd, path: &Path) -> Result<&'a Ah, Errno> {
    if reaches.len() >= ADDRESSES_MAX {
        reaches.clear();
    }
    let look = || match Ah::new(pd, path) {
        Ok(address) => Ok(Reach { address: Some(address), since: Instant::now() }),
        Err(error) if error.errno() == Some(Errno::ETIMEDOUT) => {
            Ok(Reach { address: None, since: Instant::now() })
        }
        Err(error) => Err(error.errno().unwrap_or(Errno::EINVAL)),
    };
    let reach = match reaches.entry((path.gid, path.gid_index)) {
        Entry::Occupied(mut known) => {
            if !known.get().counts() {
                known.insert(look()?);
            }
            known.into_mut()
        }
        Entry::Vacant(room) => room.insert(look()?),
    };
    reach.address.as_ref().ok_or(Errno::ETIMEDOUT)
}

impl ManagementPort {
    /// Opens that of a port, from 1.
    ///
    /// # Errors
    /// A device whose kernel keeps it (`EINVAL`), one that somebody has (`EBUSY`), or what the kernel says.
    pub fn open(context: &Context, port: u8) -> Result<Self, VerbsError> {
        let pd = Pd::new(context)?;
        let mut cq = Cq::new(context, CqOptions::new(RECEIVES + SENDS))?;
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Gsi).depth(SENDS, RECEIVES))?;
        qp.make_room(&mut cq)?;
        let receives = Buffers::new(&pd, RECEIVES as usize, GLOBAL_BYTES + BYTES)?;
        let sends = Buffers::new(&pd, SENDS as usize, BYTES)?;
        qp.ready_datagram(port, QKEY, 0)?;
        let guid = context.device()?.base.node_guid.get();
        let (reaches, gids, held) = (HashMap::new(), Vec::new(), VecDeque::new());
        let mut management = Self { qp, cq, receives, sends, pd, port, guid, reaches, held, gids, unsent: 0 };
        management.refresh()?;
        management.refill()?;
        Ok(management)
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.pd.context()
    }

    /// The port, from 1.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    pub(crate) fn guid(&self) -> u64 {
        self.guid
    }

    /// GIDs of the port by index, those of RoCE v2.
    pub(crate) fn gids(&self) -> &[(u8, [u8; 16])] {
        &self.gids
    }

    /// MTU of the port.
    pub(crate) fn mtu(&self) -> Result<Mtu, VerbsError> {
        self.context().active_mtu(self.port)
    }

    /// Reads the table of GIDs again.
    pub(crate) fn refresh(&mut self) -> Result<(), VerbsError> {
        use pollux_uverbs::abi::flags::GidType;
        let own = self.context().gids()?.into_iter();
        let own = own.filter(|gid| gid.port == u32::from(self.port) && gid.kind == GidType::ROCE_V2);
        self.gids = own.filter_map(|gid| Some((u8::try_from(gid.index).ok()?, gid.gid))).collect();
        Ok(())
    }

    fn refill(&mut self) -> Result<(), VerbsError> {
        let Some(mut list) = self.qp.receives() else { return Ok(()) };
        while let Some(buffer) = self.receives.take() {
            list.piece(0, buffer);
        }
        list.ring()?;
        Ok(())
    }

    /// Whether a path leads somewhere, as far as that is known. Where nobody has answered yet the wire is asked, and nothing waits: who
    /// looks again later finds the answer.
    ///
    /// # Errors
    /// `ETIMEDOUT` as long as nobody answers, `ENETUNREACH` where the address is in no subnet of the path's own.
    pub(crate) fn probe(&mut self, path: &Path) -> Result<(), Errno> {
        reach(&mut self.reaches, &self.pd, path).map(drop)
    }

    /// Whether one more can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.sends.available() > 0
    }

    /// Sends a datagram, as soon as its address is known. One that cannot be sent is lost, as on any wire; who waits for its answer sends
    /// it again.
    pub(crate) fn send(&mut self, outgoing: Outgoing) {
        match self.post(&outgoing) {
            Ok(()) => {}
            Err(Errno::ETIMEDOUT) => {
                if self.held.len() >= HELD_MAX {
                    self.held.pop_front();
                    self.unsent += 1;
                }
                self.held.push_back(Held { outgoing, since: Instant::now() });
            }
            // It is counted.
            Err(_) => {}
        }
    }

    /// Sends what waited for an address that is known by now.
    pub(crate) fn send_held(&mut self) {
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else { return };
            if held.since.elapsed() >= HELD {
                self.unsent += 1;
            } else if !self.has_room() || self.post(&held.outgoing) == Err(Errno::ETIMEDOUT) {
                self.held.push_back(held);
            }
        }
    }

    /// Posts a datagram. What cannot be posted is counted.
    ///
    /// # Errors
    /// `ETIMEDOUT`: nobody has answered for its address yet, and it is not counted.
    fn post(&mut self, outgoing: &Outgoing) -> Result<(), Errno> {
        let posted = reach(&mut self.reaches, &self.pd, &outgoing.to).and_then(|address| {
            let buffer = self.sends.filled(&outgoing.bytes[..]).ok_or(Errno::ENOMEM)?;
            let mut batch = self.qp.batch();
            batch.send(0).to(address, QPN, QKEY).piece(buffer).signalled();
            batch.ring().map(drop).map_err(|_| Errno::EIO)
        });
        self.unsent += u64::from(posted.is_err_and(|why| why != Errno::ETIMEDOUT));
        posted
    }

    /// Takes what came in: the way back, and the datagram.
    pub(crate) fn poll(&mut self, mut each: impl FnMut(Path, &[u8])) {
        let (gids, port) = (&self.gids, self.port);
        let mut received = 0;
        self.cq.poll(RECEIVES as usize, |wc| {
            if !wc.is_receive() {
                return;
            }
            received += 1;
            let Some(buffer) = wc.take_buf().filter(|_| wc.is_ok()) else { return };
            let Some((header, datagram)) = buffer.split_at_checked(GLOBAL_BYTES) else { return };
            let ours = Path::destination_gid(header);
            let Some((index, _)) = gids.iter().find(|(_, gid)| Some(*gid) == ours) else { return };
            if let Some(path) = Path::back(wc, header, *index) {
                each(Path { port, ..path }, datagram);
            }
        });
        if received > 0
            && let Err(error) = self.refill()
        {
            tracing::warn!(target: "lib.cm", "{}: cannot post receives: {error}", self.context().name());
        }
    }

    /// Datagrams that were lost here.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }
}

impl Drop for ManagementPort {
    /// What was said last, such as that a connection ends, leaves before the queue pair goes.
    fn drop(&mut self) {
        let begin = Instant::now();
        let is_under_way = |port: &Self| !port.held.is_empty() || port.sends.available() < port.sends.count();
        while is_under_way(self) && begin.elapsed() < LINGER {
            self.send_held();
            self.cq.poll(RECEIVES as usize, |_| {});
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_mlx5_kernel::DoorProfile;
    use pollux_mlx5_model::Model;
    use pollux_mlx5_model::wire::Cable;
    use pollux_verbs::{Options, Provider};

    use super::*;

    fn port(name: &str, ip: &str, plug: Cable) -> (Model, ManagementPort) {
        let address = ip.parse().expect("an address");
        let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
        let model = Model::builder(name).door(door).plugged(plug).ip(address).build().expect("a model");
        let context = Context::open(model.open(), Provider::Mlx5, Options::default()).expect("a context");
        let port = ManagementPort::open(&context, 1).expect("queue pair 1");
        (model, port)
    }

    /// To a peer whose address is not known yet.
    #[test]
    fn what_is_held_at_the_end_still_leaves() {
        let (one, other) = Cable::pair();
        let (_near, mut near) = port("near", "192.0.2.1/24", one);
        let (_far, mut far) = port("far", "192.0.2.2/24", other);
        let gid = |last| std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets();
        let index = near.gids().iter().find(|(_, own)| *own == gid(1)).expect("its own").0;
        let to = Path::new(gid(2), index);
        // As if asked and not answered until a while after the port begins to go: a cable may answer before the first look returns.
        let asked = Reach { address: None, since: Instant::now() + LINGER / 4 };
        near.reaches.insert((to.gid, to.gid_index), asked);
        near.send(Outgoing { to, bytes: Box::new([7; BYTES]) });
        assert_eq!(near.held.len(), 1);
        drop(near);
        let (begin, mut heard) = (Instant::now(), 0);
        while heard == 0 {
            far.poll(|_, bytes| heard = bytes[0]);
            assert!(begin.elapsed() < Duration::from_secs(5), "it went with its port");
        }
        assert_eq!(heard, 7);
    }

    #[test]
    fn who_does_not_answer_holds_up_nobody() {
        let (one, other) = Cable::pair();
        let (_near, mut near) = port("near", "192.0.2.1/24", one);
        let (_far, mut far) = port("far", "192.0.2.2/24", other);
        let gid = |last| std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets();
        let ours = gid(1);
        let index = near.gids().iter().find(|(_, gid)| *gid == ours).expect("its own").0;
        let to = |last| Outgoing { to: Path::new(gid(last), index), bytes: Box::new([last; BYTES]) };
        let begin = Instant::now();
        // More than are held: the last of them is to somebody who is there.
        (100..200).for_each(|last| near.send(to(last)));
        near.send(to(2));
        assert!(begin.elapsed() < HELD / 2, "{:?}", begin.elapsed());
        let mut heard = Vec::new();
        while heard.is_empty() {
            near.send_held();
            far.poll(|_, bytes| heard.push(bytes[0]));
            assert!(begin.elapsed() < HELD, "{:?}", near.unsent());
        }
        assert_eq!(heard, [2]);
        while !near.held.is_empty() {
            near.send_held();
            assert!(begin.elapsed() < 3 * HELD);
        }
        assert_eq!(near.unsent(), 100);
    }
}
