use std::time::Duration;

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::eqe::{event, port_change};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::Completion;
use pollux_mlx5_kernel::{CommandQueue, DmaMemory, Gone, Rights};
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::wire::{Cable, Wire};
use pollux_uverbs::Errno;

use super::receive::{arrive, buffer};
use super::rig::{Hand, Rig, frame};
use super::send::plain;

fn rig(plan: &str) -> (Rig, Clock) {
    let clock = Clock::stepped();
    let faults = plan.parse().expect("a plan");
    (Rig::with(DeviceConfig { faults, clock: clock.clone(), ..DeviceConfig::default() }), clock)
}

#[test]
fn completions_are_lost_or_late() {
    let (rig, _) = rig("lose-completion:1");
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 1)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!((rig.wire.ends().sent.len(), cq.poll(&rig)), (1, None));
    let (rig, _) = self::rig("seed:3,late-completion:0.3/10");
    let mut cq = rig.cq(8);
    let mut sq = rig.sq(8, &cq);
    for _ in 0..100 {
        sq.write(&rig, send::NOP, &[], Completion::Always);
    }
    sq.ring(&rig);
    rig.device.step(1000);
    let early = std::iter::from_fn(|| cq.poll(&rig)).count();
    assert!(early < 100, "{early}");
    for _ in 0..20 {
        rig.device.step(1000);
    }
    let late: Vec<u16> =
        (0..100).map(|index| cq.peek(&rig, index).expect("all came").wqe_counter.get()).collect();
    assert_eq!(late, (0..100).collect::<Vec<_>>(), "in order");
}

#[test]
fn entries_fail_and_commands_are_refused_as_planned() {
    let (rig, _) = rig("send-error:2/0x11/0x77,receive-error:1/0x04,refuse:0x904/2/0x0f/0x1234");
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    for mark in 0..2 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, mark)), Completion::OnError);
    }
    sq.ring(&rig);
    rig.settle();
    let error = cq.error(&rig);
    assert_eq!((error.syndrome(), error.wqe_counter.get()), (Syndrome { code: 0x11, vendor: 0x77 }, 1));
    let mut rq = rig.rq(4, 4, &cq);
    rig.all_to(rig.direct_tir(&rq));
    rq.post(&rig, &[buffer(&rig, 2048).1]);
    arrive(&rig, &frame(64, 0));
    assert_eq!(cq.error(&rig).syndrome, 0x04);
    let mut input = rig.sq_input(4, &cq, rig.room(4096), rig.room(64), |_| {});
    let refusal = rig.command(op::CREATE_SQ, 0, &mut input, 16).expect_err("planned");
    assert_eq!((refusal.status, refusal.syndrome), (0x0f, 0x1234));
    rig.must(op::CREATE_SQ, 0, &mut input, 16);
}

#[test]
fn the_link_flaps_and_events_tell() {
    let (rig, clock) = rig("flap:1ms/1ms");
    let kinds =
        || std::iter::from_fn(|| rig.event()).map(|event| (event.kind, event.sub_type)).collect::<Vec<_>>();
    rig.settle();
    assert_eq!(kinds(), [(event::PORT_CHANGE, port_change::ACTIVE)]);
    clock.advance(Duration::from_millis(1));
    rig.settle();
    assert_eq!((kinds(), rig.device.link_is_up()), (vec![(event::PORT_CHANGE, port_change::DOWN)], false));
    clock.advance(Duration::from_millis(1));
    rig.settle();
    assert_eq!((kinds(), rig.device.link_is_up()), (vec![(event::PORT_CHANGE, port_change::ACTIVE)], true));
    // The wire's other end may go, too.
    rig.wire.ends().down = true;
    rig.settle();
    assert_eq!(kinds(), [(event::PORT_CHANGE, port_change::DOWN)]);
}

#[test]
fn a_flap_ends_on_a_port_that_only_receives() {
    let (rig, _) = rig("flap:2/3");
    let cq = rig.cq(6);
    let mut rq = rig.rq(4, 4, &cq);
    rig.all_to(rig.direct_tir(&rq));
    let buffers: Vec<_> = (0..8).map(|_| buffer(&rig, 2048).1).collect();
    buffers.iter().for_each(|segment| rq.post(&rig, std::slice::from_ref(segment)));
    let up: Vec<bool> = (0..8)
        .map(|mark| {
            arrive(&rig, &frame(64, mark));
            rig.device.link_is_up()
        })
        .collect();
    let counters = rig.device.port_counters();
    assert_eq!((counters.arrived_while_down, counters.received.all().packets), (3, 5), "{up:?}");
    assert!(up[7], "{up:?}");
}

