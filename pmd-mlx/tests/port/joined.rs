//! TCP segments that the device joins: streams come out whole, however they were cut and whatever happens on the way.

use std::collections::HashMap;
use std::time::Duration;

use pollux_mempool::{Burst, MbufPool, RxFlags};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::fault::{EntryFault, FaultPlan};
use pollux_mlx5_model::time::Clock;
use pollux_pmd_mlx::Arguments;
use pollux_port::driver::RxDescriptor;
use pollux_port::{PortConfig, PortError, RxOffloads};

use crate::fault::{Chance, seeds};
use crate::harness::{A, B, Pair, burst, pool};

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in parts.concat().chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// One end of a TCP connection that only sends.
struct Stream {
    port: u16,
    ipv6: bool,
    sent: usize,
}

impl Stream {
    const BYTES: usize = 60_000;

    fn byte(&self, at: usize) -> u8 {
        ((at * 31) ^ (at >> 8) ^ usize::from(self.port)) as u8
    }

    /// The next segment.
    fn segment(&mut self, chance: &mut Chance) -> Vec<u8> {
        let bytes = (1 + chance.below(1400) as usize).min(Self::BYTES - self.sent);
        let payload: Vec<u8> = (self.sent..self.sent + bytes).map(|at| self.byte(at)).collect();
        let mut frame = [&B[..], &A].concat();
        let tcp_bytes = (20 + bytes) as u16;
        let ttl = 30 + chance.below(40) as u8;
        let addresses = if self.ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(tcp_bytes.to_be_bytes());
            frame.extend([6, ttl]);
            frame.extend((0..32).map(|at| at * 3));
            frame[22..54].to_vec()
        } else {
            let mut ip =
                [&[0x45, 0][..], &(20 + tcp_bytes).to_be_bytes(), &[0, 1, 0x40, 0, ttl, 6, 0, 0]].concat();
            ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            let checksum = !sum(&[&ip]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(&ip);
            ip[12..].to_vec()
        };
        let mut tcp = [self.port.to_be_bytes(), [0, 80]].concat();
        // The number wraps in the middle of the stream.
        tcp.extend((0xffff_8000_u32).wrapping_add(self.sent as u32).to_be_bytes());
        tcp.extend((self.sent as u32).to_be_bytes());
        let push = if chance.one_in(8) { 8 } else { 0 };
        tcp.extend([0x50, 0x10 | push]);
        tcp.extend((self.sent as u16).to_be_bytes());
        tcp.extend([0; 4]);
        let checksum = !sum(&[&addresses, &[0, 6], &tcp_bytes.to_be_bytes(), &tcp, &payload]);
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(tcp);
        frame.extend(payload);
        self.sent += bytes;
        frame
    }
}

/// Takes a packet apart: stream, where in it, and the payload; everything in the headers must be right.
fn payload(packet: &[u8], streams: &[Stream]) -> (u16, usize, Vec<u8>) {
    let (l4, addresses, end) = if packet[12..14] == [8, 0] {
        assert_eq!(sum(&[&packet[14..34]]), 0xffff, "the IP checksum");
        (34, 26..34, 14 + usize::from(u16::from_be_bytes([packet[16], packet[17]])))
    } else {
        (54, 22..54, 54 + usize::from(u16::from_be_bytes([packet[18], packet[19]])))
    };
    let length = (end - l4) as u16;
    let whole = sum(&[&packet[addresses], &[0, 6], &length.to_be_bytes(), &packet[l4..end]]);
    assert_eq!(whole, 0xffff, "the TCP checksum of {} bytes", packet.len());
    let port = u16::from_be_bytes([packet[l4], packet[l4 + 1]]);
    let word = |at: usize| u32::from_be_bytes(packet[l4 + at..l4 + at + 4].try_into().expect("four"));
    let at = word(4).wrapping_sub(0xffff_8000) as usize;
    let stream = streams.iter().find(|stream| stream.port == port).expect("one of ours");
    let data = packet[l4 + 20..end].to_vec();
    assert!(data.iter().zip(at..).all(|(byte, at)| *byte == stream.byte(at)), "bytes of the stream at {at}");
    // The acknowledgement is the last segment's, which begins in what is here.
    assert!((at..at + data.len()).contains(&(word(8) as usize)), "{} of {at}", word(8));
    (port, at, data)
}

