//! What a queue pair does without its peer: copying memory, keys of patterns.

use pollux_mlx5_abi::command::mkey::MkeyContext as M;
use pollux_mlx5_abi::command::qp::TransitionIn;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, service};
use pollux_mlx5_abi::command::source_port;
use pollux_mlx5_abi::command::{Refused, opcode as op};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome as S;
use pollux_mlx5_abi::wqe::copy::{self, Metadata};
use pollux_mlx5_abi::wqe::{
    Completion, Control, MkeyContext, RepeatBlock, RepeatEntry, UmrControl, mkey_access, mkey_mask as mask,
    umr_flag,
};
use zerocopy::IntoBytes;

use super::node::{Ends, Node, Pair, Plan, data, remote};
use crate::rig::HCA_DELTA;

/// The entry that copies, as rdma-core's driver writes it.
pub(crate) fn copying(
    pair: &mut Pair,
    node: &Node,
    modifier: u8,
    (from, from_key): (u64, u32),
    (to, to_key): (u64, u32),
    bytes: u32,
) {
    let mut body = Metadata::default().as_bytes().to_vec();
    body.extend(data(from_key, from, bytes));
    body.extend(data(to_key, to, bytes));
    let segments = 1 + body.len() / 16;
    let flags = Completion::Always as u8;
    let control = Control::new(send::MMO, modifier, pair.sq.next, pair.number, segments as u8, flags, 0);
    pair.sq.write_raw(&node.rig, &control, &body);
    pair.sq.ring(&node.rig);
}

#[test]
fn memory_is_copied_on_the_device() {
    let ends = Ends::new();
    let (mut a, _b) = ends.connected(Plan::default());
    let (from, to) = (ends.a.rig.room(10_000), ends.a.rig.room(10_000));
    let bytes: Vec<u8> = (0..10_000_u32).map(|index| (index % 251) as u8).collect();
    ends.a.rig.write(from, &bytes);
    let key = ends.a.rig.lkey;
    copying(&mut a, &ends.a, copy::MODIFIER, (from, key), (to + 1, key), 9_999);
    ends.steps(3);
    assert_eq!(a.done(&ends.a).send_opcode(), send::MMO);
    assert_eq!(ends.a.rig.read(to + 1, 9_999), bytes[..9_999]);
}

#[test]
fn what_may_not_be_copied_is_not() {
    let cases: [(u8, u32, u32, u8); 4] = [
        // Written without the right to, too long, another modifier, of no key.
        (copy::MODIFIER, 64, 1, S::LOCAL_PROT_ERR),
        (copy::MODIFIER, (1 << 20) + 1, 0, S::LOCAL_LENGTH_ERR),
        (0, 64, 0, S::LOCAL_QP_OP_ERR),
        (copy::MODIFIER, 64, 2, S::LOCAL_PROT_ERR),
    ];
    for (modifier, bytes, which, expected) in cases {
        let ends = Ends::new();
        let (mut a, _b) = ends.connected(Plan::default());
        let (from, to) = (ends.a.rig.room(4096), ends.a.rig.room(4096));
        ends.a.rig.write(from, &[7; 64]);
        let key = match which {
            0 => ends.a.rig.lkey,
            1 => ends.a.key(to, 4096, |key| M::LW.set(key, 0)),
            _ => 0xdead_0000,
        };
        copying(&mut a, &ends.a, modifier, (from, ends.a.rig.lkey), (to, key), bytes);
        ends.steps(3);
        assert_eq!(a.send_cq.error(&ends.a.rig).syndrome().code, expected, "{which}");
        assert_eq!(ends.a.rig.read(to, 64), [0; 64]);
    }
}

/// Lays a key over a pattern: `turns` times so many bytes of each of `pieces`, the next turn so much further.
fn lay(pair: &mut Pair, node: &Node, key: u32, turns: u32, pieces: &[(u64, u16, u16)]) {
    let bytes: u64 = pieces.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum();
    let mut list = RepeatBlock {
        byte_count: (bytes as u32).into(),
        op: 0x400.into(),
        repeat_count: turns.into(),
        num_ent: (pieces.len() as u16).into(),
        ..RepeatBlock::default()
    }
    .as_bytes()
    .to_vec();
    for (at, bytes, skip) in pieces {
        let entry = RepeatEntry {
            stride: (bytes + skip).into(),
            byte_count: (*bytes).into(),
            memkey: node.rig.lkey.into(),
            va: (at + HCA_DELTA).into(),
        };
        list.extend(entry.as_bytes());
    }
    list.resize(list.len().next_multiple_of(64), 0);
    let control = UmrControl {
        flags: umr_flag::INLINE,
        klm_octowords: ((list.len() / 16) as u16).into(),
        mkey_mask: (mask::FREE | mask::LEN | mask::START_ADDR | mask::LW | mask::RW).into(),
        ..UmrControl::default()
    };
    let context = MkeyContext {
        access_flags: mkey_access::LOCAL_WRITE | mkey_access::REMOTE_WRITE,
        len: (bytes * u64::from(turns)).into(),
        start_addr: HCA_DELTA.into(),
        ..MkeyContext::default()
    };
    let mut body = control.as_bytes().to_vec();
    body.extend(context.as_bytes());
    body.extend(list);
    pair.post(node, send::UMR, 2 << 2, key, &body);
    pair.sq.ring(&node.rig);
}

