//! The queue pair of a datagram socket at one local address: buffers that are received into, buffers that are sent from, completions.
//!
//! ```text
//!   receive buffer    GRH 40 | source header 8 or 24 | data        as long as any packet of the port, so that none fails the queue pair
//!   send buffer       source header | data                         2048 bytes
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pollux_cm::{EventChannel, Id, IdNumber, PortSpace};
use pollux_verbs::{
    Access, Ah, CompletionChannel, Cq, CqOptions, Mr, Path, Pd, PostError, Qp, QpKind, QpOptions, VerbsError,
    WcStatus, roce_gid,
};

use super::wire::{self, BUFFER_BYTES, SOURCE_BYTES_MAX};
use crate::error::RsError;
use crate::options::RsOptions;

/// Bytes in front of a datagram: the global route header.
const GRH_BYTES: usize = 40;
/// Completions that are taken at once, and how often in one call.
const BURST: usize = 64;
const BURSTS: usize = 16;
/// The key of queue pairs of datagrams. Source: Linux `include/rdma/rdma_cm.h`, `RDMA_UDP_QKEY`; rdma-core `librdmacm/rsocket.c`,
/// `ds_post_send`.
const QKEY: u32 = 0x0123_4567;
/// Of a completion's number: it is a send's.
const SEND: u64 = 1 << 32;

/// Depths of the queue pair: as many buffers as options have room for. Source: rdma-core `librdmacm/rsocket.c`, `ds_set_qp_size`.
pub(crate) fn depths(options: &RsOptions) -> [usize; 2] {
    [(options.sends, options.send_bytes), (options.receives, options.receive_bytes)]
        .map(|(depth, bytes)| usize::from(depth).min(bytes as usize / BUFFER_BYTES))
}

/// A datagram in a receive buffer, whose place is given back by [`Queue::release`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) sender: SocketAddr,
    slot: usize,
    /// Where its data begin in the region, and their length.
    at: usize,
    pub(crate) bytes: usize,
}

/// What completions said, beside what came.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    /// Datagrams without a whole header, whose places were given back.
    pub(crate) malformed: u64,
    /// The queue pair is of no use any more.
    pub(crate) failed: Option<WcStatus>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    qp: Qp,
    cq: Cq,
    channel: CompletionChannel,
    receives: Mr,
    receive_bytes: usize,
    sends: Mr,
    /// Places that are not in use.
    free: Vec<usize>,
    /// Of each place the address handle that its request uses: rxe looks it up when it sends.
    under_way: Vec<Option<Arc<Ah>>>,
    pd: Pd,
    armed: bool,
    address: IpAddr,
    port: u8,
    gid_index: u8,
    data_max: usize,
    inline: usize,
    /// What goes with its request, put together.
    together: Vec<u8>,
    /// Names the device in events; goes last.
    id: Id,
}

impl Queue {
    /// # Errors
    /// No device has the address, it has no GID, or what the device says.
    pub(crate) fn new(channel: &EventChannel, address: IpAddr, options: &RsOptions) -> Result<Self, RsError> {
        let id = channel.create_id(PortSpace::Udp)?;
        // Any port: peers are told the UDP socket's, and nobody asks the connection manager.
        id.bind(SocketAddr::new(address, 0))?;
        let (context, port) = id.device()?.ok_or(RsError::Ended("it leads to no device"))?;
        let gid = context.gid_of(port, address)?.ok_or(RsError::NoGid { address })?;
        let gid_index = u8::try_from(gid.index).map_err(|_| RsError::NoGid { address })?;
        let mtu = context.active_mtu(port)?.bytes() as usize;
        let pd = Pd::new(&context)?;
        let channel = CompletionChannel::new(&context)?;
        let [sends, receives] = depths(options);
        let [send_depth, receive_depth] = [sends as u32, receives as u32];
        let mut cq = Cq::new(&context, CqOptions::new(send_depth + receive_depth).channel(&channel))?;
        let queue =
            QpOptions::new(QpKind::Ud).depth(send_depth, receive_depth).pieces(1, 1).inline(options.inline);
        let qp = id.create_qp(&pd, &cq, &cq, &queue)?;
        qp.make_room(&mut cq)?;
        let receive_bytes = GRH_BYTES + mtu.max(BUFFER_BYTES);
        let made = Self {
            receives: Mr::allocate(&pd, receives * receive_bytes, Access::LOCAL_WRITE)?,
            sends: Mr::allocate(&pd, sends * BUFFER_BYTES, Access::LOCAL_WRITE)?,
            free: (0..sends).rev().collect(),
            under_way: vec![None; sends],
            armed: false,
            data_max: wire::data_max(address, mtu),
            inline: qp.sizes().inline as usize,
            together: Vec::new(),
            qp,
            cq,
            channel,
            receive_bytes,
            pd,
            address,
            port,
            gid_index,
            id,
        };
        made.with_receives(receives)
    }

    fn with_receives(mut self, count: usize) -> Result<Self, RsError> {
        self.post(0..count)?;
        Ok(self)
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    pub(crate) fn id(&self) -> IdNumber {
        self.id.number()
    }

    /// The most data of a datagram.
    pub(crate) fn data_max(&self) -> usize {
        self.data_max
    }

    /// A datagram can be sent.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Everything that was sent has left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.free.len() == self.under_way.len()
    }

    /// A destination that this queue pair reaches: with RoCE an address is a GID.
    pub(crate) fn address_handle(&self, peer: IpAddr) -> Result<Ah, RsError> {
        let path = Path { port: self.port, ..Path::new(roce_gid(peer), self.gid_index) };
        Ok(Ah::new(&self.pd, &path)?)
    }

