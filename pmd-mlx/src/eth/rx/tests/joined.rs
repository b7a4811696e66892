//! Packets that the device joined of TCP segments.

use pollux_mempool::TxFlags;
use proptest::prelude::*;

use super::super::fake::SayJoined;
use super::*;

/// The sum of RFC 1071, by 16-bit words.
fn sum(parts: &[&[u8]]) -> u16 {
    let all: Vec<u8> = parts.concat();
    let mut sum = 0_u32;
    for pair in all.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// What a packet of the test is made of.
#[derive(Clone, Debug)]
struct Shape {
    tags: usize,
    ipv6: bool,
    options: usize,
    payload: usize,
    segments: u8,
    push: bool,
    acknowledges: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    (0..3_usize, any::<bool>(), 0..=10_usize, 100..5000_usize, 2..9_u8, any::<bool>(), any::<bool>())
        .prop_map(|(tags, ipv6, words, payload, segments, push, acknowledges)| Shape {
            tags,
            ipv6,
            options: words * 4,
            payload,
            segments,
            push,
            acknowledges,
        })
}

impl Shape {
    /// The packet as the device leaves it: the first segment's headers, and where layers 3, 4 and the payload begin.
    fn packet(&self) -> (Vec<u8>, [usize; 3]) {
        let mut bytes = vec![2; 12];
        for tag in 0..self.tags {
            bytes.extend([
                if tag == 0 && self.tags == 2 { 0x88 } else { 0x81 },
                if tag == 0 && self.tags == 2 { 0xa8 } else { 0 },
            ]);
            bytes.extend([0, 7]);
        }
        let l3 = bytes.len() + 2;
        let first = (20 + self.options + self.payload / usize::from(self.segments)) as u16;
        if self.ipv6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(first.to_be_bytes());
            bytes.extend([6, 64]);
            bytes.extend((0..32_u8).map(|at| at.wrapping_mul(9)));
        } else {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((20 + first).to_be_bytes());
            bytes.extend([0, 9, 0x40, 0, 64, 6, 0xde, 0xad, 10, 1, 2, 3, 10, 4, 5, 6]);
        }
        let l4 = bytes.len();
        bytes.extend([0x10, 0, 0x20, 0, 1, 2, 3, 4, 0, 0, 0, 1]);
        bytes.extend([(5 + self.options as u8 / 4) << 4, 0, 0, 5, 0xbe, 0xef, 0, 0]);
        bytes.extend((0..self.options).map(|at| at as u8));
        let payload = bytes.len();
        bytes.extend((0..self.payload).map(|at| ((at * 13) ^ (at >> 7)) as u8));
        (bytes, [l3, l4, payload])
    }

    fn say(&self, payload: &[u8]) -> Say {
        let l4 = if self.acknowledges { 4 } else { 1 };
        let joined = SayJoined {
            segments: self.segments,
            push: self.push,
            ttl: 17,
            window: 0x1234,
            acknowledged: 0xfeed_beef,
            sum: sum(&[payload]),
        };
        Say {
            l4_l3: l4 << 4 | if self.ipv6 { 1 } else { 2 } << 2,
            ok: 7,
            joined: Some(joined),
            ..Say::default()
        }
    }
}

fn plans() -> [Plan; 3] {
    let features = RxFeatures::all();
    [
        Plan { log: 3, segments_log2: 4, features, longest: 6000, ..Plan::default() },
        Plan { log: 3, segments_log2: 0, features, longest: 6000, ..Plan::default() },
        // 12 buffers of 8 strides of 1024 bytes; what is not copied is lent.
        Plan { log: 2, striding: Some((12, 3, 10, 1000)), features, longest: 6000, ..Plan::default() },
    ]
}

#[test]
fn a_packet_of_one_segment_stays_as_it_came() {
    for plan in plans() {
        let pool = MbufPool::builder("one", 512).data_room(8192).cache(0).build_anonymous().expect("pool");
        let (mut queue, mut device, _) = rig(&plan, &pool);
        let shape = Shape {
            tags: 0,
            ipv6: false,
            options: 0,
            payload: 900,
            segments: 1,
            push: true,
            acknowledges: true,
        };
        let (packet, [.., payload]) = shape.packet();
        device.receive(&packet, shape.say(&packet[payload..]));
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1);
        assert_eq!(
            (burst[0].segments().flatten().copied().collect::<Vec<_>>(), burst[0].tx_flags()),
            (packet, TxFlags::empty())
        );
        assert!(!burst[0].rx_flags().contains(RxFlags::LRO));
    }
}

