//! Stores and barriers that are seen as they are made: what is missing, late or left behind is found.

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::doorbell::{ArmWord, uar};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{BLOCK_BYTES, Completion, Data};
use pollux_mlx5_kernel::CommandQueue;
use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::{Before, DeviceConfig, Fence, Violation, Visibility};
use std::time::Duration;
use zerocopy::IntoBytes;

use super::rig::{Cq, HCA_DELTA, Rig, Rq, Sq, frame, number};
use super::send::{ethernet, plain};

fn broken(rig: &Rig) -> Option<Violation> {
    rig.device.violations().0.first().copied()
}

/// Has a page for queues mapped as a driver would; its address.
fn map(rig: &mut Rig, combining: bool) -> usize {
    rig.uar = number(&rig.must(op::ALLOC_UAR, 0, &mut [0; 16], 16));
    rig.device.uar(rig.uar, combining).expect("a page").base().as_ptr().addr()
}

struct Sender {
    rig: Rig,
    cq: Cq,
    sq: Sq,
    page: usize,
}

impl Sender {
    fn new(combining: bool) -> Self {
        Self::on(Rig::new(), combining)
    }

    fn on(mut rig: Rig, combining: bool) -> Self {
        let page = map(&mut rig, combining);
        let cq = rig.cq(6);
        let sq = rig.sq(6, &cq);
        Self { rig, cq, sq, page }
    }

    fn write(&mut self, mark: u8) {
        let body = plain(&self.rig, &frame(80, mark));
        self.sq.write(&self.rig, send::SEND, &body, Completion::Always);
    }

    fn record(&self, fence: Fence) {
        self.sq.write_record(&self.rig);
        assert!(self.rig.device.ordered_record(self.sq.record as usize + 4, fence));
    }

    fn ring(&self, at: usize, fence: Fence, copied: bool) {
        let slot = u64::from(self.sq.next.wrapping_sub(1)) & ((1 << self.sq.log) - 1);
        let block = self.rig.read(self.sq.ring + slot * BLOCK_BYTES as u64, BLOCK_BYTES);
        let bytes = if copied { &block[..] } else { &block[..8] };
        self.rig.device.ordered_store(self.page + at, bytes, fence);
    }

    fn sent(&self) -> usize {
        self.rig.settle();
        self.rig.wire.ends().sent.len()
    }
}

const SECOND: usize = uar::BLUE_FLAME + uar::BLUE_FLAME_BYTES;

#[test]
fn each_store_that_tells_has_a_barrier_before_it() {
    use Before::{Doorbell, Record};
    use Fence::{Flush, None as Nothing, ToDevice};
    // Whether the page combines, the barrier before the record and that before the doorbell; what is found.
    let cases = [
        (true, ToDevice, Flush, None),
        (true, Flush, Flush, None),
        (true, Nothing, Flush, Some(Record)),
        (true, ToDevice, ToDevice, Some(Doorbell)),
        (true, ToDevice, Nothing, Some(Doorbell)),
        (false, ToDevice, ToDevice, None),
        (false, ToDevice, Nothing, Some(Doorbell)),
        (false, Nothing, ToDevice, Some(Record)),
    ];
    for copied in [false, true] {
        for (index, (combining, before_record, before_doorbell, found)) in cases.into_iter().enumerate() {
            let mut sender = Sender::new(combining);
            sender.write(1);
            sender.record(before_record);
            sender.ring(uar::BLUE_FLAME, before_doorbell, copied);
            sender.rig.device.flush();
            let queue = sender.sq.number;
            let mut found = found.map(|before| Violation::Fence { queue, before });
            if copied && !combining {
                found = found.or(Some(Violation::NotCombining { queue }));
            }
            assert_eq!(broken(&sender.rig), found, "case {index}, copied {copied}");
            assert_eq!(sender.sent(), usize::from(found.is_none()), "case {index}, copied {copied}");
        }
    }
}

