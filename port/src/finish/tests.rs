use super::*;
use crate::driver::{Alone, InBurst, Moved, TxBurst};
use crate::{PortInfo, TxCounters, TxDrop};
use pollux_mempool::{Burst, MbufPool, TxOffload};
use std::sync::{Arc, Mutex};

/// The packets that a driver took: their bytes and what they asked for.
type Taken = Arc<Mutex<Vec<(Vec<u8>, TxFlags)>>>;

/// A driver that takes so many packets a burst and lacks what it is told, from the first packet that asks for it on.
struct Fake {
    taken: Taken,
    room: usize,
    finds_out: TxOffloads,
    lacks: TxOffloads,
}

impl TxBurst for Fake {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let mut moved = Moved::NONE;
        for mbuf in burst.iter().take(self.room) {
            let asks = crate::prepare::needed(mbuf.tx_flags(), 1);
            if asks.intersects(self.finds_out) {
                self.lacks = self.finds_out;
                break;
            }
            let bytes = mbuf.segments().flatten().copied().collect();
            self.taken.lock().expect("no panic").push((bytes, mbuf.tx_flags()));
            moved.packets += 1;
            moved.bytes += u64::from(mbuf.pkt_len());
        }
        burst.free_front(moved.packets);
        moved
    }

    fn lacks(&mut self) -> TxOffloads {
        self.lacks
    }

    fn mode(&self) -> &'static str {
        "fake"
    }
}

/// A queue that finishes, in front of a driver with that room which offers `offloads` and finds out that it lacks `finds_out`.
fn queue(
    room: usize,
    offloads: TxOffloads,
    finds_out: TxOffloads,
) -> (Alone<FinishTx>, Taken, Arc<TxCounters>) {
    let info = PortInfo { max_tso_bytes: 30_000, max_tx_segments: 16, ..PortInfo::default() };
    queue_of(&info, room, offloads, finds_out)
}

/// The same in front of the driver of such a port.
fn queue_of(
    info: &PortInfo,
    room: usize,
    offloads: TxOffloads,
    finds_out: TxOffloads,
) -> (Alone<FinishTx>, Taken, Arc<TxCounters>) {
    let taken = Taken::default();
    let fake = Fake { taken: Arc::clone(&taken), room, finds_out, lacks: TxOffloads::empty() };
    let counters = Arc::new(TxCounters::default());
    let queue = FinishTx::new(Box::new(fake), info, offloads, Arc::clone(&counters));
    (Alone::new(queue, counters.own().expect("free")), taken, counters)
}

fn pool() -> MbufPool {
    MbufPool::builder("finish", 600).build_anonymous().expect("memory")
}

