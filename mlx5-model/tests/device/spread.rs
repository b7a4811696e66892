//! Packets spread over tables of queues by a hash.

use super::receive::arrive;
use super::rig::{Cq, Rig, frame, number};
use super::steering::{queues, taker, udp4};
use pollux_mlx5_abi::command::rqt::{CreateRqtIn, ModifyRqtIn, RqtContext};
use pollux_mlx5_abi::command::tir::{
    CreateTirIn, HashFields, ModifyTirIn, TirContext, dispatch, hash, hash_field, modify, protocol,
};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::cqe::rss;
use pollux_wire::toeplitz::{self, DEFAULT_KEY};

fn queue_table(rig: &Rig, queues: &[u32]) -> u32 {
    let mut input = CreateRqtIn::ZERO.to_vec();
    let context = CreateRqtIn::RQT_CONTEXT.of_mut(input.first_chunk_mut().expect("a command"));
    RqtContext::RQT_MAX_SIZE.set(context, 128);
    RqtContext::RQT_ACTUAL_SIZE.set(context, queues.len() as u32);
    input.extend(queues.iter().flat_map(|queue| queue.to_be_bytes()));
    number(&rig.must(op::CREATE_RQT, 0, &mut input, 16))
}

fn fields(l3: u32, l4: u32, selected: u32) -> u32 {
    let mut block = [0; 4];
    HashFields::L3_PROT_TYPE.set(&mut block, l3);
    HashFields::L4_PROT_TYPE.set(&mut block, l4);
    HashFields::SELECTED_FIELDS.set(&mut block, selected);
    u32::from_be_bytes(block)
}

/// The packets and hashes are those of Microsoft, "Verifying the RSS hash calculation".
#[test]
fn a_hash_spreads_packets_over_a_table() {
    let rig = Rig::new();
    let mut queues = queues::<4>(&rig);
    let numbers: Vec<u32> = queues.iter().map(|(_, rq)| rq.number).collect();
    let table: Vec<u32> = (0..128_usize).map(|slot| numbers[slot % 4]).collect();
    let rqt = queue_table(&rig, &table);
    let ip = hash_field::SRC_IP | hash_field::DST_IP;
    let ports = hash_field::L4_SPORT | hash_field::L4_DPORT;
    let tir = |l4, selected| {
        rig.tir(|context| {
            TirContext::DISP_TYPE.set(context, dispatch::INDIRECT);
            TirContext::INDIRECT_TABLE.set(context, rqt);
            TirContext::RX_HASH_FN.set(context, hash::TOEPLITZ);
            TirContext::RX_HASH_TOEPLITZ_KEY.set(context, DEFAULT_KEY);
            TirContext::RX_HASH_FIELD_SELECTOR_OUTER.set(context, fields(protocol::IPV4, l4, selected));
        })
    };
    let vectors = [
        ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x323e_8fc2_u32, 0x51cc_c178_u32),
        ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718_262a, 0xc626_b0ea),
        ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0_a5de, 0x5c2b_394a),
        ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0x8298_9176, 0xafc7_327f),
        ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x5d18_09c5, 0x10e8_28a2),
    ];
    for (l4, selected, kind) in [
        (protocol::UDP, ip, 1 << rss::IP.trailing_zeros()),
        (protocol::UDP, ip | ports, 1 << rss::IP.trailing_zeros() | 2 << rss::L4.trailing_zeros()),
    ] {
        rig.all_to(tir(l4, selected));
        for (source, source_port, destination, destination_port, by_ip, by_ports) in vectors {
            arrive(&rig, &udp4(source, destination, (source_port, destination_port)));
            let expected = if selected == ip { by_ip } else { by_ports };
            for (index, (cq, _)) in queues.iter_mut().enumerate() {
                let entry = cq.poll(&rig);
                assert_eq!(entry.is_some(), index == expected as usize % 4);
                if let Some(entry) = entry {
                    assert_eq!((entry.rss_hash_result.get(), entry.rss_hash_type), (expected, kind));
                }
            }
        }
        // Not IPv4: no hash, the first queue.
        arrive(&rig, &frame(64, 0));
        let entry = queues[0].0.poll(&rig).expect("the first");
        assert_eq!((entry.rss_hash_result.get(), entry.rss_hash_type), (0, 0));
    }
    // Of another transport than the fields are for: no hash either.
    rig.all_to(tir(protocol::TCP, ip | ports));
    arrive(&rig, &udp4([1; 4], [2; 4], (1, 2)));
    assert_eq!(queues[0].0.poll(&rig).expect("the first").rss_hash_type, 0);
    // The table is replaced while it works.
    let mut input = ModifyRqtIn::ZERO.to_vec();
    let head: &mut [u8; ModifyRqtIn::BYTES] = input.first_chunk_mut().expect("a command");
    ModifyRqtIn::RQTN.set(head, rqt);
    ModifyRqtIn::BITMASK.set(head, 1);
    RqtContext::RQT_ACTUAL_SIZE.set(ModifyRqtIn::CTX.of_mut(head), 1);
    input.extend(numbers[2].to_be_bytes());
    rig.must(op::MODIFY_RQT, 0, &mut input, 16);
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), Some((2, 0)));
}

