//! A port over whatever carries each frame as a datagram: a socket, a pipe, a protocol of a program's own.
//!
//! Who implements [`Datagrams`], two methods, has a port of one queue each way. It is no built-in driver: a program adds one by name, as
//! `examples/net_udp` does. Each frame is copied once; who wants more writes the two halves of a driver as this file does.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use pollux_mempool::Burst;
use pollux_port::driver::{InBurst, Moved, PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::{FrameSource, Gate, Link, MacAddress, PortError, PortInfo, RxDrop, TxDrop, TxOffloads};

use crate::mac_from_name;

/// The shortest frame: its Ethernet header.
const FRAME_MIN: usize = 14;
/// What stands round a frame's payload: its Ethernet header and a VLAN tag.
const FRAME_OVERHEAD: usize = FRAME_MIN + 4;

/// Takes and gives whole frames, without waiting. The two queues call from an lcore each, at the same time.
pub trait Datagrams: Send + Sync + 'static {
    /// Takes the next frame into `room`: how many bytes of it. Of a longer frame `room` gets the beginning; it is dropped.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock) when none is there. [`BrokenPipe`](ErrorKind::BrokenPipe) or
    /// [`UnexpectedEof`](ErrorKind::UnexpectedEof) when none will ever come: the port is lost. Any other ends the burst.
    fn receive(&self, room: &mut [u8]) -> io::Result<usize>;

    /// Sends a frame.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock) when there is no room now: the packet is offered again. [`BrokenPipe`](ErrorKind::BrokenPipe)
    /// or [`UnexpectedEof`](ErrorKind::UnexpectedEof) when none will ever leave: the port is lost. For any other the packet is dropped.
    fn send(&self, frame: &[u8]) -> io::Result<()>;
}

/// The control half.
#[derive(Debug)]
pub struct DatagramPort<D> {
    /// Shared with the data halves, which may outlive this.
    datagrams: Arc<D>,
    driver: &'static str,
    device: Option<String>,
    mac: MacAddress,
    mtu: u32,
}

impl<D: Datagrams> DatagramPort<D> {
    /// A port of the driver of that name, with an MTU of 1500 and an address made from the port's own name.
    pub fn new(driver: &'static str, name: &str, datagrams: D) -> Self {
        let mac = mac_from_name(name);
        Self { datagrams: Arc::new(datagrams), driver, device: None, mac, mtu: 1500 }
    }

    /// Names what the port stands on, for people.
    #[must_use]
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Gives it another address. Two ports on one link need two: the name may be the same at both ends.
    #[must_use]
    pub fn mac(mut self, mac: MacAddress) -> Self {
        self.mac = mac;
        self
    }

    /// Gives it another MTU, which is fixed from then on. Pools need room for it, and 18 bytes, in one mbuf.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// The longest frame.
    fn frame_max(&self) -> usize {
        FRAME_OVERHEAD + self.mtu as usize
    }
}

impl<D: Datagrams> PortDriver for DatagramPort<D> {
    fn info(&self) -> PortInfo {
        PortInfo {
            driver: self.driver,
            device: self.device.clone(),
            min_mtu: self.mtu,
            max_mtu: self.mtu,
            // Every frame fits one mbuf; a pool with less room is refused before a queue is made.
            min_rx_room: self.frame_max(),
            // Packets of several mbufs are sent. All else that a packet may ask for is done in front of the driver.
            tx_offloads: TxOffloads::MULTI_SEGS,
            tx_queue_offloads: TxOffloads::MULTI_SEGS,
            ..PortInfo::default()
        }
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        // One byte more than the longest frame, so that a longer one shows.
        let room = vec![0; self.frame_max() + 1].into_boxed_slice();
        Ok(Box::new(DatagramRx { datagrams: Arc::clone(&self.datagrams), setup, room }))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        let room = vec![0; self.frame_max()].into_boxed_slice();
        Ok(Box::new(DatagramTx { datagrams: Arc::clone(&self.datagrams), setup, room }))
    }

    fn link(&mut self, started: bool) -> Link {
        Link { up: started, speed_mbps: None, ..Link::default() }
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(self.mtu)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(self.mac)
    }
}

/// Whether the port is lost with the error; then its queues stop, and the application is told.
fn lost(error: &io::Error, gate: &Gate) -> bool {
    let lost = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof);
    if lost {
        gate.set_gone();
    }
    lost
}

/// The data half of the rx queue. It fills cache lines of its own: see `RxBurst`.
#[repr(align(128))]
struct DatagramRx<D> {
    datagrams: Arc<D>,
    setup: RxSetup,
    room: Box<[u8]>,
}

impl<D: Datagrams> RxBurst for DatagramRx<D> {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let first = burst.len();
        // Frames that are dropped count, too: the loop ends whatever arrives.
        for _ in 0..max {
            let bytes = match self.datagrams.receive(&mut self.room) {
                Ok(bytes) => bytes,
                Err(error) => {
                    lost(&error, &self.setup.gate);
                    break;
                }
            };
            let frame = match self.room.get(..bytes) {
                Some(frame) if frame.len() < FRAME_MIN => Err(RxDrop::Malformed),
                Some(frame) if bytes < self.room.len() => Ok(frame),
                _ => Err(RxDrop::TooLong),
            };
            match frame.and_then(|frame| self.setup.pool.alloc_frame(frame).ok_or(RxDrop::NoMbuf)) {
                Ok(mut mbuf) => {
                    mbuf.set_port(self.setup.port.0);
                    burst.push(mbuf);
                }
                Err(reason) => self.setup.counters.drop_for(reason, 1),
            }
        }
        Moved::of(&burst[first..])
    }

    fn mode(&self) -> &'static str {
        "datagram"
    }
}

/// The data half of the tx queue.
#[repr(align(128))]
struct DatagramTx<D> {
    datagrams: Arc<D>,
    setup: TxSetup,
    /// For packets of several mbufs.
    room: Box<[u8]>,
}

impl<D: Datagrams> TxBurst for DatagramTx<D> {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let (mut moved, mut taken) = (Moved::NONE, 0);
        for mbuf in burst.iter() {
            let bytes = mbuf.pkt_len() as usize;
            let sent = match self.room.get_mut(..bytes) {
                // It can never be sent: it is taken, and counted as dropped.
                None => Err(TxDrop::TooLong),
                Some(_) if mbuf.is_contiguous() => Ok(self.datagrams.send(mbuf.data())),
                Some(room) => {
                    mbuf.read(0, room);
                    Ok(self.datagrams.send(room))
                }
            };
            match sent {
                Ok(Ok(())) => moved = Moved { packets: moved.packets + 1, bytes: moved.bytes + bytes as u64 },
                // The rest stays with the caller, who tries again, or finds the port gone.
                Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock || lost(&error, &self.setup.gate) => {
                    break;
                }
                Ok(Err(_)) => self.setup.counters.drop_for(TxDrop::Refused, 1),
                Err(reason) => self.setup.counters.drop_for(reason, 1),
            }
            taken += 1;
        }
        burst.free_front(taken);
        moved
    }

    fn mode(&self) -> &'static str {
        "datagram"
    }
}
