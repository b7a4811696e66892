//! What steering finds in GRE and in MPLS.

use pollux_mlx5_abi::command::flow::{CreateFlowGroupIn as Group, criteria, destination};
use pollux_mlx5_abi::command::matching::{MatchMisc, MatchMisc2, MatchParameters};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::field::Run;
use pollux_mlx5_model::{DeviceConfig, Traits};

use super::offload::{ipv4, l2, udp};
use super::rig::Rig;
use super::steering::{queues, taker, udp4};

type Parameters = [u8; MatchParameters::BYTES];

fn rig(change: impl FnOnce(&mut Traits)) -> Rig {
    let mut config = DeviceConfig::default();
    change(&mut config.traits);
    Rig::with(config)
}

/// Whether each of the frames is taken by a rule of that mask and value.
fn takes<const N: usize>(
    rig: &Rig,
    enabled: u32,
    mask: Parameters,
    value: Parameters,
    frames: [&[u8]; N],
) -> [bool; N] {
    let mut queues = queues::<1>(rig);
    let tir = rig.direct_tir(&queues[0].1);
    let table = rig.table(0, 4);
    let group = rig.group(table, 0, 3, enabled, mask);
    rig.entry(table, group, 0, value, 0, &[(destination::TIR, tir)], &[]).expect("an entry");
    rig.root(table);
    frames.map(|frame| taker(rig, &mut queues, frame).is_some())
}

/// The status of a group of that mask, which is refused.
fn refusal(rig: &Rig, enabled: u32, mask: Parameters) -> u8 {
    let mut input = Group::ZERO;
    Group::TABLE_ID.set(&mut input, rig.table(0, 4));
    Group::END_FLOW_INDEX.set(&mut input, 3);
    Group::MATCH_CRITERIA_ENABLE.set(&mut input, enabled);
    Group::MATCH_CRITERIA.set(&mut input, mask);
    rig.command(op::CREATE_FLOW_GROUP, 0, &mut input, 16).expect_err("refused").status
}

/// IPv4 with a header of GRE, and what it carries.
fn gre(header: &[u8], carried: &[u8]) -> Vec<u8> {
    let mut frame = [&l2(0x0800, &[])[..], &ipv4(47, &[header, carried].concat())].concat();
    // Where UDP would have its checksum.
    frame[34..34 + header.len()].copy_from_slice(header);
    frame
}

#[test]
fn protocol_key_and_flags_of_gre_can_be_matched() {
    let misc = |set: &dyn Fn(&mut [u8; MatchMisc::BYTES])| {
        let mut all = MatchParameters::ZERO;
        set(MatchParameters::MISC_PARAMETERS.of_mut(&mut all));
        all
    };
    let inner = ipv4(17, &udp(20));
    let plain = gre(&[0, 0, 8, 0], &inner);
    let keyed = gre(&[0x20, 0, 8, 0, 0x11, 0x22, 0x33, 0x44], &inner);
    // The key stands behind the checksum.
    let summed = gre(&[0xa0, 0, 8, 0, 9, 9, 0, 0, 0x11, 0x22, 0x33, 0x44], &inner);
    let other = gre(&[0x20, 0, 0x65, 0x58, 0x11, 0x22, 0x33, 0x45], &inner);
    let cut = plain[..14 + 20 + 3].to_vec();
    let datagram = udp4([1; 4], [2; 4], (0x0800, 0x0800));
    let frames: [&[u8]; 6] = [&plain, &keyed, &summed, &other, &cut, &datagram];
    let takes = |mask: Parameters, value: Parameters| {
        takes(&rig(|_| {}), criteria::MISC_PARAMETERS, mask, value, frames)
    };
    let protocol = |number: u32| misc(&|part| MatchMisc::GRE_PROTOCOL.set(part, number));
    assert_eq!(takes(protocol(0xffff), protocol(0x0800)), [true, true, true, false, false, false]);
    let key = |key: u32| {
        misc(&|part| {
            MatchMisc::GRE_KEY_H.set(part, key >> 8);
            MatchMisc::GRE_KEY_L.set(part, key & 0xff);
        })
    };
    assert_eq!(takes(key(u32::MAX), key(0x1122_3344)), [false, true, true, false, false, false]);
    let flags = |checksum: u32, key: u32, sequence: u32| {
        misc(&|part| {
            MatchMisc::GRE_C_PRESENT.set(part, checksum);
            MatchMisc::GRE_K_PRESENT.set(part, key);
            MatchMisc::GRE_S_PRESENT.set(part, sequence);
        })
    };
    assert_eq!(takes(flags(1, 1, 1), flags(0, 1, 0)), [false, true, false, true, false, false]);
    for mask in [protocol(0xffff), key(u32::MAX), flags(1, 0, 0)] {
        assert_eq!(refusal(&rig(|traits| traits.gre = false), criteria::MISC_PARAMETERS, mask), 3);
    }
}