/// Ethernet, IPv4 or IPv6, TCP or UDP with the sum of the pseudo-header where the checksum goes, as the kernel leaves it.
fn open(v6: bool, tcp: bool, payload: usize) -> (Vec<u8>, TxFlags, TxOffload) {
    let head = if tcp { 20 } else { 8 };
    let bytes = (head + payload) as u16;
    let mut frame = vec![2; 12];
    let (kind, protocol) = (if v6 { [0x86, 0xdd] } else { [8, 0] }, if tcp { 6 } else { 17 });
    frame.extend(kind);
    if v6 {
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(bytes.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend([0x20; 32]);
    } else {
        frame.extend([0x45, 0]);
        frame.extend((20 + bytes).to_be_bytes());
        frame.extend([0, 9, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = plain_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
    }
    let l4 = frame.len();
    frame.extend(if tcp {
        vec![0, 80, 0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]
    } else {
        [&[0, 80, 0x30, 0x39][..], &bytes.to_be_bytes(), &[0, 0]].concat()
    });
    let at = l4 + if tcp { 16 } else { 6 };
    let from = if v6 { 22 } else { 26 };
    let pseudo = [&frame[from..l4], &[0, protocol], &bytes.to_be_bytes()].concat();
    frame[at..at + 2].copy_from_slice(&plain_sum(&pseudo).to_be_bytes());
    frame.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
    let flags = if v6 { TxFlags::IPV6 } else { TxFlags::IPV4 };
    let l4_flag = if tcp { TxFlags::TCP_CHECKSUM } else { TxFlags::UDP_CHECKSUM };
    let offload =
        TxOffload { l2_len: 14, l3_len: (l4 - 14) as u16, l4_len: head as u8, ..TxOffload::default() };
    (frame, flags | l4_flag, offload)
}

/// The sum of words as RFC 1071 writes it, shared with nothing that is tested.
fn plain_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Checks every sum of a frame and gives its payload.
fn payload_of(frame: &[u8]) -> Vec<u8> {
    let v6 = frame[12] == 0x86;
    let (l4, from, protocol) = if v6 { (54, 22, frame[20]) } else { (34, 26, frame[23]) };
    let stated = if v6 { [frame[18], frame[19]] } else { [frame[16], frame[17]] };
    let stated = usize::from(u16::from_be_bytes(stated));
    assert_eq!(stated, frame.len() - if v6 { 54 } else { 14 }, "the length that IP states");
    if !v6 {
        assert_eq!(plain_sum(&frame[14..34]), 0xffff, "IPv4 header");
    }
    let bytes = (frame.len() - l4) as u16;
    let all = [&frame[from..l4], &[0, protocol], &bytes.to_be_bytes(), &frame[l4..]].concat();
    assert_eq!(plain_sum(&all), 0xffff, "the transport's checksum");
    frame[l4 + if protocol == 6 { 20 } else { 8 }..].to_vec()
}

fn mbuf(pool: &MbufPool, frame: &[u8], piece: usize) -> Mbuf {
    let mut parts = frame.chunks(piece).map(|part| {
        let mut mbuf = pool.alloc().expect("enough");
        assert!(mbuf.append_slice(part));
        mbuf
    });
    let mut first = parts.next().expect("a frame");
    parts.for_each(|part| first.chain(part).expect("short enough"));
    first
}

const CUT_TCP: TxFlags = TxFlags::TCP_SEGMENTATION.union(TxFlags::TCP_CHECKSUM);

#[test]
fn sums_are_filled_in_for_a_driver_that_fills_in_none() {
    let pool = pool();
    for v6 in [false, true] {
        for tcp in [false, true] {
            // In one mbuf, and in pieces whose ends fall on odd bytes.
            for (payload, piece) in [(0, 2000), (1, 2000), (1001, 2000), (1001, 333), (1400, 99)] {
                let (frame, flags, offload) = open(v6, tcp, payload);
                let (mut queue, taken, counters) = queue(32, TxOffloads::MULTI_SEGS, TxOffloads::empty());
                let mut burst = Burst::new();
                for padding in [0, 3] {
                    let mut packet = mbuf(&pool, &frame, piece);
                    // Behind the packet there may be bytes that are none of it.
                    let trailer = &[0xee; 3][..padding];
                    assert!(packet.append_slice(trailer));
                    packet.set_tx_flags(flags);
                    packet.set_tx_offload(offload);
                    burst.push(packet);
                }
                let moved = queue.tx_burst(&mut burst);
                assert!(burst.is_empty() && moved.packets == 2, "{v6} {tcp} {payload} {piece}");
                let taken = taken.lock().expect("no panic");
                for (bytes, flags) in taken.iter() {
                    assert_eq!(*flags, TxFlags::empty(), "nothing is left to do");
                    assert!(payload_of(&bytes[..frame.len()]) == frame[frame.len() - payload..]);
                }
                assert_eq!(counters.dropped(TxDrop::Malformed), 0);
            }
        }
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_large_packet_is_cut_whatever_the_driver_takes_at_once() {
    let pool = pool();
    for (v6, tcp, room) in [(false, true, 1), (true, true, 7), (false, false, 64), (true, false, 3)] {
        let (frame, flags, offload) = open(v6, tcp, 60_001);
        let (mut queue, taken, _) = queue(room, TxOffloads::CHECKSUM, TxOffloads::empty());
        let mut burst = Burst::new();
        let mut large = mbuf(&pool, &frame, 1900);
        let cut = if tcp { TxFlags::TCP_SEGMENTATION } else { TxFlags::UDP_SEGMENTATION };
        large.set_tx_flags(flags | cut | if v6 { TxFlags::empty() } else { TxFlags::IP_CHECKSUM });
        large.set_tx_offload(TxOffload { tso_segment_bytes: 1448, ..offload });
        burst.push(mbuf(&pool, b"before", 10));
        burst.push(large);
        burst.push(mbuf(&pool, b"behind", 10));
        let (mut rounds, mut packets) = (0, 0);
        while !burst.is_empty() {
            packets += queue.tx_burst(&mut burst).packets;
            rounds += 1;
            assert!(rounds < 100, "it ends");
        }
        let taken = taken.lock().expect("no panic");
        assert_eq!((packets, taken.len()), (44, 44));
        assert!(room >= 44 || rounds > 40 / room, "what finds no room stays with the caller: {rounds}");
        assert_eq!((&taken[0].0[..], &taken[43].0[..]), (&b"before"[..], &b"behind"[..]), "in order");
        let payload: Vec<u8> = taken[1..43].iter().flat_map(|(frame, _)| payload_of(frame)).collect();
        assert!(payload == frame[frame.len() - 60_001..]);
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_packet_that_the_caller_lets_go_takes_its_frames_with_it() {
    let pool = pool();
    let (frame, flags, offload) = open(false, true, 20_000);
    let (mut queue, taken, _) = queue(4, TxOffloads::empty(), TxOffloads::empty());
    let mut burst = Burst::new();
    for _ in 0..3 {
        let mut large = mbuf(&pool, &frame, 1900);
        large.set_tx_flags(flags | CUT_TCP | TxFlags::IP_CHECKSUM);
        large.set_tx_offload(TxOffload { tso_segment_bytes: 1448, ..offload });
        burst.push(large);
        assert_eq!(queue.tx_burst(&mut burst).packets, 4);
        burst.clear();
    }
    burst.push(mbuf(&pool, b"next", 10));
    assert_eq!(queue.tx_burst(&mut burst).packets, 1);
    assert_eq!(taken.lock().expect("no panic").len(), 13, "four of each, and the next");
    assert_eq!(pool.in_use(), 0, "nothing is kept");
}

#[test]
fn a_driver_that_ceases_to_cut_gets_segments() {
    let pool = pool();
    let offloads = TxOffloads::CHECKSUM | TxOffloads::TCP_TSO | TxOffloads::MULTI_SEGS;
    let (mut queue, taken, _) = queue(64, offloads, TxOffloads::TCP_TSO);
    let (frame, flags, offload) = open(true, true, 10_000);
    let mut burst = Burst::new();
    for piece in [1900, 1900] {
        let mut large = mbuf(&pool, &frame, piece);
        large.set_tx_flags(flags | CUT_TCP);
        large.set_tx_offload(TxOffload { tso_segment_bytes: 1448, ..offload });
        burst.push(large);
    }
    let (small, flags, offload) = open(true, true, 10);
    let mut last = mbuf(&pool, &small, 1900);
    last.set_tx_flags(flags);
    last.set_tx_offload(offload);
    burst.push(last);
    assert_eq!(queue.tx_burst(&mut burst).packets, 15);
    let taken = taken.lock().expect("no panic");
    assert_eq!(taken[14], (small, flags), "what the driver does is left to it");
    assert!(taken[..14].iter().all(|(frame, flags)| flags.is_empty() && payload_of(frame).len() <= 1448));
}

#[test]
fn more_than_the_device_can_cut_at_once_is_cut_here() {
    let pool = pool();
    let offloads = TxOffloads::CHECKSUM | TxOffloads::TCP_TSO | TxOffloads::MULTI_SEGS;
    // The device takes 30000 bytes and 16 mbufs.
    for (payload, piece, cut) in [(20_000, 1900, false), (40_000, 1900, true), (20_000, 1000, true)] {
        let (mut queue, taken, _) = queue(64, offloads, TxOffloads::empty());
        let (frame, flags, offload) = open(false, true, payload);
        let mut large = mbuf(&pool, &frame, piece);
        large.set_tx_flags(flags | CUT_TCP | TxFlags::IP_CHECKSUM);
        large.set_tx_offload(TxOffload { tso_segment_bytes: 1448, ..offload });
        let mut burst = Burst::new();
        burst.push(large);
        queue.tx_burst(&mut burst);
        assert_eq!(taken.lock().expect("no panic").len() > 1, cut, "{payload} in pieces of {piece}");
    }
}

#[test]
fn what_makes_no_sense_is_counted() {
    let pool = pool();
    let (frame, flags, offload) = open(false, true, 5000);
    let (mut queue, taken, counters) = queue(64, TxOffloads::MULTI_SEGS, TxOffloads::empty());
    let bad = [
        (flags | CUT_TCP | TxFlags::IP_CHECKSUM, TxOffload { tso_segment_bytes: 0, ..offload }),
        (flags | TxFlags::UDP_SEGMENTATION, TxOffload { tso_segment_bytes: 1000, ..offload }),
        (flags | CUT_TCP, TxOffload { tso_segment_bytes: 1000, l3_len: 24, ..offload }),
        (flags, TxOffload { l3_len: 0, ..offload }),
        (flags, TxOffload { l2_len: 127, l3_len: 511, ..offload }),
        (flags | TxFlags::SECURITY, offload),
    ];
    let mut burst = Burst::new();
    for (flags, offload) in bad {
        let mut packet = mbuf(&pool, &frame, 600);
        packet.set_tx_flags(flags);
        packet.set_tx_offload(offload);
        burst.push(packet);
    }
    assert_eq!(queue.tx_burst(&mut burst), Moved::NONE);
    assert!(burst.is_empty() && taken.lock().expect("no panic").is_empty());
    assert_eq!(counters.dropped(TxDrop::Malformed), bad.len() as u64);
}

#[test]
fn tags_and_crcs_too() {
    let pool = pool();
    let (mut queue, taken, _) = queue(64, TxOffloads::empty(), TxOffloads::empty());
    let (frame, flags, offload) = open(false, false, 50);
    let mut tagged = mbuf(&pool, &frame, 600);
    tagged.set_tx_flags(flags | TxFlags::QINQ | TxFlags::IP_CHECKSUM);
    tagged.set_tx_offload(offload);
    tagged.set_vlan_tci(7);
    tagged.set_vlan_tci_outer(8);
    // RFC 9260: the CRC of 32 zero bytes is 0x8a9136aa (iSCSI, RFC 3720, appendix B.4), low byte first.
    let mut sctp = mbuf(&pool, &[0; 14 + 20 + 32], 600);
    sctp.set_tx_flags(TxFlags::IPV4 | TxFlags::SCTP_CHECKSUM);
    sctp.set_tx_offload(offload);
    let mut burst = Burst::new();
    burst.push(tagged);
    burst.push(sctp);
    assert_eq!(queue.tx_burst(&mut burst).packets, 2);
    let taken = taken.lock().expect("no panic");
    assert_eq!(taken[0].0[12..22], [0x88, 0xa8, 0, 8, 0x81, 0, 0, 7, 8, 0]);
    payload_of(&[&taken[0].0[..12], &taken[0].0[20..]].concat());
    assert_eq!(taken[1].0[34 + 8..34 + 12], [0xaa, 0x36, 0x91, 0x8a]);
}

#[test]
fn plain_packets_pass_untouched() {
    let pool = pool();
    let (mut queue, taken, _) = queue(2, TxOffloads::empty(), TxOffloads::empty());
    let mut burst = Burst::new();
    (0..3).for_each(|_| burst.push(mbuf(&pool, &[7; 60], 100)));
    assert_eq!(queue.tx_burst(&mut burst).packets, 2);
    assert_eq!((burst.len(), taken.lock().expect("no panic").len()), (1, 2));
}

#[test]
fn of_tunnels_a_device_gets_what_it_can_cut() {
    let pool = pool();
    let info = PortInfo {
        max_tso_bytes: 30_000,
        max_tso_header_bytes: 80,
        max_tx_segments: 16,
        ..PortInfo::default()
    };
    // All that mlx5 ports offer.
    let offloads = FINISHED - TxOffloads::UDP_TSO - TxOffloads::OUTER_UDP_CKSUM - TxOffloads::IPIP_TNL_TSO;
    let inner = open(false, true, 3000).0.split_off(14);
    let gre = |head: &[u8]| {
        let carried = [head, &inner].concat();
        let bytes = (20 + carried.len() as u16).to_be_bytes();
        let ip = [0x45, 0, bytes[0], bytes[1], 0, 1, 0, 0, 64, 47, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        [&[2; 12][..], &[8, 0], &ip, &carried].concat()
    };
    for (flags, head, whole) in [
        (TxFlags::TUNNEL_GRE, &[0, 0, 8, 0][..], true),
        (TxFlags::TUNNEL_IP, &[0, 0, 8, 0], true),
        // Its own checksum, as packet sockets tell of it, is beyond devices.
        (TxFlags::TUNNEL_IP | TxFlags::OUTER_UDP_CHECKSUM, &[0x80, 0, 8, 0, 0, 0, 0, 0], false),
        // Longer headers than the device takes.
        (TxFlags::TUNNEL_GRE, &[0x20, 0, 8, 0, 0, 0, 0, 5], false),
        (TxFlags::TUNNEL_IPIP, &[], false),
    ] {
        let (mut queue, taken, counters) = queue_of(&info, 32, offloads, TxOffloads::empty());
        let frame = if head.is_empty() {
            let mut frame = gre(head);
            frame[23] = 4;
            frame
        } else {
            gre(head)
        };
        let mut packet = mbuf(&pool, &frame, 2000);
        let outer = TxFlags::OUTER_IPV4 | TxFlags::OUTER_IP_CHECKSUM;
        packet.set_tx_flags(flags | outer | TxFlags::IPV4 | TxFlags::IP_CHECKSUM | CUT_TCP);
        packet.set_tx_offload(TxOffload {
            outer_l2_len: 14,
            outer_l3_len: 20,
            l2_len: head.len() as u8,
            l3_len: 20,
            l4_len: 20,
            tso_segment_bytes: 1000,
        });
        let mut burst = Burst::new();
        burst.push(packet);
        queue.tx_burst(&mut burst);
        let taken = taken.lock().expect("no panic");
        assert_eq!(taken.len(), if whole { 1 } else { 3 }, "{flags:?} {head:?}");
        assert_eq!(counters.dropped(TxDrop::Malformed), 0);
        for (frame, left) in taken.iter().filter(|_| !whole) {
            assert!(left.is_empty(), "{flags:?}");
            assert_eq!(plain_sum(&frame[14..34]), 0xffff);
            payload_of(&[&frame[..14], &frame[34 + head.len()..]].concat());
            if head.first() == Some(&0x80) {
                assert_eq!(plain_sum(&frame[34..]), 0xffff, "the checksum of GRE");
            }
        }
    }
}