#[test]
fn what_is_no_tcp_is_left_alone_whatever_the_completion_says() {
    let pool = MbufPool::builder("none", 512).data_room(8192).cache(0).build_anonymous().expect("pool");
    let (mut queue, mut device, _) = rig(&plans()[1], &pool);
    let shape =
        Shape { tags: 0, ipv6: false, options: 0, payload: 900, segments: 3, push: true, acknowledges: true };
    let say = shape.say(&[]);
    let (packet, [l3, l4, _]) = shape.packet();
    let mut spoilt = vec![packet[..30].to_vec(), packet[..5].to_vec(), vec![0x81; 200]];
    // A header that is longer than the packet, and one that is shorter than a header.
    for (at, value) in [(12, 9), (l3, 0x40), (l4 + 12, 0x40), (l4 + 12, 0xf0)] {
        let mut other = packet[..l4 + 30].to_vec();
        other[at] = value;
        spoilt.push(other);
    }
    for packet in spoilt {
        device.receive(&packet, say);
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1);
        assert_eq!((burst[0].data(), burst[0].rx_flags().contains(RxFlags::LRO)), (&packet[..], false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Headers fit the whole packet: lengths, checksums, acknowledgement and window, flags; the payload is untouched.
    #[test]
    fn headers_are_mended(shapes in proptest::collection::vec(shape(), 1..12)) {
        for (kind, plan) in plans().into_iter().enumerate() {
            let room = if kind == 0 { 512 } else { 8192 };
            let pool = MbufPool::builder("joined", 512).data_room(room).cache(0).build_anonymous().expect("pool");
            let (mut queue, mut device, _) = rig(&plan, &pool);
            for shape in &shapes {
                let (packet, [l3, l4, payload]) = shape.packet();
                device.receive(&packet, shape.say(&packet[payload..]));
                let mut burst = Burst::new();
                prop_assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1, "{:?}", queue.control().health().trouble());
                let mbuf = &burst[0];
                prop_assert_eq!(mbuf.check(), Ok(()));
                let got: Vec<u8> = mbuf.segments().flatten().copied().collect();
                prop_assert_eq!(&got[payload..], &packet[payload..]);
                prop_assert_eq!(&got[..l3], &packet[..l3]);
                let tcp_bytes = (got.len() - l4) as u16;
                let addresses = if shape.ipv6 {
                    prop_assert_eq!((&got[l3 + 4..l3 + 6], got[l3 + 7]), (&tcp_bytes.to_be_bytes()[..], 17));
                    &got[l3 + 8..l4]
                } else {
                    let all = (got.len() - l3) as u16;
                    prop_assert_eq!((&got[l3 + 2..l3 + 4], got[l3 + 8]), (&all.to_be_bytes()[..], 17));
                    prop_assert_eq!(sum(&[&got[l3..l4]]), 0xffff);
                    &got[l3 + 12..l4]
                };
                prop_assert_eq!(sum(&[addresses, &[0, 6], &tcp_bytes.to_be_bytes(), &got[l4..]]), 0xffff);
                let (ack, window) = if shape.acknowledges { (0xfeed_beef_u32, 0x1234_u16) } else { (1, 5) };
                prop_assert_eq!((&got[l4 + 8..l4 + 12], &got[l4 + 14..l4 + 16]), (&ack.to_be_bytes()[..], &window.to_be_bytes()[..]));
                prop_assert_eq!(got[l4 + 13], if shape.push { 8 } else { 0 });
                let offload = mbuf.tx_offload();
                prop_assert!(mbuf.rx_flags().contains(RxFlags::LRO));
                prop_assert!(mbuf.tx_flags().contains(TxFlags::TCP_SEGMENTATION | TxFlags::TCP_CHECKSUM));
                prop_assert_eq!(
                    (usize::from(offload.l2_len), usize::from(offload.l3_len), usize::from(offload.l4_len)),
                    (l3, l4 - l3, payload - l4)
                );
                prop_assert_eq!(usize::from(offload.tso_segment_bytes), shape.payload.div_ceil(shape.segments.into()));
            }
            drop(queue);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