#[test]
fn a_device_that_is_gone_answers_nothing() {
    let (rig, _) = rig("remove:3");
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    for mark in 0..3 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, mark)), Completion::Always);
    }
    sq.ring(&rig);
    rig.device.step(64);
    assert!(!rig.device.is_gone());
    rig.device.step(64);
    assert!(rig.device.is_gone() && !rig.device.step(64) && !rig.device.link_is_up());
    assert_eq!(rig.device.execute(&[0; 16], &mut [0; 16]), Err(Gone));
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 9)), Completion::Always);
    sq.ring(&rig);
    assert!(!rig.device.step(64));
    assert_eq!((rig.wire.ends().sent.len(), std::iter::from_fn(|| cq.poll(&rig)).count()), (3, 3));
}

#[test]
fn a_reset_gives_no_light_to_a_device_that_is_gone() {
    let (cable, peer) = Cable::pair();
    let rig = Rig::on(DeviceConfig::default(), Box::new(cable), Hand::default());
    rig.device.set_link(false);
    rig.device.step(64);
    assert!(!peer.is_up());
    rig.device.reset();
    rig.device.step(64);
    assert!(peer.is_up(), "a port is up after a reset");
    rig.device.remove();
    assert!(!peer.is_up());
    rig.device.reset();
    assert!(!rig.device.step(64) && !peer.is_up());
}

#[test]
fn the_limit_on_locked_memory_holds() {
    let faults = "memlock:8388608".parse().expect("a plan");
    let rig = Rig::with(DeviceConfig { faults, ..DeviceConfig::default() });
    let memory = vec![0_u8; 4096];
    let refused = rig.device.memory().pin(memory.as_ptr().expose_provenance() as u64, 4096, Rights::Read);
    assert_eq!(refused.map(drop), Err(Errno::ENOMEM), "the rig has pinned it all");
}

#[test]
fn memory_that_is_not_pinned_any_more_is_not_touched() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let memory = vec![7_u8; 8192];
    let at = (memory.as_ptr().expose_provenance() as u64).next_multiple_of(4096);
    let pin = rig.device.memory().pin(at, 4096, Rights::Read).expect("mapped");
    let key = rig.mkey(at, 4096, false);
    let body = |rig: &Rig| {
        use zerocopy::IntoBytes;
        let data = pollux_mlx5_abi::wqe::Data::new(64, key, at + super::rig::HCA_DELTA);
        let _ = rig;
        [super::send::ethernet(&[], |_| {}), data.as_bytes().to_vec()].concat()
    };
    sq.write(&rig, send::SEND, &body(&rig), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(rig.wire.ends().sent, [vec![7; 64]]);
    drop(pin);
    cq.poll(&rig).expect("a completion");
    sq.write(&rig, send::SEND, &body(&rig), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(cq.error(&rig).syndrome(), Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0x55 });
}

#[test]
fn an_entry_that_waits_for_the_wire_counts_once() {
    use pollux_mlx5_model::ledger::Crossing;
    let (rig, _) = rig("send-error:3/4");
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    rig.wire.ends().room = Some(0);
    let before = rig.device.ledger().total();
    for mark in 0..3 {
        sq.write(&rig, send::SEND, &plain(&rig, &frame(64, mark)), Completion::Always);
    }
    sq.ring(&rig);
    for _ in 0..10 {
        rig.device.step(64);
    }
    rig.wire.ends().room = None;
    rig.settle();
    assert_eq!(rig.wire.ends().sent.len(), 2, "the third fails, not the first one's third try");
    assert_eq!(cq.poll(&rig).map(|entry| entry.wqe_counter.get()), Some(0));
    assert_eq!(cq.poll(&rig).map(|entry| entry.wqe_counter.get()), Some(1));
    assert_eq!(cq.error(&rig).wqe_counter.get(), 2);
    let spent = rig.device.ledger().total() - before;
    assert_eq!(spent.of(Crossing::SendEntry).bytes, 3 * 64);
    assert_eq!(spent.of(Crossing::SendPayload).bytes, 2 * 64);
}