#[test]
fn the_first_label_of_mpls_can_be_matched_in_four_places() {
    let stack = [0x12, 0x34, 0x57, 0x40];
    let other = [0x12, 0x34, 0x67, 0x40];
    let inner = ipv4(17, &udp(20));
    let framed = |stack: &[u8]| [&l2(0x8847, &[])[..], stack, &inner].concat();
    let in_gre = |stack: &[u8]| gre(&[0x20, 0, 0x88, 0x47, 0, 0, 0, 1], &[stack, &inner].concat());
    let in_udp = |stack: &[u8]| {
        let mut frame = udp4([1; 4], [2; 4], (7, 6635));
        frame[42..46].copy_from_slice(stack);
        frame
    };
    let in_tunnel = |stack: &[u8]| gre(&[0, 0, 0x65, 0x58], &framed(stack));
    type Built<'f> = &'f dyn Fn(&[u8]) -> Vec<u8>;
    let places: [(Run<{ MatchMisc2::BYTES }, 4>, Built<'_>); 4] = [
        (MatchMisc2::OUTER_FIRST_MPLS, &framed),
        (MatchMisc2::INNER_FIRST_MPLS, &in_tunnel),
        (MatchMisc2::OUTER_FIRST_MPLS_OVER_GRE, &in_gre),
        (MatchMisc2::OUTER_FIRST_MPLS_OVER_UDP, &in_udp),
    ];
    for (at, (field, _)) in places.iter().enumerate() {
        let set = |bytes: [u8; 4]| {
            let mut all = MatchParameters::ZERO;
            field.set(MatchParameters::MISC_PARAMETERS_2.of_mut(&mut all), bytes);
            all
        };
        let frames: Vec<Vec<u8>> =
            places.iter().flat_map(|(_, built)| [built(&stack), built(&other)]).collect();
        let frames: [&[u8]; 8] = std::array::from_fn(|index| &frames[index][..]);
        let mut expected = [false; 8];
        expected[2 * at] = true;
        let card = rig(|traits| traits.mpls = true);
        // The label, whatever its class and time to live.
        let (mask, value) = (set([0xff, 0xff, 0xf0, 0]), set([0x12, 0x34, 0x50, 0]));
        assert_eq!(takes(&card, criteria::MISC_PARAMETERS_2, mask, value, frames), expected, "place {at}");
        assert_eq!(refusal(&rig(|_| {}), criteria::MISC_PARAMETERS_2, mask), 3, "as it comes");
    }
    // Nothing else of that part.
    let mut register = MatchParameters::ZERO;
    MatchMisc2::METADATA_REG_A.set(MatchParameters::MISC_PARAMETERS_2.of_mut(&mut register), u32::MAX);
    assert_eq!(refusal(&rig(|traits| traits.mpls = true), criteria::MISC_PARAMETERS_2, register), 3);
}
