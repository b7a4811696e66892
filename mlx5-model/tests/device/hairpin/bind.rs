//! What cards say of hairpin queues, and which two can be bound, by whom and until when.

use pollux_mlx5_abi::caps::general::GeneralCaps as G;
use pollux_mlx5_abi::caps::{self, kind};
use pollux_mlx5_abi::command::hairpin::{
    DATA_BUFFER_LOCKED, DATA_BUFFER_TYPE, HOST_MEMORY, LOCKED_INTERNAL_BUFFER, SQ_WQ_IN_HOST_MEM,
    WQ_BUFFER_TYPE,
};
use pollux_mlx5_abi::command::rq::{DestroyRqIn, ModifyRqIn, RqContext, memory, modify};
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::wq::state::{READY, RESET};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::{
    DOWN, Pair, UP, VHCA, come, destroy_sender, frames, gone, move_receiver, move_sender, query_receiver,
    query_sender, receiver, rig, room, sender, sizes, through,
};
use crate::rig::{Rig, block};

#[test]
fn the_card_says_what_it_has_room_for() {
    let with = rig();
    let general = block(&with.device, kind::GENERAL, caps::NOW);
    let (least, most) =
        (G::LOG_MIN_HAIRPIN_WQ_DATA_SZ.get(&general), G::LOG_MAX_HAIRPIN_WQ_DATA_SZ.get(&general));
    let packets = G::LOG_MAX_HAIRPIN_NUM_PACKETS.get(&general);
    assert!(G::HAIRPIN.is_set(&general) && G::VNIC_ENV_INT_RQ_OOB.is_set(&general));
    assert_eq!((least, most, packets, G::VHCA_ID.get(&general)), (11, 19, 13, VHCA));
    for (bytes, packets, made) in [
        (least, 0, true),
        (most, packets, true),
        (least - 1, 0, false),
        (most + 1, 0, false),
        (16, packets + 1, false),
    ] {
        let expected = if made { Ok(()) } else { Err(status::BAD_PARAM_ERR) };
        let receiver = receiver(&with, 0, |context| sizes(RqContext::WQ.of_mut(context), bytes, packets));
        let sender = sender(&with, 0, |context| sizes(SqContext::WQ.of_mut(context), bytes, packets));
        assert_eq!([receiver.map(drop), sender.map(drop)], [expected; 2], "{bytes} {packets}");
    }
    // All is in the device, in memory that it shares.
    let second = block(&with.device, kind::GENERAL_2, caps::NOW);
    assert!(!DATA_BUFFER_LOCKED.is_set(&second) && !SQ_WQ_IN_HOST_MEM.is_set(&second));
    let refused = Err(status::BAD_PARAM_ERR);
    assert_eq!(receiver(&with, 0, |context| DATA_BUFFER_TYPE.set(context, LOCKED_INTERNAL_BUFFER)), refused);
    assert_eq!(sender(&with, 0, |context| WQ_BUFFER_TYPE.set(context, HOST_MEMORY)), refused);
    // What others have and these have not.
    assert_eq!(receiver(&with, 0, |context| RqContext::MEM_RQ_TYPE.set(context, memory::RMP)), refused);
    assert_eq!(receiver(&with, 0, |context| RqContext::DELAY_DROP_EN.set(context, 1)), refused);
    assert_eq!(receiver(&with, 0, |context| RqContext::STATE.set(context, READY)), refused);
    assert_eq!(sender(&with, 0, |context| SqContext::STATE.set(context, READY)), refused);
    assert_eq!(sender(&with, 0, |context| SqContext::TIS_LST_SZ.set(context, 2)), refused);
    let unknown = Err(status::BAD_RES_ERR);
    assert_eq!(sender(&with, 0, |context| SqContext::TIS_LST_SZ.set(context, 1)), unknown);
    assert_eq!(receiver(&with, 0, |context| RqContext::COUNTER_SET_ID.set(context, 9)), unknown);
    // A card without.
    let without = Rig::new();
    let general = block(&without.device, kind::GENERAL, caps::NOW);
    for field in
        [G::HAIRPIN, G::LOG_MAX_HAIRPIN_QUEUES, G::LOG_MAX_HAIRPIN_WQ_DATA_SZ, G::LOG_MAX_HAIRPIN_NUM_PACKETS]
    {
        assert!(!field.is_set(&general));
    }
    assert_eq!([receiver(&without, 0, |_| {}), sender(&without, 0, |_| {})], [refused; 2]);
}

