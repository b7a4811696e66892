//! Protection domains and memory regions.

use std::sync::Arc;

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::{DeviceConfig, for_process};
use pollux_uverbs::abi::flags::{Access, Advice};
use pollux_uverbs::abi::ioctl_verbs::Sge;
use pollux_uverbs::mr::{Mr, MrChange, MrRequest};
use pollux_uverbs::{Driver, Errno, PdHandle};

use super::bench::{Bench, address, errno};

const WRITE: Access = Access::LOCAL_WRITE;

#[test]
fn a_region_is_pinned_as_long_as_it_is_registered() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let zone = opened.zone(1 << 20);
    let before = bench.device.memory().pinned_bytes();
    let at = address(&zone);
    let request = MrRequest { pd: opened.pd, start: at, length: 1 << 20, hca_va: at, access: WRITE };
    let mr = opened.must(opened.register(&request));
    assert_eq!(bench.device.memory().pinned_bytes() - before, 1 << 20);
    assert_eq!(mr.lkey, mr.rkey);
    let state = opened.context.query_mr(mr.handle).expect("a state");
    assert_eq!((state.lkey, state.length, state.iova), (mr.lkey, 1 << 20, Some(at)));
    assert_eq!(errno(opened.context.dealloc_pd(opened.pd)), Errno::EBUSY);
    opened.context.dereg_mr(mr.handle).expect("gone");
    assert_eq!(bench.device.memory().pinned_bytes(), before);
    drop(opened);
    bench.close();
}

#[test]
fn another_address_differs_by_whole_pages() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let zone = opened.zone(3 * 4096);
    let at = address(&zone);
    let request = |start, hca_va| MrRequest { pd: opened.pd, start, length: 4096, hca_va, access: WRITE };
    opened.must(opened.register(&request(at + 100, 0x10_0000 + 100)));
    let wrong = opened.register(&request(at + 100, 0x10_0000 + 101));
    assert_eq!(errno(wrong), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn regions_that_make_no_sense_are_refused() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let zone = opened.zone(4096);
    let at = address(&zone);
    let good = MrRequest { pd: opened.pd, start: at, length: 4096, hca_va: at, access: WRITE };
    let refuse = |request: MrRequest| errno(opened.register(&request));
    let before = bench.watch.left();
    assert_eq!(refuse(MrRequest { length: u64::MAX, ..good }), Errno::EINVAL, "wraps");
    assert_eq!(refuse(MrRequest { length: 0, ..good }), Errno::EINVAL, "empty");
    assert_eq!(refuse(MrRequest { pd: PdHandle(99), ..good }), Errno::ENOENT, "no such domain");
    let far = 1 << 46;
    assert_eq!(refuse(MrRequest { start: far, hca_va: far, ..good }), Errno::EFAULT, "not there");
    let remote = Access::REMOTE_WRITE;
    assert_eq!(refuse(MrRequest { access: remote, ..good }), Errno::EINVAL, "remote but not local");
    assert_eq!(bench.watch.left(), before, "what is refused leaves nothing");
    drop(opened);
    bench.close();
}

#[test]
fn a_region_is_changed_in_place() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let (one, two) = (opened.zone(4096), opened.zone(8192));
    let at = address(&one);
    let request = MrRequest { pd: opened.pd, start: at, length: 4096, hca_va: at, access: WRITE };
    let mr = opened.must(opened.register(&request));
    let at = address(&two);
    let change = MrChange { translation: Some((at, 8192, at)), ..MrChange::default() };
    let changed = opened.must(opened.change(mr.handle, &change));
    let state = opened.context.query_mr(mr.handle).expect("a state");
    assert_eq!((state.lkey, state.length), (changed.lkey, 8192));
    opened.context.dereg_mr(mr.handle).expect("gone");
    drop(opened);
    bench.close();
}

#[test]
fn past_the_limit_of_locked_memory_it_is_enomem() {
    let config = DeviceConfig { memlock: Some(4 << 20), ..DeviceConfig::default() };
    let bench = Bench::with(DoorProfile::default(), config);
    let opened = bench.open();
    let zone = opened.zone(8 << 20);
    let at = address(&zone);
    let request = MrRequest { pd: opened.pd, start: at, length: 8 << 20, hca_va: at, access: WRITE };
    assert_eq!(errno(opened.register(&request)), Errno::ENOMEM);
    assert!(bench.watch.done(op::CREATE_MKEY).len() <= 1, "the device was not asked");
    drop(opened);
    bench.close();
}

/// A bench whose card asks for pages.
fn paged_bench() -> Bench {
    let mut config = DeviceConfig::default();
    config.traits.on_demand_paging = true;
    Bench::with(DoorProfile::default(), config)
}

