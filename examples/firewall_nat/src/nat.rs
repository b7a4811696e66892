//! Which inner host has which outer port. All lcores share it without a lock.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pollux::wire::{FiveTuple, IpProtocol, MacAddress};

/// How many ports are tried for a flow whose own is taken.
const TRIES: u16 = 64;

pub(crate) struct Nat {
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: MacAddress,
    /// By protocol and outer port: the inner host's address and port, and its MAC address; 0 while the outer port is free. A port
    /// that was given stays given until the program ends.
    given: [Vec<[AtomicU64; 2]>; 2],
}

impl Nat {
    pub(crate) fn new(address: Ipv4Addr, mac: [u8; 6]) -> Self {
        let given = [(); 2].map(|()| (0..=u16::MAX).map(|_| Default::default()).collect());
        Self { address, mac: MacAddress(mac), given }
    }

    fn entry(&self, protocol: IpProtocol, port: u16) -> &[AtomicU64; 2] {
        &self.given[usize::from(protocol == IpProtocol::TCP)][usize::from(port)]
    }

    /// The outer port of an inner host's flow: the same as inside where that is free.
    pub(crate) fn outer_port(&self, flow: &FiveTuple, mac: MacAddress) -> Option<u16> {
        let SocketAddr::V4(from) = flow.src else { return None };
        let end = u64::from(from.ip().to_bits()) << 16 | u64::from(from.port());
        let mac = mac.0.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        (0..TRIES).map(|turn| from.port().wrapping_add(turn.wrapping_mul(1021))).find(|&port| {
            let [holder, its_mac] = self.entry(flow.protocol, port);
            let free = holder.load(Relaxed) == 0 && holder.compare_exchange(0, end, Relaxed, Relaxed).is_ok();
            let own = free || holder.load(Relaxed) == end;
            if own && its_mac.load(Relaxed) != mac {
                its_mac.store(mac, Relaxed);
            }
            own
        })
    }

    /// The inner host behind the outer port that a packet comes to.
    pub(crate) fn inner(&self, flow: &FiveTuple) -> Option<(MacAddress, Ipv4Addr, u16)> {
        let [holder, mac] = self.entry(flow.protocol, flow.dst.port());
        let (end, [_, _, mac @ ..]) = (holder.load(Relaxed), mac.load(Relaxed).to_be_bytes());
        let is_ours = flow.dst.ip() == IpAddr::V4(self.address) && end != 0;
        is_ours.then(|| (MacAddress(mac), Ipv4Addr::from_bits((end >> 16) as u32), end as u16))
    }
}