#[test]
fn what_is_not_flushed_stays_behind() {
    for copied in [false, true] {
        let mut sender = Sender::new(true);
        sender.write(1);
        sender.record(Fence::ToDevice);
        sender.ring(uar::BLUE_FLAME, Fence::Flush, copied);
        // Another processor's flush is not its own.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sender.rig.device.flush();
                assert_eq!(sender.sent(), 0, "it is in the processor's buffer");
            });
        });
        sender.rig.device.flush();
        assert_eq!((sender.sent(), broken(&sender.rig)), (1, None));
        // The next one is left behind, until there is another.
        sender.write(2);
        sender.record(Fence::ToDevice);
        sender.ring(SECOND, Fence::Flush, copied);
        sender.write(3);
        sender.record(Fence::ToDevice);
        assert_eq!(broken(&sender.rig), Some(Violation::Unflushed { queue: sender.sq.number }));
    }
    // Left behind for good.
    let mut sender = Sender::new(true);
    sender.write(1);
    sender.record(Fence::ToDevice);
    sender.ring(uar::BLUE_FLAME, Fence::Flush, true);
    assert_eq!(sender.sent(), 0);
    assert_eq!(broken(&sender.rig), Some(Violation::Unflushed { queue: sender.sq.number }));
    assert!(sender.cq.error(&sender.rig).syndrome().code > 0, "the queue is in error");
    // Nothing is held back on a page that does not combine.
    let mut sender = Sender::new(false);
    sender.write(1);
    sender.record(Fence::ToDevice);
    sender.ring(uar::BLUE_FLAME, Fence::ToDevice, false);
    assert_eq!((sender.sent(), broken(&sender.rig)), (1, None));
}

#[test]
fn an_entry_of_a_send_queue_is_there_before_its_record() {
    let mut sender = Sender::new(true);
    let next = sender.sq.next;
    sender.write(1);
    let block = sender.rig.read(sender.sq.ring, BLOCK_BYTES);
    // The record first, then the entry.
    sender.rig.write(sender.sq.ring, &[0; BLOCK_BYTES]);
    assert_eq!(next, 0);
    sender.record(Fence::ToDevice);
    sender.rig.write(sender.sq.ring, &block);
    sender.ring(uar::BLUE_FLAME, Fence::Flush, false);
    sender.rig.device.flush();
    assert_eq!(broken(&sender.rig), Some(Violation::Late { queue: sender.sq.number }));
}

/// A receive queue, and a post of one entry by hand: the entry and the record in either order.
fn post(rig: &Rig, rq: &mut Rq, late: bool, fence: Fence) {
    let at = rig.room(2048);
    let slot = u64::from(rq.posted) & ((1 << rq.log) - 1);
    let place = rq.ring + (slot << rq.log_bytes);
    let before = rig.read(place, 16);
    rq.post(rig, &[Data::new(2048, rig.lkey, at + HCA_DELTA)]);
    let after = rig.read(place, 16);
    if late {
        rig.write(place, &before);
    }
    assert!(rig.device.ordered_record(rq.record as usize, fence));
    rig.write(place, &after);
    rig.device.step(1);
}

#[test]
fn an_entry_of_a_receive_queue_is_there_before_its_record() {
    for (late, fence, found) in [
        (false, Fence::ToDevice, None),
        (false, Fence::None, Some(false)),
        (true, Fence::ToDevice, Some(true)),
    ] {
        let rig = Rig::new();
        let cq = rig.cq(6);
        let mut rq = rig.rq(2, 4, &cq);
        rig.all_to(rig.direct_tir(&rq));
        let queue = rq.number;
        let found = found.map(|late| {
            let before = Before::Record;
            if late { Violation::Late { queue } } else { Violation::Fence { queue, before } }
        });
        // Round the ring, so that an entry stands in the place of an older one.
        for mark in 0..6 {
            post(&rig, &mut rq, late, fence);
            rig.wire.ends().incoming.push_back(frame(80, mark));
            rig.settle();
        }
        assert_eq!(broken(&rig), found, "late {late}, {fence:?}");
    }
}

#[test]
fn records_of_others_are_not_this_devices() {
    let rig = Rig::new();
    let cq = rig.cq(6);
    assert!(!rig.device.ordered_record(rig.room(64) as usize, Fence::None));
    assert!(rig.device.ordered_record(cq.record as usize, Fence::None), "nothing is given back");
    assert_eq!(broken(&rig), None);
}

#[test]
fn an_entry_becomes_visible_from_its_end() {
    let mut sender = Sender::new(true);
    sender.rig.device.set_visibility(Visibility::ReadyWordFirst);
    sender.write(1);
    sender.record(Fence::ToDevice);
    sender.ring(uar::BLUE_FLAME, Fence::Flush, true);
    sender.rig.device.flush();
    assert_eq!(sender.sent(), 1);
    let early = sender.cq.peek(&sender.rig, 0).expect("ready");
    assert_eq!(
        (early.opcode(), early.qpn(), early.user_index()),
        (completion::REQUESTER, 0, 0),
        "its fields are old"
    );
    sender.rig.device.sees_device();
    let entry = sender.cq.poll(&sender.rig).expect("ready");
    assert_eq!((entry.qpn(), entry.user_index()), (sender.sq.number, 0x51));
}

