//! net_udp: a whole driver. Each frame is the payload of a UDP datagram, from one address to another.
//!
//! It takes no privileges and loses frames where UDP does: when the other end is not there, or is slower.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use pollux::config::{ConfigError, KeyReader};
use pollux::eal::Eal;
use pollux::mempool::{Burst, Mbuf, MbufPool};
use pollux::port::driver::{InBurst, Moved, PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux::port::{
    Link, MacAddr, PortConfig, PortError, PortId, PortInfo, RxCounters, RxDrop, TxCounters, TxDrop,
    TxOffloads,
};

/// The largest payload of a frame.
const MTU: u32 = 1500;
/// The shortest frame: its Ethernet header.
const FRAME_MIN: usize = 14;
/// The longest frame: header, a VLAN tag, payload.
const FRAME_MAX: usize = 14 + 4 + MTU as usize;

/// What the device argument says: `net_udp0,local=127.0.0.1:4000,peer=127.0.0.1:4001`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpOptions {
    /// `local`: where frames arrive.
    pub(crate) local: SocketAddr,
    /// `peer`: where they go, and who alone may send some.
    pub(crate) peer: SocketAddr,
}

impl UdpOptions {
    /// Reads them. Keys that are left over are refused by whoever calls.
    ///
    /// # Errors
    /// A key is missing, or its value is no address.
    pub(crate) fn read(keys: &mut KeyReader<'_>) -> Result<Self, ConfigError> {
        let local = address(keys, "local", "local=127.0.0.1:4000")?;
        let peer = address(keys, "peer", "peer=127.0.0.1:4001")?;
        if local.is_ipv4() != peer.is_ipv4() {
            let problem = "is not of the same family as local=: give both IPv4 or both IPv6 addresses";
            return Err(keys.bad("peer", &peer.to_string(), problem));
        }
        Ok(Self { local, peer })
    }
}

fn address(keys: &mut KeyReader<'_>, key: &'static str, example: &str) -> Result<SocketAddr, ConfigError> {
    let text = keys.required(key, example)?;
    let problem = "is not ADDRESS:PORT, such as 127.0.0.1:4000 or [::1]:4000";
    text.parse().map_err(|_| keys.bad(key, text, problem))
}

/// The control half: the port as its handle sees it.
pub(crate) struct UdpPort {
    /// Shared with the data halves, which may outlive this.
    socket: Arc<UdpSocket>,
    local: SocketAddr,
    started: bool,
}

impl UdpPort {
    /// Opens the socket. The name and the EAL are there for drivers that need them: an address made of the name, say, or memory.
    ///
    /// # Errors
    /// [`PortError::Device`], with what the kernel said.
    pub(crate) fn open(_name: &str, options: UdpOptions, _eal: &Eal) -> Result<Self, PortError> {
        Self::new(options)
    }

    /// The same, for a test that has no EAL.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn new(options: UdpOptions) -> Result<Self, PortError> {
        let failed = |what: &str, address: SocketAddr| {
            let operation = format!("{what} {address}");
            move |error: std::io::Error| PortError::device(operation, error)
        };
        let socket = UdpSocket::bind(options.local).map_err(failed("bind to", options.local))?;
        socket.connect(options.peer).map_err(failed("connect to", options.peer))?;
        socket.set_nonblocking(true).map_err(failed("poll", options.local))?;
        let local = socket.local_addr().map_err(failed("use", options.local))?;
        Ok(Self { socket: Arc::new(socket), local, started: false })
    }

    /// Where frames arrive.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }
}