#[test]
fn there_are_as_many_as_the_card_says() {
    let rig = rig();
    let most = 1 << G::LOG_MAX_HAIRPIN_QUEUES.get(&block(&rig.device, kind::GENERAL, caps::NOW));
    let receivers: Vec<_> = (0..=most).map(|_| receiver(&rig, 0, |_| {})).collect();
    let senders: Vec<_> = (0..=most).map(|_| sender(&rig, 0, |_| {})).collect();
    for made in [&receivers, &senders] {
        assert!(made[..most].iter().all(Result::is_ok));
        assert_eq!(made[most], Err(status::NO_RES_ERR));
    }
    // One that ends makes room for another; queues of other kinds are not counted.
    let mut input = DestroyRqIn::ZERO;
    DestroyRqIn::RQN.set(&mut input, receivers[3].expect("made"));
    rig.must(op::DESTROY_RQ, 0, &mut input, 16);
    destroy_sender(&rig, senders[3].expect("made"));
    assert!(receiver(&rig, 0, |_| {}).is_ok() && sender(&rig, 0, |_| {}).is_ok());
    let cq = rig.cq(4);
    let _others = (rig.sq(4, &cq), rig.rq(4, 4, &cq));
}

/// As DPDK does when a port stops: it ends send queues first.
#[test]
fn either_queue_may_end_while_they_are_bound() {
    let (rig, pair) = through();
    room(&rig, Some(0));
    come(&rig, &frames(4, 100, 0));
    destroy_sender(&rig, pair.sq);
    room(&rig, None);
    rig.settle();
    assert_eq!(gone(&rig), frames(1, 100, 0));
    // The receive queue is bound still, to what is gone. Another takes no place of it.
    let other = sender(&rig, 0, |_| {}).expect("made");
    assert_eq!(move_sender(&rig, 0, other, UP, (VHCA, pair.rq)), status::BAD_RES_STATE_ERR);
    assert_eq!(pair.receiver(&rig, DOWN), status::OK);
    let pair = Pair { sq: other, ..pair };
    pair.bind(&rig);
    come(&rig, &frames(2, 100, 8));
    assert_eq!(gone(&rig), frames(2, 100, 8));
    // A receive queue that steering leads to stays, one that it does not ends, and what waits there with it.
    let mut input = DestroyRqIn::ZERO;
    DestroyRqIn::RQN.set(&mut input, pair.rq);
    let busy = rig.command(op::DESTROY_RQ, 0, &mut input, 16).expect_err("in use");
    assert_eq!(busy.status, status::RES_BUSY);
    let mut ended = Pair::new(&rig);
    DestroyRqIn::RQN.set(&mut input, ended.rq);
    rig.must(op::DESTROY_RQ, 0, &mut input, 16);
    ended.rq = receiver(&rig, 0, |_| {}).expect("made");
    assert_eq!(
        ended.receiver(&rig, UP),
        status::BAD_RES_STATE_ERR,
        "the send queue is bound to what is gone"
    );
    assert_eq!(ended.sender(&rig, DOWN), status::OK);
    ended.bind(&rig);
}