#[test]
fn a_place_changes_as_soon_as_it_is_given_back() {
    let mut sender = Sender::new(true);
    sender.rig.device.set_visibility(Visibility::ReadyWordFirst);
    for (mark, at) in [(1, uar::BLUE_FLAME), (2, SECOND)] {
        sender.write(mark);
        sender.record(Fence::ToDevice);
        sender.ring(at, Fence::Flush, true);
        sender.rig.device.flush();
        sender.rig.settle();
    }
    sender.rig.device.sees_device();
    let first = sender.cq.poll(&sender.rig).expect("ready");
    sender.cq.give_back(&sender.rig);
    assert_eq!(sender.cq.at(&sender.rig, 0).qpn(), first.qpn(), "not before the record is stored");
    sender.rig.device.ordered_record(sender.cq.record as usize, Fence::ToDevice);
    let gone = sender.cq.at(&sender.rig, 0);
    assert_eq!((gone.qpn(), gone.last_word()), (0xdb_dbdb, first.last_word()), "but whose it is");
    assert_eq!(
        sender.cq.poll(&sender.rig).map(|entry| entry.qpn()),
        Some(sender.sq.number),
        "the next one stays"
    );
    sender.cq.give_back(&sender.rig);
    sender.rig.device.ordered_record(sender.cq.record as usize, Fence::None);
    let found = Violation::Fence { queue: sender.cq.number, before: Before::Record };
    assert_eq!(broken(&sender.rig), Some(found));
}

#[test]
fn an_arm_register_has_a_barrier_before_it() {
    for (combining, fence, orderly) in [
        (false, Fence::ToDevice, true),
        (false, Fence::None, false),
        (true, Fence::Flush, true),
        (true, Fence::ToDevice, false),
    ] {
        let mut rig = Rig::new();
        let page = map(&mut rig, combining);
        let cq = rig.cq(6);
        let word = ArmWord { sequence: 0, solicited_only: false, consumer: 0 };
        rig.write(cq.record + 4, &word.word().to_be_bytes());
        assert!(rig.device.ordered_record(cq.record as usize + 4, Fence::None));
        rig.device.ordered_store(page + uar::CQ_ARM, &word.register(cq.number), fence);
        rig.device.flush();
        let found = Violation::Fence { queue: cq.number, before: Before::Arm };
        assert_eq!(broken(&rig), (!orderly).then_some(found), "{combining}, {fence:?}");
    }
}

#[test]
fn a_page_may_be_mapped_in_both_ways() {
    let mut sender = Sender::new(true);
    sender.rig.device.uar(sender.rig.uar, false).expect("a page");
    // Doorbells by the one, entries by the other.
    sender.write(1);
    sender.record(Fence::ToDevice);
    sender.ring(uar::BLUE_FLAME, Fence::ToDevice, false);
    assert_eq!((sender.sent(), broken(&sender.rig)), (1, None));
    sender.write(2);
    sender.record(Fence::ToDevice);
    sender.ring(SECOND, Fence::Flush, true);
    sender.rig.device.flush();
    assert_eq!((sender.sent(), broken(&sender.rig)), (2, None));
}

#[test]
fn by_seed_any_of_an_entry_is_old_until_the_barrier() {
    // How often each was as the device wrote it, before the barrier: two fields of the entry, and its place's after it went back.
    let mut early = [0; 3];
    const SEEDS: u64 = 200;
    for seed in 0..SEEDS {
        let mut sender = Sender::new(true);
        sender.rig.device.set_visibility(Visibility::AnyOrder(seed));
        sender.write(1);
        sender.record(Fence::ToDevice);
        sender.ring(uar::BLUE_FLAME, Fence::Flush, true);
        sender.rig.device.flush();
        assert_eq!(sender.sent(), 1);
        let entry = sender.cq.peek(&sender.rig, 0).expect("ready whatever the seed");
        assert!([0, sender.sq.number].contains(&entry.qpn()) && [0, 0x51].contains(&entry.user_index()));
        early[0] += u64::from(entry.qpn() != 0);
        early[1] += u64::from(entry.user_index() != 0);
        sender.rig.device.sees_device();
        let entry = sender.cq.poll(&sender.rig).expect("ready");
        assert_eq!((entry.qpn(), entry.user_index()), (sender.sq.number, 0x51));
        sender.cq.give_back(&sender.rig);
        sender.rig.device.ordered_record(sender.cq.record as usize, Fence::ToDevice);
        early[2] += u64::from(sender.cq.at(&sender.rig, 0).qpn() == sender.sq.number);
        assert_eq!(broken(&sender.rig), None);
    }
    assert!(early.iter().all(|count| (SEEDS / 5..SEEDS * 4 / 5).contains(count)), "{early:?}");
}

