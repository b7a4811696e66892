//! The states of a queue pair: the way up, and all that is not a way.

use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, optional, service, state};
use pollux_mlx5_abi::command::qp::{QueryQpIn, QueryQpOut, TransitionOut};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_model::wire::Impairments;

use super::node::{Ends, Pair, Plan, data};

const STEPS: [(u16, u32); 8] = [
    (op::RST2INIT_QP, state::RST),
    (op::INIT2INIT_QP, state::INIT),
    (op::INIT2RTR_QP, state::INIT),
    (op::RTR2RTS_QP, state::RTR),
    (op::RTS2RTS_QP, state::RTS),
    (op::SQERR2RTS_QP, state::SQER),
    (op::RTS2SQD_QP, state::RTS),
    (op::SQD_RTS_QP, state::SQD),
];

/// Takes a fresh queue pair to a state.
fn to(ends: &Ends, pair: &Pair, wanted: u32) {
    let plan = pair.plan;
    if matches!(wanted, state::INIT | state::RTR | state::RTS | state::SQD) {
        ends.a.to_init(pair);
    }
    if matches!(wanted, state::RTR | state::RTS | state::SQD) {
        ends.a.to_receive(pair, &ends.b, 0x1_0000, &plan, |_| {});
    }
    if matches!(wanted, state::RTS | state::SQD) {
        ends.a.to_send(pair);
    }
    if wanted == state::SQD {
        ends.a.transit(op::RTS2SQD_QP, pair.number, 0, |_| {}).expect("from RTS");
        ends.steps(2);
    }
    if wanted == state::ERR {
        ends.a.end(op::TO_ERR_QP, pair.number).expect("from any state");
    }
    assert_eq!(ends.a.state(pair.number), wanted);
}

#[test]
fn a_command_leads_from_one_state_alone() {
    for service in [service::RC, service::UC, service::UD] {
        for from in [state::RST, state::INIT, state::RTR, state::RTS, state::SQD, state::ERR] {
            let ends = Ends::new();
            for (opcode, needed) in STEPS {
                if needed == from {
                    continue;
                }
                let pair = ends.a.pair(Plan { service, ..Plan::default() });
                to(&ends, &pair, from);
                let refused = ends.a.transit(opcode, pair.number, 0, |_| {}).expect_err("not from there");
                assert_eq!(refused.status, status::BAD_QP_STATE_ERR, "{opcode:#x} from {from}");
                assert_eq!(ends.a.state(pair.number), from);
                ends.a.end(op::DESTROY_QP, pair.number).expect("not in use");
            }
        }
    }
}

#[test]
fn what_a_mask_may_not_change_is_refused() {
    let ends = Ends::new();
    let pair = ends.a.pair(Plan::default());
    to(&ends, &pair, state::RTS);
    let try_mask = |mask| ends.a.transit(op::RTS2RTS_QP, pair.number, mask, |_| {}).map_err(|no| no.status);
    for mask in [optional::PRIMARY_ADDR_PATH, optional::RETRY_COUNT, optional::Q_KEY, 1 << 31] {
        assert_eq!(try_mask(mask), Err(status::BAD_PARAM_ERR), "{mask:#x}");
    }
    ends.a
        .transit(op::RTS2RTS_QP, pair.number, optional::RNR_TIMEOUT | optional::RWE, |context| {
            QpContext::MIN_RNR_NAK.set(context, 17);
            QpContext::RRE.set(context, 0);
        })
        .expect("allowed");
    let context = ends.a.query(pair.number);
    assert_eq!(QpContext::MIN_RNR_NAK.get(&context), 17);
    assert_eq!((QpContext::RWE.get(&context), QpContext::RRE.get(&context)), (0, 1));
}

#[test]
fn a_query_says_what_was_set() {
    let ends = Ends::new();
    let pair = ends.a.pair(Plan::default());
    to(&ends, &pair, state::RTS);
    let context = ends.a.query(pair.number);
    let path = QpContext::PRIMARY_ADDRESS_PATH.of(&context);
    assert_eq!(AddressPath::RGID_RIP.get(path), ends.b.gid);
    assert_eq!(AddressPath::ACK_TIMEOUT.get(path), pair.plan.timeout);
    assert_eq!(QpContext::NEXT_SEND_PSN.get(&context), pair.plan.psn);
    assert_eq!(QpContext::NEXT_RCV_PSN.get(&context), pair.plan.psn);
    assert_eq!(QpContext::MTU.get(&context), pair.plan.mtu);
    assert_eq!(QpContext::REMOTE_QPN.get(&context), 0x1_0000);
}