    /// Sends a datagram of at most [`data_max`](Self::data_max) bytes. `false`: there is no room.
    pub(crate) fn send(
        &mut self,
        sender: SocketAddr,
        to: (&Arc<Ah>, u32),
        data: &[u8],
    ) -> Result<bool, RsError> {
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let (header, (ah, qpn)) = (wire::source(sender), to);
        let header = header.bytes();
        let bytes = header.len() + data.len();
        let mut batch = self.qp.batch();
        batch.send(SEND | slot as u64).to(ah, qpn, QKEY).signalled();
        if bytes <= self.inline {
            self.together.clear();
            self.together.extend_from_slice(header);
            self.together.extend_from_slice(data);
            batch.inline(&self.together);
        } else {
            let at = slot * BUFFER_BYTES;
            self.sends.write(at, header);
            self.sends.write(at + header.len(), data);
            batch.mr(&self.sends, at..at + bytes);
        }
        match batch.ring() {
            Ok(_) => {
                self.under_way[slot] = Some(Arc::clone(ah));
                Ok(true)
            }
            Err(error) => {
                self.free.push(slot);
                Err(posted(error))
            }
        }
    }

    /// Takes what completed, up to a limit: a peer that sends without end has its turn, and then others. What came is added to `came`.
    pub(crate) fn poll(&mut self, came: &mut Vec<Received>) -> Completions {
        let mut completions = Completions::default();
        for _ in 0..BURSTS {
            let mut unused = Vec::new();
            let Self { cq, receives, receive_bytes, free, under_way, .. } = self;
            let taken = cq.poll(BURST, |wc| {
                if !wc.is_ok() && wc.status() != WcStatus::WR_FLUSH_ERR {
                    completions.failed.get_or_insert(wc.status());
                }
                let slot = (wc.id() & (SEND - 1)) as usize;
                if wc.id() & SEND != 0 {
                    if under_way[slot].take().is_some() {
                        free.push(slot);
                    }
                } else if wc.is_ok() {
                    let begin = slot * *receive_bytes;
                    match read(receives, begin, (wc.bytes() as usize).min(*receive_bytes)) {
                        Some((sender, at, bytes)) => {
                            came.push(Received { sender, slot, at, bytes });
                        }
                        None => unused.push(slot),
                    }
                }
            });
            completions.malformed += unused.len() as u64;
            if let Err(error) = self.post(unused) {
                tracing::debug!(target: "lib.rsocket", "a datagram's buffer is lost: {error}");
                completions.failed.get_or_insert(WcStatus::FATAL_ERR);
            }
            if taken < BURST {
                break;
            }
        }
        completions
    }

    /// Copies the beginning of a datagram's data, as much as there is room for.
    pub(crate) fn copy(&self, received: &Received, into: &mut [u8]) -> usize {
        let bytes = received.bytes.min(into.len());
        self.receives.read(received.at, &mut into[..bytes]);
        bytes
    }

    /// Gives the buffer of a datagram back.
    pub(crate) fn release(&mut self, received: &Received) -> Result<(), RsError> {
        self.post([received.slot])
    }

    fn post(&mut self, slots: impl IntoIterator<Item = usize>) -> Result<(), RsError> {
        let Some(mut receives) = self.qp.receives() else { return Ok(()) };
        for slot in slots {
            let begin = slot * self.receive_bytes;
            receives.mr(slot as u64, &self.receives, begin..begin + self.receive_bytes);
        }
        receives.ring().map_err(posted)?;
        Ok(())
    }

    /// Asks for an event at the next completion. Those that are there already make none: poll again.
    pub(crate) fn arm(&mut self) -> Result<CompletionChannel, RsError> {
        if !self.armed {
            self.cq.notify(false)?;
            self.armed = true;
        }
        Ok(self.channel.clone())
    }

    pub(crate) fn is_software(&self) -> bool {
        self.pd.context().provider().is_software()
    }

    /// Takes the event, if it came. Whether it did.
    pub(crate) fn disarm(&mut self) -> Result<bool, RsError> {
        let was_armed = self.armed;
        while self.armed && self.channel.next()?.is_some() {
            self.cq.event_taken();
            self.armed = false;
        }
        Ok(was_armed && !self.armed)
    }
}

fn posted(error: PostError) -> RsError {
    VerbsError::from(error).into()
}

/// The sender of a datagram of `bytes` bytes with its GRH at `begin`, where its data begin, and their length.
fn read(receives: &Mr, begin: usize, bytes: usize) -> Option<(SocketAddr, usize, usize)> {
    let bytes = bytes.checked_sub(GRH_BYTES)?;
    let mut header = [0; SOURCE_BYTES_MAX];
    let header = &mut header[..bytes.min(SOURCE_BYTES_MAX)];
    receives.read(begin + GRH_BYTES, header);
    let (sender, length) = wire::read_source(header)?;
    Some((sender, begin + GRH_BYTES + length, bytes - length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from `ds_set_qp_size`.
    #[test]
    fn depths_are_as_many_as_buffers_fit() {
        assert_eq!(depths(&RsOptions::default()), [64, 64]);
        let large = RsOptions::default().send_buffer(1 << 20).receive_buffer(1 << 20);
        assert_eq!(depths(&large), [384, 384]);
        assert_eq!(depths(&RsOptions::default().send_buffer(4096).receive_buffer(4096)), [2, 2]);
        assert_eq!(depths(&RsOptions::default().depth(16, 32)), [16, 32]);
    }
}
