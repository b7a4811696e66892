//! Frames that come back: when the kernel has the device bring them back.

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::vport::{FieldSelect, ModifyNicVportContextIn, NicVportContext};
use pollux_mlx5_abi::kernel::queue_pair::qp_flag;
use pollux_mlx5_kernel::DoorProfile;

use super::bench::{Bench, Fault};

/// What the device was told, in order: whether they come back.
fn told(bench: &Bench) -> Vec<bool> {
    let told = bench.watch.done(op::MODIFY_NIC_VPORT_CONTEXT).into_iter().filter_map(|seen| {
        let input: &[u8; ModifyNicVportContextIn::BYTES] = seen.input.first_chunk()?;
        let fields = ModifyNicVportContextIn::FIELD_SELECT.get(input).to_be_bytes();
        let context = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of(input);
        let kinds = [
            (FieldSelect::DISABLE_UC_LOCAL_LB, NicVportContext::DISABLE_UC_LOCAL_LB),
            (FieldSelect::DISABLE_MC_LOCAL_LB, NicVportContext::DISABLE_MC_LOCAL_LB),
        ];
        let [unicast, multicast] =
            kinds.map(|(field, off)| field.is_set(&fields).then(|| !off.is_set(context)));
        assert_eq!(unicast, multicast, "both kinds together");
        unicast
    });
    told.collect()
}

#[test]
fn they_come_back_while_two_contexts_are_open() {
    let bench = Bench::new(DoorProfile::default());
    assert_eq!(told(&bench), [false], "not from the start");
    let one = bench.open();
    assert_eq!(told(&bench), [false], "nor for one alone");
    let two = bench.open();
    let three = bench.open();
    assert_eq!(told(&bench), [false, true]);
    drop(three);
    drop(two);
    assert_eq!(told(&bench), [false, true, false]);
    drop(one);
    assert_eq!(told(&bench), [false, true, false]);
    bench.close();
}

#[test]
fn they_come_back_while_a_queue_pair_asks_for_its_own() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(4, None);
    let plain = opened.raw(cq.cq.handle);
    assert_eq!(told(&bench), [false]);
    let asks = opened.try_raw(cq.cq.handle, |_, driver| driver.flags |= qp_flag::TIR_ALLOW_SELF_LB_UC);
    let asks = opened.must(asks);
    assert_eq!(told(&bench), [false, true]);
    opened.context.destroy_qp(plain.qp.handle).expect("destroyed");
    assert_eq!(told(&bench), [false, true]);
    opened.context.destroy_qp(asks.qp.handle).expect("destroyed");
    assert_eq!(told(&bench), [false, true, false]);
    drop(opened);
    bench.close();
}

#[test]
fn a_context_that_cannot_have_them_back_is_not_opened() {
    let bench = Bench::new(DoorProfile::default());
    let one = bench.open();
    // One command after the other is refused, until it is that one.
    let refused = (0..40).any(|after| {
        bench.watch.faults.lock().expect("whole").push((after, Fault::Refuse));
        let opened = bench.try_open(true);
        bench.watch.faults.lock().expect("whole").clear();
        let seen = bench.watch.seen.lock().expect("whole");
        let refused = seen.iter().any(|seen| seen.opcode == op::MODIFY_NIC_VPORT_CONTEXT && seen.status != 0);
        drop(seen);
        assert!(!refused || opened.is_err());
        refused
    });
    assert!(refused);
    let two = bench.open();
    assert_eq!(told(&bench).last(), Some(&true), "the next one asks again");
    drop((one, two));
    bench.close();
}
