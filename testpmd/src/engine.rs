//! Forwarding engines: what becomes of a stream's packets. A file each, whose loop is one screen.

mod csum;
mod five_tuple_swap;
mod flowgen;
mod icmpecho;
mod io;
mod mac;
mod macswap;
mod noisy;
mod packets;
mod rxonly;
mod txonly;

use pollux_mempool::{Mbuf, TxFlags};
use pollux_port::MacAddress;

use crate::lane::Lane;

pub use csum::{Csum, CsumSettings, GRO_FLUSH_MAX, Regroup, gro_packets};
pub use five_tuple_swap::FiveTupleSwap;
pub use flowgen::Flowgen;
pub use icmpecho::IcmpEcho;
pub use io::Io;
pub use mac::Mac;
pub use macswap::MacSwap;
pub use noisy::{Noisy, NoisyForward, NoisySettings};
pub(crate) use packets::room;
pub use packets::{TxPlan, TxSettings, TxSplit};
pub use rxonly::RxOnly;
pub use txonly::TxOnly;

/// One way to forward. Each stream has a value of its own.
pub trait Engine: Send + 'static {
    /// One round: a burst in, a burst out, as far as the engine does either; the packets that moved.
    fn round(&mut self, lane: &mut Lane) -> usize;

    /// Whether it has work though nothing arrives: its lcore does not sleep then.
    fn has_work(&self) -> bool {
        false
    }

    /// The last round: what the engine holds back goes.
    fn finish(&mut self, _lane: &mut Lane) {}
}

/// Names an engine, as `--forward-mode` and `set fwd` do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Sends on what is received.
    #[default]
    Io,
    /// Sets the addresses: to the peer, from the port.
    Mac,
    /// Exchanges the addresses.
    MacSwap,
    /// Makes flows that differ in their destination.
    Flowgen,
    /// Receives and drops.
    RxOnly,
    /// Makes packets and sends them.
    TxOnly,
    /// Recomputes checksums, in software or by the port.
    Csum,
    /// Answers ARP requests and pings.
    IcmpEcho,
    /// Behaves like a noisy neighbour: keeps packets, walks over memory.
    Noisy,
    /// Exchanges addresses of layers 2 and 3, and ports.
    FiveTupleSwap,
}

impl Mode {
    /// All of them, as DPDK orders them.
    pub const ALL: [Self; 10] = [
        Self::Io,
        Self::Mac,
        Self::MacSwap,
        Self::Flowgen,
        Self::RxOnly,
        Self::TxOnly,
        Self::Csum,
        Self::IcmpEcho,
        Self::Noisy,
        Self::FiveTupleSwap,
    ];

    /// DPDK's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Mac => "mac",
            Self::MacSwap => "macswap",
            Self::Flowgen => "flowgen",
            Self::RxOnly => "rxonly",
            Self::TxOnly => "txonly",
            Self::Csum => "csum",
            Self::IcmpEcho => "icmpecho",
            Self::Noisy => "noisy",
            Self::FiveTupleSwap => "5tswap",
        }
    }

    /// The engine of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether what a port receives leaves by that port again, whatever the topology.
    #[must_use]
    pub fn loops(self) -> bool {
        self == Self::IcmpEcho
    }
}

/// The ends of a stream as packets name them.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The address of the port that sends.
    pub source: MacAddress,
    /// The address that packets are sent to: `--eth-peer`, else `02:00:00:00:00:<tx port>`.
    pub peer: MacAddress,
}

impl Ends {
    /// Destination, then source: how a frame begins.
    #[must_use]
    pub fn head(&self) -> [u8; 12] {
        let mut head = [0; 12];
        head[..6].copy_from_slice(&self.peer.0);
        head[6..].copy_from_slice(&self.source.0);
        head
    }
}

/// What the port that sends adds to each packet: VLAN tags (`tx_vlan set`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// The flags that ask for it.
    pub flags: TxFlags,
    /// The tag, or the inner one.
    pub tci: u16,
    /// The outer tag.
    pub tci_outer: u16,
}

impl Marks {
    /// Marks packets. Costs nothing where nothing is to be added.
    #[inline(always)]
    pub fn put(&self, packets: &mut [Mbuf]) {
        if !self.flags.is_empty() {
            self.put_all(packets);
        }
    }

    #[cold]
    fn put_all(&self, packets: &mut [Mbuf]) {
        for mbuf in packets {
            let flags = mbuf.tx_flags() | self.flags;
            mbuf.set_tx_flags(flags);
            mbuf.set_vlan_tci(self.tci);
            mbuf.set_vlan_tci_outer(self.tci_outer);
        }
    }
}
