//! What the kernel's queues may do and those of user contexts may not.

use pollux_mlx5_abi::command::qp::TransitionIn;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext as Q};
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::{opcode as op, status};

use super::node::{Ends, Node, Pair, Plan};

#[test]
fn the_key_for_any_memory_is_the_kernels() {
    let ends = Ends::new();
    let node = &ends.a;
    let uid = node.rig.user();
    let made = |uid, key: u32| {
        let made = node.pair_as(uid, Plan::default(), |context| Q::RLKY.set(context, key));
        made.map(|pair| pair.number).map_err(|refused| refused.status)
    };
    assert!(made(0, 1).is_ok() && made(uid, 0).is_ok());
    assert_eq!(made(uid, 1), Err(status::BAD_PARAM_ERR));
    let send = |uid, key: u32| {
        let (cq, ring, record) = (node.rig.cq(4), node.rig.room(1024), node.rig.room(64));
        let mut input = node.rig.sq_input(4, &cq, ring, record, |context| SqContext::RLKY.set(context, key));
        node.rig.command_as(uid, op::CREATE_SQ, &mut input, 16).map_err(|refused| refused.status)
    };
    assert!(send(0, 1).is_ok() && send(uid, 0).is_ok());
    assert_eq!(send(uid, 1).expect_err("the kernel's"), status::BAD_PARAM_ERR);
}

/// One that is made without it does not come by it later.
#[test]
fn no_transition_of_a_user_gives_the_key_for_any_memory() {
    let ends = Ends::new();
    let node = &ends.a;
    let uid = node.rig.user();
    let number = made_by(node, uid).number;
    for opcode in [op::RST2INIT_QP, op::INIT2RTR_QP, op::RTR2RTS_QP, op::RTS2RTS_QP] {
        let moved = |key: u32| {
            let mut input = TransitionIn::ZERO;
            TransitionIn::QPN.set(&mut input, number);
            let context = TransitionIn::QPC.of_mut(&mut input);
            AddressPath::VHCA_PORT_NUM.set(Q::PRIMARY_ADDRESS_PATH.of_mut(context), 1);
            Q::MTU.set(context, 3);
            Q::RLKY.set(context, key);
            node.rig.command_as(uid, opcode, &mut input, 16).map_err(|refused| refused.status)
        };
        assert_eq!(moved(1).expect_err("the kernel's"), status::BAD_PARAM_ERR, "{opcode:#x}");
        assert!(moved(0).is_ok(), "it stands where it stood");
    }
}

fn made_by(node: &Node, uid: u16) -> Pair {
    node.pair_as(uid, Plan::default(), |_| {}).expect("a queue pair")
}