#[test]
fn peers_are_those_that_can_be() {
    let rig = rig();
    let cq = rig.cq(4);
    let (plain_rq, plain_sq) = (rig.rq(4, 4, &cq), rig.sq(4, &cq));
    let pair = Pair::unbound(&rig);
    let other = Pair::new(&rig);
    for (peer, expected) in [
        ((VHCA + 1, pair.sq), status::BAD_PARAM_ERR),
        ((0, pair.sq), status::BAD_PARAM_ERR),
        ((VHCA, 0), status::BAD_RES_ERR),
        ((VHCA, 0xff_ffff), status::BAD_RES_ERR),
        ((VHCA, plain_sq.number), status::BAD_PARAM_ERR),
        ((VHCA, other.sq), status::BAD_RES_STATE_ERR),
    ] {
        assert_eq!(move_receiver(&rig, 0, pair.rq, UP, peer), expected, "{peer:x?}");
        assert_eq!(query_receiver(&rig, pair.rq), (RESET, 0, 0));
    }
    for (peer, expected) in [
        ((VHCA + 1, pair.rq), status::BAD_PARAM_ERR),
        ((0, pair.rq), status::BAD_PARAM_ERR),
        ((VHCA, 0), status::BAD_RES_ERR),
        ((VHCA, 0xff_ffff), status::BAD_RES_ERR),
        ((VHCA, plain_rq.number), status::BAD_PARAM_ERR),
        ((VHCA, other.rq), status::BAD_RES_STATE_ERR),
    ] {
        assert_eq!(move_sender(&rig, 0, pair.sq, UP, peer), expected, "{peer:x?}");
        assert_eq!(query_sender(&rig, pair.sq), (RESET, 0, 0));
    }
    // In states that they are not in; and there is no way back from an error but by RESET.
    assert_eq!([pair.receiver(&rig, DOWN), pair.sender(&rig, DOWN)], [status::BAD_RES_STATE_ERR; 2]);
    // The receive queue first does as well.
    assert_eq!(pair.receiver(&rig, UP), status::OK);
    rig.all_to(pair.tir(&rig));
    come(&rig, &frames(2, 100, 0));
    assert!(gone(&rig).is_empty());
    assert_eq!(pair.sender(&rig, UP), status::OK);
    rig.settle();
    assert_eq!(gone(&rig), frames(2, 100, 0));
    assert_eq!(query_receiver(&rig, pair.rq), (READY, VHCA, pair.sq));
    assert_eq!(query_sender(&rig, pair.sq), (READY, VHCA, pair.rq));
    // What changes in READY leaves the peer alone. As DPDK's `mlx5_rxq_obj_modify_rq_vlan_strip` does it.
    let mut input = ModifyRqIn::ZERO;
    ModifyRqIn::RQN.set(&mut input, pair.rq);
    ModifyRqIn::RQ_STATE.set(&mut input, READY);
    ModifyRqIn::MODIFY_BITMASK.set(&mut input, modify::VSD);
    RqContext::STATE.set(ModifyRqIn::CTX.of_mut(&mut input), READY);
    rig.must(op::MODIFY_RQ, 0, &mut input, 16);
    assert_eq!(query_receiver(&rig, pair.rq), (READY, VHCA, pair.sq));
}

/// Whoever binds two queues sends what one of them is given: both must be its own.
#[test]
fn a_user_binds_its_own_queues_alone() {
    let rig = rig();
    let (one, two) = (rig.user(), rig.user());
    let make = |uid| Pair {
        rq: receiver(&rig, uid, |_| {}).expect("made"),
        sq: sender(&rig, uid, |_| {}).expect("made"),
    };
    let (kernels, ones, twos) = (make(0), make(one), make(two));
    for others in [kernels, twos] {
        assert_eq!(move_sender(&rig, one, ones.sq, UP, (VHCA, others.rq)), status::BAD_RES_ERR);
        assert_eq!(move_receiver(&rig, one, ones.rq, UP, (VHCA, others.sq)), status::BAD_RES_ERR);
        assert_eq!(move_receiver(&rig, one, others.rq, UP, (VHCA, ones.sq)), status::BAD_RES_ERR);
    }
    assert_eq!(move_sender(&rig, one, ones.sq, UP, (VHCA, ones.rq)), status::OK);
    assert_eq!(move_receiver(&rig, one, ones.rq, UP, (VHCA, ones.sq)), status::OK);
}
