//! Rates that raw packet queue pairs are held to.

use pollux_mlx5_abi::command::sq::{QuerySqIn, QuerySqOut, SqContext};
use pollux_mlx5_abi::command::{self, opcode as op};
use pollux_mlx5_abi::kernel::queue_pair::{BurstInfo, ModifyQp as DriverModifyQp};
use pollux_mlx5_kernel::{CommandQueue, DoorProfile};
use pollux_uverbs::abi::flags::{QpMask, QpState};
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::{Driver, Errno};
use zerocopy::IntoBytes;

use super::bench::{Bench, errno};

/// The index of the rate that a send queue has.
fn index(bench: &Bench, sqn: u32) -> u32 {
    let mut input = QuerySqIn::ZERO;
    command::start(&mut input, op::QUERY_SQ, 0, 0);
    QuerySqIn::SQN.set(&mut input, sqn);
    let mut output = QuerySqOut::ZERO;
    bench.device.execute(&input, &mut output).expect("the device is there");
    command::outcome(&output).expect("a send queue");
    SqContext::PACKET_PACING_RATE_LIMIT_INDEX.get(QuerySqOut::SQ_CONTEXT.of(&output))
}

#[test]
fn queues_share_rates_and_give_them_back() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let made = [(); 3].map(|()| opened.raw(cq.cq.handle));
    let step = |queue: usize, state: QpState, rate: Option<u32>, burst: BurstInfo| {
        let values = ModifyQp { qp_state: state.0, port_num: 1, ..ModifyQp::default() };
        let port = if state == QpState::INIT { QpMask::PORT } else { QpMask::empty() };
        let driver = DriverModifyQp { burst_info: burst, ..DriverModifyQp::default() };
        let handle = made[queue].qp.handle;
        let driver = Driver::new(driver.as_bytes(), &mut []);
        opened.context.modify_qp_extended(handle, QpMask::STATE | port, &values, rate, driver)
    };
    let none = BurstInfo::default();
    let hold = |queue, rate| step(queue, QpState::RTS, Some(rate), none);
    let indices = || [0, 1, 2].map(|queue: usize| index(&bench, made[queue].answer.sqn));
    for queue in 0..3 {
        assert_eq!(
            errno(step(queue, QpState::INIT, Some(1000), none)),
            Errno::EINVAL,
            "not on the way to INIT"
        );
        for state in [QpState::INIT, QpState::RTR] {
            step(queue, state, None, none).expect("a step");
        }
    }
    assert_eq!(errno(hold(0, 1 << 30)), Errno::EINVAL, "faster than the port");
    // As the queue begins to send, and while it does.
    hold(0, 8000).expect("RTS at a rate");
    step(1, QpState::RTS, None, none).expect("RTS");
    step(2, QpState::RTS, None, none).expect("RTS");
    assert_eq!(indices(), [1, 0, 0]);
    hold(1, 8000).expect("the same");
    hold(2, 9000).expect("another");
    assert_eq!(indices(), [1, 1, 2]);
    // A burst makes it another rate, and there is none without a rate.
    let burst = BurstInfo { max_burst_sz: 3000, ..none };
    step(1, QpState::RTS, Some(8000), burst).expect("another");
    assert_eq!(indices(), [1, 3, 2]);
    assert_eq!(errno(step(1, QpState::RTS, Some(0), burst)), Errno::EINVAL);
    // What nobody uses is free for others.
    hold(0, 0).expect("no limit");
    assert_eq!(indices(), [0, 3, 2]);
    hold(0, 7000).expect("a rate");
    step(1, QpState::RESET, None, none).expect("RESET");
    hold(2, 6000).expect("a rate");
    assert_eq!((indices()[0], indices()[2]), (1, 3));
    drop(opened);
    bench.close();
}
