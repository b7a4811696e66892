//! Queue pair 1 of a port: management datagrams, sent and received.

use std::collections::HashMap;
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
/// How long what was found out about an address counts: who asks where nobody answers waits for seconds, and the host that has an address
/// may become another.
const REMEMBERED: Duration = Duration::from_secs(10);

/// How long the last datagrams may take to leave.
const LINGER: Duration = Duration::from_millis(250);

/// How a peer is reached, `None` where nobody answered, and since when that is known.
#[derive(Debug)]
struct Reach {
    address: Option<Ah>,
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
    reaches: HashMap<([u8; 16], u8), Reach>,
    /// GIDs of the port, by index.
    gids: Vec<(u8, [u8; 16])>,
    /// Datagrams that could not be sent.
    unsent: u64,
}

impl Reach {
    fn counts(&self) -> bool {
        self.since.elapsed() < REMEMBERED
    }
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
        let (reaches, gids) = (HashMap::new(), Vec::new());
        let mut management = Self { qp, cq, receives, sends, pd, port, guid, reaches, gids, unsent: 0 };
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

    /// Finds out whether a path leads somewhere, which takes seconds where nobody answers.
    ///
    /// # Errors
    /// `ETIMEDOUT` where nobody answers, `ENETUNREACH` where the address is in no subnet of the path's own.
    pub(crate) fn probe(&mut self, path: &Path) -> Result<(), Errno> {
        let key = (path.gid, path.gid_index);
        if self.reaches.get(&key).is_some_and(|reach| reach.address.is_some() && reach.counts()) {
            return Ok(());
        }
        if self.reaches.len() >= ADDRESSES_MAX {
            self.reaches.clear();
        }
        let made = Ah::new(&self.pd, path);
        let errno = made.as_ref().err().map(|error| error.errno().unwrap_or(Errno::EINVAL));
        self.reaches.insert(key, Reach { address: made.ok(), since: Instant::now() });
        errno.map_or(Ok(()), Err)
    }

    /// Whether one more can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.sends.available() > 0
    }

    /// Sends a datagram. One that cannot be sent is lost, as on any wire; who waits for its answer sends it again.
    pub(crate) fn send(&mut self, outgoing: &Outgoing) {
        let key = (outgoing.to.gid, outgoing.to.gid_index);
        if !self.reaches.get(&key).is_some_and(Reach::counts) {
            // What comes of it is found below.
            self.probe(&outgoing.to).unwrap_or_default();
        }
        let address = self.reaches.get(&key).and_then(|reach| reach.address.as_ref());
        let buffer = address.and_then(|_| self.sends.filled(&outgoing.bytes[..]));
        let Some((address, buffer)) = address.zip(buffer) else {
            self.unsent += 1;
            return;
        };
        let mut batch = self.qp.batch();
        batch.send(0).to(address, QPN, QKEY).piece(buffer).signalled();
        if batch.ring().is_err() {
            self.unsent += 1;
        }
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
        while self.sends.available() < self.sends.count() && begin.elapsed() < LINGER {
            self.cq.poll(RECEIVES as usize, |_| {});
            std::thread::yield_now();
        }
    }
}
