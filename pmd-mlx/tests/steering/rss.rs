//! The hash, its key and its table.

use std::collections::HashSet;

use pollux_mempool::RxFlags;
use pollux_port::{HashFields, PortError, QueueId, RssConfig, RxOffloads};
use pollux_wire::toeplitz;

use crate::packet::{Dice, Net, Packet, Transport};
use crate::rig::{Rig, Way};

/// The hash that a packet is to have; `None`: it is of no kind that is hashed.
fn expected(packet: &Packet, config: &RssConfig) -> Option<u32> {
    use HashFields as F;
    let (v4, src, dst) = match packet.net {
        Net::V4(src, dst) => (true, src.octets().to_vec(), dst.octets().to_vec()),
        Net::V6(src, dst) => (false, src.octets().to_vec(), dst.octets().to_vec()),
        Net::Other => return None,
    };
    let (tcp, udp, ip) = if v4 {
        (F::NONFRAG_IPV4_TCP, F::NONFRAG_IPV4_UDP, F::IPV4)
    } else {
        (F::NONFRAG_IPV6_TCP, F::NONFRAG_IPV6_UDP, F::IPV6)
    };
    let fields = config.fields;
    let ports = match packet.transport {
        Transport::Tcp(src, dst) if fields.contains(tcp) => Some((src, dst)),
        Transport::Udp(src, dst) if fields.contains(udp) => Some((src, dst)),
        _ if fields.contains(ip) => None,
        _ => return None,
    };
    let ports = ports.map(|(src, dst)| (src.to_be_bytes().to_vec(), dst.to_be_bytes().to_vec()));
    let (from, to) = ports.unwrap_or_default();
    let mut input = Vec::new();
    for (field, side, other) in [
        (src, F::L3_SRC_ONLY, F::L3_DST_ONLY),
        (dst, F::L3_DST_ONLY, F::L3_SRC_ONLY),
        (from, F::L4_SRC_ONLY, F::L4_DST_ONLY),
        (to, F::L4_DST_ONLY, F::L4_SRC_ONLY),
    ] {
        if fields.contains(side) || !fields.contains(other) {
            input.extend(field);
        }
    }
    let key = config.key.as_deref().expect("the key in use");
    Some(toeplitz::hash(key, &input))
}

/// Sends packets and looks at queue and hash of each; how many queues had some.
#[track_caller]
fn check(rig: &mut Rig, dice: &mut Dice, way: Way) -> usize {
    let config = rig.port.rss().expect("a hash");
    let table = rig.port.rss_table().expect("a table");
    let mut used = HashSet::new();
    for _ in 0..120 {
        let packet = dice.packet();
        let (queue, mbuf) = rig.arrive(&packet).expect("it is to this port");
        let hash = expected(&packet, &config);
        let place = hash.map_or(0, |hash| hash as usize % table.len());
        assert_eq!(QueueId(queue), table[place], "{way:?} {packet:?} {:?}", config.fields);
        assert_eq!(mbuf.rx_flags().contains(RxFlags::RSS_HASH), hash.is_some(), "{packet:?}");
        if let Some(hash) = hash {
            assert_eq!(mbuf.rss_hash(), hash, "{packet:?}");
        }
        used.insert(queue);
    }
    used.len()
}

#[test]
fn packets_go_where_their_hash_says_and_the_hash_changes_at_run_time() {
    for way in Way::BOTH {
        let mut dice = Dice::new(1);
        let mut rig = Rig::new(way, 4, |config| config.rx_offloads = RxOffloads::RSS_HASH);
        assert_eq!(check(&mut rig, &mut dice, way), 4, "all queues have their share");

        let key: Vec<u8> = (0..40).map(|at: u8| at.wrapping_mul(37) ^ 0x5a).collect();
        let now = rig.port.rss().expect("reads");
        rig.port.set_rss(&RssConfig { key: Some(key), ..now }).expect("a key");
        assert_eq!(check(&mut rig, &mut dice, way), 4);

        let entries = rig.port.rss_table().expect("reads").len();
        let table: Vec<QueueId> = (0..entries).map(|entry| QueueId([3, 1, 1][entry % 3])).collect();
        rig.port.set_rss_table(&table).expect("a table");
        assert_eq!(check(&mut rig, &mut dice, way), 2, "two queues stand in the table");

        for fields in [
            HashFields::IPV4 | HashFields::IPV6,
            HashFields::TCP,
            HashFields::IPV4 | HashFields::NONFRAG_IPV4_UDP,
            HashFields::UDP | HashFields::L4_DST_ONLY,
            HashFields::IPV6 | HashFields::L3_SRC_ONLY,
            HashFields::IP | HashFields::TCP | HashFields::L3_DST_ONLY | HashFields::L4_SRC_ONLY,
            HashFields::empty(),
        ] {
            rig.port.set_rss(&RssConfig::new(fields)).expect("fields");
            let used = check(&mut rig, &mut dice, way);
            assert!(used <= 2 && (!fields.is_empty() || used == 1), "{fields:?}");
        }
        rig.end();
    }
}

#[test]
fn what_cannot_be_hashed_is_refused_and_changes_nothing() {
    for way in Way::BOTH {
        let mut rig = Rig::new(way, 2, |config| config.rx_offloads = RxOffloads::RSS_HASH);
        let before = rig.port.rss().expect("reads");
        for fields in [HashFields::L3_SRC_ONLY, HashFields::IPV4 | HashFields::L4_SRC_ONLY, HashFields::VXLAN]
        {
            let refused = rig.port.set_rss(&RssConfig::new(fields));
            assert!(matches!(refused, Err(PortError::Argument { .. })), "{fields:?}: {refused:?}");
        }
        assert_eq!(rig.port.rss().expect("reads"), before);
        check(&mut rig, &mut Dice::new(2), way);
        rig.end();
    }
}

#[test]
fn settings_stay_over_stop_and_start_and_go_with_the_configuration() {
    for way in Way::BOTH {
        let own = RssConfig { key: Some(vec![0x6d; 40]), ..RssConfig::new(HashFields::IPV4) };
        let given = own.clone();
        let mut rig = Rig::new(way, 2, |config| {
            config.rx_offloads = RxOffloads::RSS_HASH;
            config.rss = Some(given);
        });
        assert_eq!(rig.port.rss().expect("reads"), own);
        rig.port.update_rss_table(&[(0, QueueId(1))]).expect("changes");
        rig.port.stop().expect("stops");
        rig.port.set_rss(&RssConfig::new(HashFields::IPV6)).expect("a stopped port takes it too");
        rig.port.start().expect("starts");
        assert_eq!(rig.port.rss_table().expect("reads")[0], QueueId(1));
        check(&mut rig, &mut Dice::new(3), way);
        rig.end();
    }
}
