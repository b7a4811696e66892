use proptest::prelude::*;

use super::{
    Header, Refused, answer, describe_input, describe_output, header, opcode, outcome, pages, start, status,
};

#[test]
fn every_status_prints_and_the_known_ones_by_name() {
    for code in 0..=u8::MAX {
        assert_eq!(status::text(code).is_some(), status::KNOWN.contains(&code), "{code:#x}");
        let text = Refused { status: code, syndrome: 0x5d0 }.to_string();
        assert!(
            text.contains(&format!("({code:#x})")) || text.contains(&format!("status {code:#x}")),
            "{text}"
        );
        assert!(text.contains("syndrome 0x5d0"), "{text}");
    }
}

#[test]
fn opcodes_are_named_once() {
    for (code, name) in opcode::NAMES {
        assert_eq!(opcode::name(*code), Some(*name));
        assert_eq!(opcode::NAMES.iter().filter(|(other, _)| other == code).count(), 1, "{name}");
    }
    assert_eq!(opcode::name(0xffff), None);
}

#[test]
fn an_answer_too_short_is_no_success() {
    assert_eq!(outcome(&[0; 8]), Ok(()));
    assert_eq!(outcome(&[0; 7]), Err(Refused { status: status::BAD_OUTP_LEN_ERR, syndrome: 0 }));
    assert_eq!(header(&[0; 15]), None);
}

#[test]
fn pages_are_whole_addresses() {
    let list = [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0xff];
    assert_eq!(pages(&list).collect::<Vec<_>>(), [0x1000, 0x1_0000_0000]);
    assert_eq!(pages(&list[..7]).len(), 0);
}

#[test]
fn commands_print_by_name() {
    let mut input = super::rq::ModifyRqIn::ZERO;
    start(&mut input, opcode::MODIFY_RQ, 0, 0);
    super::rq::ModifyRqIn::RQN.set(&mut input, 0x11);
    assert_eq!(describe_input(&input).to_string(), "MODIFY_RQ: rqn=0x11");
    assert_eq!(describe_input(&input[..13]).to_string(), "no command in 13 bytes");
    let mut output = super::cq::CreateCqOut::ZERO;
    super::cq::CreateCqOut::CQN.set(&mut output, 5);
    assert_eq!(describe_output(opcode::CREATE_CQ, &output).to_string(), "CREATE_CQ: cqn=0x5");
    assert_eq!(
        describe_output(opcode::CREATE_CQ, &output[..9]).to_string(),
        "CREATE_CQ: (short: 9 of 16 bytes)"
    );
    answer(&mut output, status::BAD_RES_ERR, 0x9);
    assert_eq!(
        describe_output(opcode::CREATE_CQ, &output).to_string(),
        "CREATE_CQ: BAD_RES_ERR (0x5), syndrome 0x9: an object is not there or not the caller's"
    );
}

/// What a command is about stands in its context, which is no more readable as bytes than as nothing.
#[test]
fn contexts_inside_print_by_name() {
    use super::qp::context::{AddressPath, QpContext};
    let mut input = super::qp::CreateQpIn::ZERO;
    start(&mut input, opcode::CREATE_QP, 0, 0);
    let context = super::qp::CreateQpIn::QPC.of_mut(&mut input);
    QpContext::PD.set(context, 7);
    AddressPath::HOP_LIMIT.set(QpContext::PRIMARY_ADDRESS_PATH.of_mut(context), 64);
    assert_eq!(
        describe_input(&input).to_string(),
        "CREATE_QP: {qpc: pd=0x7 {primary_address_path: hop_limit=0x40}}"
    );
    // Every context of a command that changes or makes an object has a layout.
    for (outer, field, bytes) in super::LAYOUTS.iter().copied().flatten().flat_map(|outer| {
        outer.fields.iter().map(move |place| (outer, place.manual_name(), place.bits as usize / 8))
    }) {
        let context = field == "ctx" || field.ends_with("_context") && bytes > 8;
        assert!(!context || super::nested(outer, &field, bytes).is_some(), "{} {field}", outer.name);
    }
}

proptest! {
    #[test]
    fn a_head_comes_apart_as_it_was_put_together(opcode: u16, uid: u16, op_mod: u16) {
        let mut input = [0; 16];
        start(&mut input, opcode, uid, op_mod);
        prop_assert_eq!(header(&input), Some(Header { opcode, uid, op_mod }));
    }

    #[test]
    fn an_answer_comes_apart_as_it_was_put_together(status in 1..=u8::MAX, syndrome: u32) {
        let mut output = [0; 16];
        answer(&mut output, status, syndrome);
        prop_assert_eq!(outcome(&output), Err(Refused { status, syndrome }));
    }

    #[test]
    fn any_bytes_print(
        known in prop::sample::select(opcode::NAMES), code: u16, named: bool,
        mut bytes in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        let code = if named { known.0 } else { code };
        if let Some(head) = bytes.first_chunk_mut() {
            *head = code.to_be_bytes();
        }
        prop_assert!(!describe_input(&bytes).to_string().is_empty());
        if let Some(head) = bytes.first_mut() {
            *head = status::OK;
        }
        prop_assert!(!describe_output(code, &bytes).to_string().is_empty());
    }
}