#[test]
fn by_seed_a_frame_is_there_at_the_barrier_or_before() {
    let mut early = 0;
    for seed in 0..100 {
        let rig = Rig::new();
        rig.device.set_visibility(Visibility::AnyOrder(seed));
        let mut cq = rig.cq(6);
        let mut rq = rig.rq(2, 4, &cq);
        rig.all_to(rig.direct_tir(&rq));
        let at = rig.room(2048);
        rq.post(&rig, &[Data::new(2048, rig.lkey, at + HCA_DELTA)]);
        rig.wire.ends().incoming.push_back(frame(80, 7));
        rig.settle();
        assert!(cq.peek(&rig, 0).is_some());
        let seen = rig.read(at, 80);
        assert!(seen == frame(80, 7) || seen == [0; 80]);
        early += usize::from(seen == frame(80, 7));
        rig.device.sees_device();
        assert!(cq.poll(&rig).is_some());
        assert_eq!(rig.read(at, 80), frame(80, 7));
    }
    assert!((20..80).contains(&early), "{early} of 100");
}

#[test]
fn what_is_not_visible_yet_is_not_written_once_a_queue_has_ended() {
    for seed in 0..10 {
        let rig = Rig::new();
        rig.device.set_visibility(Visibility::AnyOrder(seed));
        let cq = rig.cq(6);
        let mut rq = rig.rq(2, 4, &cq);
        rig.all_to(rig.direct_tir(&rq));
        let at = rig.room(2048);
        rq.post(&rig, &[Data::new(2048, rig.lkey, at + HCA_DELTA)]);
        rig.wire.ends().incoming.push_back(frame(80, 7));
        rig.settle();
        rig.rq_state(&rq, 1, 0).expect("to RESET");
        // The buffer is somebody else's.
        rig.write(at, &[9; 80]);
        rig.device.sees_device();
        assert_eq!(rig.read(at, 80), [9; 80]);
    }
}

#[test]
fn the_device_sees_what_it_wrote_whoever_else_does() {
    for seed in 0..10 {
        let mut sender = Sender::new(true);
        sender.rig.device.set_visibility(Visibility::AnyOrder(seed));
        let rig = &sender.rig;
        let mut rq = rig.rq(2, 4, &sender.cq);
        rig.all_to(rig.direct_tir(&rq));
        let at = rig.room(2048);
        rq.post(rig, &[Data::new(2048, rig.lkey, at + HCA_DELTA)]);
        rig.wire.ends().incoming.push_back(frame(80, 7));
        rig.settle();
        // Sent from where it was received, by an entry written before.
        let body = ethernet(&[], |_| {});
        let data = Data::new(80, rig.lkey, at + HCA_DELTA);
        sender.sq.write(rig, send::SEND, &[&body, data.as_bytes()].concat(), Completion::Always);
        sender.record(Fence::ToDevice);
        sender.ring(uar::BLUE_FLAME, Fence::Flush, true);
        sender.rig.device.flush();
        assert_eq!(sender.sent(), 1);
        assert_eq!(sender.rig.wire.ends().sent[0], frame(80, 7));
    }
}

#[test]
fn a_doorbell_that_no_thread_flushes_is_found_in_time() {
    let clock = Clock::stepped();
    let rig = Rig::with(DeviceConfig { clock: clock.clone(), ..DeviceConfig::default() });
    let mut sender = Sender::on(rig, true);
    sender.write(1);
    sender.record(Fence::Flush);
    let head = sender.sq.last();
    let at = sender.page + uar::BLUE_FLAME;
    let device = &sender.rig.device;
    // The driver's thread; this one makes the device's steps.
    std::thread::scope(|scope| scope.spawn(|| device.ordered_store(at, &head, Fence::Flush)).join())
        .expect("stored");
    assert_eq!((sender.sent(), broken(&sender.rig)), (0, None), "it is on its way");
    clock.advance(Duration::from_millis(999));
    assert_eq!((sender.sent(), broken(&sender.rig)), (0, None), "it may still be");
    clock.advance(Duration::from_millis(1));
    let found = Some(Violation::Unflushed { queue: sender.sq.number });
    assert_eq!((sender.sent(), broken(&sender.rig)), (0, found));
}