#[test]
fn a_key_stands_for_a_pattern() {
    let ends = Ends::new();
    let (mut a, mut b) = ends.connected(Plan::default());
    let (here, there) = (ends.a.rig.room(4096), ends.b.rig.room(4096));
    let key = ends.b.key_of_pieces(false);
    // Three turns: 10 bytes, then 6 from elsewhere.
    lay(&mut b, &ends.b, key, 3, &[(there, 10, 90), (there + 1000, 6, 14)]);
    ends.steps(3);
    b.done(&ends.b);
    let bytes: Vec<u8> = (1..=48).collect();
    ends.a.rig.write(here, &bytes);
    let mut body = remote(key, 0);
    body.extend(data(ends.a.rig.lkey, here, 48));
    a.send(&ends.a, send::RDMA_WRITE, &body);
    ends.steps(10);
    a.done(&ends.a);
    for turn in 0..3_u64 {
        let from = turn as usize * 16;
        assert_eq!(ends.b.rig.read(there + turn * 100, 10), bytes[from..from + 10]);
        assert_eq!(ends.b.rig.read(there + 1000 + turn * 20, 6), bytes[from + 10..from + 16]);
        assert_eq!(ends.b.rig.read(there + turn * 100 + 10, 90), [0; 90], "what the pattern skips");
    }
}

#[test]
fn a_pattern_that_is_too_long_or_not_all_there_is_refused() {
    for (turns, outside) in [(2, false), (u32::MAX, false), (1 << 17, false), (2, true)] {
        let ends = Ends::new();
        let (_a, mut b) = ends.connected(Plan::default());
        let there = if outside { 1 << 40 } else { ends.b.rig.room(4096) };
        let key = ends.b.key_of_pieces(false);
        lay(&mut b, &ends.b, key, turns, &[(there, 1, 0)]);
        ends.steps(3);
        if (turns, outside) == (2, false) {
            assert_eq!(b.done(&ends.b).send_opcode(), send::UMR);
        } else {
            assert_eq!(b.send_cq.error(&ends.b.rig).syndrome().code, S::MW_BIND_ERR, "{turns}");
        }
    }
}

#[test]
fn numbers_are_kept_free_of_queue_pairs() {
    use pollux_mlx5_abi::command::user::{GeneralObjectIn, GeneralObjectOut, general_object};
    let ends = Ends::new();
    let ask = |opcode, kind, number, log_range| {
        let mut input = GeneralObjectIn::ZERO;
        GeneralObjectIn::OBJ_TYPE.set(&mut input, kind);
        GeneralObjectIn::OBJ_ID.set(&mut input, number);
        GeneralObjectIn::LOG_OBJ_RANGE.set(&mut input, log_range);
        ends.a.rig.command(opcode, kind as u16, &mut input, 16)
    };
    let kind = general_object::RESERVED_QPN;
    let make = || {
        let output = ask(op::CREATE_GENERAL_OBJECT, kind, 0, 0).expect("a number");
        GeneralObjectOut::OBJ_ID.get(output.first_chunk().expect("an answer"))
    };
    let (one, two) = (make(), make());
    assert!(one != two && one < 1 << 24);
    assert!(ask(op::CREATE_GENERAL_OBJECT, kind, 0, 1).is_err(), "one at a time");
    assert!(ask(op::CREATE_GENERAL_OBJECT, kind + 1, 0, 0).is_err(), "no such kind");
    let (pair, other) = ends.connected(Plan::default());
    assert!(![pair.number, other.number].contains(&one));
    ask(op::DESTROY_GENERAL_OBJECT, kind, one, 0).expect("it ends");
    assert!(ask(op::DESTROY_GENERAL_OBJECT, kind, one, 0).is_err());
}

/// RTS2RTS with a source port for its packets.
fn source_port(pair: &Pair, node: &Node, parts: u64, port: u32) -> Result<Vec<u8>, Refused> {
    let mut input = TransitionIn::ZERO;
    TransitionIn::QPN.set(&mut input, pair.number);
    source_port::MORE_PARTS.set(&mut input, parts);
    let path = QpContext::PRIMARY_ADDRESS_PATH.of_mut(TransitionIn::QPC.of_mut(&mut input));
    AddressPath::UDP_SPORT.set(path, port);
    node.rig.command(op::RTS2RTS_QP, 0, &mut input, 16)
}

#[test]
fn a_connection_changes_its_source_port() {
    let (ends, seen) = Ends::watched();
    let (mut a, mut b) = ends.connected(Plan::default());
    let (here, there) = (ends.a.rig.room(64), ends.b.rig.room(64));
    source_port(&a, &ends.a, source_port::PART, 55_555).expect("a new port");
    assert_eq!(
        AddressPath::UDP_SPORT.get(QpContext::PRIMARY_ADDRESS_PATH.of(&ends.a.query(a.number))),
        55_555
    );
    b.receive(&ends.b, ends.b.rig.lkey, there, 64);
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, here, 64));
    ends.steps(5);
    a.done(&ends.a);
    let seen = seen.lock().expect("whole");
    let from_a = seen.iter().find(|frame| frame.len() > 64 + 40).expect("the message");
    let udp = from_a.windows(2).position(|pair| pair == 4791_u16.to_be_bytes()).expect("UDP") - 2;
    assert_eq!(from_a[udp..udp + 2], 55_555_u16.to_be_bytes());
    assert!(source_port(&a, &ends.a, 1 << 7, 1).is_err(), "no such part");
    let plan = Plan { service: service::UD, ..Plan::default() };
    let (datagrams, _) = ends.connected(plan);
    assert!(
        source_port(&datagrams, &ends.a, source_port::PART, 1).is_err(),
        "datagrams have no port of their own"
    );
}