/// What came of the streams, and in how many packets of how many segments.
#[derive(Debug, Default)]
struct Came {
    upto: HashMap<u16, Vec<(usize, usize)>>,
    packets: usize,
    joined: usize,
    longest: usize,
}

impl Came {
    fn take(&mut self, burst: &Burst, streams: &[Stream]) {
        for mbuf in burst {
            let packet: Vec<u8> = mbuf.segments().flatten().copied().collect();
            assert_eq!(mbuf.check(), Ok(()));
            let (port, at, data) = payload(&packet, streams);
            self.upto.entry(port).or_default().push((at, at + data.len()));
            self.packets += 1;
            self.longest = self.longest.max(packet.len());
            self.joined += usize::from(mbuf.rx_flags().contains(RxFlags::LRO));
            assert!(mbuf.rx_flags().contains(RxFlags::L4_CHECKSUM_GOOD));
        }
    }
}

/// Sends the streams, cut by chance, and receives them.
fn exchange(
    chance: &mut Chance,
    arguments: Arguments,
    room: usize,
    limit: Option<u32>,
    faults: FaultPlan,
) -> (Came, usize) {
    let clock = Clock::stepped();
    let pair = Pair::with(DoorProfile::default(), |config| DeviceConfig {
        clock: clock.clone(),
        faults: if config.mac[5] == 2 { faults.clone() } else { FaultPlan::default() },
        ..config
    });
    let faulty = faults != FaultPlan::default();
    let pool_a = pool("a", 2047);
    let pool_b = MbufPool::builder("b", 4095).data_room(room).cache(0).build_anonymous().expect("a pool");
    let mut streams: Vec<_> =
        (0..4).map(|at| Stream { port: 1000 + at, ipv6: at % 2 == 1, sent: 0 }).collect();
    let (mut came, mut count) = (Came::default(), 0);
    {
        let (mut a, mut b) = (pair.a.open(Arguments::default()), pair.b.open(arguments));
        let mut sender = a.bring_up(PortConfig::queues(0, 1, &pool_a)).expect("up");
        let config = PortConfig {
            rx_offloads: RxOffloads::TCP_LRO | RxOffloads::CHECKSUM,
            max_lro_bytes: limit,
            ..PortConfig::queues(2, 0, &pool_b)
        };
        let mut receiver = b.bring_up(config).expect("up");
        let mut poll = |came: &mut Came, streams: &[Stream]| {
            for queue in &mut receiver.rx {
                let mut burst = Burst::new();
                while queue.rx_burst(&mut burst, 32) > 0 {
                    came.take(&burst, streams);
                    burst.clear();
                }
            }
        };
        while streams.iter().any(|stream| stream.sent < Stream::BYTES) {
            let frames: Vec<_> = (0..1 + chance.below(20))
                .filter_map(|_| {
                    let at = chance.below(4) as usize;
                    (streams[at].sent < Stream::BYTES).then(|| streams[at].segment(chance))
                })
                .collect();
            count += frames.len();
            let mut sent = burst(&pool_a, &frames);
            assert_eq!(sender.tx[0].tx_burst(&mut sent), frames.len());
            pair.settle();
            if chance.one_in(3) {
                clock.advance(Duration::from_micros(chance.below(20)));
                pair.settle();
            }
            poll(&mut came, &streams);
            if faulty {
                b.stats();
                pair.settle();
            }
        }
        // What is still held is let go when its time is over.
        clock.advance(Duration::from_millis(2));
        pair.settle();
        poll(&mut came, &streams);
        pair.b.assert_orderly();
    }
    assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
    (came, count)
}

/// Each stream is whole, and nothing of it came twice or out of turn.
fn assert_whole(came: &Came) {
    assert_eq!(came.upto.len(), 4);
    for (port, pieces) in &came.upto {
        let mut next = 0;
        for (from, to) in pieces {
            assert_eq!(*from, next, "stream {port}");
            next = *to;
        }
        assert_eq!(next, Stream::BYTES, "stream {port}");
    }
}