impl PortDriver for UdpPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            driver: "net_udp",
            device: Some(self.local.to_string()),
            min_mtu: MTU,
            max_mtu: MTU,
            // Every frame fits one mbuf; a pool with less room is refused before a queue is made.
            min_rx_room: FRAME_MAX,
            // Packets of several mbufs are sent. All else that a packet may ask for is done in front of the driver.
            tx_offloads: TxOffloads::MULTI_SEGS,
            tx_queue_offloads: TxOffloads::MULTI_SEGS,
            ..PortInfo::default()
        }
    }

    fn configure(&mut self, _config: &PortConfig) -> Result<(), PortError> {
        Ok(())
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Ok(Box::new(UdpRx {
            socket: Arc::clone(&self.socket),
            pool: setup.pool,
            port: setup.port,
            counters: setup.counters,
            room: Box::new([0; FRAME_MAX + 1]),
        }))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Ok(Box::new(UdpTx {
            socket: Arc::clone(&self.socket),
            counters: setup.counters,
            room: Box::new([0; FRAME_MAX]),
        }))
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.started = true;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.started = false;
        Ok(())
    }

    fn link(&mut self) -> Link {
        Link::fixed(self.started, 10_000)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(MTU)
    }

    fn mac_address(&mut self) -> Result<MacAddr, PortError> {
        // Locally administered (IEEE 802), and another for each UDP port of a machine.
        let [high, low] = self.local().port().to_be_bytes();
        Ok(MacAddr([0x02, b'u', b'd', b'p', high, low]))
    }
}

/// The data half of the rx queue. It fills cache lines of its own: see `RxBurst`.
#[repr(align(128))]
struct UdpRx {
    socket: Arc<UdpSocket>,
    pool: MbufPool,
    port: PortId,
    counters: Arc<RxCounters>,
    /// One byte more than the longest frame, so that a longer one shows.
    room: Box<[u8; FRAME_MAX + 1]>,
}

impl UdpRx {
    /// Takes one datagram; `None` when there is none.
    fn frame(&mut self) -> Option<Result<Mbuf, RxDrop>> {
        // The kernel tells here, too, that an earlier datagram found nobody: then this burst ends early.
        let bytes = self.socket.recv(&mut *self.room).ok()?;
        Some(match bytes {
            ..FRAME_MIN => Err(RxDrop::Malformed),
            FRAME_MIN..=FRAME_MAX => self.mbuf(bytes).ok_or(RxDrop::NoMbuf),
            _ => Err(RxDrop::TooLong),
        })
    }

    fn mbuf(&self, bytes: usize) -> Option<Mbuf> {
        let mut mbuf = self.pool.alloc()?;
        let fits = mbuf.append_slice(&self.room[..bytes]);
        debug_assert!(fits, "the pool has the room that `min_rx_room` asks for");
        mbuf.set_port(self.port.0);
        Some(mbuf)
    }
}

impl RxBurst for UdpRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let first = burst.len();
        // Frames that are dropped count, too: the loop ends whatever arrives.
        for _ in 0..max {
            match self.frame() {
                None => break,
                Some(Ok(mbuf)) => burst.push(mbuf),
                Some(Err(reason)) => self.counters.drop_for(reason, 1),
            }
        }
        Moved::of(&burst[first..])
    }

    fn mode(&self) -> &'static str {
        "udp"
    }
}

/// The data half of the tx queue.
#[repr(align(128))]
struct UdpTx {
    socket: Arc<UdpSocket>,
    counters: Arc<TxCounters>,
    /// For packets of several mbufs.
    room: Box<[u8; FRAME_MAX]>,
}

impl TxBurst for UdpTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let (mut moved, mut taken) = (Moved::NONE, 0);
        for mbuf in burst.iter() {
            let bytes = mbuf.pkt_len() as usize;
            let frame = match mbuf.data() {
                _ if bytes > FRAME_MAX => {
                    // It can never be sent: it is taken, and counted as dropped.
                    self.counters.drop_for(TxDrop::TooLong, 1);
                    taken += 1;
                    continue;
                }
                whole if mbuf.is_contiguous() => whole,
                _ => {
                    mbuf.read(0, &mut self.room[..bytes]);
                    &self.room[..bytes]
                }
            };
            match self.socket.send(frame) {
                Ok(_) => moved = Moved { packets: moved.packets + 1, bytes: moved.bytes + bytes as u64 },
                // Full: the rest stays with the caller, who tries again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.counters.drop_for(TxDrop::Refused, 1),
            }
            taken += 1;
        }
        burst.free_front(taken);
        moved
    }

    fn mode(&self) -> &'static str {
        "udp"
    }
}
