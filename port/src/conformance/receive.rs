//! Checks of packets that arrive in parts, and of packets that are joined of several.

use super::{Feed, Fixture, POOL, Rig, config, first, frame, new_pool, opened, whole};
use crate::{PortConfig, PortError, RxOffloads, RxQueueConfig, RxSegment};
use pollux_mempool::{Burst, MbufPool};
use std::time::Instant;

/// Packets are split where the port can do that, into mbufs of the pools that were named; else the settings are refused, with a
/// reason.
pub fn buffer_split(fixture: &dyn Fixture) {
    let (heads, pool) = (MbufPool::builder("heads", POOL).data_room(256).build_anonymous(), new_pool(POOL));
    let heads = heads.expect("there is memory for a small pool");
    let part = |pool: Option<&MbufPool>, length: u16| RxSegment { pool: pool.cloned(), length, offset: 0 };
    let two = vec![part(Some(&heads), 40), part(Some(&pool), 0)];
    let (mut port, ..) = opened(fixture.open());
    let info = port.info();
    let mut wanted = config(&port, 1, &pool);
    if wanted.rx_queues.is_empty() {
        return;
    }
    wanted.rx_queues[0].segments = two.clone();
    let Some(split) = info.split else {
        for scatter in [None, Some(false)] {
            let refused = port.configure(PortConfig { scatter, ..wanted.clone() }).expect_err("has no parts");
            assert!(refused.is_unsupported() && refused.to_string().contains(port.name()), "{refused}");
        }
        return;
    };
    let refused = port.configure(wanted.clone()).expect_err("the offload was not asked for");
    assert!(refused.to_string().contains("BUFFER_SPLIT"), "{refused}");
    let asked = |segments: Vec<RxSegment>| {
        let mut config = PortConfig { rx_offloads: RxOffloads::BUFFER_SPLIT, ..wanted.clone() };
        config.rx_queues[0].segments = segments;
        config
    };
    let mut wrong = |segments: Vec<RxSegment>, why: &str| {
        let refused = port.configure(asked(segments.clone())).expect_err(why);
        assert!(refused.to_string().contains(why), "{refused}");
        port.configure(asked(Vec::new())).expect("configures without");
        let queue = RxQueueConfig { segments, ..RxQueueConfig::new(pool.clone()) };
        let refused = port.rx_queue_setup_with(first(), queue).map(drop).expect_err(why);
        assert!(refused.to_string().contains(why), "{refused}");
    };
    wrong(vec![part(Some(&heads), 200), part(Some(&pool), 0)], "headroom");
    wrong(vec![part(None, 40)], "at least one");
    let many = usize::from(split.max_segments) + 1;
    wrong(vec![part(Some(&pool), 40); many], "rx segments");
    assert!(matches!(
        port.configure(PortConfig { scatter: Some(false), ..asked(two.clone()) }),
        Err(PortError::Argument { .. })
    ));
    drop(port);

    arrives(fixture, &pool, &two, |frame| frame.to_vec());
    if split.selective {
        let three = [part(Some(&heads), 40), part(None, 20), part(Some(&pool), 0)];
        arrives(fixture, &pool, &three, |frame| {
            [&frame[..40.min(frame.len())], frame.get(60..).unwrap_or_default()].concat()
        });
        let head = [part(Some(&heads), 40), part(None, 0)];
        arrives(fixture, &pool, &head, |frame| frame[..40.min(frame.len())].to_vec());
    }
    assert_eq!((heads.in_use(), pool.in_use()), (0, 0), "mbufs that did not come home");
}