/// `ethtool -X hfunc xor`: Linux changes the TIR in place and does not look at the answer.
#[test]
fn a_hash_can_be_the_exclusive_or() {
    let rig = Rig::new();
    let mut queues = queues::<4>(&rig);
    let numbers: Vec<u32> = queues.iter().map(|(_, rq)| rq.number).collect();
    let rqt = queue_table(&rig, &numbers);
    let tir = |function| {
        move |context: &mut [u8; TirContext::BYTES]| {
            TirContext::DISP_TYPE.set(context, dispatch::INDIRECT);
            TirContext::INDIRECT_TABLE.set(context, rqt);
            TirContext::RX_HASH_FN.set(context, function);
            TirContext::RX_HASH_TOEPLITZ_KEY.set(context, DEFAULT_KEY);
            TirContext::RX_HASH_FIELD_SELECTOR_OUTER.set(context, fields(protocol::IPV4, protocol::UDP, 0xf));
        }
    };
    let number = rig.tir(tir(hash::TOEPLITZ));
    rig.all_to(number);
    let mut input = ModifyTirIn::ZERO;
    ModifyTirIn::TIRN.set(&mut input, number);
    ModifyTirIn::BITMASK.set(&mut input, modify::HASH);
    tir(hash::INVERTED_XOR8)(ModifyTirIn::CTX.of_mut(&mut input));
    TirContext::TRANSPORT_DOMAIN.set(ModifyTirIn::CTX.of_mut(&mut input), rig.td);
    rig.must(op::MODIFY_TIR, 0, &mut input, 16);
    // 0x40 set alone: its reverse is 2. The other way round is the same.
    for (source, destination, ports) in
        [([10, 0, 0, 1], [10, 0, 0, 0x41], (7, 7)), ([10, 0, 0, 0x41], [10, 0, 0, 1], (0x0700, 7))]
    {
        arrive(&rig, &udp4(source, destination, ports));
        let entry = queues[2].0.poll(&rig).expect("the third queue");
        assert_eq!(entry.rss_hash_result.get(), 0x02);
    }
}

#[test]
fn a_tir_over_a_table_has_a_hash_function() {
    let rig = Rig::new();
    let mut queues = queues::<2>(&rig);
    let numbers = [queues[0].1.number, queues[1].1.number];
    let rqt = queue_table(&rig, &numbers);
    let made = |dispatched, function| {
        let mut input = CreateTirIn::ZERO;
        let context = CreateTirIn::CTX.of_mut(&mut input);
        TirContext::DISP_TYPE.set(context, dispatched);
        TirContext::INDIRECT_TABLE.set(context, rqt);
        TirContext::INLINE_RQN.set(context, numbers[1]);
        TirContext::TRANSPORT_DOMAIN.set(context, rig.td);
        TirContext::RX_HASH_FN.set(context, function);
        rig.command(op::CREATE_TIR, 0, &mut input, 16).map_err(|refused| refused.status)
    };
    assert_eq!(made(dispatch::INDIRECT, hash::NONE), Err(status::BAD_PARAM_ERR));
    for (dispatched, function, expected) in [
        (dispatch::DIRECT, hash::NONE, 1),
        (dispatch::INDIRECT, hash::INVERTED_XOR8, 0),
        (dispatch::INDIRECT, hash::TOEPLITZ, 0),
    ] {
        rig.all_to(number(&made(dispatched, function).expect("a TIR")));
        assert_eq!(taker(&rig, &mut queues, &udp4([1; 4], [2; 4], (1, 2))), Some((expected, 0)));
    }
}