#[test]
fn an_error_flushes_both_sides_in_order() {
    let ends = Ends::new();
    let (mut a, _b) = ends.connected(Plan::default());
    let at = ends.a.rig.room(64);
    for _ in 0..3 {
        a.receive(&ends.a, ends.a.rig.lkey, at, 64);
    }
    // Nothing is posted at the peer: these wait.
    for _ in 0..2 {
        a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, at, 16));
    }
    ends.steps(5);
    ends.a.end(op::TO_ERR_QP, a.number).expect("from any state");
    a.send(&ends.a, send::SEND, &data(ends.a.rig.lkey, at, 16));
    ends.steps(5);
    for index in 0..3 {
        let sent = a.send_cq.error(&ends.a.rig);
        assert_eq!((sent.syndrome().code, sent.wqe_counter.get()), (Syndrome::WR_FLUSH_ERR, index));
        let came = a.receive_cq.error(&ends.a.rig);
        assert_eq!((came.syndrome().code, came.wqe_counter.get()), (Syndrome::WR_FLUSH_ERR, index));
    }
    // What is posted later is flushed too.
    a.receive(&ends.a, ends.a.rig.lkey, at, 64);
    ends.steps(2);
    assert!(a.receive_cq.error(&ends.a.rig).syndrome().is_flush());
    ends.a.end(op::TO_RST_QP, a.number).expect("from any state");
    assert_eq!(ends.a.state(a.number), state::RST);
}

/// What a command answers that the options of the connection are.
fn told(output: &[u8]) -> u32 {
    TransitionOut::ECE.get(output.first_chunk().expect("an answer"))
}

#[test]
fn options_of_the_connection_are_kept_and_told() {
    let ends = Ends::with(Impairments::default(), |traits| traits.selective_repeat = true);
    let query = |pair: &Pair| {
        let mut input = QueryQpIn::ZERO;
        QueryQpIn::QPN.set(&mut input, pair.number);
        let output = ends.a.rig.must(op::QUERY_QP, 0, &mut input, QueryQpOut::BYTES);
        QueryQpOut::ECE.get(output.first_chunk().expect("an answer"))
    };
    let pair = ends.a.pair(Plan::default());
    assert_eq!(query(&pair), 0, "nobody asked when it was made");
    ends.a.to_init(&pair);
    let kept = ends.a.transit(op::INIT2INIT_QP, pair.number, 0, |_| {}).expect("no change");
    assert_eq!(told(&kept), 0);
    let asked = (0, 0x3000_000f);
    let agreed = ends.a.transit_with(op::INIT2INIT_QP, pair.number, asked, |_| {}).expect("options");
    assert_eq!((told(&agreed), query(&pair)), (0x3000_0001, 0x3000_0001));
    ends.a.to_receive(&pair, &ends.b, 0x1_0000, &pair.plan, |_| {});
    ends.a.to_send(&pair);
    assert_eq!(query(&pair), 0x3000_0001, "as before");
    // Of one that sends they stay.
    let other = ends.a.transit_with(op::RTS2RTS_QP, pair.number, (0, 0x3000_0000), |_| {});
    assert_eq!(other.expect_err("settled").status, status::BAD_PARAM_ERR);
    let same = ends.a.transit_with(op::RTS2RTS_QP, pair.number, asked, |_| {}).expect("the same");
    assert_eq!((told(&same), query(&pair)), (0x3000_0001, 0x3000_0001));
    ends.a.end(op::TO_RST_QP, pair.number).expect("from any state");
    assert_eq!(query(&pair), 0x3000_0001, "what the device has, for the next peer");

    // A card without them takes no notice.
    let old =
        Ends::with(Impairments::default(), |traits| (traits.ece, traits.selective_repeat) = (false, true));
    let pair = old.a.pair(Plan { options: 0x3000_0000, ..Plan::default() });
    old.a.to_init(&pair);
    let none = old.a.transit_with(op::INIT2INIT_QP, pair.number, (0, 0x3000_0000), |_| {}).expect("nothing");
    assert_eq!(told(&none), 0);
}
