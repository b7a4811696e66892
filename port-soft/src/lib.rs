//! Ports without a NIC: null, ring, pcap, af_packet, af_xdp, tap.
//!
//! ```text
//!   application -- RxQueue, TxQueue, Port -- pollux_port
//!                                               | PortDriver, RxBurst, TxBurst
//!   null        ring           pcap          af_packet, af_xdp   tap
//!   nowhere     another port   files         an interface        the kernel's stack
//! ```
//!
//! Called by `bringup`, which turns device arguments (`net_null0,size=64`) into the options of each; implements the
//! traits of `port`, takes mbufs from `mempool`, and leaves raw frames to `frame-io`.
//!
//! ```
//! use pollux_mempool::{Burst, MbufPool};
//! use pollux_port::{Port, PortConfig, PortId, Queues};
//! use pollux_port_soft::ring;
//!
//! let pool = MbufPool::builder("example", 255).build_anonymous()?;
//! let mut port = Port::new(PortId(0), "net_ring0", Box::new(ring::looped("net_ring0")));
//! let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(1, 1, &pool))?;
//! let mut burst = Burst::new();
//! pool.alloc_up_to(&mut burst, 8);
//! assert_eq!(tx[0].tx_burst(&mut burst), 8);
//! assert_eq!(rx[0].rx_burst(&mut burst, 32), 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
pub mod af_packet;
pub mod af_xdp;
mod chain;
pub mod datagram;
mod interface;
mod lend;
pub mod null;
mod offload;
pub mod pcap;
pub mod ring;
pub mod tap;
pub mod tee;

use pollux_port::{MacAddress, PortError};

/// A locally administered address made from a port's name, for ports that have none of their own: the same name gives
/// the same address in every run.
#[must_use]
pub fn mac_from_name(name: &str) -> MacAddress {
    // FNV-1a, 64 bit: offset basis and prime from draft-eastlake-fnv.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [_, _, b, c, d, e, f, g] = hash.to_be_bytes();
    // IEEE 802: bit 1 of the first byte is "locally administered", bit 0 "group".
    MacAddress([b & 0xfc | 0x02, c, d, e, f, g])
}

/// What a queue on a descriptor says that is only polled.
fn no_interrupt() -> PortError {
    PortError::unsupported("rx interrupt", "the queue was not configured for interrupts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_unicast_addresses_of_their_own() {
        let macs: std::collections::HashSet<MacAddress> =
            (0..64).map(|n| mac_from_name(&format!("net_null{n}"))).collect();
        assert_eq!(macs.len(), 64);
        assert!(macs.iter().all(|mac| mac.is_unicast()));
        assert_eq!(mac_from_name("net_ring0"), mac_from_name("net_ring0"));
    }
}
