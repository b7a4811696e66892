use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::{Completion, Control, Data, Ethernet, Fence, INSERT_VLAN, InlineHeader, blocks, inline_segments};
use crate::opcode::send;

/// The first block of a frame of 60 bytes with its first 18 inline, as libmlx5 lays it out: bytes written down by hand
/// from the field descriptions in rdma-core `providers/mlx5/mlx5dv.h`.
#[test]
fn a_send_entry_is_these_bytes() {
    let control = Control::new(send::SEND, 0, 0x0102, 0x0a_0b0c, 4, Completion::Always as u8, 0);
    assert_eq!(control.as_bytes(), [0, 1, 2, 0x0a, 0x0a, 0x0b, 0x0c, 4, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(control.head(), [0, 1, 2, 0x0a, 0x0a, 0x0b, 0x0c, 4]);
    let ethernet = Ethernet {
        cs_flags: super::checksum::L3 | super::checksum::L4,
        inline_hdr_sz: 18.into(),
        inline_hdr_start: [0xff, 0xee],
        ..Ethernet::default()
    };
    assert_eq!(ethernet.as_bytes(), [0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 0xff, 0xee]);
    assert_eq!((ethernet.inline_bytes(), ethernet.vlan()), (18, None));
    let data = Data::new(42, 0x1234, 0x1_0000_0002);
    assert_eq!(data.as_bytes(), [0, 0, 0, 42, 0, 0, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2]);
    let most = Data::new(1 << 31, 7, 0);
    assert_eq!(most.byte_count.get(), 0, "with bit 31 it would be the head of inline data");
    assert_eq!(Data::new(0x7fff_ffff, 7, 0).byte_count.get(), 0x7fff_ffff);
}

#[test]
fn words_are_the_same_bytes() {
    let control = Control::new(send::SEND, 3, 0x0102, 0x0a_0b0c, 4, Completion::Always as u8, 0x1122_3344);
    assert_eq!(control.words().as_bytes(), control.as_bytes());
    let data = Data::new(42, 0x1234, 0x1_0000_0002);
    assert_eq!(Data::words(42, 0x1234_u32.to_be(), 0x1_0000_0002).as_bytes(), data.as_bytes());
    let ethernet = Ethernet {
        swp_outer_l4_offset: 1,
        swp_outer_l3_offset: 2,
        swp_inner_l4_offset: 3,
        swp_inner_l3_offset: 4,
        cs_flags: 5,
        swp_flags: 6,
        mss: 0x0708.into(),
        flow_table_metadata: 0.into(),
        inline_hdr_sz: 0x090a.into(),
        inline_hdr_start: [11, 12],
    };
    assert_eq!(Ethernet::words([1, 2, 3, 4], 5, 6, 0x0708, 0x090a, [11, 12]).as_bytes(), ethernet.as_bytes());
}

#[test]
fn a_tag_takes_the_place_of_the_inline_header() {
    let ethernet = Ethernet {
        inline_hdr_sz: INSERT_VLAN.into(),
        inline_hdr_start: 0x2064_u16.to_be_bytes(),
        ..Ethernet::default()
    };
    assert_eq!((ethernet.inline_bytes(), ethernet.vlan()), (0, Some(0x2064)));
}

#[test]
fn lengths_round_up_to_segments_and_blocks() {
    assert_eq!([0, 12, 13, 28, 29].map(inline_segments), [1, 1, 2, 2, 3]);
    assert_eq!([1, 4, 5, 8, 63].map(blocks), [1, 1, 2, 2, 16]);
    assert_eq!(InlineHeader::new(12).as_bytes(), [0x80, 0, 0, 12]);
    assert_eq!(InlineHeader::new(12).bytes(), 12);
}

#[test]
fn an_empty_entry_asks_for_its_completion() {
    let nop = Control::nop(0xffff, 7, Completion::Always);
    assert_eq!((nop.opcode(), nop.index(), nop.segments()), (send::NOP, 0xffff, 1));
    assert_eq!((nop.completion(), nop.fence()), (Completion::Always, Some(Fence::None)));
}

proptest! {
    #[test]
    fn a_control_segment_comes_apart_as_it_was_put_together(
        opcode: u8, modifier: u8, index: u16, qpn in 0..1_u32 << 24, segments in 0..64_u8, imm: u32,
    ) {
        let flags = Completion::AlwaysAndEvent as u8 | Fence::StrongOrdering as u8 | super::SOLICITED;
        let control = Control::new(opcode, modifier, index, qpn, segments, flags, imm);
        let words: [u64; 2] = zerocopy::transmute!(control);
        prop_assert_eq!(control.words(), words);
        prop_assert_eq!(
            (control.opcode(), control.modifier(), control.index(), control.qpn(), control.segments()),
            (opcode, modifier, index, qpn, segments)
        );
        prop_assert_eq!((control.completion(), control.fence()),
            (Completion::AlwaysAndEvent, Some(Fence::StrongOrdering)));
        prop_assert!(control.solicited());
        prop_assert_eq!(control.imm.get(), imm);
        prop_assert_eq!(&control.head()[..], &control.as_bytes()[..8]);
    }

    #[test]
    fn any_bytes_can_be_asked(bytes: [u8; 16]) {
        let control = Control::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(control.opcode(), bytes[3]);
        prop_assert_eq!(control.fence().is_none(), bytes[11] >> 5 > 4);
        let ethernet = Ethernet::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(ethernet.vlan().is_some(), bytes[12] & 0x80 != 0);
        prop_assert!(ethernet.inline_bytes() < usize::from(INSERT_VLAN));
    }
}
