//! Older kernels: each profile refuses what that kernel refuses, and a program finds its way round.

use pollux_mlx5_abi::kernel::{attribute, method, object};
use pollux_mlx5_kernel::DoorProfile;
use pollux_uverbs::abi::flags::Access;
use pollux_uverbs::abi::flags::{FlowFlags, FlowType};
use pollux_uverbs::flow::{FlowRule, FlowSpec};
use pollux_uverbs::mr::MrRequest;
use pollux_uverbs::{Call, Driver, Errno, Route};

use super::bench::{Bench, address, errno};

/// Makes one of each kind that any kernel has.
fn works(profile: DoorProfile) {
    let bench = Bench::new(profile);
    let opened = bench.try_open(!profile.no_devx).unwrap_or_else(|error| panic!("{profile:?}: {error}"));
    let zone = opened.zone(4096);
    let at = address(&zone);
    let access = Access::LOCAL_WRITE;
    let request = MrRequest { pd: opened.pd, start: at, length: 4096, hca_va: at, access };
    opened.must(opened.register(&request));
    let channel = opened.must(opened.context.create_comp_channel());
    let cq = opened.cq(4, Some(&channel));
    let wq = opened.wq(cq.cq.handle, 4, 1);
    let table = opened.must(opened.table(&[wq.wq.handle]));
    let (qp, _) = opened.must(opened.rss(table.handle, 0));
    opened.raw(cq.cq.handle);
    opened.must(opened.context.destroy_qp(qp.handle));
    opened.must(opened.context.destroy_rwq_ind_table(table.handle));
    opened.must(opened.context.destroy_wq(wq.wq.handle));
    drop((opened, wq, cq));
    bench.close();
}

#[test]
fn every_profile_serves() {
    let plain = DoorProfile::default();
    for profile in [
        plain,
        DoorProfile { no_invoke_write: true, ..plain },
        DoorProfile { no_cq_create: true, ..plain },
        DoorProfile { no_qp_create: true, ..plain },
        DoorProfile { no_wq_create: true, ..plain },
        DoorProfile { no_mr_reg: true, ..plain },
        DoorProfile { no_get_context: true, ..plain },
        DoorProfile { no_uar_alloc: true, ..plain },
        DoorProfile { no_query_gid: true, ..plain },
        DoorProfile { no_devx: true, ..plain },
        DoorProfile { no_blue_flame: true, ..plain },
        DoorProfile::linux_5_4(),
    ] {
        works(profile);
    }
}

#[test]
fn without_tunnels_commands_are_written_plainly() {
    let bench = Bench::new(DoorProfile { no_invoke_write: true, ..DoorProfile::default() });
    let opened = bench.open();
    assert_eq!(opened.context.route(), Route::Plain);
    drop(opened);
    bench.close();
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    assert_eq!(opened.context.route(), Route::Tunnelled);
    drop(opened);
    bench.close();
}

#[test]
fn without_devx_the_request_for_it_is_refused() {
    let bench = Bench::new(DoorProfile { no_devx: true, ..DoorProfile::default() });
    assert_eq!(errno(bench.try_open(true).map(|_| ())), Errno::EINVAL);
    let opened = bench.try_open(false).expect("without it");
    let mut call = Call::new(object::DEVX, method::devx::QUERY_EQN);
    call.u32(attribute::devx_query_eqn::USER_VEC, 0).answer(attribute::devx_query_eqn::DEV_EQN, 4);
    assert_eq!(errno(opened.context.call(&mut call)), Errno::EPROTONOSUPPORT);
    drop(opened);
    bench.close();
}

#[test]
fn without_single_uars_their_object_is_unknown() {
    let alloc = |bench: &Bench| {
        let opened = bench.open();
        let mut call = Call::new(object::UAR, method::uar::ALLOC);
        call.new_object(attribute::uar_alloc::HANDLE)
            .u64(attribute::uar_alloc::TYPE, 0)
            .answer(attribute::uar_alloc::MMAP_OFFSET, 8)
            .answer(attribute::uar_alloc::MMAP_LENGTH, 4)
            .answer(attribute::uar_alloc::PAGE_ID, 4);
        opened.context.call(&mut call).map(|()| {
            let offset: u64 = call.get(attribute::uar_alloc::MMAP_OFFSET).expect("an offset");
            let length: u32 = call.get(attribute::uar_alloc::MMAP_LENGTH).expect("a length");
            let rights = pollux_uverbs::Protection::ReadWrite;
            opened.context.map(offset, length as usize, rights).map(|page| page.bytes())
        })
    };
    let bench = Bench::new(DoorProfile { no_uar_alloc: true, ..DoorProfile::default() });
    assert_eq!(errno(alloc(&bench)), Errno::EPROTONOSUPPORT);
    bench.close();
    let bench = Bench::new(DoorProfile { no_blue_flame: true, ..DoorProfile::default() });
    assert_eq!(errno(alloc(&bench)), Errno::EOPNOTSUPP, "a page to be written combined");
    bench.close();
    let bench = Bench::new(DoorProfile::default());
    assert_eq!(alloc(&bench).expect("allocated").expect("mapped"), 4096);
    bench.close();
}

#[test]
fn without_the_right_to_raw_packets_there_are_no_rules() {
    let bench = Bench::new(DoorProfile { no_net_raw: true, ..DoorProfile::default() });
    let opened = bench.open();
    let cq = opened.cq(4, None);
    assert_eq!(errno(opened.try_raw(cq.cq.handle, |_, _| {}).map(|_| ())), Errno::EPERM);
    let rule = FlowRule {
        qp: pollux_uverbs::QpHandle(0),
        port: 1,
        priority: 0,
        kind: FlowType::NORMAL,
        flags: FlowFlags::empty(),
        specs: &[FlowSpec::Drop],
    };
    assert_eq!(errno(opened.context.create_flow(&rule, Driver::none())), Errno::EPERM);
    drop((opened, cq));
    bench.close();
}

#[test]
fn queue_pairs_of_raw_packets_need_newer_completions() {
    let bench = Bench::new(DoorProfile { cqe_version_max: Some(0), ..DoorProfile::default() });
    let opened = bench.open();
    assert_eq!(opened.answer.cqe_version, 0);
    let cq = opened.cq(4, None);
    assert_eq!(errno(opened.try_raw(cq.cq.handle, |_, _| {}).map(|_| ())), Errno::EINVAL);
    drop((opened, cq));
    bench.close();
}