#[test]
fn regions_on_demand_that_make_no_sense_are_refused() {
    let bench = paged_bench();
    let opened = bench.open();
    let before = bench.watch.left();
    let access = WRITE | Access::ON_DEMAND;
    let good = MrRequest { pd: opened.pd, start: 1 << 44, length: 8192, hca_va: 1 << 44, access };
    let refuse = |request: MrRequest| errno(opened.register(&request));
    for (request, why) in [
        (MrRequest { length: 0, ..good }, "empty"),
        (
            MrRequest { start: 0, hca_va: 0, length: u64::MAX, access: access | Access::HUGETLB, ..good },
            "all memory is of no one size of pages",
        ),
        (MrRequest { start: 0, hca_va: 4096, length: u64::MAX, ..good }, "all memory at another address"),
        (MrRequest { hca_va: (1 << 44) + 1, ..good }, "another place in its page"),
        (MrRequest { access: Access::REMOTE_WRITE | Access::ON_DEMAND, ..good }, "remote but not local"),
    ] {
        assert_eq!(refuse(request), Errno::EINVAL, "{why}");
    }
    assert_eq!(refuse(MrRequest { length: u64::MAX - 1, ..good }), Errno::EOVERFLOW, "wraps");
    assert_eq!(refuse(MrRequest { pd: PdHandle(99), ..good }), Errno::ENOENT);
    assert_eq!(refuse(MrRequest { length: (16 << 30) + 1, ..good }), Errno::ENOMEM, "more than a key has");
    assert_eq!(bench.watch.left(), before, "what is refused leaves nothing");
    // What is not there may be, when it is needed.
    let mr = opened.must(opened.register(&good));
    let advise = |pd, advice, length| {
        let piece = Sge { addr: 1 << 44, length, lkey: mr.lkey };
        errno(opened.context.advise_mr(pd, advice, true, &[piece]))
    };
    assert_eq!(advise(opened.pd, Advice::PREFETCH, 8193), Errno::EFAULT, "behind its end");
    assert_eq!(advise(opened.pd, Advice::PREFETCH_NO_FAULT, 8193), Errno::EFAULT, "behind its end");
    assert_eq!(advise(opened.pd, Advice(9), 8192), Errno::EOPNOTSUPP);
    let other = opened.context.alloc_pd(Driver::none()).expect("a domain");
    assert_eq!(advise(other, Advice::PREFETCH, 8192), Errno::EPERM, "of another domain");
    opened.context.dereg_mr(mr.handle).expect("gone");
    assert_eq!(advise(opened.pd, Advice::PREFETCH, 8192), Errno::ENOENT, "gone");
    // All memory needs keys for what is not there, too; they go with it.
    let all = MrRequest { start: 0, length: u64::MAX, hca_va: 0, ..good };
    let mr = opened.must(opened.register(&all));
    assert_eq!(opened.context.query_mr(mr.handle).expect("a state").length, u64::MAX);
    opened.context.dereg_mr(mr.handle).expect("gone");
    drop(opened);
    bench.close();
}

#[test]
fn a_card_without_paging_is_asked_for_none() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let access = WRITE | Access::ON_DEMAND;
    let request = MrRequest { pd: opened.pd, start: 0, length: u64::MAX, hca_va: 0, access };
    assert_eq!(errno(opened.register(&request)), Errno::EOPNOTSUPP);
    let piece = Sge { addr: 0, length: 1, lkey: 1 };
    let advised = opened.context.advise_mr(opened.pd, Advice::PREFETCH, true, &[piece]);
    assert_eq!(errno(advised), Errno::EOPNOTSUPP);
    drop(opened);
    bench.close();
}

/// What a device that is gone cannot end keeps nobody.
#[test]
fn a_device_that_is_gone_is_let_go_with_its_regions_on_demand() {
    let bench = paged_bench();
    let device = Arc::downgrade(&bench.device);
    let opened = bench.open();
    let access = WRITE | Access::ON_DEMAND;
    for (start, length) in [(1 << 44, 8192), (0, u64::MAX)] {
        let request = MrRequest { pd: opened.pd, start, length, hca_va: start, access };
        opened.must(opened.register(&request));
    }
    bench.device.remove();
    drop((opened, bench));
    assert!(device.upgrade().is_none(), "it is kept {} times", device.strong_count());
}

/// Whoever has the number of a process that has ended did not register anything.
#[test]
fn what_another_process_registered_on_demand_goes_with_it() {
    let bench = paged_bench();
    let opened = bench.open();
    let zone = opened.zone(8192);
    let (start, own) = (address(&zone), std::process::id());
    let request =
        MrRequest { pd: opened.pd, start, length: 8192, hca_va: start, access: WRITE | Access::ON_DEMAND };
    let (kept, gone) =
        (opened.register(&request), for_process(own.cast_signed(), || opened.register(&request)));
    let advise = |mr: &Mr| {
        let piece = Sge { addr: start, length: 8192, lkey: mr.lkey };
        opened.context.advise_mr(opened.pd, Advice::PREFETCH, true, &[piece])
    };
    let (kept, gone) = (opened.must(kept), opened.must(gone));
    opened.must(advise(&gone));
    bench.kernel().forget_process(own);
    assert_eq!(errno(advise(&gone)), Errno::EFAULT);
    opened.must(advise(&kept));
    for mr in [kept, gone] {
        opened.context.dereg_mr(mr.handle).expect("gone");
    }
    drop(opened);
    bench.close();
}
