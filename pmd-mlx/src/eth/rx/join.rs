//! Packets that the device joined of TCP segments (LRO): it leaves the first segment's headers as they came, and says in the
//! completion what must be written into them.
//!
//! Source: DPDK `drivers/net/mlx5/mlx5_rx.c`, `mlx5_lro_update_hdr`, `mlx5_lro_update_tcp_hdr`.
#![expect(unsafe_code, reason = "writes headers of packets that were just received")]

use pollux_mempool::{Mbuf, RxFlags, TxFlags, TxOffload};
use pollux_mlx5_abi::cqe::{Layer4, lro, packet};

use pollux_mlx5_common::cq::Entry;

/// Longest headers up to the end of TCP's: Ethernet, two tags, IPv6, TCP with all options. Source: DPDK
/// `drivers/net/mlx5/mlx5_rxq.c`, `MLX5_MAX_LRO_HEADER_FIX`.
pub(crate) const HEADER_BYTES_MAX: usize = 14 + 2 * 4 + 40 + 20 + 40;

/// What a completion says of segments that were joined.
#[derive(Clone, Copy, Debug)]
pub(in crate::eth) struct Joined {
    segments: u8,
    push: bool,
    acknowledges: bool,
    ttl_min: u8,
    window: u16,
    acknowledged: u32,
    /// Sum over the payload.
    sum: u16,
}

impl Joined {
    /// `None` of a packet that was received as it is.
    #[inline(always)]
    pub(in crate::eth) fn read(entry: Entry) -> Option<Self> {
        let segments = lro::segments(entry.srqn_uidx());
        if segments < 2 {
            return None;
        }
        let l4 = entry.l4_l3_hdr_type() >> packet::L4_SHIFT & 7;
        Some(Self {
            segments,
            push: entry.lro_tcppsh_abort_dupack() & lro::PUSH != 0,
            acknowledges: l4 == Layer4::TcpAckNoData as u8 || l4 == Layer4::TcpAckAndData as u8,
            ttl_min: entry.lro_min_ttl(),
            window: entry.lro_tcp_win(),
            acknowledged: entry.lro_ack_seq_num(),
            sum: entry.check_sum(),
        })
    }

    /// Makes the headers those of the whole packet, and says so: it may be cut again as it was.
    #[inline(never)]
    pub(in crate::eth) fn mend(&self, mbuf: &mut Mbuf) {
        let (bytes, len) = (mbuf.data_len().min(HEADER_BYTES_MAX), mbuf.pkt_len() as usize);
        // SAFETY: the packet was just received and nobody else has seen it: its first mbuf's own room, or strides that are
        // completed and lent to this mbuf alone; `bytes` of them are its data.
        let data = unsafe { std::slice::from_raw_parts_mut(mbuf.data_ptr(), bytes) };
        let Some((offload, network)) = self.write(data, len) else { return };
        mbuf.set_tx_offload(offload);
        let cut = network | TxFlags::TCP_SEGMENTATION | TxFlags::TCP_CHECKSUM;
        mbuf.set_tx_flags(mbuf.tx_flags() | cut);
        mbuf.set_rx_flags(mbuf.rx_flags() | RxFlags::LRO);
    }

    /// Writes into the headers at the start of a packet of `len` bytes. `None`, and nothing is written, when they are not
    /// what the device joins.
    fn write(&self, data: &mut [u8], len: usize) -> Option<(TxOffload, TxFlags)> {
        let (mut l3, mut kind) = (14, word(data, 12)?);
        while matches!(kind, 0x8100 | 0x88a8) {
            (kind, l3) = (word(data, l3 + 2)?, l3 + 4);
        }
        let (l4, pseudo) = match kind {
            0x0800 => {
                let l4 = l3 + usize::from(data.get(l3)? & 15) * 4;
                (l4, (l3 + 12, l3 + 20))
            }
            0x86dd => (l3 + 40, (l3 + 8, l3 + 40)),
            _ => return None,
        };
        let payload = l4 + usize::from(data.get(l4 + 12)? >> 4) * 4;
        if l4 < l3 + 20 || payload < l4 + 20 || payload > data.len() || payload > len {
            return None;
        }
        let put =
            |data: &mut [u8], at: usize, value: u16| data[at..at + 2].copy_from_slice(&value.to_be_bytes());
        let network = if kind == 0x0800 {
            data[l3 + 8] = self.ttl_min;
            put(data, l3 + 2, (len - l3) as u16);
            put(data, l3 + 10, 0);
            let sum = !fold(sum(&data[l3..l4]));
            put(data, l3 + 10, sum);
            TxFlags::IPV4 | TxFlags::IP_CHECKSUM
        } else {
            data[l3 + 7] = self.ttl_min;
            put(data, l3 + 4, (len - l4) as u16);
            TxFlags::IPV6
        };
        if self.acknowledges {
            data[l4 + 8..l4 + 12].copy_from_slice(&self.acknowledged.to_be_bytes());
            put(data, l4 + 14, self.window);
        }
        data[l4 + 13] |= if self.push { 8 } else { 0 };
        put(data, l4 + 16, 0);
        // The protocol and the length stand in the pseudo header, too.
        let whole = sum(&data[pseudo.0..pseudo.1]) + 6 + (len - l4) as u32;
        let checksum = !fold(whole + sum(&data[l4..payload]) + u32::from(self.sum));
        put(data, l4 + 16, if checksum == 0 { 0xffff } else { checksum });
        let offload = TxOffload {
            l2_len: l3 as u8,
            l3_len: (l4 - l3) as u16,
            l4_len: (payload - l4) as u8,
            tso_segment_bytes: (len - payload).div_ceil(usize::from(self.segments)) as u16,
            ..TxOffload::default()
        };
        Some((offload, network))
    }
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]))
}

/// The sum over words; all headers have an even number of bytes.
fn sum(data: &[u8]) -> u32 {
    data.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + (once & 0xffff)) as u16
}
