use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Cqe64, CqeError, FRESH, FRESH_PASS, Layer3, Layer4, MiniCqe, MiniFormat, Strides, Validity, packet,
    status,
};
use crate::opcode::completion;
use crate::syndrome::Syndrome;

fn entry(parts: &[(usize, &[u8])]) -> Cqe64 {
    let mut bytes = [0; 64];
    for (offset, part) in parts {
        bytes[*offset..*offset + part.len()].copy_from_slice(part);
    }
    Cqe64::read_from_bytes(&bytes).unwrap()
}

#[test]
fn a_received_frame_reads_as_these_bytes_say() {
    let cqe = entry(&[
        (12, &[0xde, 0xad, 0xbe, 0xef]),
        (20, &[0x12, 0x34]),
        (28, &[0x07, 0x29]),
        (30, &[0x20, 0x64]),
        (44, &[0, 0, 0x05, 0xea]),
        (48, &[0, 0, 0, 1, 0, 0, 0, 2]),
        (56, &[0, 0xab, 0xcd, 0xef]),
        (60, &[0x01, 0x00]),
        (63, &[completion::RESPONDER_SEND << 4 | 1]),
    ]);
    assert_eq!((cqe.opcode(), cqe.format(), cqe.solicited(), cqe.owner()), (2, 0, false, true));
    assert_eq!(
        (cqe.rss_hash_result.get(), cqe.check_sum.get(), cqe.byte_cnt.get()),
        (0xdead_beef, 0x1234, 1514)
    );
    assert_eq!(cqe.hds_ip_ext, status::L2_OK | status::L3_OK | status::L4_OK);
    assert_eq!(
        (cqe.layer3(), cqe.layer4(), cqe.vlan()),
        (Some(Layer3::Ipv4), Some(Layer4::Udp), Some(0x2064))
    );
    assert_eq!((cqe.timestamp.get(), cqe.flow_tag(), cqe.wqe_counter.get()), (0x1_0000_0002, 0xab_cdef, 256));
    assert_eq!(cqe.l4_l3_hdr_type & packet::IP_FRAGMENT, 0);
    assert_eq!(CqeError::of(&cqe), None);
}

#[test]
fn a_failed_send_names_itself() {
    let cqe = entry(&[
        (54, &[0x88, Syndrome::LOCAL_PROT_ERR]),
        (56, &[crate::opcode::send::SEND, 0, 1, 2]),
        (60, &[0, 9]),
        (63, &[completion::REQUESTER_ERROR << 4]),
    ]);
    let error = CqeError::of(&cqe).unwrap();
    assert_eq!(error.syndrome(), Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0x88 });
    assert_eq!((error.qpn(), error.send_opcode(), error.wqe_counter.get()), (0x102, 0x0a, 9));
}

#[test]
fn a_fresh_ring_has_nothing_on_any_pass() {
    assert_eq!(Cqe64::fresh().op_own, FRESH);
    assert_eq!(FRESH, 0xf1);
    for index in [0, 255, 256, 511, 512, u32::MAX] {
        for validity in [Validity::BASIC, Validity::ENHANCED] {
            for last in [FRESH, FRESH & !1] {
                assert!(!validity.is_ready(u16::from_le_bytes([FRESH_PASS, last]), index, 8));
            }
        }
    }
}

proptest! {
    #[test]
    fn an_entry_is_ready_on_every_other_pass(
        opcode in 0..15_u8,
        owner in 0..2_u8,
        other: u8,
        index: u32,
        log in 0..=22_u8,
    ) {
        let word = u16::from_le_bytes([other, opcode << 4 | owner]);
        let is_ready = |index| Validity::BASIC.is_ready(word, index, log);
        prop_assert_eq!(is_ready(index), (index >> log) % 2 == u32::from(owner));
        prop_assert_eq!(is_ready(index), !is_ready(index.wrapping_add(1 << log)));
    }

    #[test]
    fn an_entry_of_the_enhanced_layout_is_ready_on_one_pass_of_256(
        opcode in 0..15_u8,
        low in 0..16_u8,
        index: u32,
        log in 0..=22_u8,
        passes in 1..256_u32,
    ) {
        let word = u16::from_le_bytes([(index >> log) as u8, opcode << 4 | low]);
        prop_assert!(Validity::ENHANCED.is_ready(word, index, log));
        prop_assert!(!Validity::ENHANCED.is_ready(word, index.wrapping_add(passes << log), log));
    }

    #[test]
    fn any_bytes_can_be_asked(bytes: [[u8; 32]; 2]) {
        let cqe = Cqe64::read_from_bytes(bytes.as_bytes()).unwrap();
        prop_assert_eq!(cqe.layer3().is_none(), cqe.l4_l3_hdr_type >> 2 & 3 == 3);
        prop_assert_eq!(cqe.layer4().is_none(), cqe.l4_l3_hdr_type >> 4 & 7 > 4);
        prop_assert_eq!(CqeError::of(&cqe).is_some(), matches!(cqe.opcode(), 13 | 14));
        prop_assert_eq!(cqe.strides().byte_cnt(), cqe.byte_cnt.get());
        prop_assert!(cqe.qpn() < 1 << 24 && cqe.user_index() < 1 << 24);
        prop_assert_eq!(cqe.as_bytes(), bytes.as_bytes());
    }

    #[test]
    fn strides_come_apart_as_they_were_put_together(bytes: u16, count in 0..1_u16 << 15, filler: bool) {
        let strides = Strides { bytes, count, filler };
        prop_assert_eq!(Strides::of(strides.byte_cnt()), strides);
    }

    #[test]
    fn compressed_completions_hold_what_their_format_says(
        hash: u32, sum: u16, stride: u16, tag in 0..1_u32 << 24, bytes in 0..1_u32 << 24,
    ) {
        let mini = MiniCqe::with_hash(hash, bytes);
        prop_assert_eq!((mini.rx_hash(), mini.byte_cnt.get()), (hash, bytes));
        let mini = MiniCqe::with_checksum(sum, stride, bytes);
        prop_assert_eq!((mini.checksum(), mini.stride_index(), mini.byte_cnt.get()), (sum, stride, bytes));
        let mini = MiniCqe::with_flow_tag(tag, stride, bytes);
        prop_assert_eq!((mini.flow_tag(), mini.stride_index(), mini.bytes_below_tag()), (tag, stride, bytes));
        let mini = MiniCqe::with_headers(hash as u8, stride, bytes);
        prop_assert_eq!((mini.header_types(), mini.stride_index()), (hash as u8, stride));
        prop_assert_eq!(mini.byte_cnt.get(), bytes);
    }
}

#[test]
fn formats_have_the_codes_of_the_context() {
    for code in 0..=u32::from(u8::MAX) {
        assert_eq!(MiniFormat::of(code).map(|format| format as u32), (code < 5).then_some(code));
    }
}
