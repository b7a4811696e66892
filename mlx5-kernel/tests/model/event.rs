//! Events: of completion queues, of objects, of the device.

use std::os::fd::AsFd;

use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::doorbell::{ArmWord, uar};
use pollux_mlx5_abi::kernel::mmap;
use pollux_mlx5_kernel::DoorProfile;
use pollux_uverbs::abi::flags::{QpMask, QpState};
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::event::AsyncKind;
use pollux_uverbs::{Driver, Protection};

use super::bench::{Bench, MadeCq, MadeQp, Opened};

/// A raw queue pair that is ready to send, on a completion queue that tells.
struct Sender {
    cq: MadeCq,
    qp: MadeQp,
    posted: u16,
}

impl Sender {
    fn new(opened: &Opened, cq: MadeCq) -> Self {
        let qp = opened.raw(cq.cq.handle);
        let steps =
            [(QpState::INIT, QpMask::PORT), (QpState::RTR, QpMask::empty()), (QpState::RTS, QpMask::empty())];
        for (state, mask) in steps {
            let values = ModifyQp { qp_state: state.0, port_num: 1, ..ModifyQp::default() };
            let done = opened.context.modify_qp(qp.qp.handle, mask | QpMask::STATE, &values, Driver::none());
            opened.must(done);
        }
        Self { cq, qp, posted: 0 }
    }

    /// Posts an entry that does nothing and rings.
    fn post(&mut self, bench: &Bench, number: u32) {
        let at = usize::from(self.posted % 64) * 64;
        let mut entry = [0_u8; 64];
        entry[..4].copy_from_slice(&(u32::from(self.posted) << 8).to_be_bytes());
        entry[4..8].copy_from_slice(&(self.qp.answer.sqn << 8 | 1).to_be_bytes());
        // A completion in any case.
        entry[11] = 8;
        self.qp.send.copy_in(at, &entry);
        self.posted += 1;
        self.qp.record.copy_in(4, &u32::from(self.posted).to_be_bytes());
        bench.device.doorbell_store(number, uar::BLUE_FLAME, &entry[..8]);
        for _ in 0..4 {
            bench.device.step(8);
        }
    }

    fn arm(&mut self, bench: &Bench, number: u32, sequence: u8) {
        let word = ArmWord { sequence, solicited_only: false, consumer: u32::from(self.posted) };
        self.cq.record.copy_in(0, &u32::from(self.posted).to_be_bytes());
        self.cq.record.copy_in(4, &word.word().to_be_bytes());
        bench.device.doorbell_store(number, uar::CQ_ARM, &word.register(self.cq.cqn));
    }
}

/// The UAR that the context's first page is.
fn first_uar(bench: &Bench) -> u32 {
    let made = bench.watch.done(op::CREATE_CQ);
    let input = made.last().expect("a completion queue").input.first_chunk().expect("a whole command");
    CqContext::UAR_PAGE.get(CreateCqIn::CQ_CONTEXT.of(input))
}

#[test]
fn an_armed_queue_tells_once_and_its_end_counts_what_was_read() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let channel = opened.must(opened.context.create_comp_channel());
    let cq = opened.must(opened.try_cq(6, Some(&channel), 0xcafe));
    let mut sender = Sender::new(&opened, cq);
    let page = first_uar(&bench);
    opened
        .context
        .map(mmap::offset(mmap::REGULAR_PAGE, 0, 4096), 4096, Protection::ReadWrite)
        .expect("mapped");
    sender.post(&bench, page);
    assert_eq!(channel.next().expect("it can be read"), None, "it was not armed");
    sender.arm(&bench, page, 0);
    sender.post(&bench, page);
    let wait = rustix_poll(&channel);
    assert!(wait, "the descriptor is readable");
    assert_eq!(channel.next().expect("it can be read"), Some(0xcafe));
    assert_eq!(channel.next().expect("it can be read"), None, "once");
    sender.post(&bench, page);
    assert_eq!(channel.next().expect("it can be read"), None, "it was not armed again");
    sender.arm(&bench, page, 1);
    sender.post(&bench, page);
    opened.must(opened.context.destroy_qp(sender.qp.qp.handle));
    let told = opened.must(opened.context.destroy_cq(sender.cq.cq.handle));
    assert_eq!(told.comp_events_reported, 1, "the second was not read, and is taken back");
    assert_eq!(channel.next().expect("it can be read"), None);
    drop(opened);
    bench.close();
}

/// Whether there is something to read now.
fn rustix_poll(file: &impl AsFd) -> bool {
    let mut one = [rustix::event::PollFd::new(file, rustix::event::PollFlags::IN)];
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut one, Some(&none)).expect("poll works") == 1
}

#[test]
fn the_link_goes_down_and_comes_up_however_often() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    bench.device.step(1);
    while opened.context.events().next().expect("they can be read").is_some() {}
    // Two events a turn: a ring of events has 1024 places, and its owner bit turns over each time it is through.
    for turn in 0..1100 {
        bench.device.set_link(false);
        bench.device.step(1);
        let event = opened.context.events().next().expect("it can be read").expect("there is one");
        assert_eq!((event.kind, event.element), (AsyncKind::PORT_ERR, 1), "turn {turn}");
        let port = opened.must(opened.context.query_port(1)).legacy_resp;
        assert_eq!(port.state, 1, "down");
        assert_eq!(opened.must(opened.context.query_port_speed(1)), Some(0), "down");
        bench.device.set_link(true);
        bench.device.step(1);
        let event = opened.context.events().next().expect("it can be read").expect("there is one");
        assert_eq!((event.kind, event.element), (AsyncKind::PORT_ACTIVE, 1), "turn {turn}");
        assert_eq!(opened.context.events().next().expect("it can be read"), None, "turn {turn}");
    }
    drop(opened);
    bench.close();
}