/// Frames of all lengths arrive in these parts.
fn arrives(fixture: &dyn Fixture, pool: &MbufPool, segments: &[RxSegment], keep: impl Fn(&[u8]) -> Vec<u8>) {
    let mut rig = Rig::with_config(fixture, 1, pool.clone(), &|config| {
        config.rx_offloads = RxOffloads::BUFFER_SPLIT;
        config.rx_queues[0].segments = segments.to_vec();
    });
    let (_, longest) = fixture.frame_lengths();
    for length in [60, 61, 100, 1000, longest] {
        let tag = rig.next_tag;
        rig.feed(1, length);
        let received = rig.receive(1);
        if matches!(rig.feed, Feed::Endless(_) | Feed::Nothing) {
            continue;
        }
        let kept = keep(&frame(length, tag));
        assert_eq!(received.ours.len(), 1, "{length} bytes");
        assert_eq!(whole(&received.ours[0]), kept, "{length} bytes");
        assert_eq!(received.ours[0].data_len(), kept.len().min(40), "the first part of {length} bytes");
        assert_eq!(received.ours[0].check(), Ok(()));
    }
    rig.end();
}

/// A segment of a TCP stream to everybody, of hosts that nobody is, with right checksums.
fn segment(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let sum = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
    };
    let fold = |sum: u32| {
        let once = (sum >> 16) + (sum & 0xffff);
        !((once >> 16) + (once & 0xffff)) as u16
    };
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 0x77, 8, 0]);
    let mut ip =
        [&[0x45, 0][..], &(40 + payload.len() as u16).to_be_bytes(), &[0, 1, 0, 0, 64, 6, 0, 0]].concat();
    // Addresses for documentation (RFC 5737).
    ip.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    let checksum = fold(sum(&ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut tcp =
        [&[0x10, 0, 0x20, 0][..], &sequence.to_be_bytes(), &[0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]]
            .concat();
    let pseudo = sum(&ip[12..]) + 6 + (20 + payload.len()) as u32;
    let checksum = fold(pseudo + sum(&tcp) + sum(payload));
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    [bytes, ip, tcp, payload.to_vec()].concat()
}

/// The payload of a packet such as [`segment`] makes, with its sequence number; `None` for any other.
fn payload(packet: &[u8]) -> Option<(u32, Vec<u8>)> {
    if packet.get(12..14)? != [8, 0] || packet.get(26..34)? != [192, 0, 2, 1, 192, 0, 2, 2] {
        return None;
    }
    let end = 14 + usize::from(u16::from_be_bytes([packet[16], packet[17]]));
    let sequence = u32::from_be_bytes(packet.get(38..42)?.try_into().ok()?);
    Some((sequence, packet.get(54..end)?.to_vec()))
}

/// A stream of TCP arrives whole and in order, joined or not, and no packet is longer than was allowed.
pub fn joining(fixture: &dyn Fixture) {
    let (port, ..) = opened(fixture.open());
    let info = port.info();
    drop(port);
    if info.max_lro_bytes == 0 {
        // That the offload is refused by name is `offloads`' to see.
        return;
    }
    let limit = info.max_lro_bytes.min(9000);
    let mut rig = Rig::with_config(fixture, 1, new_pool(POOL), &|config| {
        (config.rx_offloads, config.max_lro_bytes) = (RxOffloads::TCP_LRO, Some(limit));
    });
    if let Feed::Given(give) = &mut rig.feed {
        let stream: Vec<u8> = (0..40_000_u32).map(|at| ((at * 7) ^ (at >> 8)) as u8).collect();
        let mut sent = 0;
        for round in 0.. {
            let here = &stream[sent..stream.len().min(sent + 100 + round * 97 % 1300)];
            if here.is_empty() {
                break;
            }
            give(&segment(1000 + sent as u32, here));
            sent += here.len();
        }
        let (mut got, end) = (Vec::new(), Instant::now() + rig.patience);
        while got.len() < stream.len() && Instant::now() < end {
            let mut burst = Burst::new();
            rig.rx[0].rx_burst(&mut burst, 32);
            for mbuf in &burst {
                assert!(mbuf.pkt_len() <= limit.max(1514), "{} bytes", mbuf.pkt_len());
                assert_eq!(mbuf.check(), Ok(()));
                if let Some((sequence, data)) = payload(&whole(mbuf)) {
                    assert_eq!(sequence as usize, 1000 + got.len(), "in order");
                    got.extend(data);
                }
            }
        }
        assert!(got == stream, "{} of {} bytes, or others", got.len(), stream.len());
    }
    rig.end();
}
