use pollux_mlx5_abi::command::cq::CqContext;
use pollux_mlx5_abi::command::rq::RqContext;
use pollux_mlx5_abi::command::wq::{WorkQueue, kind};
use pollux_mlx5_abi::cqe::{MINIS, MiniCqe, MiniFormat, Strides, format};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{Data, StridingReceive};
use pollux_mlx5_model::{DeviceConfig, Traits};
use zerocopy::IntoBytes;

use super::receive::arrive;
use super::rig::{Cq, HCA_DELTA, Rig, Rq, frame};

/// Strides of 64 bytes, 8 to an entry.
fn striding(rig: &Rig, cq: &Cq, shift: bool) -> Rq {
    let rq = rig.rq_with(4, 5, cq, |context| {
        let wq = RqContext::WQ.of_mut(context);
        WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC_STRIDING_RQ);
        WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(wq, 0xa);
        WorkQueue::LOG_WQE_STRIDE_SIZE.set(wq, 0);
        WorkQueue::TWO_BYTE_SHIFT_EN.set(wq, shift.into());
    });
    rig.all_to(rig.direct_tir(&rq));
    rq
}

fn post(rig: &Rig, rq: &mut Rq) -> u64 {
    let at = rig.room(512);
    let data = Data::new(512, rig.lkey, at + HCA_DELTA);
    rq.post_raw(rig, StridingReceive { data, ..Default::default() }.as_bytes());
    at
}

#[test]
fn packets_share_an_entry_stride_by_stride() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = striding(&rig, &cq, false);
    let buffers = [post(&rig, &mut rq), post(&rig, &mut rq), post(&rig, &mut rq)];
    // Strides 0, 1-2, 3-6; then 2 do not fit behind: a filler of 1; then 8 at once.
    for bytes in [64, 65, 256, 128, 511] {
        arrive(&rig, &frame(bytes, bytes as u8));
    }
    let seen: Vec<(u16, u16, Strides)> = std::iter::from_fn(|| cq.poll(&rig))
        .map(|entry| (entry.wqe_id.get(), entry.wqe_counter.get(), entry.strides()))
        .collect();
    let packet = |bytes, count| Strides { bytes, count, filler: false };
    assert_eq!(
        seen,
        [
            (0, 0, packet(64, 1)),
            (0, 1, packet(65, 2)),
            (0, 3, packet(256, 4)),
            (0, 7, Strides { bytes: 0, count: 1, filler: true }),
            (1, 0, packet(128, 2)),
            (1, 2, Strides { bytes: 0, count: 6, filler: true }),
            (2, 0, packet(511, 8)),
        ]
    );
    assert_eq!(rig.read(buffers[0], 64), frame(64, 64));
    assert_eq!(rig.read(buffers[0] + 64, 65), frame(65, 65));
    assert_eq!(rig.read(buffers[0] + 192, 256), frame(256, 0));
    assert_eq!(rig.read(buffers[2], 511), frame(511, 255));
    // The last one filled its entry: the next needs a new one.
    arrive(&rig, &frame(64, 0));
    assert!(cq.poll(&rig).is_none());
}

#[test]
fn packets_may_begin_two_bytes_in() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = striding(&rig, &cq, true);
    let at = post(&rig, &mut rq);
    arrive(&rig, &frame(63, 1));
    let entry = cq.poll(&rig).expect("a completion");
    assert_eq!(entry.strides(), Strides { bytes: 63, count: 2, filler: false });
    assert_eq!(rig.read(at, 65), [vec![0, 0], frame(63, 1)].concat());
}

#[test]
fn a_packet_longer_than_an_entry_fails_the_queue() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = striding(&rig, &cq, false);
    post(&rig, &mut rq);
    arrive(&rig, &frame(513, 1));
    assert_eq!(cq.error(&rig).syndrome, Syndrome::LOCAL_LENGTH_ERR);
    // So does a buffer shorter than the strides say.
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = striding(&rig, &cq, false);
    let at = rig.room(512);
    let data = Data::new(100, rig.lkey, at + HCA_DELTA);
    rq.post_raw(&rig, StridingReceive { data, ..Default::default() }.as_bytes());
    arrive(&rig, &frame(64, 1));
    assert!(cq.poll(&rig).is_some());
    arrive(&rig, &frame(64, 1));
    assert_eq!(cq.error(&rig).syndrome, Syndrome::LOCAL_LENGTH_ERR);
}

#[test]
fn short_completions_name_the_stride() {
    let rig = Rig::new();
    let cq = rig.cq_with(6, |context| {
        CqContext::CQE_COMP_EN.set(context, 1);
        CqContext::MINI_CQE_RES_FORMAT.set(context, MiniFormat::ChecksumStride as u32);
    });
    let mut rq = striding(&rig, &cq, false);
    post(&rig, &mut rq);
    for bytes in [64, 100, 64] {
        rig.wire.ends().incoming.push_back(frame(bytes, 1));
    }
    rig.settle();
    let title = cq.peek(&rig, 0).expect("a completion");
    assert_eq!((title.format(), title.byte_cnt.get(), title.wqe_id.get()), (format::COMPRESSED, 3, 0));
    let minis: [MiniCqe; MINIS] = zerocopy::transmute!(cq.at(&rig, 1));
    let seen: Vec<(u16, Strides)> =
        minis[..3].iter().map(|mini| (mini.stride_index(), Strides::of(mini.byte_cnt.get()))).collect();
    let packet = |bytes, count| Strides { bytes, count, filler: false };
    assert_eq!(seen, [(0, packet(64, 1)), (1, packet(100, 2)), (3, packet(64, 1))]);
}

#[test]
fn a_card_without_striding_refuses_it() {
    use pollux_mlx5_abi::command::opcode as op;
    use pollux_mlx5_abi::command::rq::CreateRqIn;
    for (traits, strides, fine) in [
        (Traits { striding_rq: false, ..Traits::default() }, 0, false),
        (Traits { short_striding: false, ..Traits::default() }, 0, true),
        (Traits { short_striding: false, ..Traits::default() }, 0xa, false),
        (Traits::default(), 0x9, false),
    ] {
        let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
        let cq = rig.cq(6);
        let mut context = RqContext::ZERO;
        RqContext::CQN.set(&mut context, cq.number);
        let wq = RqContext::WQ.of_mut(&mut context);
        WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC_STRIDING_RQ);
        WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(wq, strides);
        WorkQueue::PD.set(wq, rig.pd);
        WorkQueue::DBR_ADDR.set(wq, rig.room(64));
        WorkQueue::LOG_WQ_STRIDE.set(wq, 5);
        WorkQueue::LOG_WQ_SZ.set(wq, 2);
        let mut input = CreateRqIn::ZERO.to_vec();
        CreateRqIn::CTX.set(input.first_chunk_mut().expect("a command"), context);
        input.extend(rig.room(4096).to_be_bytes());
        assert_eq!(rig.command(op::CREATE_RQ, 0, &mut input, 16).is_ok(), fine);
    }
}