#[test]
fn a_symmetric_hash_is_the_same_both_ways() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let rqt = queue_table(&rig, &[queues[0].1.number]);
    rig.all_to(rig.tir(|context| {
        TirContext::DISP_TYPE.set(context, dispatch::INDIRECT);
        TirContext::INDIRECT_TABLE.set(context, rqt);
        TirContext::RX_HASH_FN.set(context, hash::TOEPLITZ);
        TirContext::RX_HASH_SYMMETRIC.set(context, 1);
        TirContext::RX_HASH_TOEPLITZ_KEY.set(context, DEFAULT_KEY);
        TirContext::RX_HASH_FIELD_SELECTOR_OUTER.set(context, fields(protocol::IPV4, protocol::UDP, 0xf));
    }));
    let hash = |frame: &[u8], cq: &mut Cq| {
        arrive(&rig, frame);
        cq.poll(&rig).expect("a completion").rss_hash_result.get()
    };
    let cq = &mut queues[0].0;
    let there = hash(&udp4([1, 2, 3, 4], [5, 6, 7, 8], (9, 10)), cq);
    assert_eq!(there, hash(&udp4([5, 6, 7, 8], [1, 2, 3, 4], (10, 9)), cq));
    assert_ne!(there, hash(&udp4([5, 6, 7, 8], [1, 2, 3, 4], (11, 9)), cq));
    // The first of each pair is the or of both sides, the second their exclusive or.
    let joined = [1 | 5, 2 | 6, 3 | 7, 4 | 8, 1 ^ 5, 2 ^ 6, 3 ^ 7, 4 ^ 8, 0, 9 | 10, 0, 9 ^ 10];
    assert_eq!(there, toeplitz::hash(&DEFAULT_KEY, &joined));
}

#[test]
fn a_tunnels_inside_is_hashed_where_its_fields_are_selected() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let rqt = queue_table(&rig, &[queues[0].1.number]);
    let ip = hash_field::SRC_IP | hash_field::DST_IP;
    let tir = |inner| {
        rig.tir(|context| {
            TirContext::DISP_TYPE.set(context, dispatch::INDIRECT);
            TirContext::INDIRECT_TABLE.set(context, rqt);
            TirContext::TUNNELED_OFFLOAD_EN.set(context, 1);
            TirContext::RX_HASH_FN.set(context, hash::TOEPLITZ);
            TirContext::RX_HASH_TOEPLITZ_KEY.set(context, DEFAULT_KEY);
            TirContext::RX_HASH_FIELD_SELECTOR_OUTER.set(context, fields(protocol::IPV4, protocol::UDP, ip));
            TirContext::RX_HASH_FIELD_SELECTOR_INNER
                .set(context, fields(protocol::IPV4, protocol::UDP, inner));
        })
    };
    // Two of Microsoft's pairs of addresses, one around the other.
    let inside = udp4([199, 92, 111, 2], [65, 69, 140, 83], (1, 2));
    let mut frame = udp4([66, 9, 149, 187], [161, 142, 100, 80], (7, 4789));
    frame.truncate(42);
    frame[16..18].copy_from_slice(&(36 + inside.len() as u16).to_be_bytes());
    frame[38..40].copy_from_slice(&(16 + inside.len() as u16).to_be_bytes());
    frame.extend([8, 0, 0, 0, 0, 0, 1, 0]);
    frame.extend(&inside);
    for (inner, expected) in [(0, 0x323e_8fc2), (ip, 0xd718_262a)] {
        rig.all_to(tir(inner));
        arrive(&rig, &frame);
        assert_eq!(queues[0].0.poll(&rig).expect("a completion").rss_hash_result.get(), expected);
    }
}