#[test]
fn streams_come_out_whole_however_they_were_cut() {
    for seed in seeds(6) {
        println!("seed {seed}");
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let striding = Arguments { striding: true, striding_queues_min: 1, ..Arguments::default() };
        for (arguments, room) in [
            (Arguments::default(), 2176),
            (Arguments { rx_vector: false, ..Arguments::default() }, 1024),
            (Arguments { lro_timeout_us: Some(1024), ..Arguments::default() }, 2176),
            (striding.clone(), 2176),
            (Arguments { striding_copy_max: 60_000, ..striding }, 2176),
        ] {
            let (came, sent) = exchange(&mut chance, arguments, room, None, FaultPlan::default());
            assert_whole(&came);
            assert!(came.joined > 0 && came.packets < sent, "{} packets of {sent} segments", came.packets);
        }
    }
}

#[test]
fn no_packet_is_longer_than_was_allowed() {
    let mut chance = Chance(7);
    for limit in [1600, 4000, 9000, 65_280] {
        let (came, _) = exchange(&mut chance, Arguments::default(), 2176, Some(limit), FaultPlan::default());
        assert_whole(&came);
        assert!(came.longest <= limit.max(1514) as usize, "{} of {limit}", came.longest);
    }
}

#[test]
fn a_ring_without_scatter_is_as_deep_as_was_asked() {
    let pair = Pair::new(DoorProfile::default());
    let pool = pool("deep", 2047);
    let mut port = pair.a.open(Arguments::default());
    let mut config = PortConfig {
        rx_offloads: RxOffloads::TCP_LRO,
        scatter: Some(false),
        ..PortConfig::queues(1, 0, &pool)
    };
    config.rx_queues[0].descriptors = 256;
    let queues = port.bring_up(config).expect("up");
    // What is joined is no longer than an mbuf then, so an entry is one.
    assert_eq!(queues.rx[0].descriptor_status(255).expect("a place"), RxDescriptor::Available);
    assert_eq!(pool.in_use(), 256);
}

#[test]
fn what_fails_costs_packets_and_never_mixes_streams() {
    for seed in seeds(6) {
        println!("seed {seed}");
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let error =
            |nth| EntryFault { nth, syndrome: Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0x51 } };
        let faults = FaultPlan {
            seed,
            late_completion: (0.2, 3),
            receive_errors: vec![error(3 + chance.below(10)), error(20 + chance.below(30))],
            ..FaultPlan::default()
        };
        let striding =
            Arguments { striding: chance.one_in(2), striding_queues_min: 1, ..Arguments::default() };
        let (came, _) = exchange(&mut chance, striding, 2176, Some(20_000), faults);
        assert!(came.packets > 20, "{came:?}");
        for pieces in came.upto.values() {
            assert!(pieces.windows(2).all(|pair| pair[0].1 <= pair[1].0), "in order, nothing twice");
        }
    }
}

#[test]
fn joining_is_refused_where_it_cannot_be() {
    let refused = |arguments: Arguments, lacks: bool, change: fn(&mut PortConfig)| {
        let pair = Pair::with(DoorProfile::default(), |mut config| {
            config.traits.lro = !lacks;
            config
        });
        let pool = pool("refused", 2047);
        let mut config = PortConfig { rx_offloads: RxOffloads::TCP_LRO, ..PortConfig::queues(1, 1, &pool) };
        change(&mut config);
        pair.a.open(arguments).bring_up(config).map(drop).expect_err("refused")
    };
    for (arguments, lacks) in
        [(Arguments { devx: false, ..Arguments::default() }, false), (Arguments::default(), true)]
    {
        let error = refused(arguments, lacks, |_| ());
        assert!(matches!(&error, PortError::Offload { refused, .. } if refused == "TCP_LRO"), "{error}");
    }
    let error = refused(Arguments::default(), false, |config| config.rx_offloads |= RxOffloads::KEEP_CRC);
    assert!(error.is_unsupported() && error.to_string().contains("KEEP_CRC"), "{error}");
}
