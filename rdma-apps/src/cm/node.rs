//! A node, as librdmacm's `udaddy`, `ucmatose` and `mckey` call it: a queue pair of an ID with room for all messages of a run. Source of
//! sizes and order: rdma-core `librdmacm/examples/udaddy.c`, `cmatose.c`, `mckey.c`, `verify_test_params`, `init_node`, `post_recvs`,
//! `post_sends`, `poll_cqs`.

use std::collections::HashMap;
use std::net::SocketAddr;

use pollux_cm::{Id, IdNumber};
use pollux_eal::LcoreContext;
use pollux_verbs::{Ah, Buffers, Cq, CqOptions, Mtu, Path, Pd, Qp, QpKind, QpOptions, Wc};

use super::manager::device_of;
use crate::rdma::Failure;

/// Bytes before a datagram.
const HEADER: usize = 40;

/// IDs on their way to a device, and where they lead.
pub type Waiting = HashMap<IdNumber, (Id, SocketAddr)>;

/// The messages of a node in each direction in which there are some.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// Number of messages; 0 if they have no bytes.
    pub count: u32,
    size: usize,
    sends: bool,
    receives: bool,
}

impl Messages {
    /// The messages of options `-C` and `-S`, of a node that sends them, receives them, or both.
    #[must_use]
    pub fn new(count: u64, size: u64, sends: bool, receives: bool) -> Self {
        Self { count: if size == 0 { 0 } else { count as u32 }, size: size as usize, sends, receives }
    }
}

/// Destination of datagrams.
pub struct Peer {
    ah: Ah,
    qpn: u32,
    qkey: u32,
}

/// A queue pair, its completion queues and a buffer for each message.
pub struct Node {
    /// Its ID.
    pub id: Id,
    /// Its queue pair.
    pub qp: Qp,
    /// Completed sends.
    pub sent: u32,
    /// Completed receives.
    pub received: u32,
    pd: Pd,
    /// One for sends and one for receives, or one for both.
    cqs: Vec<Cq>,
    buffers: Buffers,
    messages: Messages,
}

impl Node {
    /// Creates a node of datagrams for an ID that leads to a device. All receives are posted.
    ///
    /// # Errors
    /// The message does not fit into a datagram, or what the device says.
    pub fn datagrams(id: Id, messages: Messages, block_loopback: bool) -> Result<Self, Failure> {
        let (context, port) = device_of(&id)?;
        let (mtu, size) = (Mtu::active(&context.port(port)?).bytes(), messages.size);
        if messages.count > 0 && size > mtu as usize {
            return Err(Failure::Usage(format!(
                "-S {size}: a datagram is at most one MTU ({mtu}): give at most {mtu}"
            )));
        }
        let depth = messages.count.max(1);
        let cqs = vec![Cq::new(&context, CqOptions::new(2 * depth))?];
        Self::new(id, cqs, QpOptions { block_loopback, ..QpOptions::new(QpKind::Ud) }, messages)
    }

    /// Creates a node of a connection for an ID that leads to a device. All receives are posted.
    ///
    /// # Errors
    /// What the device says.
    pub fn connected(id: Id, messages: Messages) -> Result<Self, Failure> {
        let (context, _) = device_of(&id)?;
        let depth = CqOptions::new(messages.count.max(1));
        let cqs = vec![Cq::new(&context, depth.clone())?, Cq::new(&context, depth)?];
        Self::new(id, cqs, QpOptions::new(QpKind::Rc), messages)
    }

    fn new(id: Id, mut cqs: Vec<Cq>, options: QpOptions, messages: Messages) -> Result<Self, Failure> {
        let (context, _) = device_of(&id)?;
        let pd = Pd::new(&context)?;
        let depth = messages.count.max(1);
        let header = if options.kind == QpKind::Ud { HEADER } else { 0 };
        let (sends, receives) = (&cqs[0], &cqs[cqs.len() - 1]);
        let mut qp = id.create_qp(&pd, sends, receives, &options.depth(depth, depth))?;
        cqs.iter_mut().try_for_each(|cq| qp.make_room(cq))?;
        let directions = usize::from(messages.sends) + usize::from(messages.receives);
        let buffers = Buffers::new(&pd, directions * depth as usize, messages.size + header)?;
        if let Some(mut receives) = qp.receives().filter(|_| messages.receives && messages.count > 0) {
            for number in 0..messages.count {
                if let Some(buffer) = buffers.take() {
                    receives.piece(number.into(), buffer);
                }
            }
            receives.ring()?;
        }
        Ok(Self { id, qp, sent: 0, received: 0, pd, cqs, buffers, messages })
    }

    /// A destination that this node reaches.
    ///
    /// # Errors
    /// What the device says.
    pub fn peer(&self, path: &Path, qpn: u32, qkey: u32) -> Result<Peer, Failure> {
        Ok(Peer { ah: Ah::new(&self.pd, path)?, qpn, qkey })
    }

    /// Sends all messages. A datagram tells its peer the number of this queue pair.
    ///
    /// # Errors
    /// They were sent already, or what the device says.
    pub fn send_all(&mut self, peer: Option<&Peer>) -> Result<(), Failure> {
        let (own, message) = (self.qp.qpn(), vec![0; self.messages.size]);
        let mut batch = self.qp.batch();
        for number in 0..self.messages.count {
            let buffer = self.buffers.filled(&message);
            let buffer =
                buffer.ok_or_else(|| Failure::Error("more messages than there are buffers".into()))?;
            batch.send(number.into());
            if let Some(Peer { ah, qpn, qkey }) = peer {
                batch.imm(own).to(ah, *qpn, *qkey);
            }
            batch.piece(buffer).signalled();
        }
        batch.ring()?;
        Ok(())
    }

    /// Counts completions. `heard` sees each message.
    ///
    /// # Errors
    /// A request failed.
    pub fn poll(&mut self, mut heard: impl FnMut(&mut Wc<'_, '_>)) -> Result<(), Failure> {
        let (sent, received, mut failed) = (&mut self.sent, &mut self.received, None);
        for cq in &mut self.cqs {
            cq.poll(8, |wc| {
                if !wc.is_ok() {
                    failed = Some(Failure::completion(wc.status(), wc.id()));
                } else if wc.is_receive() {
                    *received += 1;
                    heard(wc);
                } else {
                    *sent += 1;
                }
            });
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Polls until all messages are counted. `look` handles events meanwhile: a peer that did not hear an answer asks again.
///
/// # Errors
/// What `poll` or `look` says, or a stop.
pub fn until_done<R>(
    lcore: &LcoreContext,
    run: &mut R,
    mut poll: impl FnMut(&mut R) -> Result<bool, Failure>,
    mut look: impl FnMut(&mut R) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut rounds = 0u32;
    while !poll(run)? {
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(16) {
            look(run)?;
            if lcore.stop_requested() {
                return Err(Failure::Stopped);
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}
