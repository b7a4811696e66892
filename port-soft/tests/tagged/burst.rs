//! Bursts of packets that tell which they are.

use pollux_mempool::{Burst, MbufPool};

/// Packets of 60 bytes, each of them the packet's tag.
pub(crate) fn burst(pool: &MbufPool, tags: std::ops::Range<u8>) -> Burst {
    let mut burst = Burst::new();
    for tag in tags {
        let mut mbuf = pool.alloc().expect("enough mbufs");
        assert!(mbuf.append_slice(&[tag; 60]));
        burst.push(mbuf);
    }
    burst
}
